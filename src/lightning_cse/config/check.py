"""The check of a composed config before anything heavy is imported: types and values.

The schema only serves this check and is then discarded. Nodes with a ``_target_`` are checked where
they are built.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import ConfigKeyError, OmegaConfBaseException

from lightning_cse.config.compose import is_choice, parse, plain_line
from lightning_cse.config.schema import (
    AT_LEAST,
    BELOW,
    CHOICES,
    CHOSEN,
    INDIRECT,
    OWN,
    PRECISIONS,
    WITH_A_SUITE,
    Train,
)
from lightning_cse.errors import ConfigError, did_you_mean, user_error


def check(
    cfg: DictConfig,
    config_name: str,
    overrides: Sequence[str] = (),
    *,
    all_read: bool = True,
) -> None:
    """Check a composed config; it is not changed.

    ``overrides`` are those of the command line; with ``all_read``, each must have an effect. Raises
    ConfigError for unknown keys, wrong types, and values that allow no run.
    """
    cfg = without_hydra(cfg)
    if "local" in cfg:
        raise ConfigError(["conf/local: the first line of the file must be '# @package _global_'"])

    if any(OmegaConf.is_missing(cfg, key) for key in CHOSEN):
        from lightning_cse.config.suggestions import not_chosen

        raise ConfigError(not_chosen(cfg))

    plain = _resolved(cfg, config_name)
    faults = list(_value_faults(plain))
    if not faults and all_read:
        faults = list(unread(cfg, overrides).values())

    if faults:
        raise ConfigError(faults)


def without_hydra(cfg: DictConfig) -> DictConfig:
    """Return a config without Hydra's own node."""
    return OmegaConf.masked_copy(cfg, [str(key) for key in cfg if key != "hydra"])


def _resolved(cfg: DictConfig, config_name: str) -> DictConfig:
    """Return the config resolved, and that of ``train`` merged into its schema without an error."""
    try:
        values = OmegaConf.to_container(
            cfg,
            resolve=True,
            throw_on_missing=True,
        )
        plain: DictConfig = OmegaConf.create(values)  # type: ignore[assignment]  # of a mapping
        if config_name == "train":
            _check_types(plain)
    except OmegaConfBaseException as error:
        near = ""
        if isinstance(error, ConfigKeyError):
            near = did_you_mean(str(error.key), error.parent_node)

        fault = f"{error.full_key}: {plain_line(error)}{near}"
        raise user_error(error) or ConfigError([fault]) from error

    return plain


def _check_types(plain: DictConfig) -> None:
    """Merge a config into the schema of ``train``."""
    for key in ("trainer", "method", "limits", "callbacks", "diag"):
        if not isinstance(plain.get(key), Mapping):
            raise ConfigError([f"{key}: must be a mapping, got {plain.get(key)!r}"])

    schema = OmegaConf.structured(Train)
    OmegaConf.set_struct(schema.method, False)
    OmegaConf.set_struct(schema.method.optimizer, False)
    missing = OmegaConf.missing_keys(OmegaConf.merge(schema, plain)) - WITH_A_SUITE

    if missing:
        raise ConfigError(f"{key}: is missing, and cannot be left out" for key in sorted(missing))


def unread(cfg: DictConfig, overrides: Sequence[str]) -> dict[str, str]:
    """Return a fault for each override that has no effect, by its key.

    Keys of `INDIRECT` nodes only have an effect through keys that refer to them: without one, the
    value would be ignored.
    """
    cfg = without_hydra(cfg)
    faults = {}
    for override in map(parse, overrides):
        key = override.key_or_group
        top = key.partition(".")[0]
        if top not in INDIRECT or override.is_delete() or is_choice(override):
            continue

        all_keys = [f"{top}.{name}" for name in cfg[top]]
        own_keys = all_keys if key == top else [key]
        if not any(_has_effect(cfg, one) for one in own_keys):
            effective = [one for one in all_keys if _has_effect(cfg, one)]
            faults[key] = (
                f"{override.input_line}: nothing reads {key} here; leave it out "
                f"(keys that are read: {', '.join(effective) or 'none'})"
            )

    return faults


def _has_effect(cfg: DictConfig, key: str) -> bool:
    """Whether another value of a key changes any node that is not itself `INDIRECT`."""
    changed = cfg.copy()
    OmegaConf.update(
        changed,
        key,
        "another value",
        merge=False,
    )
    return _direct_values(changed) != _direct_values(cfg)


def _direct_values(cfg: DictConfig) -> dict[Any, Any]:
    values: Any = OmegaConf.to_container(cfg, resolve=True)
    return {key: value for key, value in values.items() if key not in INDIRECT}


# Values --------------------------------------------------------------------------------------


def _value_faults(plain: DictConfig) -> Iterator[str]:
    """Yield a fault for each value that is out of its range, or not one of its choices."""
    for key, least in AT_LEAST.items():
        value = OmegaConf.select(plain, key)
        if value is not None and not (type(value) is int and value >= least):
            yield f"{key}: must be an integer >= {least}, got {value!r}"

    for key, limit in BELOW.items():
        value = OmegaConf.select(plain, key)
        if value is not None and not (isinstance(value, int | float) and 0 <= value < limit):
            yield f"{key}: must be a number >= 0 and < {limit}, got {value!r}"

    for key, choices in CHOICES.items():
        value = OmegaConf.select(plain, key)
        accepted = (*choices, *PRECISIONS) if key == "trainer.precision" else choices
        if value is not None and str(value) not in accepted:
            near = did_you_mean(str(value), choices)
            yield f"{key}: must be {' or '.join(choices)}, got {value!r}{near}"

    if "own" in plain:
        yield from _own_test_sets(plain.own)

    if "monitor" in plain:
        yield from _training(plain)


def _training(plain: DictConfig) -> Iterator[str]:
    """Yield a fault for each value with which there can be no training."""
    if not re.fullmatch(r"\w[\w.+-]{0,79}(/\w[\w.+-]{0,79})*", str(plain.name)):
        name = str(plain.name)[:80]
        allowed = "up to 80 letters, digits and . _ + - per level"
        yield f"name: {name!r} is not a valid name: use {allowed}"

    stopping = plain.callbacks.early_stopping
    if stopping.patience is None and stopping.min_delta:
        needed = "callbacks.early_stopping.patience"
        yield f"callbacks.early_stopping.min_delta: needs {needed}; set that too"

    trainer = plain.trainer
    if trainer.max_epochs in (None, -1) and trainer.max_steps == -1:
        limits = "trainer.max_epochs or trainer.max_steps"
        yield f"trainer.max_epochs: training never ends unless {limits} is set"

    limit = trainer.limit_train_batches
    is_share = type(limit) is float and 0 <= limit <= 1
    if limit is not None and not is_share and not (type(limit) is int and limit >= 0):
        kinds = "a number of batches, or a share from 0.0 to 1.0"
        yield f"trainer.limit_train_batches: must be {kinds}, got {limit!r}"

    chosen = trainer.devices
    is_list = isinstance(chosen, ListConfig) and len(chosen) > 0
    if not is_list and not (type(chosen) is int and chosen >= 1):
        kinds = "a number of devices, at least 1, or a list of GPUs"
        yield f"trainer.devices: must be {kinds}, got {chosen!r}"

    size = plain.data.get("batch_size", -1)
    count = devices(plain)
    if size is None:
        yield "data.batch_size: must be an integer >= 2, got None"
    elif type(size) is int and 0 < size < count:
        yield (
            f"data.batch_size: {size} is the batch of all {count} devices, "
            "too small for one row each; raise it"
        )


def devices(cfg: DictConfig) -> int:
    """Return the number of devices that a training run asks for; 1 if only the machine can tell."""
    chosen = cfg.trainer.devices
    if isinstance(chosen, ListConfig):
        chosen = len(chosen)

    if not isinstance(chosen, int) or chosen < 1:
        chosen = 1

    return int(chosen * cfg.trainer.num_nodes)


def _own_test_sets(own: DictConfig) -> Iterator[str]:
    """Yield a fault if ``suite=own`` has no test set, and for each column that none reads."""
    given = [name for name in OWN if own.get(name) is not None]
    if not given:
        keys = "own.sts=FILE, own.nli=FILE, own.direction=FILE or own.retrieval=FOLDER"
        yield f"suite=own: has no test set; add {keys}"
        return

    known = [column for name in given for column in OWN[name]]
    for column in own.get("columns") or ():
        if column not in known:
            near = did_you_mean(str(column), known)
            names = ", ".join(dict.fromkeys(known)) or "none"
            yield f"own.columns: no test set reads a column {column!r}{near} (columns: {names})"
