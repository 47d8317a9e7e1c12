"""Retrieval: does the similarity of embeddings find the documents that are relevant to a query?"""

from __future__ import annotations

import hashlib
import itertools
import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from lightning_cse.data import parsers
from lightning_cse.data.corpora import decoded, read_bytes
from lightning_cse.embeddings import Embedding
from lightning_cse.errors import ConfigError, DataError
from lightning_cse.evaluation.task import Answers, Embedded, Split, Task, TaskResult
from lightning_cse.metrics import ndcg, recall
from lightning_cse.similarity import Ask, cosine_matrix, every_pair, is_same

log = logging.getLogger(__name__)

NEEDED: Final = ("corpus.jsonl", "queries.jsonl", "qrels/test.tsv")
DEPTH: Final = 100  # documents of a ranking: as many as a metric looks at
MARGIN: Final = 16  # more candidates than that: float32 may order scores that differ by 1e-7 wrongly
DOCUMENTS: Final = 2**14  # that are compared at once with ...
QUERIES: Final = 2**9  # ... so many queries: 32 MiB of scores


class Retrieval(Task):
    r"""Are the documents that are relevant to a query the ones most similar to it?

    The model's ``similarity`` ranks all documents for each query, exactly; of equal scores the first one in the file.
    A document with the id of the query is left out. Metrics, means over the queries that have judgements: ``ndcg@10``,
    ``recall@10``, ``recall@100`` (see `ndcg` and `recall`), and ``accuracy@1``, the share of queries whose first
    document is relevant. The limits count queries.

    Source: Thakur et al. 2021 (BEIR): its layout and, but for ``accuracy@1``, its metrics, which are trec_eval's.
    Differs: the order of equal scores, which trec_eval takes from the ids.

    Args:
        files: a folder with ``corpus.jsonl`` (keys ``_id``, ``text``, and ``title``, if any, which is put before the
            text), ``queries.jsonl`` (``_id``, ``text``) and ``qrels/test.tsv`` (``query-id``, ``corpus-id``,
            ``score``); with ``qrels/dev.tsv`` training is evaluated on it. Each may end in ``.gz``.
        key: the config key of the folder, for messages.
        dev_rows, test_rows: use only the first so many queries.
    """

    name = "retrieval"
    needs = ("similarity",)
    metrics = ("ndcg@10", "recall@10", "recall@100", "accuracy@1")

    def __init__(
        self, *, files: Any, key: str = "files", dev_rows: int | None = None, test_rows: int | None = None
    ) -> None:
        if not isinstance(files, str):
            raise ConfigError([f"{key}: must be one folder, whose dev side is qrels/dev.tsv, got {files}"])
        self.folder, self.key = Path(files).expanduser().absolute(), key
        self.limits: dict[Split, int | None] = {"dev": dev_rows, "test": test_rows}
        self.without_dev = f"add {self.folder}/qrels/dev.tsv"
        self.splits = ("dev", "test") if _found(self.folder / "qrels/dev.tsv").exists() else ("test",)

    @cached_property
    def collection(self) -> Collection:
        """Everything in the folder, read once."""
        try:
            return Collection.read(self.folder, self.splits)
        except DataError as error:
            raise DataError(f"{self.key}: {error}") from None

    @property
    def digests(self) -> dict[str, str]:
        """The sha256 of the files of the folder."""
        return {f"{self.key}/{name}": digest for name, digest in self.collection.digests.items()}

    def relevance(self, split: Split) -> dict[str, dict[str, float]]:
        """Return the relevance of documents to each query of the split that is evaluated, by ids."""
        return dict(itertools.islice(self.collection.judged[split].items(), self.limits[split]))

    def sentences(self, split: Split) -> list[str]:
        """Return the queries of the split and all documents."""
        if split not in self.splits:
            return []
        queries = self.collection.queries
        return [*(queries[query] for query in self.relevance(split)), *self.collection.documents.values()]

    def evaluate(self, answers: Answers, embedded: Embedded, split: Split) -> TaskResult:
        """Rank all documents for each query."""
        judged, documents = self.relevance(split), self.collection.documents
        ids, texts = list(documents), list(documents.values())
        row_of = {document: row for row, document in enumerate(ids)}
        queries = embedded[[self.collection.queries[query] for query in judged]]
        table: list[dict[str, Any]] = []
        for query, found in zip(judged, nearest(answers, embedded, queries, texts), strict=True):
            best = [document for document in found if document != row_of.get(query)][:DEPTH]
            ranked, known = [judged[query].get(ids[row], 0.0) for row in best], list(judged[query].values())
            line = {"row": len(table), "query": query, "first": ids[best[0]] if best else None}
            line |= {"correct": any(value > 0 for value in ranked[:1]), "ndcg@10": ndcg(ranked, known, 10)}
            table.append(line | {f"recall@{k}": recall(ranked, known, k) for k in (10, 100)})
        columns = {name: [line[name] for line in table] for name in table[0]}
        means = {name: math.fsum(columns[name]) / len(table) for name in self.metrics[:3]}
        return TaskResult(means | {"accuracy@1": math.fsum(columns["correct"]) / len(table)}, columns)


def nearest(answers: Answers, embedded: Embedded, queries: Embedding, texts: Sequence[str]) -> Iterator[list[int]]:
    """Yield the numbers of the documents most similar to each query, the best first: at least `DEPTH` + 1, or all.

    Candidates are found block by block in float32; their order is that of the model's own answers in float64.
    """
    compare, count = _matrix(answers, queries), DEPTH + MARGIN
    scores, numbers = torch.empty(len(queries), 0), torch.empty(len(queries), 0, dtype=torch.long)
    for start in range(0, len(texts), DOCUMENTS):
        block = embedded[texts[start : start + DOCUMENTS]]
        found = [_top(compare(queries[q : q + QUERIES], block), count) for q in range(0, len(queries), QUERIES)]
        scores = torch.cat([scores, torch.cat([values for values, _ in found])], dim=1)
        numbers = torch.cat([numbers, torch.cat([places + start for _, places in found])], dim=1)
        scores, kept = _top(scores, count)
        numbers = numbers.gather(1, kept)
    for row, candidates in enumerate(numbers.sort(dim=1).values):
        query, documents = queries[torch.full((len(candidates),), row)], embedded[[texts[n] for n in candidates]]
        exact = answers.similarity(query.to(torch.float64), documents.to(torch.float64))
        yield candidates[exact.sort(descending=True, stable=True).indices].tolist()


def _top(scores: Tensor, count: int) -> tuple[Tensor, Tensor]:
    return tuple(scores.topk(min(count, scores.shape[1]), dim=1, sorted=False))  # type: ignore[return-value]


def _matrix(answers: Answers, like: Embedding) -> Ask:
    """Return the model's similarity of every pair: one matrix product where it is the cosine of the primary views."""
    view = next(iter(like.views()))

    def cosines(a: Embedding, b: Embedding) -> Tensor:
        return cosine_matrix(a.views()[view], b.views()[view])

    is_cosine = is_same(answers.similarity, lambda a, b: cosines(a, b).diagonal(), like)
    return cosines if is_cosine else every_pair(answers.similarity)


@dataclass(frozen=True)
class Collection:
    """Documents and queries by id, the relevance of documents by query for each split, and the sha256 by file."""

    documents: dict[str, str]
    queries: dict[str, str]
    judged: dict[Split, dict[str, dict[str, float]]]
    digests: dict[str, str]

    @classmethod
    def read(cls, folder: Path, splits: Sequence[Split]) -> Collection:
        """Read a folder in BEIR's layout; raises DataError with file and line."""
        digests: dict[str, str] = {}

        def text_of(name: str) -> tuple[str, str]:
            path = _found(folder / name)
            if not path.exists():
                raise DataError(f"{path} is not there; {folder.name} needs {', '.join(NEEDED)}, each plain or as .gz")
            data = read_bytes(path)
            digests[name] = hashlib.sha256(data).hexdigest()
            return decoded(data, str(path)), str(path)

        documents, queries = _objects(*text_of(NEEDED[0]), least=0), _objects(*text_of(NEEDED[1]), least=1)
        judged = {split: _judgements(*text_of(f"qrels/{split}.tsv"), documents, queries) for split in splits}
        return cls(documents, queries, judged, digests)


def _objects(text: str, path: str, least: int) -> dict[str, str]:
    """Return title and text, together of at least so many letters, of the objects of a JSON-lines file, by id."""
    found: dict[str, str] = {}
    for line, one in enumerate(text.rstrip("\r\n").split("\n"), start=1):
        row = parsers.parse_object(one, where := f"{path}:{line}")
        if not (isinstance(row.get("_id"), str | int) and isinstance(row.get("text"), str)):
            raise DataError(f"{where}: needs the keys _id and text; found: {parsers.quoted(row)}")
        if str(row["_id"]) in found:
            raise DataError(f"{where}: the _id {row['_id']!r} is there twice")
        sentence = f"{row.get('title') or ''} {row['text']}".strip()
        if len(sentence) < least:
            raise DataError(f"{where}: text is empty")
        found[str(row["_id"])] = sentence
    return found


def _judgements(
    text: str, path: str, documents: Mapping[str, str], queries: Mapping[str, str]
) -> dict[str, dict[str, float]]:
    """Return the relevance of documents by query."""
    columns = {"query": {"text": "query-id"}, "document": {"text": "corpus-id"}}
    score = {"score": {"score": "score", "range": [-math.inf, math.inf]}}
    values, lines, _ = parsers.parse(text, path, reader="tsv", columns=columns | score)
    judged: dict[str, dict[str, float]] = {}
    unknown = []
    for line, query, document, relevance in zip(lines, *values.values(), strict=True):
        if query not in queries:
            raise DataError(f"{path}:{line}: the query-id {query!r} is not in {NEEDED[1]}")
        if document not in documents:
            unknown.append(f"{path}:{line}: {document!r}")
        judged.setdefault(query, {})[document] = relevance
    if unknown:
        counted = f"{len(unknown)} of {len(lines)} judged documents are not in {NEEDED[0]} and count as not found"
        log.warning("%s (the first: %s)", counted, unknown[0])
    return judged


def _found(path: Path) -> Path:
    """Return the path, or with .gz behind it if only that exists."""
    packed = path.with_name(f"{path.name}.gz")
    return packed if packed.exists() and not path.exists() else path
