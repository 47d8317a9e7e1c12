"""What an evaluation asks of a model, be it an encoder, a run of ours, LENGTH, or a language model at an endpoint."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import torch

from lightning_cse.baselines import Length, Whitening
from lightning_cse.embeddings import Embedding
from lightning_cse.engine.load import LoadedModel
from lightning_cse.engine.machine import device_name, device_of
from lightning_cse.engine.mteb_suite import MTEBTask
from lightning_cse.errors import TaskError
from lightning_cse.evaluation import Embedded, Task, TaskResult
from lightning_cse.progress import progress
from lightning_cse.runs import Run

__all__ = ["EncoderSession", "LengthSession", "Session", "Step", "Work", "folders_of"]

SENTENCES_AT_ONCE = 1024
"""Sentences embedded between two movements of the progress bar."""

Step = Task | MTEBTask


@dataclasses.dataclass(frozen=True)
class Work:
    """What a task took: sentences read, how many of them were cut, and the account of a model that is paid for."""

    sentences: int
    cut: int = 0
    account: Mapping[str, Any] = dataclasses.field(default_factory=dict)


class Session(ABC):
    """A model at work in an evaluation: it says what decides its answers, does tasks, and counts what it has read.

    Args:
        answers: what the tasks ask.
        name: what the model is called in tables.

    Attributes:
        embeds: whether it has vectors for another library to work with.
        room: how many word pieces of a sentence it reads; None where nothing is cut.
        now: what it is at, for the progress bar.
        run: name, config_hash and seed of the run of ours that is evaluated; None for any other model.
        seed: that run's seed; 0 for any other model.
    """

    embeds = False
    room: int | None = None
    now = ""
    run: Mapping[str, Any] | None = None
    seed = 0

    def __init__(self, answers: Any, name: str) -> None:
        self.answers = answers
        self.name = name
        self._sentences = 0

    @property
    def kind(self) -> str:
        """What kind of model answers."""
        return type(self.answers).__name__

    @property
    def encoder(self) -> dict[str, str]:
        """The name of what is inside, and the sha256 of what that is made of."""
        return {"name": self.name}

    @property
    def data(self) -> dict[str, str]:
        """The sha256 by name of the corpus files that it reads besides those of the tasks."""
        return {}

    @property
    def device_name(self) -> str:
        """What the answers are computed on."""
        return "cpu"

    def options(self) -> dict[str, Any]:
        """Return how the model is read: part of what decides a result."""
        return {"method": self.kind, "pooling": None, "max_length": None}

    def root(self, runs_dir: Path) -> Path:
        """Return the folder of the model's evaluations."""
        return runs_dir.joinpath("evaluate", *folders_of(self.name))

    def suits(self, task: Step) -> bool:
        """Whether the model answers what a task asks."""
        return isinstance(task, Task) and task.suits(self.answers)

    @abstractmethod
    def do(self, name: str, task: Step, folder: Run) -> TaskResult:
        """Do a task on its test split.

        Args:
            name: the task's name in the suite.
            task: the task.
            folder: the evaluation's.
        """

    def work(self) -> Work:
        """Return what was read since this was asked last."""
        work, self._sentences = Work(self._sentences), 0
        return work


def folders_of(name: str) -> list[str]:
    """Return the folders of a model's name, none of which leads anywhere else."""
    return [part for part in name.replace("\\", "/").split("/") if part not in ("", ".", "..", "~")]


class LengthSession(Session):
    """LENGTH at work: sentences as they are, and nothing to choose."""

    def __init__(self) -> None:
        super().__init__(Length(), "length")

    def do(self, name: str, task: Step, folder: Run) -> TaskResult:
        """Do a task from the lengths of its sentences."""
        return _from_embeddings(self, name, task)

    def embed(self, sentences: Sequence[str]) -> Embedding:
        """Measure sentences."""
        self._sentences += len(sentences)
        lengths: Embedding = self.answers.embed(sentences)
        return lengths


class EncoderSession(Session):
    """An encoder at work, plain, whitened, or as a run of ours has trained it.

    Args:
        model: the model; its weights go to the device.
        precision: what embeddings are computed in.
        accelerator: what they are computed on.
    """

    embeds = True

    def __init__(self, model: LoadedModel, precision: str, accelerator: str) -> None:
        super().__init__(model.answers, model.name)
        self.model = model
        self.room: int = model.room
        self.precision = precision
        self.device = device_of(accelerator)
        self._cut = 0
        if model.run is not None:
            self.run = {key: model.record[key] for key in ("name", "config_hash", "seed")}
            self.seed = int(model.record["seed"])
        model.to(self.device)

    @property
    def encoder(self) -> dict[str, str]:
        """The encoder's name, and the sha256 of weights and tokenizer."""
        return {"name": self.model.encoder.name, **self.model.digests}

    @property
    def device_name(self) -> str:
        """What the embeddings are computed on."""
        return device_name(self.device)

    def options(self) -> dict[str, Any]:
        """Return how sentences are read."""
        encoder, answers = self.model.encoder, self.model.answers
        return {
            "method": self.kind,
            "pooling": encoder.pooling,
            "templates": [[template.prefix, template.suffix] for template in self.model.templates],
            "max_length": encoder.max_length,
            **({"whitening": answers.fitted_on} if isinstance(answers, Whitening) else {}),
        }

    def root(self, runs_dir: Path) -> Path:
        """Return the folder of its evaluations, which a run holds itself."""
        return super().root(runs_dir) if self.model.run is None else self.model.run / "evaluate"

    def suits(self, task: Step) -> bool:
        """Whether it answers what a task asks; vectors, as mteb does, of every encoder."""
        return isinstance(task, MTEBTask) or super().suits(task)

    def do(self, name: str, task: Step, folder: Run) -> TaskResult:
        """Do a task from the embeddings of its sentences."""
        if isinstance(task, MTEBTask):
            width, cache = self.model.encoder.width, folder.path / "mteb"
            return task.evaluate(self, self.name, folder.config_hash, cache, width=width, room=self.room)
        return _from_embeddings(self, name, task, "" if self.precision == "32-true" else ": use precision=32-true")

    def embed(self, sentences: Sequence[str]) -> Embedding:
        """Embed sentences, some at a time, under a progress bar where there is a terminal."""
        ids = self.model.encoder.tokenizer(sentences)
        self._sentences += len(ids)
        self._cut += sum(len(sentence) > self.room for sentence in ids)
        parts = []
        with _sentences_bar(self.now, len(sentences)) as advance:
            for start in range(0, len(sentences), SENTENCES_AT_ONCE):
                some = sentences[start : start + SENTENCES_AT_ONCE]
                with torch.autocast(self.device.type, torch.bfloat16, enabled=self.precision == "bf16-mixed"):
                    parts.append(self.model.answers.embed(some))
                advance(len(some))
        return Embedding.cat(parts)

    def features(self, embedding: Any) -> torch.Tensor:
        """Return the vectors of the primary view: (n, d)."""
        return self.model.answers.features(embedding)

    def work(self) -> Work:
        """Return how many sentences were embedded, and how many of them cut, since this was asked last."""
        work, self._cut = dataclasses.replace(super().work(), cut=self._cut), 0
        return work


def _from_embeddings(session: LengthSession | EncoderSession, name: str, task: Step, remedy: str = "") -> TaskResult:
    """Do a task with one pass over its sentences.

    Raises:
        TaskError: if a number of an embedding is not finite.
    """
    own = cast(Task, task)  # `suits` lets through nothing else
    embedded = Embedded(session, own.sentences("test"))
    if not embedded.is_finite:
        raise TaskError(f"the task {name}: some embeddings of {session.name} are not finite numbers{remedy}")
    return own.evaluate(session.answers, embedded, "test")


@contextmanager
def _sentences_bar(label: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show how many sentences are embedded; give the function that is told of every new batch."""
    with progress() as bar:
        task = bar.add_task(f"{label}: sentences", total=total)
        yield lambda count: bar.advance(task, count)
