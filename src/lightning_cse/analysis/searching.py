"""Search sentences: exactly, or among the candidates of a faiss index, which are then scored again exactly."""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
from argparse import Namespace
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch
from torch.nn.functional import normalize

from lightning_cse.analysis.inputs import read_sentences
from lightning_cse.embeddings import Embedding
from lightning_cse.engine.load import load_model
from lightning_cse.errors import ConfigError, DataError, EncoderError, TaskError, did_you_mean
from lightning_cse.progress import progress
from lightning_cse.runs import atomic_file, write_atomic
from lightning_cse.runs.machine import device_of
from lightning_cse.similarity import Ask, Comparison, cosine, is_same

if TYPE_CHECKING:
    import pandas as pd

# The question of a model that each relation asks; ``entails``: the query is the premise.
QUESTIONS: Final = {
    "similar": "similarity",
    "entails": "entailment_score",
    "entailed_by": "entailment_score",
}
BLOCK: Final = (
    2048  # sentences that are embedded or indexed together; bounds memory, changes no value
)
QUERIES: Final = 64  # queries that are answered together
CANDIDATES: Final = (
    200  # at least so many of an index, since scores other than the cosine have another order
)
TRAINED_ON: Final = 100_000  # the most vectors that an index is trained on


def comparison(
    model: Any,
    like: Embedding,
    relation: str = "similar",
    view: str | None = None,
    against: str | None = None,
) -> Comparison:
    """Return how a model compares queries with sentences; ``like`` is any embedding of the model.

    A ``view`` of the query is compared by cosine with the primary view of the sentences, unless ``against`` names
    another. DualCSE, for example, brings the implicit vector of a premise close to the explicit one of what it implies.
    """
    name = type(model).__name__
    known = list(like.views())
    first, second = (
        checked_view(f"--view: {name}", view, known),
        checked_view(f"--against: {name}", against, known),
    )
    if view or against:
        if relation != "similar":
            raise TaskError(
                f"--relation {relation} compares whole embeddings: leave --view and --against out"
            )
        return Comparison(lambda a, b: cosine(a.views()[first], b.views()[second]), (first, second))
    ask: Ask | None = getattr(model, QUESTIONS[relation], None)
    if ask is None:
        raise TaskError(f"--relation {relation}: {name} has no {QUESTIONS[relation]}")
    if relation != "similar" and is_same(ask, swapped(ask), like):
        raise TaskError(
            f"--relation {relation}: the score of {name} is symmetric; use --relation similar"
        )
    return Comparison.of(swapped(ask) if relation == "entailed_by" else ask, like)


def checked_view(who: str, view: str | None, views: Sequence[str]) -> str:
    """Return one of the views of a model, by default the primary one."""
    if view and view not in views:
        raise TaskError(
            f"{who} has no view {view!r}{did_you_mean(view, views)} (it has: {', '.join(views)})"
        )
    return view or views[0]


def swapped(ask: Ask) -> Ask:
    """Return a question with its two sides in the other order."""
    return lambda a, b: ask(b, a)


def finite(embedding: Embedding) -> Embedding:
    """Return an embedding unchanged; raise EncoderError if a number in it is not finite."""
    if not embedding.is_finite:
        raise EncoderError(
            "some embeddings are not finite numbers: the weights of the model are broken"
        )
    return embedding


class Vectors:
    """The embeddings of sentences in a file, (n, fields * width) in float32; a missing file is written first."""

    def __init__(
        self, path: Path, sentences: Sequence[str], embed: Callable[..., Embedding]
    ) -> None:
        self.like = embed(sentences[:1])
        if not path.is_file():
            shape = (len(sentences), sum(value.shape[1] for value in self.like.fields().values()))
            with progress() as bar, atomic_file(path) as file:
                np.lib.format.write_array_header_1_0(
                    file, {"descr": "<f4", "fortran_order": False, "shape": shape}
                )
                for start in bar.track(range(0, len(sentences), BLOCK), description="sentences"):
                    fields = finite(embed(sentences[start : start + BLOCK])).fields().values()
                    file.write(np.concatenate(list(fields), axis=1, dtype="<f4").tobytes())
        self.data = np.load(path, mmap_mode="r")

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, rows: slice | Sequence[int]) -> Embedding:
        return type(self.like)(
            *torch.from_numpy(np.array(self.data[rows])).chunk(len(self.like.fields()), dim=1)
        )

    def unit(self, rows: slice | Sequence[int], view: str) -> np.ndarray:
        """Return the vectors of a view of some sentences, scaled to length 1."""
        return np.asarray(normalize(self[rows].views()[view]))


def faiss_index(factory: str, path: Path, vectors: Vectors, view: str) -> Any:
    """Return the faiss index over a view from a file; if the file is missing, build the index and write it first.

    An inverted file searches a sixteenth of its lists, but at least 16.
    """
    try:
        import faiss

        if path.is_file():
            index = faiss.read_index(str(path))
        else:
            some = vectors.unit(
                np.linspace(0, len(vectors) - 1, min(TRAINED_ON, len(vectors)))
                .astype(int)
                .tolist(),
                view,
            )
            index = faiss.index_factory(some.shape[1], factory, faiss.METRIC_INNER_PRODUCT)
            index.train(some)
            for start in range(0, len(vectors), BLOCK):
                index.add(vectors.unit(slice(start, start + BLOCK), view))
            write_atomic(path, faiss.serialize_index(index).tobytes())
        lists = faiss.try_extract_index_ivf(index)
    except (ImportError, RuntimeError) as error:
        raise ConfigError(
            [f"--index {factory}: {' '.join(str(error).split())} (pip install faiss-cpu)"]
        ) from None
    if lists is not None:
        lists.nprobe = min(lists.nlist, max(16, lists.nlist // 16))
    return index


def search(
    vectors: Vectors, compared: Comparison, queries: Embedding, count: int, index: Any = None
) -> list[list[tuple[int, float]]]:
    """Return row and score of the best sentences for each query, best first; of equal scores, the first row.

    Every score is the model's own answer in float64. Without an index, all sentences are first compared in float32. An
    index gives 20 candidates per sentence asked for, but at least 200, for each view of the query that is compared.
    """
    read = vectors.__getitem__
    if index is None:
        candidates = compared.candidates(queries, read, len(vectors), count)
    else:
        views = queries.views()
        some = list(views.values()) if compared.views is None else [views[compared.views[0]]]
        most = min(max(CANDIDATES, 20 * count), len(vectors))
        near = [index.search(np.asarray(normalize(view)), most)[1] for view in some]
        candidates = [found[found >= 0].tolist() for found in np.concatenate(near, axis=1)]
    return [
        compared.ranked(queries[n : n + 1], read, rows)[:count] for n, rows in enumerate(candidates)
    ]


def read_corpus(path: str, column: str | None = None) -> pd.DataFrame:
    """Return each distinct ``sentence`` of a file, the first ``line`` that has it, and how many ``times`` it occurs."""
    import pandas as pd  # slow to import, and not needed by a model in Python

    texts = pd.concat(read_sentences(path, column, at_once=100_000))
    found = pd.DataFrame({"sentence": texts, "line": texts.index}).query("sentence != ''")
    if found.empty:
        raise DataError(f"{path}: contains no sentence")
    return found.groupby("sentence", sort=False).line.agg(line="first", times="size").reset_index()


def run(options: Namespace) -> None:
    """Answer the queries of a command line."""
    lines, piped = options.query or [], options.queries == "-"
    if options.queries and not piped:
        lines = Path(options.queries).expanduser().read_text(encoding="utf-8-sig").splitlines()
    queries = [line.strip() for line in lines if line.strip()]
    if not queries and not piped:
        raise DataError("--query, --queries: no query; give at least one sentence")
    corpus = read_corpus(options.corpus, options.column)
    loaded, device = load_model(options.model, pooling=options.pooling), device_of(options.device)
    model, encoder = loaded.answers.to(device), loaded.encoder

    def embed(sentences: Sequence[str]) -> Embedding:
        with torch.autocast(device.type, torch.bfloat16, enabled=options.precision == "bf16-mixed"):
            return model.embed(sentences)

    compared = comparison(model, embed(["a"]), options.relation, options.view, options.against)
    sentences: list[str] = corpus.sentence.tolist()
    decides = [
        loaded.digests,
        loaded.record.get("config_hash"),
        model.settings(),
        options.precision,
        encoder.pooling,
    ]
    decides += [
        encoder.max_length,
        *([each.prefix, each.suffix] for each in loaded.templates),
        sentences,
    ]
    digest = hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()[:12]
    cache = (
        Path(os.environ.get("LIGHTNING_CSE_CACHE") or "~/.cache/lightning_cse").expanduser()
        / "search"
    )
    name = f"{Path(options.corpus).stem}-{digest}"
    vectors, index = Vectors(cache / f"{name}.npy", sentences, embed), None
    if options.index is not None:
        view = compared.views[1] if compared.views else next(iter(vectors.like.views()))
        path = cache / f"{name}.{view}.{re.sub(r'[^A-Za-z0-9]', '_', options.index)}.faiss"
        index = faiss_index(options.index, path, vectors, view)

    def answer(queries: Sequence[str]) -> None:
        found = (
            search(vectors, compared, finite(embed(queries)), options.k, index)
            if any(queries)
            else [[]]
        )
        for query, best in zip(queries, found, strict=True):
            found_in = corpus.iloc[[row for row, _ in best]].to_dict("records")
            scores = (
                {"rank": rank, "score": float(np.round(score, 6))}
                for rank, (_, score) in enumerate(best, 1)
            )
            hits = [score | record for score, record in zip(scores, found_in, strict=True)]
            lines = [json.dumps({"query": query, "hits": hits}, ensure_ascii=False)]
            if not piped and options.format == "table":
                texts = (
                    "{rank:4}  {score:.4f}  {sentence}  (line {line}, x{times})".format(**hit)
                    for hit in hits
                )
                lines = [query, *(text.replace(", x1)", ")") for text in texts), ""]
            sys.stdout.writelines(f"{line}\n" for line in lines)
        sys.stdout.flush()

    for start in range(0, len(queries), QUERIES):
        answer(queries[start : start + QUERIES])
    for line in sys.stdin if piped else ():  # answered as they come
        answer([line.strip()])
