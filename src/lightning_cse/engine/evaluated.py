"""A model under evaluation: what decides its answers, and how it does a task."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import torch
from omegaconf import DictConfig

from lightning_cse import llm
from lightning_cse.baselines import FewShot, Length
from lightning_cse.embeddings import Embedding
from lightning_cse.engine.build import plain
from lightning_cse.engine.load import LENGTH, LLM, LoadedModel, load_model
from lightning_cse.engine.mteb_suite import MTEBTask
from lightning_cse.errors import TaskError
from lightning_cse.evaluation import RTE, Embedded, Task, TaskResult
from lightning_cse.progress import progress
from lightning_cse.runs import Run
from lightning_cse.runs.machine import device_name, device_of

SENTENCES_AT_ONCE = 1024  # between two updates of the progress bar


@dataclass
class Evaluated:
    """A model under evaluation; ``options``, ``encoder`` and ``data`` decide its answers."""

    model: Any  # answers the questions of tasks
    name: str  # in tables
    root: Path  # of its evaluations
    options: dict[str, Any]  # how it reads sentences
    encoder: dict[str, str]  # its name, and the sha256 of its files
    data: dict[str, str] = field(default_factory=dict)  # the sha256 of the corpus files that it reads
    run: dict[str, Any] | None = None  # name, config_hash and seed of the run that trained it
    device: str = "cpu"
    loaded: LoadedModel | None = None  # the model with its encoder, if it has one
    precision: str | None = None  # of an encoder
    label: str = ""  # the task in the progress bar
    counts: Counter[str] = field(default_factory=Counter)

    def do(self, task: Task | MTEBTask, run: Run, label: str) -> tuple[TaskResult, dict[str, Any]]:
        """Do a task on its test split, and return its result and what it took: sentences, those cut, and an account."""
        self.label, self.counts = label, Counter(sentences=0, cut=0)
        if isinstance(task, MTEBTask):
            return task.evaluate(self, run), dict(self.counts)
        if isinstance(self.model, LanguageModel):
            self.model.label = label
            result = cast(RTE, task).judged(self.model, "test")  # the one task that asks for ``judge``
            return result, {"sentences": self.model.sentences, "cut": 0, "account": self.model.llm.taken()}
        embedded = Embedded(self, task.sentences("test"))
        if not embedded.is_finite:
            raise TaskError(f"{label}: some embeddings of {self.name} are not finite numbers in {self.precision}")
        return task.evaluate(self.model, embedded, "test"), dict(self.counts)

    def embed(self, sentences: Sequence[str]) -> Embedding:
        """Embed sentences with a progress bar on a terminal; count them, and those that are cut."""
        self.counts["sentences"] += len(sentences)
        kind = "cpu"
        if self.loaded is not None:
            kind = self.loaded.answers.device.type
            ids, room = self.loaded.encoder.tokenizer(sentences), self.loaded.room
            self.counts["cut"] += sum(len(sentence) > room for sentence in ids)
        with progress() as bar, torch.autocast(kind, torch.bfloat16, enabled=self.precision == "bf16-mixed"):
            starts = range(0, len(sentences), SENTENCES_AT_ONCE)
            shown = bar.track(starts, description=f"{self.label}: {len(sentences):,} sentences")
            return Embedding.cat([self.model.embed(sentences[start : start + SENTENCES_AT_ONCE]) for start in shown])


class LanguageModel(FewShot):
    """A language model at an endpoint, shown a few examples and asked about every pair."""

    def __init__(self, cfg: DictConfig) -> None:
        self.llm = llm.LLM(plain(cfg.llm), cfg.paths.cache_dir)
        self.label = ""
        self.sentences = self._pairs = 0
        shown = {"data_dir": cfg.paths.data_dir, "parameters": self.llm.parameters, **plain(cfg.few_shot)}
        super().__init__(lambda requests: self.llm.ask(requests, self.label, self._pairs), **shown)

    def judge(self, premises: Sequence[str], hypotheses: Sequence[str]) -> list[str]:
        """Return the type of every hypothesis, in their order; raise LLMError if replies are missing."""
        self.sentences = len({*premises, *hypotheses})
        self._pairs = self.llm.announce(self.label, self.requests(premises, hypotheses))
        return super().judge(premises, hypotheses)


def open_model(cfg: DictConfig) -> Evaluated:
    """Load the model that a config of ``evaluate`` names."""
    root = Path(cfg.paths.runs_dir).expanduser() / "evaluate"
    options: dict[str, Any] = {"pooling": None, "max_length": None}
    if cfg.model == LENGTH:
        return Evaluated(Length(), LENGTH, root / LENGTH, {"method": "Length", **options}, {"name": LENGTH})
    if cfg.model == LLM:
        model = LanguageModel(cfg)
        name = model.llm.endpoint.model
        options |= {"method": "FewShot", "few_shot": plain(cfg.few_shot), "prompt_digest": model.prompt_digest}
        options["llm"] = {"model": name, "parameters": dict(model.llm.parameters)}
        folder = root / "llm" / re.sub(r"[^\w-]+", "_", name)
        return Evaluated(model, name, folder, options, {"name": name}, model.digests, device="endpoint")
    loaded = load_model(cfg.model, pooling=cfg.pooling, prompt=cfg.prompt, max_length=cfg.max_length)
    name = loaded.name
    if cfg.whitening:
        loaded = loaded.whitened(cfg.whitening, cfg.paths.data_dir)
        options["whitening"] = loaded.answers.fitted_on
        name += f", whitened on {options['whitening']}"
    device, encoder = device_of(cfg.accelerator), loaded.encoder
    loaded.answers.to(device)
    options |= {"method": loaded.method, "pooling": encoder.pooling, "max_length": encoder.max_length}
    options["templates"] = [[template.prefix, template.suffix] for template in loaded.templates]
    return Evaluated(
        loaded.answers,
        name,
        (loaded.run / "evaluate") if loaded.run else root / loaded.name,
        options,
        {"name": encoder.name, **loaded.digests},
        run={key: loaded.record[key] for key in ("name", "config_hash", "seed")} if loaded.run else None,
        device=device_name(device),
        loaded=loaded,
        precision=cfg.precision,
    )
