"""Searches sentences: exactly, or among the candidates of a faiss index, which are then scored again exactly."""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
from argparse import Namespace
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
import torch
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text
from torch import Tensor

from lightning_cse.analysis.inputs import layout_of, read_frames
from lightning_cse.embeddings import Embedding
from lightning_cse.engine.load import LoadedModel, load_model
from lightning_cse.errors import ConfigError, DataError, EncoderError, TaskError, did_you_mean
from lightning_cse.progress import progress
from lightning_cse.runs import atomic_file, write_atomic
from lightning_cse.runs.machine import device_of
from lightning_cse.similarity import cosine, cosine_matrix

RELATIONS: Final = {"similar": "similarity", "entails": "entailment_score", "entailed_by": "entailment_score"}
"""The question of a model that each relation asks; ``entails``: the query is the premise."""

DIGITS: Final = 6  # of a score; float32 has no more
AT_ONCE: Final = 2048  # sentences between two updates of the progress bar
BLOCK: Final = 8192  # sentences that are compared together; bounds memory, changes no value
MARGIN: Final = 16  # further candidates: in float32, scores that are equal within 1e-7 may be in the wrong order
QUERIES: Final = 256  # that are embedded and answered together
CANDIDATES: Final = 200  # at least, of an index: other scores order sentences otherwise than the cosine
TRAINED_ON: Final = 100_000  # vectors, of an index

Embed = Callable[[Sequence[str]], Embedding]


@dataclass(frozen=True)
class Vectors:
    """The embeddings of a corpus in a file: (n, fields * width) in float32, read where they lie."""

    data: np.ndarray
    kind: type[Embedding]
    fields: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, rows: slice | np.ndarray) -> Embedding:
        """Return the embeddings of some sentences."""
        parts = torch.from_numpy(np.array(self.data[rows])).chunk(len(self.fields), dim=1)
        return self.kind(**dict(zip(self.fields, parts, strict=True)))

    @classmethod
    def stored(cls, path: Path, sentences: Sequence[str], embed: Embed) -> Vectors:
        """Return the embeddings of sentences that a file has; without the file, embed them and write it first."""
        like = embed(sentences[:1])
        if not path.is_file():
            width = sum(value.shape[1] for value in like.fields().values())
            header = {"descr": "<f4", "fortran_order": False, "shape": (len(sentences), width)}
            with progress() as bar, atomic_file(path) as file:
                np.lib.format.write_array_header_1_0(file, header)
                for start in bar.track(range(0, len(sentences), AT_ONCE), description="sentences"):
                    fields = finite(embed(sentences[start : start + AT_ONCE])).fields()
                    file.write(torch.cat(list(fields.values()), dim=1).numpy().astype("<f4").tobytes())
        return cls(np.load(path, mmap_mode="r"), type(like), tuple(like.fields()))


@dataclass(frozen=True)
class Comparison:
    """How a query is compared with sentences.

    Attributes:
        ask: the score of each row of the query with the same row of the sentences: (n,).
        views: the view of the query and that of the sentences, where the score is their cosine; else None.
    """

    ask: Callable[[Any, Any], Tensor]
    views: tuple[str, str] | None = None

    def matrix(self, queries: Embedding, sentences: Embedding) -> Tensor:
        """Return the score of every query with every sentence: (q, m)."""
        if self.views is not None:
            return cosine_matrix(queries.views()[self.views[0]], sentences.views()[self.views[1]])
        rows = (self.ask(repeated(queries, row, len(sentences)), sentences) for row in range(len(queries)))
        return torch.stack(list(rows))


def comparison(
    model: Any, like: Embedding, relation: str = "similar", view: str | None = None, against: str | None = None
) -> Comparison:
    """Return how a model compares a query with sentences.

    A ``view`` is compared by cosine, with the primary view of the sentences unless ``against`` names another: DualCSE
    learns to bring the implicit vector of a premise close to the explicit one of what it implies. ``like`` is any
    embedding of the model. Raises TaskError if the model has no such view, does not answer the question, or answers it
    the same both ways where a direction is asked for.
    """
    names, name = list(like.views()), type(model).__name__
    for option, given in (("--view", view), ("--against", against)):
        if given is not None and given not in names:
            near = did_you_mean(given, names)
            raise TaskError(f"{option}: {name} has no view {given!r}{near} (it has: {', '.join(names)})")
    mine, theirs = view or names[0], against or names[0]

    def by_cosine(a: Embedding, b: Embedding) -> Tensor:
        return cosine(a.views()[mine], b.views()[theirs])

    if view is not None or against is not None:
        if relation != "similar":
            raise TaskError(f"--relation {relation} compares whole embeddings: leave --view and --against out")
        return Comparison(by_cosine, (mine, theirs))
    question = getattr(model, RELATIONS[relation], None)
    if question is None:
        raise TaskError(f"--relation {relation}: {name} has no {RELATIONS[relation]}")
    if relation != "similar" and is_same(question, lambda a, b: question(b, a), like):
        raise TaskError(f"--relation {relation}: the score of {name} is the same both ways; use --relation similar")
    ask = (lambda query, sentence: question(sentence, query)) if relation == "entailed_by" else question
    return Comparison(ask, (mine, theirs) if is_same(ask, by_cosine, like) else None)


def is_same(first: Callable[..., Tensor], second: Callable[..., Tensor], like: Embedding) -> bool:
    """Return whether two scores of pairs agree on random embeddings, always the same ones, of a kind and width."""
    draws = torch.Generator().manual_seed(0)
    width = next(iter(like.fields().values())).shape[1]
    a, b = (
        type(like)(**{name: torch.randn(16, width, generator=draws, dtype=torch.float64) for name in like.fields()})
        for _ in range(2)
    )
    with torch.no_grad():
        return torch.allclose(first(a, b).double(), second(a, b).double(), rtol=1e-5, atol=1e-9)


def finite(embedding: Embedding) -> Embedding:
    """Return an embedding as it is; raise EncoderError if a number of it is not finite."""
    if not all(bool(torch.isfinite(value).all()) for value in embedding.fields().values()):
        raise EncoderError("some embeddings are not finite numbers: the weights of the model are broken")
    return embedding


def repeated(embedding: Embedding, row: int, times: int) -> Embedding:
    """Return one sentence so many times, without a copy."""
    fields = {name: value[row : row + 1].expand(times, -1) for name, value in embedding.fields().items()}
    return type(embedding)(**fields)


class Searcher:
    """Finds the best sentences for queries; every score is the model's own answer in float64.

    Without an index all sentences are compared, in float32. An index, of the unit vectors of the view that queries are
    compared with, gives 20 candidates for each sentence asked for, at least 200, by every view of the query that counts.
    """

    def __init__(self, vectors: Vectors, compared: Comparison, index: Any = None) -> None:
        self.vectors, self.compared, self.index = vectors, compared, index

    def __call__(self, queries: Embedding, count: int) -> list[list[tuple[int, float]]]:
        """Return row and score of the best sentences for each query, best first; of equal scores the first row."""
        found = self._from_index(queries, count) if self.index is not None else self._from_all(queries, count)
        best = []
        for number, candidates in enumerate(found):
            rows = np.unique(candidates[candidates >= 0])
            query = repeated(queries.to(torch.float64), number, len(rows))
            scores = self.compared.ask(query, self.vectors[rows].to(torch.float64))
            order = scores.sort(descending=True, stable=True).indices[:count].tolist()
            best.append([(int(rows[place]), float(scores[place])) for place in order])
        return best

    def _from_all(self, queries: Embedding, count: int) -> np.ndarray:
        scores, rows = torch.empty(len(queries), 0), torch.empty(len(queries), 0, dtype=torch.long)
        for start in range(0, len(self.vectors), BLOCK):
            block = self.compared.matrix(queries, self.vectors[start : start + BLOCK])
            numbers = torch.arange(start, start + block.shape[1]).expand(len(queries), -1)
            scores, places = torch.cat([scores, block], 1).topk(min(count + MARGIN, scores.shape[1] + block.shape[1]))
            rows = torch.cat([rows, numbers], 1).gather(1, places)
        return rows.numpy()

    def _from_index(self, queries: Embedding, count: int) -> np.ndarray:
        views = queries.views()
        chosen = list(views.values()) if self.compared.views is None else [views[self.compared.views[0]]]
        most = min(max(CANDIDATES, 20 * count), len(self.vectors))
        return np.concatenate([self.index.search(unit(view.numpy()), most)[1] for view in chosen], axis=1)


def faiss_index(factory: str, path: Path, vectors: Vectors, view: str) -> Any:
    """Return the index of faiss over a view that a file has; without the file, build it and write it first.

    An inverted file looks at a sixteenth of its lists, at least at 16. Raises ConfigError if faiss is missing or refuses the factory
    string.
    """
    try:
        import faiss
    except ImportError:
        raise ConfigError(
            ["--index needs faiss: pip install faiss-cpu; without it all sentences are compared"]
        ) from None

    def chunk(rows: slice | np.ndarray) -> np.ndarray:
        return unit(vectors[rows].views()[view].numpy())

    try:
        if path.is_file():
            index = faiss.read_index(str(path))
        else:
            some = np.linspace(0, len(vectors) - 1, min(TRAINED_ON, len(vectors))).astype(int)
            index = faiss.index_factory(len(chunk(some[:1])[0]), factory, faiss.METRIC_INNER_PRODUCT)
            index.train(chunk(some))
            for start in range(0, len(vectors), BLOCK):
                index.add(chunk(slice(start, start + BLOCK)))
            write_atomic(path, faiss.serialize_index(index).tobytes())
        lists = faiss.try_extract_index_ivf(index)
    except RuntimeError as error:
        raise ConfigError([f"--index {factory}: {' '.join(str(error).split())}"]) from None
    if lists is not None:
        lists.nprobe = min(lists.nlist, max(16, lists.nlist // 16))
    return index


def unit(vectors: np.ndarray) -> np.ndarray:
    """Return vectors of length 1; a zero vector stays one."""
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)


def read_corpus(path: str, column: str | None) -> pd.DataFrame:
    """Return each distinct sentence of a file, the ``line`` where it first stands, and how many ``times`` it does."""
    columns = [] if column is None else [column]
    frames = pd.concat(list(read_frames(path, layout_of(path, "text"), columns=columns, most=2, at_once=100_000)))
    if len(frames.columns) > 1:
        raise DataError(f"{path}: choose the column of the sentences with --column (has: {', '.join(frames.columns)})")
    found = pd.DataFrame({"sentence": frames.iloc[:, 0], "line": frames.index}).query("sentence != ''")
    if found.empty:
        raise DataError(f"{path}: no line has a sentence")
    return found.groupby("sentence", sort=False).line.agg(line="first", times="size").reset_index()


def run(options: Namespace) -> None:
    """Answer the queries of a command line; raise a LightningCSEError if something given is wrong."""
    queries = options.query
    if options.queries not in (None, "-"):
        lines = Path(options.queries).expanduser().read_text(encoding="utf-8-sig").splitlines()
        queries = [line.strip() for line in lines if line.strip()]
    if queries is not None and not all(query.strip() for query in queries or [""]):
        raise DataError("--query, --queries: a query is empty, or there is none")
    corpus = read_corpus(options.corpus, options.column)
    loaded = load_model(options.model, pooling=options.pooling)
    model, device = loaded.answers, device_of(options.device)
    model.to(device)

    def embed(sentences: Sequence[str]) -> Embedding:
        with torch.autocast(device.type, torch.bfloat16, enabled=options.precision == "bf16-mixed"):
            return model.embed(list(sentences))

    compared = comparison(model, like := embed(["a"]), options.relation, options.view, options.against)
    sentences: list[str] = corpus.sentence.tolist()
    stem = _cached(loaded, options, sentences)
    vectors = Vectors.stored(stem.with_suffix(".npy"), sentences, embed)
    index = None
    if options.index is not None:
        view = compared.views[1] if compared.views else next(iter(like.views()))
        name = re.sub(r"\W", "_", options.index)
        index = faiss_index(options.index, stem.with_suffix(f".{view}.{name}.faiss"), vectors, view)
    searcher = Searcher(vectors, compared, index)

    def hits(queries: Sequence[str]) -> Iterable[tuple[str, list[dict[str, Any]]]]:
        for query, found in zip(queries, searcher(finite(embed(queries)), options.k), strict=True):
            places = corpus.iloc[[row for row, _ in found]].to_dict("records")
            scores = ({"rank": rank, "score": round(score, DIGITS)} for rank, (_, score) in enumerate(found, 1))
            yield query, [score | place for score, place in zip(scores, places, strict=True)]

    if queries is None:  # lines of standard input, answered as they come
        for line in sys.stdin:
            _print_json(hits([line.strip()]) if line.strip() else [("", [])])
    else:
        shown = _print_json if options.format == "json" else _print_tables
        for start in range(0, len(queries), QUERIES):
            shown(hits(queries[start : start + QUERIES]))


def _cached(loaded: LoadedModel, options: Namespace, sentences: Sequence[str]) -> Path:
    """Return where the embeddings of sentences are kept, without an ending: named by all that decides them."""
    encoder = loaded.encoder
    decides = [loaded.digests, loaded.record.get("config_hash"), loaded.answers.settings(), options.precision]
    decides += [encoder.pooling, encoder.max_length, *([t.prefix, t.suffix] for t in loaded.templates), sentences]
    digest = hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()[:12]
    cache = Path(os.environ.get("LIGHTNING_CSE_CACHE") or "~/.cache/lightning_cse").expanduser()
    return cache / "search" / f"{Path(options.corpus).stem}-{digest}"


def _print_json(found: Iterable[tuple[str, list[dict[str, Any]]]]) -> None:
    for query, hits in found:
        sys.stdout.write(json.dumps({"query": query, "hits": hits}, ensure_ascii=False) + "\n")
    sys.stdout.flush()


def _print_tables(found: Iterable[tuple[str, list[dict[str, Any]]]]) -> None:
    console = Console(highlight=False)
    for query, hits in found:
        table = Table(title=Text(query), title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
        for title, justify in (("", "right"), ("score", "right"), ("sentence", "left"), ("line", "right")):
            table.add_column(title, justify=justify)
        for hit in hits:
            times = f" (x{hit['times']})" if hit["times"] > 1 else ""
            table.add_row(str(hit["rank"]), f"{hit['score']:.4f}", Text(hit["sentence"]), f"{hit['line']}{times}")
        console.print(table, "")
