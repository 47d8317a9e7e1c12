"""Load a model by its name: a run's folder, an encoder of ``conf/encoder``, another folder, or a name on the hub.

Importing this module is cheap, so commands can check names and devices before they import anything heavy. Loading
needs neither Lightning nor Hydra.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from lightning_cse.config import conf_dir, encoder_configs, encoder_name
from lightning_cse.errors import ConfigError, EncoderError, did_you_mean

if TYPE_CHECKING:
    from lightning_cse.encoders import SentenceEncoder, Template
    from lightning_cse.models import Model

log = logging.getLogger(__name__)

LENGTH, LLM = WITHOUT_ENCODER = ("length", "llm")
"""Models without an encoder that an evaluation accepts; these names take precedence over those of encoders."""

RECORD: Final = "record.json"
CONFIG: Final = "config.yaml"
CHECKPOINT: Final = "checkpoints/best.ckpt"


def check_model(model: str, *, pooling: str = "auto", prompt: str | None = None) -> Path | None:
    """Return the folder of the run that a name refers to, or None for an encoder, without loading either.

    Raises EncoderError if the folder does not exist or the run is not finished, and ConfigError if a run is given a
    pooling or a prompt.
    """
    if model in WITHOUT_ENCODER:
        raise EncoderError(f"model: {model} has no encoder, and this command needs one")
    folder = Path(model).expanduser()
    if not folder.is_dir():
        # A name on the hub has at most one slash, and no name starts like a path.
        if model.startswith((".", "/", "~")) or model.rstrip("/").count("/") > 1:
            raise EncoderError(
                f"model: there is no folder {folder.absolute()}; give one of a run or of an encoder"
            )
        return None
    if (folder / "config.json").is_file():
        return None
    if not any((folder / name).is_file() for name in (RECORD, CONFIG)):
        runs = sorted(
            f"\n  model={path.parent}"
            for path in folder.rglob(RECORD)
            if "evaluate" not in path.parts
        )
        if runs:
            raise EncoderError(
                f"model: {folder} contains runs; give one of them:{''.join(runs[:8])}"
            )
        return None
    for key, given in (("pooling", pooling != "auto"), ("prompt", prompt is not None)):
        if given:
            raise ConfigError(
                [f"{key}: {folder} is a run, which is evaluated as it was trained; leave it out"]
            )
    read_run(folder)
    return folder.resolve()


def check_device(device: str, key: str = "--device") -> None:
    """Raise ConfigError if torch finds no such device on this machine."""
    from lightning_cse.runs.machine import has

    if not has(device):
        raise ConfigError(
            [f"{key}: torch finds no {device} on this machine; leave it out for the best available"]
        )


def read_run(folder: Path) -> dict[str, Any]:
    """Return the record of a finished run; raise EncoderError if a file or key is missing."""
    for part in (RECORD, CONFIG, CHECKPOINT):
        if not (folder / part).is_file():
            raise EncoderError(
                f"model: the run {folder} has no {part}: finish it with the command that trained it"
            )
    try:
        record: dict[str, Any] = json.loads((folder / RECORD).read_text(encoding="utf-8"))
        _ = [record[key] for key in ("name", "config_hash", "seed", "model")]
        _ = record["encoder"]["tokenizer"], record["checkpoint"]["sha256"]
    except (ValueError, LookupError, TypeError) as error:
        raise EncoderError(
            f"{folder / RECORD} is not a record of a training run ({error})"
        ) from error
    return record


@dataclass(frozen=True)
class LoadedModel:
    """A model in evaluation mode, and where it comes from."""

    answers: Model
    name: str  # shown in tables
    run: Path | None  # the run's folder; None for an encoder that was not trained here
    record: dict[str, Any]  # the run's; empty without a run
    digests: dict[str, str]  # sha256 of the weights and of the tokenizer's files
    method: str = "PointModel"  # the class of the method that trained it, or of a model that was not trained here

    @property
    def encoder(self) -> SentenceEncoder:
        """The encoder of the model."""
        return self.answers.encoder

    @property
    def templates(self) -> tuple[Template, ...]:
        """The templates around a sentence, one for each time that it is encoded."""
        return self.answers.templates

    @property
    def room(self) -> int:
        """The number of tokens read from a sentence: the maximum length minus the longest template."""
        return self.encoder.max_length - max(map(len, self.templates))

    def whitened(self, sources: Sequence[str], data_dir: str) -> LoadedModel:
        """Return a copy whose vectors are whitened with those of other sentences; raise ConfigError for a run."""
        from lightning_cse.baselines import Whitening

        if self.run is not None:
            raise ConfigError(
                [
                    f"whitening: {self.name} is a run, which is evaluated as it was trained; leave it out"
                ]
            )
        answers = Whitening(self.encoder, sources=sources, data_dir=data_dir)
        fitted_on = hashlib.sha256("\n".join(answers.sentences).encode()).hexdigest()
        return replace(self, answers=answers, digests={**self.digests, "whitening": fitted_on})


def load_model(
    model: str | Path,
    *,
    pooling: str = "auto",
    prompt: str | None = None,
    max_length: int | str = "auto",
) -> LoadedModel:
    """Load a model in float32 and in evaluation mode.

    The name is tried as the folder of a run, as an encoder of ``conf/encoder``, as the folder of a Hugging Face or
    sentence-transformers model, and as a name on the hub (so ``./bert_base`` is a folder and ``bert_base`` is not).
    ``pooling="auto"`` is the model's own; a ``prompt`` is a template of your own, and implies ``pooling="prompt"``;
    ``max_length`` includes the template, and ``auto`` is the length that a run was trained with, or the longest that an
    encoder can read. Raises EncoderError and ConfigError like `check_model`.
    """
    run = check_model(str(model), pooling=pooling, prompt=prompt)
    options: dict[str, Any] = {} if max_length == "auto" else {"max_length": max_length}
    if prompt is not None:
        options |= {"pooling": "prompt", "prompts": [prompt]}
    if pooling != "auto":
        options["pooling"] = pooling
    return _load_encoder(str(model), options) if run is None else _load_run(run, options)


def _load_run(folder: Path, options: Mapping[str, Any]) -> LoadedModel:
    import torch

    from lightning_cse.models import build

    record, config, best = read_run(folder), _settings(folder / CONFIG), folder / CHECKPOINT
    with best.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    if sha256 != record["checkpoint"]["sha256"]:
        raise EncoderError(
            f"{best} is damaged (its sha256 differs from the record's): train again with force=true"
        )
    encoder = _encoder(config["encoder"], options)
    for part in ("tokenizer", "weights") if record["model"].get("frozen") else ("tokenizer",):
        if encoder.digests[part] != record["encoder"][part]:  # the checkpoint does not contain it
            raise EncoderError(
                f"the {part} of the encoder {encoder.name} changed since {folder} was trained"
            )
    model = build(encoder, record["model"])
    state = torch.load(best, map_location="cpu", weights_only=True)["state_dict"].items()
    model.load_state_dict(
        {key[len("model.") :]: value for key, value in state if key.startswith("model.")}
    )
    digests = {"weights": sha256, "tokenizer": encoder.digests["tokenizer"]}
    method = config["method"]["_target_"].rpartition(".")[2]
    return LoadedModel(model.eval(), str(record["name"]), folder, record, digests, method)


def _load_encoder(model: str, options: Mapping[str, Any]) -> LoadedModel:
    from lightning_cse.encoders.load import find_encoder, read_pooling
    from lightning_cse.engine.modules import APPLIED, with_modules
    from lightning_cse.models import PointModel

    known = encoder_configs()
    name = model if model in known else encoder_name(model)
    node = _settings(known.get(model, conf_dir() / "encoder" / "custom.yaml"))
    if model not in known:
        node |= {"name": name, "source": model}
    if not node["_target_"].endswith("tiny_encoder"):
        node["max_length"] = (
            "auto"  # conf/encoder has the length for training; an evaluation reads all that it can
        )
    folder: Path | None = None
    try:
        if model not in known and "pooling" not in options:
            folder = find_encoder(model)
            options = {**options, "pooling": read_pooling(folder, APPLIED)}
        encoder = _encoder(node, options)
        answers, digests = with_modules(encoder, folder) if folder else (PointModel(encoder), {})
    except EncoderError as error:
        if model in known or Path(model).expanduser().is_dir():
            raise
        near = did_you_mean(model, [*WITHOUT_ENCODER, *known])
        raise EncoderError(f"there is no model {model!r}{near}\n{error}") from error
    log.info(
        "%s: pooling %s, sentences of at most %d tokens", name, encoder.pooling, encoder.max_length
    )
    return LoadedModel(answers.eval(), name, None, {}, encoder.digests | digests)


def _settings(path: Path) -> dict[str, Any]:
    from omegaconf import OmegaConf

    settings: dict[str, Any] = OmegaConf.to_container(OmegaConf.load(path), resolve=True)  # type: ignore[assignment]
    return settings


def _encoder(node: Mapping[str, Any], options: Mapping[str, Any]) -> SentenceEncoder:
    from lightning_cse.encoders import load_encoder, tiny_encoder

    tiny = node["_target_"].endswith("tiny_encoder")
    make: Callable[..., SentenceEncoder] = tiny_encoder if tiny else load_encoder
    return make(**{key: value for key, value in {**node, **options}.items() if key != "_target_"})
