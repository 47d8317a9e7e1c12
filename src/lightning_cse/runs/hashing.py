"""The settings that affect a result: the hash of them that names a run, and the key by which a
table finds it.

The key is a hash of the settings as they were requested. It depends on no file and no machine, so
it is known before a run is made.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

Value = TypeVar("Value")

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

_USER = re.compile(r"(?<=://)[^/?#\s]*@")
# A query ends at white space, or at the next URL of a list; brackets and quotes around it stay.
_QUERY = re.compile(
    r"""(://[^?#\s]*)[?#]\S*?(?=['")\]}:;.,]*(?:,['"]?[A-Za-z][A-Za-z0-9+.-]*://|\s|$))"""
)

SAMPLE_DIR = Path(__file__).resolve().parents[1] / "data" / "sample"
"""The folder of the sample corpora, as ``${sample_dir:}`` in a config."""
PRECISIONS = {"32": "32-true", "bf16": "bf16-mixed", "16": "16-mixed"}
"""Training precisions, by Lightning's short names; ``16-mixed`` needs a GPU."""

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


def config_hash(config: Mapping[str, Any], **parts: Any) -> str:
    """Return the ten hex digits that name a run: a hash of `decisive`, with classes by name only.

    The arguments are those of `decisive`.
    """
    return _digest(decisive(config, **parts))


def _digest(content: Mapping[str, Any]) -> str:
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


@dataclass(frozen=True)
class Identity:
    """What names a run: the hash of all that affects its result, and the key of its settings.

    ``decisive`` is the content of the hash, for the record.
    """

    config_hash: str
    key: str
    decisive: dict[str, Any]


def identity(
    requested: Mapping[str, Any], config: Mapping[str, Any], **parts: Mapping[str, Any]
) -> Identity:
    """Return the identity of a training; ``requested`` is the config with ``auto`` in it, all other
    arguments are those of `decisive`.
    """
    content = decisive(config, **parts)

    return Identity(_digest(content), training_key(requested), content)


# Keys of tables

_WRITING = (
    "pattern",
    "data",
    "encoder",
    "n",
    "samples",
    "most_words",
    "checks_encoder",
    "summary_rows",
)
_READING = ("suite", "prompt", "whitening", "accelerator", "pooling", "max_length")


def training_key(config: Mapping[str, Any]) -> str:
    """Return the key of a training from its resolved config, with automatic choices still
    ``auto``.
    """
    return training_keys(config)[0]


def training_keys(config: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the keys of all trainings that may be the one of a resolved config, its own first.

    The others differ in precision: ``auto`` asks for any, and any may have been chosen by ``auto``.
    """
    requested = asked_precision(config)
    alternatives = PRECISIONS.values() if requested == "auto" else ("auto",)
    trainers = [
        {**config["trainer"], "precision": precision} for precision in (requested, *alternatives)
    ]

    return tuple(_key(config, {**config, "trainer": trainer}) for trainer in trainers)


def asked_precision(config: Mapping[str, Any]) -> str:
    """Return the precision that a training asks for, by its long name, or ``auto``."""
    precision = str(config["trainer"]["precision"])
    return PRECISIONS.get(precision, precision)


def evaluation_key(config: Mapping[str, Any], training: str | None = None) -> str:
    """Return the key of an evaluation; ``training`` is the key of the training whose model it
    evaluates, if any.
    """
    settings = {name: config[name] for name in _READING}
    settings["model"] = training or [config["model"]]
    if config["model"] == "llm":
        settings["llm"] = _llm(config)
        settings["few_shot"] = config["few_shot"]

    return _key(config, settings)


def generation_key(config: Mapping[str, Any]) -> str:
    """Return the key of rows that a language model writes."""
    settings = {name: config.get(name) for name in _WRITING}

    return _key(config, {**settings, "llm": _llm(config)})


def _llm(config: Mapping[str, Any]) -> dict[str, Any]:
    return {name: config["llm"][name] for name in ("model", "parameters")}


def _key(config: Mapping[str, Any], settings: Mapping[str, Any]) -> str:
    document = {**settings, "sample": Path(config["paths"]["data_dir"]) == SAMPLE_DIR}
    return config_hash(document, encoder={"name": ""})


def portable(overrides: Iterable[Any]) -> list[str]:
    """Return overrides for a record: without ``paths``, which decide no result, without secrets in
    URLs, and with the names of models and encoders in place of their folders.
    """
    folder = re.compile(r"^((?:model|encoder\.source)=['\"]?)[/~].*/(?=[^/])")
    words = [word for word in map(str, overrides) if not word.lstrip("+").startswith("paths.")]

    return public([folder.sub(r"\1", word) for word in words])


def public(value: Value) -> Value:
    """Return a text, or a container of plain values, whose URLs have no user, no password, no query
    and no fragment.

    Examples:
        >>> public({"train": ["https://me:secret@host/a.csv?X-Amz-Signature=1f"], "size": 2})
        {'train': ['https://host/a.csv'], 'size': 2}
    """
    result: Any = value
    if isinstance(value, str):
        result = _QUERY.sub(r"\1", _USER.sub("", value)) if "://" in value else value
    elif isinstance(value, Mapping):
        result = {public(key): public(item) for key, item in value.items()}
    elif isinstance(value, list | tuple):
        result = type(value)(public(item) for item in value)

    return cast(Value, result)
