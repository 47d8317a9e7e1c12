"""What decides a run's result, and the hash of it that names the run."""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Mapping, Sequence
from typing import Any, Final

# Keys at the top of a config that decide nothing, or decide through what reads them (corpora and limits through data
# and suite). The precision here is that of an evaluation; a training's stands below `trainer`.
_SWITCHES: Final = frozenset(
    {"seed", "paths", "logger", "force", "retry_failed", "keep_last", "figures", "hydra", "recipe", "baselines"}
    | {"corpora", "limits", "precision"}
)
# Keys that decide nothing, wherever they stand: places (files count by their digests) and ways to compute the same.
_ANYWHERE: Final = frozenset({"data_dir", "cache_dir", "runs_dir", "chunk_size", "compile"})
_TRAINER: Final = frozenset(
    {"devices", "num_nodes", "strategy", "profiler", "logger", "default_root_dir", "enable_progress_bar"}
    | {"enable_model_summary", "log_every_n_steps", "num_sanity_val_steps", "limit_val_batches"}
)
_OURS: Final = ("lightning_cse.", "torch.", "pytorch_lightning.")  # of these, a class that moves stays the same
_ENCODER_PLACES: Final = frozenset({"source", "package"})

NEUTRAL: Final[Mapping[str, Any]] = {
    "least_evaluations": 1,
    "diag.dropout": False,
    "trainer.accumulate_grad_batches": 1,
    "trainer.max_steps": -1,
}
"""Values by dotted key at which a key is as good as absent, so that keys added later change no hash; null always is."""


def config_hash(
    config: Mapping[str, Any], *, data: Mapping[str, str], encoder: Mapping[str, str], resolved: Mapping[str, Any]
) -> str:
    """Return the ten hex digits that name a run: a hash of `decisive`, with classes by their last name.

    ``config`` is the resolved config, ``data`` the sha256 by file name, ``encoder`` the encoder's name and digests, and
    ``resolved`` what automatic choices became, by dotted key: ``{"trainer.accelerator": "cpu"}``.
    """
    document = _by_last_name(decisive(config, data=data, encoder=encoder, resolved=resolved))
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode("ascii")).hexdigest()[:10]


def decisive(
    config: Mapping[str, Any], *, data: Mapping[str, str], encoder: Mapping[str, str], resolved: Mapping[str, Any]
) -> dict[str, Any]:
    """Return what decides a run's result, as plain JSON values: ``config``, ``data`` and ``encoder``.

    Left out of the config are seed, paths, loggers and switches, and every key at its neutral value; automatic choices
    are replaced by what they became. Equal numbers are equal however they are written (``1`` and ``1.0``).
    """
    kept: dict[str, Any] = _canonical({k: v for k, v in config.items() if k not in _SWITCHES}, "config")
    for dotted, value in resolved.items():
        node, (*parents, key) = kept, dotted.split(".")
        for name in parents:
            node = node.setdefault(name, {})
        if dotted not in _SWITCHES:
            node[key] = _canonical(value, dotted)
    for name, absent in (("trainer", _TRAINER), ("encoder", _ENCODER_PLACES if encoder else ())):
        if isinstance(kept.get(name), dict):
            kept[name] = {key: value for key, value in kept[name].items() if key not in absent}
    for dotted, neutral in NEUTRAL.items():
        node, (*parents, key) = kept, dotted.split(".")
        for name in parents:
            node = node.get(name) or {}
        if key in node and type(node[key]) is type(neutral) and node[key] == neutral:
            del node[key]
    return {"config": kept, "data": _canonical(data, "data"), "encoder": _canonical(encoder, "encoder")}


def _canonical(value: Any, where: str) -> Any:
    """Reduce to plain JSON values with one spelling a number, without nulls and without what decides nothing."""
    if isinstance(value, Mapping):
        kept = {str(k): v for k, v in value.items() if k not in _ANYWHERE and v is not None}
        if (limit := kept.get("limit_train_batches")) is not None:
            kept["limit_train_batches"] = repr(limit)  # 1 is one batch, 1.0 all of them
        return {key: _canonical(item, f"{where}.{key}") for key, item in kept.items()}
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": repr(float(value))}  # JSON has no infinity, and the string "inf" is another value
    if isinstance(value, int | float):
        return int(value) if value == int(value) else float(value)
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
        return [_canonical(item, f"{where}[{index}]") for index, item in enumerate(value)]
    raise TypeError(f"{where}: a config cannot hold {value!r} of type {type(value).__name__}")


def _by_last_name(value: Any, key: str = "") -> Any:
    if isinstance(value, dict):
        return {name: _by_last_name(item, name) for name, item in value.items()}
    if key == "_target_" and value.startswith(_OURS):
        return value.rpartition(".")[2]
    return [_by_last_name(item) for item in value] if isinstance(value, list) else value
