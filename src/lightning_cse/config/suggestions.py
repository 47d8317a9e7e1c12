"""What is wrong with a command line that Hydra refuses, and what was probably meant."""

import difflib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from hydra.errors import MissingConfigException, OverrideParseException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import ConfigAttributeError, ConfigKeyError

from lightning_cse.config import conf_dir
from lightning_cse.config.compose import APPENDED, describe, options, plain_line
from lightning_cse.config.schema import CHOSEN
from lightning_cse.errors import ConfigError, did_you_mean

_EXTRAS: Final = {
    "joblib": "joblib",
    "submitit_local": "slurm",
    "submitit_slurm": "slurm",
}


def explain(
    overrides: Iterable[str],
    error: BaseException,
    folders: Sequence[Path] = (),
) -> ConfigError:
    """Return a user error for overrides that do not compose; ``folders`` are of --config-dir."""
    if isinstance(error, OverrideParseException):
        hint = "write key=value, and quote special characters for Hydra and the shell"
        return ConfigError([f"{error.override}: not a valid override; {hint}: 'key=\"a b\"'"])

    if isinstance(error, MissingConfigException) and error.missing_cfg_file:
        file = error.missing_cfg_file.removeprefix("hydra/")
        group, _, option = file.partition("/")
        return ConfigError([no_option(group, option, error.options or ())])

    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, ConfigAttributeError | ConfigKeyError):
        cause = cause.__cause__

    if cause is None or not cause.full_key:
        return ConfigError([plain_line(error)])

    key = str(cause.full_key)
    up = "." * (key.count(".") + 1)
    cfg = OmegaConf.select(cause.parent_node, up)  # the whole config
    faults = list(not_chosen(cfg, folders))

    if not faults:
        line = next((line for line in overrides if _sets(line, key)), key)
        faults = [f"{line}: {_unknown_key(key, cfg)}"]

    return ConfigError(faults)


def not_chosen(cfg: DictConfig, folders: Sequence[Path] = ()) -> Iterator[str]:
    """Yield a fault for each group of which no option was chosen, with a list of the options."""
    for key, group in CHOSEN.items():
        if not OmegaConf.is_missing(cfg, key):
            continue

        names = options(group, folders)
        width = max(map(len, names), default=0)
        rows = [f"\n    {name:<{width}}  {describe(group, name, folders)}" for name in names]
        plus = "" if group == "data" else "+"
        yield f"{key}: no {group} was chosen - add {plus}{group}=<one of these>:{''.join(rows)}"


def no_option(
    group: str,
    option: str,
    known: Sequence[str] = (),
) -> str:
    """Return a fault for an option that a group does not have, with the options that it has."""
    names = [name for name in known or options(group) if not name.startswith("_")]
    hint = did_you_mean(option, names)
    if group == "launcher" and option in _EXTRAS:
        hint = f" - pip install 'lightning_cse[{_EXTRAS[option]}]'"
    elif group == "data" and ("/" in option or "." in option):
        hint = f" - for a file of your own: data=file data.train={option}"

    choices = ", ".join(names) or "none"
    return f"there is no {group} '{option}'{hint} (choose from: {choices})"


def _sets(line: str, key: str) -> bool:
    """Whether an override sets a key, a key below it or a node that contains it."""
    own = line.lstrip("+~").partition("=")[0]
    return f"{own}.".startswith(f"{key}.") or f"{key}.".startswith(f"{own}.")


def _unknown_key(key: str, cfg: DictConfig) -> str:
    """Return what is wrong with an unknown key, with the keys that were probably meant."""
    suite = key.partition(".")[0]
    file = conf_dir() / "suite" / f"{suite}.yaml"
    if suite not in cfg and file.is_file() and suite in OmegaConf.load(file):
        choice = f"suite={suite}" if "method" in cfg else f"+suite={suite}"
        return f"comes with a suite: add {choice}"

    known = [name for name in _keys(cfg) if not name.startswith(("hydra", "recipe"))]
    if "." not in key:
        known += [f"+{group}=" for group in APPENDED]

    meant = " or ".join(map(repr, _similar(key, known)))
    hint = f" - did you mean {meant}?" if meant else ""
    return f"unknown key '{key}'{hint}"


def _similar(key: str, known: Sequence[str]) -> list[str]:
    """Return the known key that is spelled alike, or those whose last word is spelled alike."""
    whole = difflib.get_close_matches(
        key,
        known,
        n=1,
        cutoff=0.85,
    )
    if whole:
        return whole

    last = {name: name.rpartition(".")[2] for name in known}
    word = key.rpartition(".")[2]
    words = difflib.get_close_matches(
        word,
        last.values(),
        n=1,
        cutoff=0.7,
    )

    return [name for name in known if last[name] in words][:3]


def _keys(node: Any, prefix: str = "") -> Iterator[str]:
    """Yield every dotted key of a config."""
    if isinstance(node, DictConfig):
        node = OmegaConf.to_container(node, resolve=False)
    if isinstance(node, dict):
        for key, value in node.items():
            yield f"{prefix}{key}"
            yield from _keys(value, f"{prefix}{key}.")
