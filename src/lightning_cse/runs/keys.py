"""The key by which a table finds a run: a hash of the settings as they were requested.

A run is named by `lightning_cse.runs.config_hash`, which depends on the bytes of all files that the
run reads, and on the machine. A table must know which of its runs are there without reading
gigabytes of corpora and encoders, and on another machine than the one that trained. So a record
also has a key, which depends on neither: ``auto`` stays ``auto``, and files count by name.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lightning_cse.paths import SAMPLE_DIR
from lightning_cse.runs.hashing import config_hash, decisive

PRECISIONS = {"32": "32-true", "bf16": "bf16-mixed", "16": "16-mixed"}
"""Training precisions, by Lightning's short names; ``16-mixed`` needs a GPU."""

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
    return config_hash(decisive(document, encoder={"name": ""}))
