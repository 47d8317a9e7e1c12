"""What is wrong with a command line that Hydra refuses, and what was probably meant."""

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hydra.errors import MissingConfigException, OverrideParseException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import ConfigAttributeError, ConfigKeyError

from lightning_cse.config.check import CHOSEN, instead
from lightning_cse.config.compose import APPENDED, options, plain_line
from lightning_cse.errors import ConfigError, did_you_mean

_FOREIGN = re.compile(r"In '(\w+)/(\w+)': Could not override '(\w+)'")
"""What Hydra says of an option that sets a group of another command."""


def explain(error: BaseException) -> ConfigError:
    """Return a user error for Hydra's error about overrides that do not compose."""
    if isinstance(error, OverrideParseException):
        hint = "write key=value, and quote special characters for Hydra and the shell"
        return ConfigError([f"{error.override}: not a valid override; {hint}: 'key=\"a b\"'"])

    if isinstance(error, MissingConfigException) and error.missing_cfg_file:
        group, _, option = error.missing_cfg_file.removeprefix("hydra/").partition("/")
        return ConfigError([no_option(group, option, error.options or ())])

    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, ConfigAttributeError | ConfigKeyError):
        cause = cause.__cause__

    if cause is None or not cause.full_key:
        foreign = _FOREIGN.match(str(error))
        return ConfigError([_not_here(*foreign.groups()) if foreign else plain_line(error)])

    key = str(cause.full_key)
    cfg = OmegaConf.select(cause.parent_node, "." * (key.count(".") + 1))  # the whole config

    return ConfigError(list(not_chosen(cfg)) or [_unknown_key(key, cfg)])


def not_chosen(cfg: DictConfig) -> Iterator[str]:
    """Yield a fault for each group of which no option was chosen, with a list of the options."""
    for key, group in CHOSEN.items():
        if OmegaConf.is_missing(cfg, key):
            plus = "" if group == "data" else "+"
            names = ", ".join(options(group))
            yield f"{key}: no {group} was chosen - add {plus}{group}=<one of these>: {names}"


def no_option(group: str, option: str, known: Sequence[str] = ()) -> str:
    """Return a fault for an option that a group does not have, with the options that it has."""
    names = [name for name in known or options(group) if not name.startswith("_")]
    hint = did_you_mean(option, names)
    if group == "launcher":
        hint = " - joblib and submitit are extras: pip install 'lightning_cse[joblib,slurm]'"
    elif group == "logger" and option == "null":
        hint = " - logger=csv has no dashboard"
    elif group == "data" and ("/" in option or "." in option):
        hint = f" - for a file of your own: data=file data.train={option}"

    return f"there is no {group} '{option}'{hint} (choose from: {', '.join(names) or 'none'})"


def _not_here(group: str, option: str, needed: str) -> str:
    """Return a fault for an option that is made for a command with another group."""
    corpora = "; add corpora=sample paths=sample for the sample corpora"
    hint = corpora if option in ("tiny", "laptop") else ""

    return f"{group}={option} is not for this command, which has no '{needed}'{hint}"


def _unknown_key(key: str, cfg: DictConfig) -> str:
    """Return what is wrong with an unknown key, with the key whose last word is spelled alike."""
    settings: Any = OmegaConf.to_container(cfg)
    for name in ("hydra", "recipe"):
        settings.pop(name, None)

    names = [*(f"+{group}=" for group in APPENDED), *_keys(settings, "")]
    by_word = {name.rpartition(".")[2]: name for name in sorted(names, key=len, reverse=True)}
    close = difflib.get_close_matches(key.rpartition(".")[2], by_word, n=1, cutoff=0.7)
    near = f" - did you mean '{by_word[close[0]]}'?" if close else ""

    if key.startswith("trainer.") and not near:
        near = f"; an argument of Lightning's Trainer is added with a plus: +{key}=..."

    return f"unknown key '{key}'{instead(key) or near}"


def _keys(settings: Mapping[str, Any], prefix: str) -> Iterator[str]:
    """Yield every dotted key."""
    for key, value in settings.items():
        yield f"{prefix}{key}"
        if isinstance(value, dict):
            yield from _keys(value, f"{prefix}{key}.")
