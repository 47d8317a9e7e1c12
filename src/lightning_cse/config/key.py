"""The key by which a table finds a run: a short hash of the settings that decide the run, as they
were requested.

Unlike `runs.config_hash`, it depends on no file and no machine, so it is known before a run is
made.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lightning_cse import runs
from lightning_cse.config import SAMPLE_DIR
from lightning_cse.config.schema import PRECISIONS

_READING = ("suite", "prompt", "whitening", "accelerator", "pooling", "max_length")


def training_key(config: Mapping[str, Any]) -> str:
    """Return the key of a training from its resolved config, with automatic choices still
    ``auto``.
    """
    precision = str(config["trainer"]["precision"])
    trainer = {**config["trainer"], "precision": PRECISIONS.get(precision, precision)}
    return _key(config, {**config, "trainer": trainer})


def evaluation_key(config: Mapping[str, Any], training: str | None = None) -> str:
    """Return the key of an evaluation; ``training`` is the key of the training whose model it
    evaluates, if any.
    """
    settings = {name: config[name] for name in _READING}
    settings["model"] = training or [config["model"]]
    if config["model"] == "llm":
        llm = config["llm"]
        settings["llm"] = {"model": llm["model"], "parameters": llm["parameters"]}
        settings["few_shot"] = config["few_shot"]
    return _key(config, settings)


def _key(config: Mapping[str, Any], settings: Mapping[str, Any]) -> str:
    sample = Path(config["paths"]["data_dir"]) == SAMPLE_DIR
    document = {**settings, "sample": sample}
    return runs.config_hash(
        document,
        data={},
        encoder={"name": ""},
        resolved={},
    )
