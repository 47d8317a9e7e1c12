"""What can be said of a model by its name, and of a device, before anything heavy is imported or loaded."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from lightning_cse.errors import ConfigError, EncoderError

__all__ = ["CHECKPOINT", "CONFIG", "LENGTH", "LLM", "WITHOUT_ENCODER", "check_device", "check_model", "read_run"]

LENGTH, LLM = WITHOUT_ENCODER = ("length", "llm")
"""Models that an evaluation takes and that have no encoder; these names come before those of encoders."""

CONFIG: Final = "config.yaml"
CHECKPOINT: Final = "checkpoints/best.ckpt"

_TAKEN_BY: Final = {
    LENGTH: "only lightning_cse.evaluate and lightning_cse.score take it",
    LLM: "only lightning_cse.evaluate takes it",
}
_PARTS: Final = {
    CONFIG: ", which says what the run's model is built of",
    CHECKPOINT: ": copy the checkpoint of the run to it, or train again with force=true",
}
_MOST_SHOWN: Final = 8
_PLAIN: Final = ("config.json", "modules.json")


def check_model(model: str, *, pooling: str = "auto", prompt: str | None = None) -> Path | None:
    """Return the folder of the run that a name means, None where it means an encoder, without loading either.

    Args:
        model: as in `lightning_cse.engine.load.load_model`.
        pooling: ``auto`` for the model's own; runs have no other.
        prompt: a template of one's own; runs take none.

    Raises:
        EncoderError: if it has no encoder, leads nowhere, or is the folder of no model or of a run that is not whole.
        ConfigError: if pooling or prompt are given for a run.
    """
    if model in WITHOUT_ENCODER:
        raise EncoderError(f"model: {model} has no encoder: {_TAKEN_BY[model]}")
    folder = Path(model).expanduser()
    if folder.is_file():
        raise EncoderError(f"model: {folder} is a file; give the folder of the run or of the encoder that it lies in")
    if not folder.is_dir():
        if _is_path(model):
            raise EncoderError(
                f"model: there is no folder {folder.absolute()}; give the folder of a run or of an encoder, the name "
                "of an encoder of conf/encoder such as minilm_l6, or a name on the hub"
            )
        return None
    if any((folder / name).is_file() for name in _PLAIN):
        return None
    if not any((folder / name).is_file() for name in ("record.json", CONFIG)):
        raise EncoderError(_no_model_in(folder))
    if prompt is not None or pooling != "auto":
        given = "prompt" if prompt is not None else "pooling"
        raise ConfigError([f"{given}: a run is evaluated as it was trained, and {folder} is one; leave it out"])
    read_run(folder)
    return folder.resolve()


def _is_path(model: str) -> bool:
    """Tell whether a name can be a path alone: those of the hub have one slash at most, ours none at their start."""
    return model.startswith((".", "/", "~")) or model.rstrip("/").count("/") > 1


def _no_model_in(folder: Path) -> str:
    runs = sorted(str(record.parent) for record in folder.rglob("record.json") if "evaluate" not in record.parts)
    if not runs:
        return f"model: {folder.resolve()} holds neither a run (config.yaml, record.json) nor an encoder (config.json)"
    more = f"\n  and {len(runs) - _MOST_SHOWN} more" if len(runs) > _MOST_SHOWN else ""
    lines = "".join(f"\n  model={run}" for run in runs[:_MOST_SHOWN])
    return f"model: {folder} is not one run but holds several; give one of them:{lines}{more}"


def read_run(folder: Path) -> dict[str, Any]:
    """Return the record of a run that has finished and is whole.

    Raises:
        EncoderError: if it has no record, or its config or checkpoint is not there.
    """
    path = folder / "record.json"
    if not path.is_file():
        failed = folder / "failed.json"
        why = f"it failed, see {failed}" if failed.is_file() else "it was interrupted"
        raise EncoderError(
            f"model: the run {folder} has no record.json ({why}): finish it with the command that trained it"
        )
    try:
        record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if not {"name", "config_hash", "seed"} <= record.keys() or "tokenizer" not in record["encoder"]:
            raise ValueError("name, config_hash, seed or encoder is missing")
    except (ValueError, AttributeError, TypeError, KeyError) as error:
        raise EncoderError(f"{path} is no record of a run ({error})") from error
    for part, advice in _PARTS.items():
        if not (folder / part).is_file():
            raise EncoderError(f"{folder / part} is not there{advice}")
    return record


def check_device(device: str) -> None:
    """Raise what torch alone can say of a device of the command line.

    Raises:
        ConfigError: if it is not there.
    """
    import torch

    cuda, mps = torch.cuda.is_available, torch.backends.mps.is_available
    there: dict[str, Callable[[], bool]] = {"gpu": lambda: cuda() or mps(), "cuda": cuda, "mps": mps}
    if device in there and not there[device]():
        raise ConfigError([f"--device: torch finds no {device} on this machine; auto takes what there is"])
