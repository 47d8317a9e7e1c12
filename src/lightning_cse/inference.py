"""A model in Python: `load` it by its name, and ask it about sentences. Neither Lightning nor Hydra is imported."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property
from pathlib import Path
from typing import Final, Literal, overload

import numpy as np
import torch
from torch import Tensor

from lightning_cse.embeddings import Embedding
from lightning_cse.engine.load import LoadedModel, check_device, load_model
from lightning_cse.errors import ConfigError, EncoderError, TaskError, did_you_mean
from lightning_cse.runs.machine import device_of

Sentences = str | Iterable[str]
Scores = float | np.ndarray

DTYPES: Final[dict[str, torch.dtype]] = {"auto": torch.float32, "float32": torch.float32, "bfloat16": torch.bfloat16}
QUESTIONS: Final = {"similarity": "similarity", "entailment": "entailment_score", "implicitness": "implicitness"}


def load(
    path_or_name: str | Path,
    device: str | torch.device = "auto",
    dtype: str | torch.dtype = "auto",
    *,
    pooling: str = "auto",
) -> SentenceModel:
    """Load a model: a run's folder, an exported or another encoder's folder, a hub id, or a name of ``conf/encoder``.

    ``device="auto"`` is a CUDA GPU, else the CPU. ``dtype="auto"`` is float32, in which `lightning_cse.evaluate`
    measures; ``"bfloat16"`` is faster where the hardware multiplies it fast. Results are float32 in any case.
    ``pooling`` is for a folder that does not say how it pools. Raises EncoderError if there is no such model,
    ConfigError if this machine has no such device.
    """
    check_device(str(device), "device")
    name = str(dtype).removeprefix("torch.")
    if name not in DTYPES:
        raise ConfigError([f"dtype: must be {' or '.join(DTYPES)}, got {name!r}"])
    return SentenceModel(load_model(path_or_name, pooling=pooling), device_of(str(device)), DTYPES[name])


class SentenceModel:
    """A model that embeds sentences and answers questions about them, in evaluation mode.

    A question takes sentences as one string or several, row by row; one string beside several is compared with each of
    them. Answers are a float where every argument is a string, else an array (n,). A question that the model does not
    answer raises TaskError.
    """

    def __init__(self, loaded: LoadedModel, device: torch.device, dtype: torch.dtype = torch.float32) -> None:
        self.answers = loaded.answers.to(device)
        self.loaded = loaded
        self.name = loaded.name
        self.device = device
        self.dtype = dtype

    def __repr__(self) -> str:
        """Return name, views and device."""
        return f"SentenceModel({self.name!r}, {self.loaded.method}, views={self.views}, device={str(self.device)!r})"

    @property
    def max_length(self) -> int:
        """How many tokens of a sentence are read; those beyond are cut."""
        return self.loaded.room

    @cached_property
    def views(self) -> list[str]:
        """The names of the vectors of a sentence, the primary one first."""
        return list(self._widths)

    @property
    def questions(self) -> list[str]:
        """The names of the methods that this model answers besides ``encode`` and ``similarity_matrix``."""
        known = [name for name, question in QUESTIONS.items() if hasattr(self.answers, question)]
        return [*known, "direction"] if self._has_direction else known

    @overload
    def encode(
        self,
        sentences: Sentences,
        view: str | None = None,
        *,
        batch_size: int = 1024,
        normalize: bool = False,
        show_progress: bool | None = None,
        convert_to: Literal["numpy"] = "numpy",
    ) -> np.ndarray: ...

    @overload
    def encode(
        self,
        sentences: Sentences,
        view: str | None = None,
        *,
        batch_size: int = 1024,
        normalize: bool = False,
        show_progress: bool | None = None,
        convert_to: Literal["torch"],
    ) -> Tensor: ...

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
        """Return the vectors of sentences in one of the `views`, by default the primary one, in float32.

        A string gives a vector (d,), several a matrix (n, d) in their order, equal to what evaluation embeds.

        Args:
            sentences: one or several.
            view: ``primary`` (one vector a sentence), ``mean``, ``variance`` (GaussCSE), ``explicit``, ``implicit``
                (DualCSE), those two, ``explicit_variance``, ``implicit_variance`` (DualGauss), ``pragmatic``,
                ``semantic`` (ImpScore).
            batch_size: sentences between two updates of the progress bar, sorted by length and packed; the tokens
                that go through the encoder at once are bounded apart from it.
            normalize: scale each vector to length 1.
            show_progress: show a bar; None shows one on a terminal.
            convert_to: ``numpy``, or ``torch`` for a tensor in main memory.
        """
        from lightning_cse.progress import progress

        if convert_to not in ("numpy", "torch"):
            raise ConfigError([f"convert_to: must be numpy or torch, got {convert_to!r}"])
        view = view or self.views[0]
        if view not in self._widths:
            near = did_you_mean(view, self.views)
            raise TaskError(f"{self._who} has no view {view!r}{near} (it has: {', '.join(self.views)})")
        texts = _listed(sentences)
        order = sorted(range(len(texts)), key=lambda row: -len(texts[row]))  # so the longest, memory's test, come first
        vectors = torch.empty(len(texts), self._widths[view])
        with progress(shown=show_progress) as bar:
            starts = range(0, len(texts), batch_size)
            for start in bar.track(starts, description=f"{len(texts):,} sentences"):
                rows = order[start : start + batch_size]
                vectors[rows] = _vectors(self.embed([texts[row] for row in rows]))[view]
        if normalize:
            vectors = torch.nn.functional.normalize(vectors, dim=1)
        found = vectors[0] if isinstance(sentences, str) else vectors
        return found if convert_to == "torch" else found.numpy()

    def embed(self, sentences: Sentences) -> Embedding:
        """Return all views of sentences at once, as `lightning_cse.embeddings` has them, in main memory."""
        if not (texts := _listed(sentences)):
            return self._like[:0]
        enabled = self.dtype != torch.float32
        with torch.autocast(self.device.type, torch.bfloat16, enabled=enabled):
            embedding = self.answers.embed(texts)
        if not all(bool(torch.isfinite(value).all()) for value in embedding.fields().values()):
            raise EncoderError(f"{self._who}: some embeddings are not finite numbers in {self.dtype}")
        return embedding

    def similarity(self, a: Sentences, b: Sentences) -> Scores:
        """Return how similar sentences are, symmetric: the model's own measure, mostly the cosine of a view."""
        return self._ask(self._question("similarity"), a, b)

    def similarity_matrix(self, a: Sentences, b: Sentences | None = None) -> np.ndarray:
        """Return the similarity of each of ``a`` (n) with each of ``b`` (m), by default with each of ``a``: (n, m)."""
        from lightning_cse.analysis.searching import comparison

        first = self.embed(a)
        with torch.no_grad():
            scores = comparison(self.answers, self._like).scores
            return np.asarray(scores(first, first if b is None else self.embed(b)))

    def entailment(self, premises: Sentences, hypotheses: Sentences) -> Scores:
        """Return how far premises entail hypotheses; a threshold for a decision comes from an evaluation."""
        return self._ask(self._question("entailment"), premises, hypotheses)

    def direction(self, a: Sentences, b: Sentences) -> Scores:
        """Return a positive number where ``a`` entails ``b`` rather than ``b`` entails ``a``, else a negative one."""
        own = getattr(self.answers, "direction", None)
        score = own or self._question("entailment" if self._has_direction else "direction")
        return self._ask(own or (lambda x, y: score(x, y).double() - score(y, x).double()), a, b)

    def implicitness(self, sentences: Sentences) -> Scores:
        """Return how much more sentences imply than they say."""
        return self._ask(self._question("implicitness"), sentences)

    def _question(self, name: str) -> Callable[..., Tensor]:
        if (ask := getattr(self.answers, QUESTIONS.get(name, name), None)) is None:
            raise TaskError(f"{self._who} has no {name} (it has: {', '.join(self.questions)})")
        return ask  # type: ignore[no-any-return]

    def _ask(self, ask: Callable[..., Tensor], *sides: Sentences) -> Scores:
        listed = [_listed(side) for side in sides]
        count = max(map(len, listed))
        whole = [texts * count if isinstance(side, str) else texts for side, texts in zip(sides, listed, strict=True)]
        if any(len(texts) != count for texts in whole):
            raise ValueError(f"{' and '.join(str(len(texts)) for texts in listed)} sentences are not compared in rows")
        row = {text: number for number, text in enumerate(dict.fromkeys(text for texts in listed for text in texts))}
        embedding = self.embed(row)
        with torch.no_grad():
            scores = ask(*(embedding[torch.tensor([row[text] for text in texts], dtype=torch.long)] for texts in whole))
        return float(scores) if all(isinstance(side, str) for side in sides) else np.asarray(scores)

    @property
    def _who(self) -> str:
        return f"{self.name} ({self.loaded.method})"

    @cached_property
    def _like(self) -> Embedding:
        return self.embed(["a"])

    @cached_property
    def _widths(self) -> dict[str, int]:
        return {view: vectors.shape[1] for view, vectors in _vectors(self._like).items()}

    @cached_property
    def _has_direction(self) -> bool:
        from lightning_cse.analysis.searching import is_same, swapped

        score = getattr(self.answers, "entailment_score", None)
        return hasattr(self.answers, "direction") or (
            score is not None and not is_same(score, swapped(score), self._like)
        )


def _listed(sentences: Sentences) -> list[str]:
    return [sentences] if isinstance(sentences, str) else list(sentences)


def _vectors(embedding: Embedding) -> dict[str, Tensor]:
    """Return the views of an embedding, and variances under their own names."""
    logs = {name.replace("log_", ""): value for name, value in embedding.fields().items() if "log_variance" in name}
    return embedding.views() | {name: value.exp() for name, value in logs.items()}
