"""What an evaluation can evaluate: a sentence model, the baseline of lengths, a language model."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

from omegaconf import DictConfig, OmegaConf

from lightning_cse import llm
from lightning_cse.baselines import FewShot, Length, Whitening
from lightning_cse.engine.build import plain
from lightning_cse.engine.inference import SentenceModel
from lightning_cse.engine.load import LENGTH, LLM, WITHOUT_ENCODER, load
from lightning_cse.errors import ConfigError
from lightning_cse.evaluation import RTE, Embedded, Task, TaskResult
from lightning_cse.paths import kept_models
from lightning_cse.runs.machine import device_name


@dataclass(kw_only=True)
class Subject:
    """A model under evaluation, and what a record says about it.

    ``options``, ``encoder`` and ``data`` determine its answers. ``model`` is a loaded model, whose
    ``answers`` these are. ``root`` is the folder of its evaluations, ``record`` that of the run
    that trained it, if any.
    """

    name: str
    answers: Any
    method: str
    root: Path
    options: dict[str, Any]
    encoder: dict[str, str]
    model: SentenceModel | None = None
    data: dict[str, str] = field(default_factory=dict)
    record: dict[str, Any] = field(default_factory=dict)
    device: str = "cpu"
    precision: str | None = None

    def measure(self, task: Task, label: str) -> tuple[TaskResult, dict[str, Any]]:
        """Return the result of a task on its test split, and what it took: the ``sentences``, those
        ``cut``, and, of a language model, the ``account``.
        """
        if isinstance(self.answers, LanguageModel):
            result = self.answers.measure(cast(RTE, task), label)  # the only task that it suits
            account = self.answers.llm.taken()
            return result, {"sentences": self.answers.sentences, "cut": 0, "account": account}

        if self.model is None:
            embedded = Embedded(self.answers, task.sentences("test"))
            return task.evaluate(embedded, "test"), {"sentences": len(embedded), "cut": 0}

        self.model.truncated = 0
        embed = partial(self.model.embed, show_progress_bar=None, label=label)
        embedded = Embedded(self.answers, task.sentences("test"), embed)
        result = task.evaluate(embedded, "test")

        return result, {"sentences": len(embedded), "cut": self.model.truncated}


class LanguageModel(FewShot):
    """A language model at an endpoint, shown a few examples and asked about every pair."""

    def __init__(self, cfg: DictConfig) -> None:
        self.llm = llm.LLM(plain(cfg.llm), cfg.paths.cache_dir)
        self.label = ""
        self.sentences = 0
        self._pairs = 0
        super().__init__(
            lambda requests: self.llm.ask(requests, self.label, self._pairs),
            data_dir=cfg.paths.data_dir,
            parameters=self.llm.parameters,
            **plain(cfg.few_shot),
        )

    def measure(self, task: RTE, label: str) -> TaskResult:
        """Return the result of a task on its test split; ``label`` is shown before the progress."""
        self.label = label
        return task.judged(self, "test")

    def judge(self, premises: Sequence[str], hypotheses: Sequence[str]) -> list[str]:
        """Return the type of every hypothesis, in order; raise LLMError if replies are missing."""
        self.sentences = len({*premises, *hypotheses})
        self._pairs = len(premises)

        return super().judge(premises, hypotheses)


def open_subject(cfg: DictConfig) -> Subject:
    """Load the model that a config of ``evaluate`` names.

    The options name its method without the module, so that moving a class does not change the hash.
    """
    root = Path(cfg.paths.runs_dir).expanduser() / "evaluate"
    if cfg.model == LENGTH:
        return _length(root / LENGTH)
    if cfg.model == LLM:
        return _language_model(cfg, root / LLM)

    return _sentence_model(cfg, root)


def _length(root: Path) -> Subject:
    options = {"pooling": None, "max_length": None, "method": "Length"}
    return Subject(
        name=LENGTH,
        answers=Length(),
        method=_qualified(Length),
        root=root,
        options=options,
        encoder={"name": LENGTH},
    )


def _language_model(cfg: DictConfig, root: Path) -> Subject:
    model = LanguageModel(cfg)
    name = model.llm.endpoint.model
    options = {
        "pooling": None,
        "max_length": None,
        "method": "FewShot",
        "few_shot": plain(cfg.few_shot),
        "prompt_digest": model.prompt_digest,
        "llm": {"model": name, "parameters": dict(model.llm.parameters)},
    }

    return Subject(
        name=name,
        answers=model,
        method=_qualified(LanguageModel),
        root=root / re.sub(r"[^\w-]+", "_", name),
        options=options,
        encoder={"name": name},
        data=model.digests,
        device="endpoint",
    )


def _sentence_model(cfg: DictConfig, root: Path) -> Subject:
    reading = {key: cfg[key] for key in ("pooling", "prompt", "max_length")}
    model = load(cfg.model, cfg.accelerator, cfg.precision, **reading)
    name = model.name
    options: dict[str, Any] = {
        "method": model.method_name,
        "pooling": model.encoder.pooling,
        "max_length": model.encoder.max_length,
        "templates": [[template.prefix, template.suffix] for template in model.templates],
    }
    if instructions := model.encoder.instructions:
        options["instructions"] = instructions
    if cfg.whitening:
        model = _whitened(model, cfg)
        options["whitening"] = cast(Whitening, model.answers).fitted_on
        name += f", whitened on {options['whitening']}"

    folder = root / model.name
    # A kept model is part of the package, where nothing is written.
    if model.run is not None and model.run not in kept_models().values():
        folder = model.run / "evaluate"

    return Subject(
        name=name,
        answers=model.answers,
        method=model.method,
        root=folder,
        options=options,
        encoder={"name": model.encoder.name, **model.digests},
        record=model.record,
        device=device_name(model.device),
        precision=cfg.precision,
        model=model,
    )


def _whitened(model: SentenceModel, cfg: DictConfig) -> SentenceModel:
    """Return an encoder whose vectors are whitened; raise ConfigError for a run."""
    if model.run is not None:
        fault = "is a run, which is evaluated as it was trained; leave it out"
        raise ConfigError([f"whitening: {model.name} {fault}"])
    if "layers" in model.digests:
        fault = "has layers behind its pooling; name a pooling to whiten the vectors before them"
        raise ConfigError([f"whitening: {model.name} {fault}"])

    answers = Whitening(model.encoder, sources=cfg.whitening, data_dir=cfg.paths.data_dir)
    fitted_on = hashlib.sha256("\n".join(answers.sentences).encode()).hexdigest()

    return replace(model, answers=answers, digests={**model.digests, "whitening": fitted_on})


def _qualified(model_class: type) -> str:
    return f"{model_class.__module__}.{model_class.__qualname__}"


def setting_faults(cfg: DictConfig, overrides: Sequence[str]) -> Iterator[str]:
    """Yield a fault for each setting that does not fit the model."""
    if OmegaConf.is_missing(cfg, "model"):
        yield (
            "model: must be the folder of a run, a model that comes with the package "
            f"({', '.join(sorted(kept_models()))}), an encoder of conf/encoder, a local folder, "
            "or a name on the hub"
        )
        return

    if cfg.model in WITHOUT_ENCODER:
        for key in ("pooling", "prompt", "max_length", "whitening", "precision", "accelerator"):
            if cfg[key] not in ("auto", None, "32-true", "cpu"):
                yield f"{key}: model={cfg.model} has no encoder; leave it out"

    if cfg.model == LLM:
        yield from llm.wrong_settings(plain(cfg.llm), cfg.paths.cache_dir)
    elif any(word.lstrip("+").startswith(("llm.", "few_shot.")) for word in overrides):
        yield f"llm, few_shot: only model={LLM} reads them; leave them out"
