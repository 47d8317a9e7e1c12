"""Models in Python: `load` one by its name, and ask it about sentences. Neither Lightning nor Hydra is imported."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypedDict, Unpack, overload

import numpy as np
import torch
from torch import Tensor

from lightning_cse.analysis.searching import checked_view, finite, swapped
from lightning_cse.embeddings import Embedding
from lightning_cse.engine.load import LoadedModel, check_device, load_model
from lightning_cse.errors import ConfigError, TaskError
from lightning_cse.progress import progress
from lightning_cse.runs.machine import device_of
from lightning_cse.similarity import every_pair, is_same

if TYPE_CHECKING:
    from lightning_cse.engine.mteb_suite import MTEBModel

Sentences = str | Iterable[str]
Scores = float | np.ndarray

DTYPES: Final[dict[str, torch.dtype]] = {
    "auto": torch.float32,
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
}
QUESTIONS: Final = {
    "similarity": "similarity",
    "entailment": "entailment_score",
    "implicitness": "implicitness",
}


def load(
    path_or_name: str | Path,
    device: str | torch.device = "auto",
    dtype: str | torch.dtype = "auto",
    *,
    pooling: str = "auto",
) -> SentenceModel:
    """Load a model: a run's folder, an exported or another encoder's folder, a hub id, or a name of ``conf/encoder``.

    ``device="auto"`` is a CUDA GPU, else the CPU. ``dtype="auto"`` is float32, in which `lightning_cse.evaluate`
    measures; ``"bfloat16"`` is faster on hardware that multiplies it fast. Results are always float32.
    ``pooling`` is for a folder that does not say how it pools. Raises EncoderError if there is no such model,
    ConfigError if this machine has no such device.
    """
    check_device(str(device), "device")
    if (kind := str(dtype).removeprefix("torch.")) not in DTYPES:
        raise ConfigError([f"dtype: must be {' or '.join(DTYPES)}, got {kind!r}"])
    return SentenceModel(
        load_model(path_or_name, pooling=pooling), device_of(str(device)), DTYPES[kind]
    )


class Encoding(TypedDict, total=False):
    """Options of `SentenceModel.encode`."""

    batch_size: int
    normalize: bool
    show_progress: bool | None


class SentenceModel:
    """A model that embeds sentences and answers questions about them, in evaluation mode.

    A question takes one string or several sentences, row by row; a single string is compared with each of several
    sentences. The answer is a float if every argument is a string, else an array (n,). A question that the model does
    not answer raises TaskError.

    ``views`` are the names of a sentence's vectors, the primary one first: ``primary``; ``mean``, ``variance``
    (GaussCSE); ``explicit``, ``implicit`` (DualCSE), and ``explicit_variance``, ``implicit_variance`` (DualGauss);
    ``pragmatic``, ``semantic`` (ImpScore). Sentences longer than ``max_length`` tokens are cut.
    """

    def __init__(
        self, loaded: LoadedModel, device: torch.device, dtype: torch.dtype = torch.float32
    ) -> None:
        self.loaded, self.name, self.max_length = loaded, loaded.name, loaded.room
        self.answers, self.device, self.dtype = loaded.answers.to(device), device, dtype
        self._who = f"{self.name} ({loaded.method})"
        self._like = self.embed("a")
        self.views = list(_vectors(self._like))

    def __repr__(self) -> str:
        """Return name, views and device."""
        return f"SentenceModel({self.name!r}, {self.loaded.method}, views={self.views}, device={str(self.device)!r})"

    @cached_property
    def questions(self) -> list[str]:
        """The names of the methods that this model answers besides ``encode`` and ``similarity_matrix``."""
        known = [name for name, question in QUESTIONS.items() if hasattr(self.answers, question)]
        score = getattr(self.answers, "entailment_score", None)
        if score and not is_same(score, swapped(score), self._like):
            known.append("direction")
        return known

    @overload
    def encode(
        self,
        sentences: Sentences,
        view: str | None = ...,
        *,
        convert_to: Literal["torch"],
        **how: Unpack[Encoding],
    ) -> Tensor: ...

    @overload
    def encode(
        self,
        sentences: Sentences,
        view: str | None = ...,
        *,
        convert_to: Literal["numpy"] = ...,
        **how: Unpack[Encoding],
    ) -> np.ndarray: ...

    def encode(
        self,
        sentences: Sentences,
        view: str | None = None,
        *,
        batch_size: int = 1024,
        normalize: bool = False,
        show_progress: bool | None = None,
        convert_to: Literal["numpy", "torch"] = "numpy",
    ) -> np.ndarray | Tensor:
        """Return the vectors of sentences in one of the ``views``, in float32: (d,) for a string, else (n, d).

        The vectors are as in an evaluation, in the order of the sentences; ``normalize`` scales each to length 1.
        ``batch_size`` sentences of similar length are packed and encoded between two updates of the progress bar, which
        None shows only on a terminal. It does not bound memory; the encoder does so by tokens. ``convert_to="torch"``
        gives a tensor in main memory.
        """
        if convert_to not in ("numpy", "torch"):
            raise ConfigError([f"convert_to: must be numpy or torch, got {convert_to!r}"])
        view, texts = checked_view(self._who, view, self.views), _listed(sentences)
        order = sorted(
            range(len(texts)), key=lambda row: -len(texts[row])
        )  # the longest first: they need most memory
        vectors = torch.empty(len(texts), _vectors(self._like)[view].shape[1])
        with progress(shown=show_progress) as bar:
            starts = range(0, len(texts), batch_size)
            for start in bar.track(starts, description=f"{len(texts):,} sentences"):
                rows = order[start : start + batch_size]
                vectors[rows] = _vectors(self.embed(texts[row] for row in rows))[view]
        if normalize:
            vectors = torch.nn.functional.normalize(vectors, dim=1)
        found = vectors[0] if isinstance(sentences, str) else vectors
        return found if convert_to == "torch" else found.numpy()

    def embed(self, sentences: Sentences) -> Embedding:
        """Return all views of sentences at once, as an `Embedding` in main memory."""
        if not (texts := _listed(sentences)):
            return self._like[:0]
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.dtype != torch.float32):
            return finite(self.answers.embed(texts))

    def similarity(self, a: Sentences, b: Sentences) -> Scores:
        """Return how similar sentences are by the model's own symmetric measure, mostly the cosine of a view."""
        return self._ask(self._question("similarity"), a, b)

    def similarity_matrix(self, a: Sentences, b: Sentences | None = None) -> np.ndarray:
        """Return the similarity of each of ``a`` (n) with each of ``b`` (m), by default with each of ``a``: (n, m)."""
        first = self.embed(a)
        with torch.no_grad():
            scores = every_pair(self._question("similarity"), self._like)
            return np.asarray(scores(first, first if b is None else self.embed(b)))

    def entailment(self, premises: Sentences, hypotheses: Sentences) -> Scores:
        """Return how far premises entail hypotheses; a threshold for a decision comes from an evaluation."""
        return self._ask(self._question("entailment"), premises, hypotheses)

    def direction(self, a: Sentences, b: Sentences) -> Scores:
        """Return a positive number where ``a`` entails ``b`` rather than ``b`` entails ``a``, else a negative one."""
        score = self._question("entailment" if "direction" in self.questions else "direction")
        return self._ask(lambda x, y: score(x, y).double() - score(y, x).double(), a, b)

    def implicitness(self, sentences: Sentences) -> Scores:
        """Return how much more sentences imply than they say."""
        return self._ask(self._question("implicitness"), sentences)

    def to_mteb(self) -> MTEBModel:
        """Return this model as a model of the mteb library, for ``mteb.evaluate(model.to_mteb(), tasks)``."""
        from lightning_cse.engine.mteb_suite import MTEBModel

        width, revision = self.encode("a").shape[0], self.loaded.digests["weights"][:12]
        return MTEBModel(
            self.encode,
            name=self.name,
            revision=revision,
            embed_dim=width,
            max_tokens=self.max_length,
        )

    def _question(self, name: str) -> Callable[..., Tensor]:
        ask: Callable[..., Tensor] | None = getattr(self.answers, QUESTIONS.get(name, name), None)
        if ask is None:
            raise TaskError(f"{self._who} has no {name} (it has: {', '.join(self.questions)})")
        return ask

    def _ask(self, ask: Callable[..., Tensor], *sides: Sentences) -> Scores:
        embedded = [self.embed(side) for side in sides]
        counts = [
            len(each)
            for side, each in zip(sides, embedded, strict=True)
            if not isinstance(side, str)
        ]
        count = max(counts, default=1)
        first = torch.zeros(count, dtype=torch.long)
        rows = [
            each[first] if isinstance(side, str) else each
            for side, each in zip(sides, embedded, strict=True)
        ]
        if any(len(each) != count for each in rows):
            raise ValueError(
                f"{' and '.join(str(len(each)) for each in rows)} sentences cannot be compared row by row"
            )
        with torch.no_grad():
            scores = ask(*rows)
        return float(scores) if all(isinstance(side, str) for side in sides) else np.asarray(scores)


def _listed(sentences: Sentences) -> list[str]:
    return [sentences] if isinstance(sentences, str) else list(sentences)


def _vectors(embedding: Embedding) -> dict[str, Tensor]:
    """Return the views of an embedding, and its variances, by name."""
    logs = {
        name.replace("log_", ""): value
        for name, value in embedding.fields().items()
        if "log_variance" in name
    }
    return embedding.views() | {name: value.exp() for name, value in logs.items()}
