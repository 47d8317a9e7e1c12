"""The check of a composed config, before anything is built: keys, types, values, and the arguments
of every node.
"""

from collections.abc import Iterator
from typing import Any, get_type_hints

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from lightning_cse.config.compose import options, plain_line, without_hydra
from lightning_cse.config.nodes import faults
from lightning_cse.config.schema import SCHEMAS
from lightning_cse.errors import ConfigError, did_you_mean, user_error

CHOSEN = {"name": "experiment", "suite": "suite", "pattern": "pattern", "data": "data"}
"""Keys that are set by choosing an option of a group."""

_PAIR = ("premise", "hypothesis", "label")
OWN = {
    "sts": ("sentence1", "sentence2", "score"),
    "pairs": ("anchor", "positive"),
    "nli": _PAIR,
    "direction": _PAIR,
}
"""The test sets of your own, and the columns that each reads."""


def check(cfg: DictConfig, config_name: str) -> None:
    """Check a composed config; it is not changed.

    Raises ConfigError with a line for each fault.
    """
    cfg = without_hydra(cfg)
    if "local" in cfg:
        raise ConfigError(["conf/local: the first line of the file must be '# @package _global_'"])

    if missing := list(not_chosen(cfg)):
        raise ConfigError(missing)

    values = _plain(cfg)
    of_others = {key for schema in SCHEMAS.values() for key in get_type_hints(schema)}
    of_others -= get_type_hints(SCHEMAS[config_name]).keys()
    values = {key: value for key, value in values.items() if key not in of_others}
    lines: dict[tuple[str, str], str] = {}  # several keys may refer to one value
    for key, text in faults(values, "", SCHEMAS[config_name]):
        lines.setdefault((key.rpartition(".")[2], text), f"{key}: {text}")

    if all_lines := list(lines.values()) or list(_relations(values)):
        raise ConfigError(all_lines)


def not_chosen(cfg: DictConfig) -> Iterator[str]:
    """Yield a fault for each group of which no option was chosen, with a list of the options."""
    for key, group in CHOSEN.items():
        is_empty = (
            key == "suite" and not OmegaConf.is_interpolation(cfg, key) and cfg.get(key) == {}
        )
        if OmegaConf.is_missing(cfg, key) or is_empty:
            plus = "" if group == "data" or (group == "suite" and "trainer" in cfg) else "+"
            names = ", ".join(options(group))
            hint = f"; or own.{'=FILE, own.'.join(OWN)}=FILE" if key == "suite" else ""
            yield f"{key}: no {group} was chosen - add {plus}{group}=<one of these>: {names}{hint}"


def _plain(cfg: DictConfig) -> dict[str, Any]:
    """Return the resolved values of a config."""
    try:
        values: Any = OmegaConf.to_container(cfg, resolve=True, throw_on_missing=True)
    except RecursionError as error:
        raise ConfigError(["config: a value refers to itself"]) from error
    except OmegaConfBaseException as error:
        fault = f"{error.full_key or 'config'}: {plain_line(error)}"
        raise user_error(error) or ConfigError([fault]) from error

    return dict(values)


# What types cannot say ------------------------------------------------------------------------


def _relations(values: dict[str, Any]) -> Iterator[str]:
    """Yield a fault for each value that another one excludes."""
    if values.get("own"):
        yield from _own_columns(values["own"])

    if "trainer" in values:
        yield from _training(values)


def _own_columns(own_data: dict[str, Any]) -> Iterator[str]:
    """Yield a fault for each column that no test set of your own reads."""
    columns = {column for test in OWN if own_data[test] for column in OWN[test]}
    for name in own_data["columns"] or ():
        if name not in columns:
            yield f"own.columns: no test set reads a {name!r}{did_you_mean(name, columns)}"


def _training(values: dict[str, Any]) -> Iterator[str]:
    """Yield a fault for each value with which there can be no training."""
    trainer = values["trainer"]
    if trainer["max_epochs"] in (None, -1) and trainer["max_steps"] == -1:
        limits = "trainer.max_epochs or trainer.max_steps"
        yield f"trainer.max_epochs: training never ends unless {limits} is set"

    stopping = values["callbacks"].get("early_stopping") or {}
    if stopping.get("patience") is None and stopping.get("min_delta"):
        yield "callbacks.early_stopping.min_delta: set callbacks.early_stopping.patience, too"

    count = devices(values)
    size = values["data"].get("batch_size")
    if isinstance(size, int) and 0 < size < count:
        small = f"{size} is the batch of all {count} devices, too small for one row each; raise it"
        yield f"data.batch_size: {small}"


def devices(cfg: Any) -> int:
    """Return the number of devices that a training run asks for."""
    trainer = cfg["trainer"]
    on_machine = trainer["devices"]
    if not isinstance(on_machine, int):
        on_machine = len(on_machine)

    return int(on_machine * trainer["num_nodes"])
