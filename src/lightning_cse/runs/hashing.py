"""The hash that names a run: of everything that affects its result."""

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

from lightning_cse.runs.redaction import public

# Top-level keys that do not affect a result, or only through the nodes that read them (corpora,
# limits and own through data and suite). The precision is that of an evaluation; `trainer` has that
# of a run.
_SWITCHES = frozenset(
    {
        "seed",
        "paths",
        "logger",
        "force",
        "retry_failed",
        "keep_last",
        "figures",
        "hydra",
        "recipe",
        "baselines",
        "corpora",
        "limits",
        "own",
        "precision",
    }
)
# Keys that never affect a result, at any level: locations (files count by digest), and ways to
# compute the same.
_ANYWHERE = frozenset(
    {
        "data_dir",
        "cache_dir",
        "runs_dir",
        "files",
        "num_proc",
        "chunk_size",
        "compile",
        "gradient_checkpointing",
    }
)
_TRAINER = frozenset(
    {
        "devices",
        "num_nodes",
        "strategy",
        "profiler",
        "detect_anomaly",
        "inference_mode",
        "enable_autolog_hparams",
        "model_registry",
        "enable_progress_bar",
        "enable_model_summary",
        "log_every_n_steps",
        "num_sanity_val_steps",
    }
)
# Where an encoder comes from; its digests count.
_ENCODER = frozenset({"source", "package", "vectors"})
# The modules in class paths, which the hash ignores: moving a class does not change it.
_MODULES = re.compile(r'(?<="_target_":")(?:lightning_cse|torch|pytorch_lightning)\.(?:[^".]*\.)*')

NEUTRAL: Mapping[str, Any] = {
    "least_evaluations": 1,
    "data.bad_rows": "error",
    "data.negatives_a_row": 1,
    "data.negatives_share": 0.95,
    "data.shuffle_buffer": 10_000,  # this key and the next: of version 0.1
    "data.streaming": False,
    "diag.dropout": False,
    "encoder.bidirectional": False,
    "method.head": True,
    "trainer.accumulate_grad_batches": 1,
    "trainer.max_steps": -1,
    "method.contrastive_negatives": False,
}
"""Values at which a key counts as absent, as null does, so that keys added later change no hash."""


def config_hash(content: Mapping[str, Any]) -> str:
    """Return the ten hex digits that name a run: a hash of what `decisive` returns, with classes by
    name only.
    """
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    without_modules = _MODULES.sub("", text)

    return hashlib.sha256(without_modules.encode("ascii")).hexdigest()[:10]


def decisive(
    config: Mapping[str, Any],
    *,
    data: Mapping[str, str] = {},
    encoder: Mapping[str, str] = {},
    resolved: Mapping[str, Any] = {},
) -> dict[str, Any]:
    """Return everything but the seed that affects a result: ``config``, ``data`` and ``encoder``.

    ``config`` is the resolved config, ``data`` the sha256 by file name, ``encoder`` the encoder's
    name and digests, and ``resolved`` the values of automatic choices by dotted key:
    ``{"trainer.accelerator": "cpu"}``.

    The config is without seed, paths, loggers, switches, and keys at their neutral value; automatic
    choices are replaced by their values. Numbers are equal however they are written (``1`` and
    ``1.0``), and so are URLs whatever their signature.
    """
    settings = {key: value for key, value in config.items() if key not in _SWITCHES}
    content: dict[str, Any] = _canonical(settings)
    if "callbacks" in content:
        content["callbacks"] = _effective(content["callbacks"])
        if not content["callbacks"]:
            del content["callbacks"]

    for dotted, value in resolved.items():
        if dotted not in _SWITCHES:
            *parents, key = dotted.split(".")
            parent = content
            for name in parents:
                parent = parent.setdefault(name, {})

            parent[key] = _canonical(value)

    for name, keys in (("trainer", _TRAINER), ("encoder", _ENCODER if encoder else ())):
        node = content.get(name)
        if isinstance(node, dict):
            content[name] = {key: value for key, value in node.items() if key not in keys}

    for dotted, neutral in NEUTRAL.items():
        _drop_neutral(content, dotted, _canonical(neutral))

    return {"config": content, "data": _canonical(data), "encoder": _canonical(encoder)}


def _effective(callbacks: Mapping[str, Any]) -> dict[str, Any]:
    """Return the callbacks that affect a result: not the one that logs the learning rate, and early
    stopping only with a patience.
    """
    return {
        name: node
        for name, node in callbacks.items()
        if name != "learning_rate" and (name != "early_stopping" or "patience" in node)
    }


def _drop_neutral(config: dict[str, Any], dotted: str, neutral: Any) -> None:
    """Remove a key whose value is neutral, of the same type included: 1 is not True."""
    *parents, key = dotted.split(".")
    node = config
    for name in parents:
        node = node.get(name) or {}

    value = node.get(key)
    if type(value) is type(neutral) and value == neutral:
        del node[key]


def _canonical(value: Any) -> Any:
    """Reduce to plain JSON: one spelling per number, no nulls, no keys without effect."""
    if isinstance(value, Mapping):
        result = {}
        for key, item in value.items():
            if key in _ANYWHERE or item is None:
                continue
            if key == "limit_train_batches":
                item = repr(item)  # 1 is one batch, 1.0 all of them

            result[public(str(key))] = _canonical(item)

        return result

    if isinstance(value, list | tuple):
        return [_canonical(item) for item in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)

    return public(value)
