"""A model by what its user calls it: a run's folder, an encoder of ``conf/encoder``, a folder, a name on the hub."""

from __future__ import annotations

import hashlib
import logging
import pickle
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf

from lightning_cse.baselines import PlainEncoder, Whitening
from lightning_cse.config.compose import compose, options as options_of
from lightning_cse.encoders import SentenceEncoder, Template
from lightning_cse.engine.early import CHECKPOINT, CONFIG, LENGTH, LLM, WITHOUT_ENCODER, check_model, read_run
from lightning_cse.errors import ConfigError, EncoderError, LightningCSEError, did_you_mean, user_error
from lightning_cse.methods import Method

__all__ = ["LENGTH", "LLM", "WITHOUT_ENCODER", "LoadedModel", "load_model"]

log = logging.getLogger(__name__)

_LOADER = "lightning_cse.encoders.load_encoder"


@dataclass(frozen=True)
class LoadedModel:
    """A model that answers an evaluation's questions, in evaluation mode, and where it comes from.

    Attributes:
        answers: the method of a run with its best checkpoint, or the plain encoder.
        name: what it is called in tables.
        run: the run's folder; None for a plain encoder.
        record: the run's record; empty for a plain encoder.
        digests: sha256 of the weights and of the tokenizer's files.
    """

    answers: Method | PlainEncoder
    name: str
    run: Path | None
    record: dict[str, Any]
    digests: dict[str, str]

    @property
    def encoder(self) -> SentenceEncoder:
        """The encoder inside."""
        encoder: SentenceEncoder = self.answers.encoder
        return encoder

    @property
    def templates(self) -> tuple[Template, ...]:
        """What is put around a sentence, for each time it is encoded."""
        return self.answers.templates if isinstance(self.answers, Method) else (self.answers.template,)

    @property
    def room(self) -> int:
        """How many tokens of a sentence are read: the maximum length without the longest template."""
        return self.encoder.max_length - max(len(template) for template in self.templates)

    def whitened(self, sources: Sequence[str], data_dir: str) -> LoadedModel:
        """Return the plain encoder with its vectors whitened, by those of other sentences.

        Raises:
            ConfigError: if this is a run, which is evaluated as it was trained, or as `Whitening`.
            DataError: as `Whitening`.
        """
        if isinstance(self.answers, Method):
            raise ConfigError(
                [f"whitening: a run is evaluated as it was trained, and {self.name} is one; leave it out"]
            )
        answers = Whitening(self.answers.encoder, sources=sources, data_dir=data_dir)
        fitted_on = hashlib.sha256("\n".join(answers.sentences).encode()).hexdigest()
        return replace(self, answers=answers, digests={**self.digests, "whitening": fitted_on})

    def to(self, device: torch.device) -> None:
        """Move the weights to a device."""
        (self.answers if isinstance(self.answers, Method) else self.answers.encoder).to(device)


def load_model(
    model: str, *, pooling: str = "auto", prompt: str | None = None, max_length: int | str = "auto"
) -> LoadedModel:
    """Load the model of that name, in float32 and in evaluation mode.

    A folder with a run's ``config.yaml`` or ``record.json`` is a run of ours: its method is built from its own config
    and gets the weights of its best checkpoint, read with ``weights_only=True``. Any other text is the name of an
    encoder in ``conf/encoder``, the folder of a plain Hugging Face encoder or of a sentence-transformers model, or a
    name on the hub, tried in this order (so ``./bert_base`` is a folder and ``bert_base`` is not).

    Args:
        model: as above.
        pooling: ``auto`` for the model's own; runs have no other.
        prompt: a template of one's own, which implies ``pooling="prompt"``.
        max_length: tokens a sequence may have, template included; ``auto`` for the model's own: of a run what it was
            trained with, of an encoder, those of ``conf/encoder`` too, as much as it can read.

    Raises:
        EncoderError: if there is no such model, it has no encoder, or its files are not whole; the message says what
            was tried.
        ConfigError: if pooling or prompt are given for a run.
    """
    run = check_model(model, pooling=pooling, prompt=prompt)
    options: dict[str, Any] = {} if max_length == "auto" else {"max_length": max_length}
    if prompt is not None:
        options |= {"pooling": "prompt", "prompts": [prompt]}
    elif pooling != "auto":
        options["pooling"] = pooling
    return _load_plain(model, options) if run is None else _load_run(run, options)


# ---------------------------------------------------------------------------------------------------- a run of ours


def _load_run(folder: Path, options: dict[str, Any]) -> LoadedModel:
    record = read_run(folder)
    cfg = _read_config(folder, options)
    built = OmegaConf.create({"encoder": cfg.encoder, "method": cfg.method})
    try:
        validate(built, given={"method": {"encoder"}})
    except ConfigError as error:
        raise ConfigError([f"{folder / CONFIG}: {fault}" for fault in error.faults]) from error
    encoder: SentenceEncoder = instantiate(built.encoder)
    if encoder.digests["tokenizer"] != record["encoder"]["tokenizer"]:
        raise EncoderError(
            f"{folder} was trained with another tokenizer than the encoder {encoder.name} has now, so its weights "
            "would read other word pieces: bring back the files it was trained from"
        )
    method: Method = instantiate(built.method, encoder=encoder)
    if method.frozen and encoder.digests["weights"] != record["encoder"]["weights"]:
        raise EncoderError(
            f"{folder} was trained on a frozen encoder whose weights are not those that {encoder.name} has now, and "
            "its checkpoint has none: bring back the files it was trained from"
        )
    best = folder / CHECKPOINT
    try:
        method.load_state_dict(torch.load(best, map_location="cpu", weights_only=True)["state_dict"])
    except (OSError, RuntimeError, KeyError, EOFError, pickle.UnpicklingError) as error:
        what = " ".join(str(error).split())[:200] or type(error).__name__
        raise EncoderError(f"{best} does not fit the run's config.yaml, or is damaged ({what})") from error
    method.eval()
    log.info("%s: %s trained from %s, best checkpoint of %s", record["name"], type(method).__name__, encoder.name, best)
    with best.open("rb") as file:
        weights = hashlib.file_digest(file, "sha256").hexdigest()
    digests = {"weights": weights, "tokenizer": encoder.digests["tokenizer"]}
    return LoadedModel(method, str(record["name"]), folder, record, digests)


def _read_config(folder: Path, options: dict[str, Any]) -> DictConfig:
    path = folder / CONFIG
    cfg = OmegaConf.load(path)
    if not isinstance(cfg, DictConfig) or "encoder" not in cfg or "method" not in cfg:
        raise EncoderError(f"{path} has no encoder and method: it is not the config of a training run")
    cfg.encoder.update(options)
    return cfg


# ------------------------------------------------------------------------------------------------- a plain encoder


def _load_plain(model: str, options: dict[str, Any]) -> LoadedModel:
    named = list(options_of("encoder"))
    folder = Path(model).expanduser()
    if model in named:
        name, node = model, dict(compose("train", f"encoder={model}").encoder)
    else:
        name = folder.resolve().name if folder.is_dir() else model
        node = {"_target_": _LOADER, "name": name, "source": model, "pooling": "auto"}
    if node["_target_"] == _LOADER:
        node["max_length"] = "auto"  # what conf/encoder has is for training; published protocols cut nothing
    try:
        encoder: SentenceEncoder = instantiate(node | options)
    except Exception as error:
        mistake = user_error(error)
        if not isinstance(mistake, EncoderError):
            raise
        raise EncoderError(_in_other_words(mistake, model, named)) from error
    log.info("%s: pooling %s, sentences of at most %d tokens", name, encoder.pooling, encoder.max_length)
    return LoadedModel(PlainEncoder(encoder), name, None, {}, dict(encoder.digests))


def _in_other_words(error: LightningCSEError, model: str, named: list[str]) -> str:
    """Say ``model=`` and ``pooling`` where an encoder speaks of training's ``encoder=`` and ``encoder.pooling``."""
    told = str(error).replace("encoder.source=", "model=").replace("encoder.source", "model")
    told = told.replace("encoder=", "model=").replace("encoder.", "")
    if not told.startswith("no encoder"):
        return told
    known = [*WITHOUT_ENCODER, *named]
    near = did_you_mean(model, known)
    first = f"there is no model {model!r}{near}\n" if near else ""  # else the eye finds it last, below all paths
    return f"{first}{told}\nmodel= also takes the folder of a run, and: {', '.join(known)}"
