"""What names a point: a hash of what decides its result, and of nothing else."""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Mapping, Sequence
from typing import Any, Final

# What the top of the config holds and the result does not depend on.
# Baselines are evaluated beside a run and decide nothing of it; corpora and limits decide through data and suite, which
# read them.
_TOP_SWITCHES: Final = frozenset(
    {"seed", "paths", "logger", "force", "retry_failed", "hydra", "recipe", "baselines", "corpora", "limits"}
)
# Places: the same files elsewhere are the same files, and their digests are part of the identity.
_PLACES: Final = frozenset({"data_dir", "cache_dir", "runs_dir"})
_TRAINER_SWITCHES: Final = frozenset(
    {"enable_progress_bar", "enable_model_summary", "logger", "default_root_dir", "profiler"}
)
# Where an encoder came from; what it is, its digests say.
_ENCODER_PLACES: Final = frozenset({"source", "package"})


def identity(
    config: Mapping[str, Any], *, data: Mapping[str, str], encoder: Mapping[str, str], resolved: Mapping[str, Any]
) -> str:
    """Return the ten hex digits that name a point: a hash of what decides its result, and of nothing else.

    Equal numbers hash equal however they are written (``1`` and ``1.0``), tuples equal lists, the order of keys does
    not matter, and neither do seed, paths, loggers and switches.

    Args:
        config: The resolved config, as plain containers.
        data: sha256 by logical file name.
        encoder: Digests of the encoder, such as ``{"weights": ..., "tokenizer": ...}``.
        resolved: What automatic choices became, by dotted key: ``{"trainer.accelerator": "cpu"}``.

    Raises:
        TypeError: if the config holds something that is neither a mapping, a sequence nor a plain value.
    """
    document = identity_document(config, data=data, encoder=encoder, resolved=resolved)
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(text.encode("ascii")).hexdigest()[:10]


def identity_document(
    config: Mapping[str, Any], *, data: Mapping[str, str], encoder: Mapping[str, str], resolved: Mapping[str, Any]
) -> dict[str, Any]:
    """Return what `identity` hashes, so that two runs can be compared key by key.

    Returns:
        ``config`` (without what does not decide the result, automatic choices replaced by what they became), ``data``
        and ``encoder``, all of plain JSON values.
    """
    kept: dict[str, Any] = _canonical({k: v for k, v in config.items() if k not in _TOP_SWITCHES}, "config")
    for dotted, value in resolved.items():
        _set_dotted(kept, dotted, _canonical(value, dotted))
    trainer = kept.get("trainer")
    if isinstance(trainer, dict):
        kept["trainer"] = {k: v for k, v in trainer.items() if k not in _TRAINER_SWITCHES}
    options = kept.get("encoder")
    if isinstance(options, dict) and encoder:
        kept["encoder"] = {k: v for k, v in options.items() if k not in _ENCODER_PLACES}
    return {
        "config": kept,
        "data": _canonical(data, "data"),
        "encoder": _canonical(encoder, "encoder"),
    }


def _canonical(value: Any, where: str) -> Any:
    """Reduce to plain JSON values with one spelling a number, leaving out places."""
    if isinstance(value, Mapping):
        return {str(k): _canonical(v, f"{where}.{k}") for k, v in value.items() if k not in _PLACES}
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            return {"float": repr(float(value))}  # JSON has no infinity, and a string "inf" is another value
        return int(value) if value.is_integer() else float(value)
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
        return [_canonical(item, f"{where}[{index}]") for index, item in enumerate(value)]
    raise TypeError(f"{where}: {value!r} of type {type(value).__name__} has no place in a config")


def _set_dotted(document: dict[str, Any], dotted: str, value: Any) -> None:
    *parents, last = dotted.split(".")
    node = document
    for name in parents:
        child = node.setdefault(name, {})
        if not isinstance(child, dict):
            raise TypeError(f"resolved {dotted!r}: {name!r} is no mapping in the config but {child!r}")
        node = child
    node[last] = value
