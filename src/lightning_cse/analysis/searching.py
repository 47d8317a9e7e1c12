"""A corpus of sentences that a model searches: its index on disk, and the best sentences for a query."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
import logging
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text
from torch import Tensor

from lightning_cse.embeddings import Embedding
from lightning_cse.errors import EncoderError, TaskError, did_you_mean
from lightning_cse.index import (
    Best,
    ExactIndex,
    Index,
    IndexFolder,
    IndexFolderError,
    SentenceFile,
    build_index,
    differences,
)
from lightning_cse.index.building import corpus_identity, is_taken
from lightning_cse.runs.machine import device_of
from lightning_cse.similarity import cosine, cosine_matrix

if TYPE_CHECKING:  # heavy, and what is wrong with a corpus or an index is told without
    from lightning_cse.engine.load import LoadedModel
    from lightning_cse.evaluation.task import Answers

__all__ = [
    "RELATIONS",
    "Comparison",
    "Found",
    "Searcher",
    "check_index",
    "comparison",
    "default_folder",
    "drawn_like",
    "embedder",
    "finite",
    "is_same_both_ways",
    "model_identity",
    "open_folder",
]

log = logging.getLogger(__name__)

RELATIONS: Final = {"similar": "similarity", "entails": "entailment_score", "entailed_by": "entailment_score"}
"""The question of a method that each relation asks; ``entails``: the query is the premise."""

QUERIES_AT_ONCE: Final = 256
BLOCK: Final = 8192

# Float32 may order what is equal within 1e-7 the wrong way round at the edge of the best, before they are scored in
# float64: a few more are asked for.
_MARGIN: Final = 16

# A divergence orders sentences otherwise than the cosine that their candidates are chosen by.
_OVERSAMPLED: Final = 20
_AT_LEAST: Final = 200

_LOOKED_AT: Final = 1000  # rows of a corpus, before a model is loaded
_TOLD_EVERY: Final = 30.0  # seconds, where there is no terminal for a bar


@dataclass(frozen=True)
class Found:
    """A sentence that was found: its score, the line of the corpus where it first stands, how often it stands there."""

    score: float
    sentence: str
    line: int
    times: int


@dataclass(frozen=True)
class Comparison:
    """How a query is compared with sentences: by the cosine of two views, or by a question that the method answers.

    Attributes:
        name: what it is called: the relation, or the views.
        ask: the score of each row of the query with the same row of the sentences, in this order: (n,).
        views: the view of the query and that of the sentences, where the score is their cosine.
    """

    name: str
    ask: Callable[[Any, Any], Tensor]
    views: tuple[str, str] | None = None

    def matrix(self, queries: Embedding, sentences: Embedding) -> Tensor:
        """Return the score of every query with every sentence: (q, m)."""
        if self.views is not None:
            return cosine_matrix(queries.views()[self.views[0]], sentences.views()[self.views[1]])
        return torch.stack(
            [self.ask(_repeated(queries, row, len(sentences)), sentences) for row in range(len(queries))]
        )


def comparison(answers: Answers, like: Embedding, relation: str, view: str | None, against: str | None) -> Comparison:
    """Return how a model compares a query with sentences.

    A view is compared by cosine, with the primary view of the sentences unless another is given: DualCSE learns to
    bring the implicit vector of a premise close to the explicit one of what it implies (its table 3 searches so).

    Args:
        answers: the model.
        like: embeddings of the model, whichever: their kind and width are looked at, no number of them.
        relation: of `RELATIONS`.
        view: a view of the query, in place of the model's own similarity.
        against: the view of the sentences that it is compared with.

    Raises:
        TaskError: if the model does not answer the question, answers it the same both ways where a direction is asked
            for, or has no such view.
    """
    names = list(like.views())
    for option, given in (("--view", view), ("--against", against)):
        if given is not None and given not in names:
            raise TaskError(
                f"{option}: {type(answers).__name__} has no view {given!r}{did_you_mean(given, names)} "
                f"(it has: {', '.join(names)})"
            )
    if view is not None or against is not None:
        if relation != "similar":
            raise TaskError(
                f"--relation {relation} is a question about whole embeddings: leave --view and --against out"
            )
        mine, theirs = view or names[0], against or names[0]
        return Comparison(
            f"{mine} with {theirs}", lambda a, b: cosine(a.views()[mine], b.views()[theirs]), (mine, theirs)
        )
    question = getattr(answers, RELATIONS[relation], None)
    if question is None:
        there = [name for name, asked in RELATIONS.items() if hasattr(answers, asked)]
        raise TaskError(
            f"--relation {relation} needs {RELATIONS[relation]!r}, which {type(answers).__name__} does not answer; "
            f"it has: {', '.join(there) or 'none'}"
        )
    if relation != "similar" and is_same_both_ways(question, like):
        raise TaskError(
            f"--relation {relation}: the score of {type(answers).__name__} is the same both ways, so there is no "
            "direction to ask for; use --relation similar"
        )

    def ask(query: Any, sentence: Any) -> Tensor:
        scores: Tensor = question(sentence, query) if relation == "entailed_by" else question(query, sentence)
        return scores

    return Comparison(relation, ask, (names[0], names[0]) if _is_cosine(ask, like) else None)


def is_same_both_ways(question: Callable[[Any, Any], Tensor], like: Embedding) -> bool:
    """Say whether a model's answer about two sentences does not depend on which of them is the premise.

    Asked about random embeddings and not by the name of the method, so that a new method need not be known here.
    """
    a, b = drawn_like(like)
    return bool(torch.allclose(question(a, b), question(b, a), rtol=1e-5, atol=1e-9))


def drawn_like(like: Embedding) -> tuple[Embedding, Embedding]:
    """Return random embeddings in float64, 16 and 16, of a kind and width: always the same ones."""
    draws = torch.Generator().manual_seed(0)
    a, b = (
        type(like)(
            **{
                name: torch.randn(16, field.shape[1], generator=draws, dtype=torch.float64)
                for name, field in like.fields().items()
            }
        )
        for _ in range(2)
    )
    return a, b


def _is_cosine(ask: Callable[[Any, Any], Tensor], like: Embedding) -> bool:
    """Say whether a question is answered by the cosine of the primary views, which is then computed as a matrix.

    Asked as in `is_same_both_ways`. The scores that are shown are the method's own answers in any case.
    """
    a, b = drawn_like(like)
    want = cosine(next(iter(a.views().values())), next(iter(b.views().values())))
    return bool(torch.allclose(ask(a, b).to(want.dtype), want, rtol=0, atol=1e-6))


class Searcher:
    """Answers queries from an index.

    Every score is the model's own answer in float64, however the candidates were found, so that a sentence has the same
    score with every kind of index. Exact indices look at all sentences. The others give candidates by the cosine with
    the primary view; for a score that is no such cosine (a divergence, the larger of two cosines) these are 20 for each
    sentence asked for and at least 200, by each view of the query, and the best of them are approximate.

    Args:
        embed: queries to embeddings.
        folder: the sentences.
        index: what finds candidates in it.
        compared: how they are scored.
    """

    def __init__(
        self, embed: Callable[[Sequence[str]], Embedding], folder: IndexFolder, index: Index, compared: Comparison
    ) -> None:
        self.embed = embed
        self.folder = folder
        self.index = index
        self.compared = compared

    @property
    def looks_at_all(self) -> bool:
        """Whether every sentence is compared: always, where a view is asked for that no index is built over."""
        views = self.compared.views
        return self.index.kind == ExactIndex.kind or (views is not None and views[1] != self.folder.primary)

    def search(self, queries: Sequence[str], count: int) -> list[list[Found]]:
        """Return the best sentences for each query, best first; of equal scores the one that stands first.

        Args:
            queries: the sentences to look for.
            count: how many are returned; all, where there are no more.

        Raises:
            EncoderError: if the embedding of a query is not finite.
            ValueError: if ``count`` is below 1.
        """
        if count < 1:
            raise ValueError(f"need a count of at least 1, got {count}")
        found: list[list[Found]] = []
        for start in range(0, len(queries), QUERIES_AT_ONCE):
            embedding = finite(self.embed(list(queries[start : start + QUERIES_AT_ONCE])))
            for row, candidates in enumerate(self._candidates(embedding, count)):
                found.append(self._best(embedding, row, candidates, count))
        return found

    def _candidates(self, queries: Embedding, count: int) -> list[np.ndarray[Any, np.dtype[np.int64]]]:
        """Return the rows that may be among the best of each query."""
        if self.looks_at_all:
            best = Best(count + _MARGIN)
            for block in self.folder.blocks(BLOCK):
                best.add(self.compared.matrix(queries, block))
            return list(best.rows.numpy())
        views = queries.views()
        if self.compared.views is not None:
            found = [self.index.candidates(views[self.compared.views[0]], count + _MARGIN)]
        else:
            many = max(_AT_LEAST, _OVERSAMPLED * count)
            found = [self.index.candidates(view, many) for view in views.values()]
        return [rows[rows >= 0] for rows in np.concatenate(found, axis=1)]

    def _best(
        self, queries: Embedding, row: int, candidates: np.ndarray[Any, np.dtype[np.int64]], count: int
    ) -> list[Found]:
        rows = np.unique(candidates)
        sentences = self.folder.embedding(rows).to(torch.float64)
        scores = self.compared.ask(_repeated(queries.to(torch.float64), row, len(rows)), sentences)
        order = scores.sort(descending=True, stable=True).indices[:count].tolist()
        chosen = ((float(scores[place]), int(rows[place])) for place in order)
        return [
            Found(score, self.folder.sentence(place), self.folder.line(place), self.folder.times(place))
            for score, place in chosen
        ]


def finite(embedding: Embedding) -> Embedding:
    """Return an embedding as it is.

    Raises:
        EncoderError: if a number of it is not finite.
    """
    if not all(bool(torch.isfinite(value).all()) for value in embedding.fields().values()):
        raise EncoderError("some embeddings are not finite numbers: the weights of the run are broken; train it again")
    return embedding


def _repeated(embedding: Embedding, row: int, times: int) -> Embedding:
    """Return one sentence so many times, without a copy."""
    fields = {name: value[row : row + 1].expand(times, -1) for name, value in embedding.fields().items()}
    return type(embedding)(**fields)


# --------------------------------------------------------------------------------------------------- a model's index


def embedder(model: LoadedModel, precision: str, accelerator: str) -> Callable[[Sequence[str]], Embedding]:
    """Put a model on its device, and return what embeds with it in a precision.

    Args:
        model: the model.
        precision: ``32-true`` or ``bf16-mixed``.
        accelerator: as `lightning_cse.runs.machine.device_of`.
    """
    device = device_of(accelerator)
    model.answers.to(device)

    def embed(sentences: Sequence[str]) -> Embedding:
        with torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16-mixed"):
            return model.answers.embed(sentences)

    return embed


def model_identity(model: LoadedModel, precision: str) -> dict[str, Any]:
    """Return the name of a model and everything that decides its vectors."""
    decides = {
        **model.digests,
        "run": model.record.get("config_hash"),
        "method": type(model.answers).__name__,
        "pooling": model.encoder.pooling,
        "templates": [[list(template.prefix), list(template.suffix)] for template in model.templates],
        "max_length": model.encoder.max_length,
        "precision": precision,
    }
    return {"name": model.name, "decides": decides}


def default_folder(cache: Path, corpus: SentenceFile, model: LoadedModel, precision: str) -> Path:
    """Return where an index lies that was given no place: its name says the corpus, and is made of all digests."""
    decides = [model_identity(model, precision)["decides"], corpus_identity(corpus)["decides"]]
    digest = hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()[:10]
    return cache / "index" / f"{corpus.path.name.split('.')[0] or 'corpus'}-{digest}"


def open_folder(
    path: Path,
    corpus: SentenceFile | None,
    model: LoadedModel,
    *,
    precision: str,
    embed: Callable[[Sequence[str]], Embedding],
    tell: Callable[[str], None],
    rebuild: bool = False,
) -> IndexFolder:
    """Return the index of a corpus by a model: the one that is there if it fits, else a new one.

    Args:
        path: its folder.
        corpus: the sentences; None to take the index that is there for whatever corpus.
        model: the model.
        precision: what it embeds in.
        embed: what embeds with it.
        tell: is told what is built, and of sentences that were left out.
        rebuild: whether an index that does not fit, or is damaged, gives way to a new one.

    Raises:
        IndexFolderError: if the index that is there does not fit, or there is none and no corpus.
        DataError: as `SentenceFile`.
        LightningCSEError: as `build_index`.
    """
    wanted: dict[str, Any] = {"model": model_identity(model, precision)}
    if corpus is not None:
        wanted["corpus"] = corpus_identity(corpus)
    if is_taken(path) and not (rebuild and corpus is not None):
        return _fitting(path, wanted)
    if corpus is None:
        raise IndexFolderError(f"{path}: no index there; give --corpus to build one")
    tell(f"index: building {path}")
    with _progress(tell) as advance:
        folder = build_index(path, corpus, embed, model=wanted["model"], advance=advance, replace=rebuild)
    empty, again = folder.about["empty"], folder.about["lines"] - folder.about["empty"] - folder.count
    left_out = ", ".join(
        f"{number:,} {what}" for number, what in ((empty, "empty"), (again, "for the second time or more")) if number
    )
    tell(f"index: {folder.count:,} sentences{f' ({left_out} left out)' if left_out else ''}")
    return folder


def _fitting(path: Path, wanted: dict[str, Any]) -> IndexFolder:
    folder = IndexFolder.open(path)
    if stale := differences(folder.about, wanted):
        lines = "".join(f"\n  {line}" for line in stale)
        raise IndexFolderError(
            f"{path}: an index of something else:{lines}\ngive --corpus and --rebuild to build it again, or "
            "another folder with --index"
        )
    return folder


def check_index(path: Path | None, corpus: SentenceFile | None, kind: str, *, rebuild: bool = False) -> None:
    """Raise what is wrong with a corpus and its index as far as no model is needed to see it.

    Args:
        path: the folder of the index; None where the model decides it.
        corpus: the sentences, of which the first rows are read; None to take the index that is there.
        kind: of `lightning_cse.index.KINDS`, or ``auto``.
        rebuild: whether an index that does not fit gives way to a new one.

    Raises:
        DataError: as `SentenceFile`.
        IndexFolderError: if faiss is asked for and not installed, or the index is none, damaged, of another corpus, or
            not there and there is no corpus.
    """
    if kind not in ("auto", ExactIndex.kind) and importlib.util.find_spec("faiss") is None:
        raise IndexFolderError(f"--kind {kind} needs faiss: pip install faiss-cpu, or use --kind exact")
    if corpus is not None:
        sentences = [sentence for _, sentence in islice(corpus, _LOOKED_AT)]
        if not any(sentences):
            corpus.survey()  # tells what is empty, the file or all of its lines
    if path is None:
        return
    if not is_taken(path):
        if corpus is None:
            raise IndexFolderError(f"{path}: no index there; give --corpus to build one")
    elif corpus is None or not rebuild:
        _fitting(path, {} if corpus is None else {"corpus": corpus_identity(corpus)})
    elif not (path / "index.json").is_file():
        raise IndexFolderError(f"{path} is there already and is no index; give another folder with --index")


class _Rate(ProgressColumn):
    """Sentences a second, of this call."""

    def render(self, task: Task) -> Text:
        """Return the rate, once there is one."""
        return Text(f"{task.speed:,.0f}/s" if task.speed else "")


@contextlib.contextmanager
def _progress(tell: Callable[[str], None]) -> Iterator[Callable[[int, int], None]]:
    """Show how many sentences are embedded: as a bar in a terminal, else as a line twice a minute."""
    if not sys.stderr.isatty():
        yield _Lines(tell)
        return
    columns: Iterable[ProgressColumn] = (
        *(TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), _Rate(), TimeRemainingColumn()),
    )
    # A slow encoder takes longer for a chunk than the half minute that rich looks back for a rate.
    with Progress(*columns, console=Console(stderr=True), transient=True, speed_estimate_period=900) as progress:
        task = progress.add_task("sentences", total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


class _Lines:
    """How far a build is, in lines."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._begun: tuple[float, int] | None = None
        self._told = time.monotonic()

    def __call__(self, done: int, total: int) -> None:
        now = time.monotonic()
        if self._begun is None:
            self._begun = now, done
            if done:
                self._tell(f"index: going on after {done:,} of {total:,} sentences")
        if now - self._told >= _TOLD_EVERY and done > self._begun[1]:
            rate = (done - self._begun[1]) / (now - self._begun[0])
            self._tell(
                f"index: {done:,} of {total:,} sentences, {rate:,.0f} a second, "
                f"{(total - done) / rate / 60:,.0f} min left"
            )
            self._told = now
