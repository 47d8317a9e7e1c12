"""Retrieval: does the similarity of embeddings find the documents that are relevant to a query?"""

import hashlib
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from lightning_cse.data.cells import Columns, columns_of, decoded, read_bytes
from lightning_cse.data.parsers import READERS
from lightning_cse.errors import ConfigError, DataError
from lightning_cse.evaluation.task import Embedded, Split, Task, TaskResult
from lightning_cse.metrics import ndcg, recall
from lightning_cse.similarity import Comparison

Relevance = dict[str, dict[str, float]]
"""The relevance of documents, by query."""

DEPTH: Final = 100  # documents in a ranking: the most that a metric uses


class Retrieval(Task):
    r"""Are the documents that are relevant to a query the ones most similar to it?

    The model's ``similarity`` ranks all documents for each query, exactly; equal scores keep
    the order of the file. A document with the id of the query is left out. The metrics are
    means over the queries that have judgements: ``ndcg@10``, ``recall@10``, ``recall@100`` (see
    `ndcg` and `recall`), and ``accuracy@1``, the share of queries whose first document is
    relevant.

    Source: Thakur et al. 2021 (BEIR): its layout and, except for ``accuracy@1``, its metrics,
    those of trec_eval. Differs: the order of equal scores, which trec_eval takes from the ids.

    Args:
        files: a folder with ``corpus.jsonl`` (keys ``_id``, ``text``, and optionally ``title``,
            which is put before the text), ``queries.jsonl`` (``_id``, ``text``) and
            ``qrels/test.tsv`` (``query-id``, ``corpus-id``, ``score``). Evaluation during training
            needs ``qrels/dev.tsv``.
        key: the config key of the folder, for messages.
        dev_rows, test_rows: the maximum numbers of queries, the first ones of the split; None uses
            all.
    """

    needs = ("similarity",)
    metrics = ("ndcg@10", "recall@10", "recall@100", "accuracy@1")

    def __init__(
        self,
        *,
        files: Any,
        key: str = "files",
        dev_rows: int | None = None,
        test_rows: int | None = None,
    ) -> None:
        if not isinstance(files, str):
            raise ConfigError(
                [f"{key}: must be one folder, whose dev side is qrels/dev.tsv, got {files}"]
            )

        self.folder = Path(files).expanduser().absolute()
        self.key = key
        self.limits: dict[Split, int | None] = {"dev": dev_rows, "test": test_rows}
        self.without_dev = f"add {self.folder}/qrels/dev.tsv"
        self.splits = ("dev", "test") if (self.folder / "qrels/dev.tsv").exists() else ("test",)
        self._digests: dict[str, str] = {}

    @cached_property
    def documents(self) -> dict[str, str]:
        """Title and text of the documents, by id."""
        columns = {"_id": "_id", "title": {"optional": "title"}, "text": {"text": "text"}}
        texts = {}
        for document, title, text in self._rows("corpus.jsonl", "json", columns):
            texts[document] = f"{title or ''} {text}".strip()

        return texts

    @cached_property
    def queries(self) -> dict[str, str]:
        """The queries by id."""
        return dict(self._rows("queries.jsonl", "json", {"_id": "_id", "text": {"text": "text"}}))

    @cached_property
    def qrels(self) -> dict[Split, Relevance]:
        """The relevance of documents, by split and query."""
        return {split: self._judgements(f"qrels/{split}.tsv") for split in self.splits}

    @property
    def digests(self) -> dict[str, str]:
        """The sha256 of the files of the folder."""
        return self._digests if self.qrels else {}

    def _rows(
        self,
        name: str,
        reader: str,
        columns: Columns,
    ) -> Iterable[Any]:
        """Return the cells of each row of a file of the folder."""
        path = self.folder / name
        if not path.exists():
            raise DataError(
                f"{self.key}: {path} does not exist; a folder needs corpus.jsonl, queries.jsonl and "
                "qrels/test.tsv"
            )

        data = read_bytes(path)
        self._digests[f"{self.key}/{name}"] = hashlib.sha256(data).hexdigest()
        text = decoded(data, f"{self.key}: {path}")
        rows = ((line, {"title": None, **row}) for line, row in READERS[reader](text, str(path)))
        values, _, _ = columns_of(rows, columns, f"{self.key}: {path}")

        return zip(*values.values(), strict=True)

    def _judgements(self, name: str) -> Relevance:
        judged: Relevance = {}
        columns = {"query": "query-id", "document": "corpus-id", "score": {"score": "score"}}
        for query, document, score in self._rows(name, "tsv", columns):
            judged.setdefault(query, {})[document] = score

        unknown = judged.keys() - self.queries.keys()
        if unknown:
            raise DataError(
                f"{self.key}: {self.folder / name}: {len(unknown)} of {len(judged)} queries are "
                "not in queries.jsonl"
            )

        return judged

    def relevance(self, split: Split) -> Relevance:
        """Return the relevance of the documents for the queries of the split that are evaluated."""
        return dict(itertools.islice(self.qrels[split].items(), self.limits[split]))

    def sentences(self, split: Split) -> list[str]:
        """Return the queries of the split and all documents."""
        if split not in self.splits:
            return []

        return [*(self.queries[query] for query in self.relevance(split)), *self.documents.values()]

    def evaluate(self, embedded: Embedded, split: Split) -> TaskResult:
        """Rank all documents for each query."""
        relevance = self.relevance(split)
        table: list[dict[str, Any]] = []
        rankings = self._rankings(embedded, list(relevance))
        for number, (query, best) in enumerate(zip(relevance, rankings, strict=True)):
            judged = relevance[query]
            ranked = [judged.get(document, 0.0) for document in best]
            known = list(judged.values())
            table.append(
                {
                    "row": number,
                    "query": query,
                    "first": best[0] if best else None,
                    "correct": bool(ranked) and ranked[0] > 0,
                    "ndcg@10": ndcg(ranked, known, 10),
                    "recall@10": recall(ranked, known, 10),
                    "recall@100": recall(ranked, known, 100),
                }
            )

        predictions = {name: [line[name] for line in table] for name in table[0]}
        metrics = {}
        for name in self.metrics:
            column = predictions["correct" if name == "accuracy@1" else name]
            metrics[name] = math.fsum(column) / len(table)

        return TaskResult(metrics, predictions)

    def _rankings(self, embedded: Embedded, queries: Sequence[str]) -> Iterator[list[str]]:
        """Yield the ids of the most similar documents of each query, without its own."""
        ids = list(self.documents)
        embeddings = embedded[[self.queries[query] for query in queries]]
        documents = embedded[list(self.documents.values())]
        compared = Comparison.of(embedded.answers.similarity, embeddings)
        found = compared.search(embeddings, documents, DEPTH + 1)
        for query, best in zip(queries, found, strict=True):
            ranked = [ids[row] for row, _ in best]
            yield [document for document in ranked if document != query][:DEPTH]
