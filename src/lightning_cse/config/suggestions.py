"""Explain what is wrong with a command line that Hydra refuses, and what was probably meant."""

import difflib
from collections.abc import Iterable, Iterator
from typing import Any, Final

from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf

from lightning_cse.config import compose as configs
from lightning_cse.config import conf_dir
from lightning_cse.errors import ConfigError, did_you_mean

_EXTRAS: Final = {"joblib": "joblib", "submitit_local": "slurm", "submitit_slurm": "slurm"}


def explain(overrides: Iterable[str], config_name: str, error: Exception) -> ConfigError:
    """Return what is wrong with overrides that do not compose; Hydra's ``error`` is used if nothing better is found."""
    faults: list[str] = []
    chosen: list[str] = []
    values: list[Override] = []
    for line in overrides:
        try:
            override = configs.parse(line)
        except HydraException:
            key, equals, value = line.partition("=")
            near = did_you_mean(line, configs.options("experiment")).replace(
                "'", "'+experiment=", 1
            )
            quote = f"Hydra cannot read this value; quote it for Hydra and for the shell: '{key}=\"{value}\"'"
            faults.append(
                f"{line}: {quote if equals else f'not an override of the form key=value{near}'}"
            )
            continue
        group, is_sweep = override.key_or_group, override.is_sweep_override()
        if override.is_delete() or not (configs.is_choice(override) or "/" in group):
            values += [] if override.is_delete() else [override]
            continue
        found: Any = list(override.sweep_string_iterator()) if is_sweep else override.value()
        given = [str(one).strip("'\"") for one in (found if isinstance(found, list) else [found])]
        faults += [
            f"{line}: {no_option(group, one)}" for one in given if one not in configs.options(group)
        ][:1]
        chosen += [] if is_sweep else [line]
    if not faults and values:
        try:
            base = configs.compose(config_name, *chosen)
        except configs.CompositionError:
            return ConfigError([configs.plain_line(error)])
        known = set(keys(base))
        unknown = (unknown_key(one, base) for one in values if one.key_or_group not in known)
        faults = list(not_chosen(base)) or list(unknown)
    return ConfigError(faults or [configs.plain_line(error)])


def not_chosen(cfg: DictConfig) -> Iterator[str]:
    """Yield a fault for each group of which no option was chosen, with a list of the options."""
    for key, group in configs.CHOSEN.items():
        if OmegaConf.is_missing(cfg, key):
            width = max(map(len, configs.options(group)), default=0)
            rows = [
                f"\n    {option:<{width}}  {configs.describe(group, option)}"
                for option in configs.options(group)
            ]
            chosen = f"{'' if group == 'data' else '+'}{group}=<one of these>"
            yield f"{key}: no {group} was chosen - add {chosen}:{''.join(rows)}"


def no_option(group: str, option: str) -> str:
    """Return a fault for an option that a group does not have, with the options that it has."""
    if group == "hydra/launcher" and option in _EXTRAS:
        return f"is not installed - pip install 'lightning_cse[{_EXTRAS[option]}]'"
    near = did_you_mean(option, configs.options(group))
    if group == "data" and ("/" in option or "." in option):
        near = f" - for a file of your own: data=file data.train={option}"
    return f"there is no {group} '{option}'{near} (choose from: {', '.join(configs.options(group)) or 'none'})"


def unknown_key(override: Override, base: DictConfig) -> str:
    """Return a fault for an unknown key, with the keys probably meant: spelled alike, or ending in that word."""
    key = override.key_or_group
    suite, plus = key.partition(".")[0], "" if "method" in base else "+"
    file = conf_dir() / "suite" / f"{suite}.yaml"
    if suite not in base and file.is_file() and suite in OmegaConf.load(file):
        return f"{override.input_line}: comes with a suite: add {plus}suite={suite}, or {plus}suite=[stsb,{suite}]"
    groups = (
        [] if "." in key else [folder.name for folder in conf_dir().iterdir() if folder.is_dir()]
    )
    known = [*groups, *(name for name in keys(base) if not name.startswith(("hydra", "recipe")))]
    last = {name: name.rpartition(".")[2] for name in known}
    word = key.rpartition(".")[2]
    meant = difflib.get_close_matches(key, known, n=1, cutoff=0.85) or [
        name for name in known if last[name] == word
    ]
    if not meant:
        near = difflib.get_close_matches(word, last.values(), n=1, cutoff=0.7)
        meant = [name for name in known if last[name] in near]
    shown = [
        f"{'+' if name in configs.APPENDED else ''}{name}=" if name in groups else name
        for name in meant
    ]
    hint = f" - did you mean {' or '.join(map(repr, dict.fromkeys(shown[:3])))}?" if meant else ""
    return f"{override.input_line}: unknown key '{key}'{hint}"


def keys(node: Any, before: str = "") -> Iterator[str]:
    """Yield every dotted key of a config, or of plain containers, including indices of lists."""
    node = OmegaConf.to_container(node, resolve=False) if isinstance(node, DictConfig) else node
    for key, value in (
        node.items()
        if isinstance(node, dict)
        else enumerate(node if isinstance(node, list) else ())
    ):
        yield f"{before}{key}"
        yield from keys(value, f"{before}{key}.")
