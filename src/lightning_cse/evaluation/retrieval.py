"""Retrieval: is the answer to a question the nearest of all answers?"""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import torch

from lightning_cse.evaluation.task import CorpusTask, Embedded, Split, Task, TaskResult
from lightning_cse.metrics import recall_at, reciprocal_rank_at
from lightning_cse.similarity import Comparison

_QUESTIONS = 256  # compared with all answers at once


class PairTask(Task):
    """Retrieval of the second sentence of each pair among the distinct second sentences of all.

    The answers are ranked by the model's ``similarity`` with the question. Equal answers are one,
    and further answers to the same question in other rows are right too: they do not count against
    a row's own. An answer that is as near as another one ranks after it. Metrics, over all pairs:
    ``mrr_10``, ``recall_1`` and ``recall_10``.

    Source: ours, with the metrics of information retrieval; MRR@10 is that of MS MARCO.
    """

    needs = ("similarity",)
    metrics: tuple[str, ...] = ("mrr_10", "recall_1", "recall_10")

    @abstractmethod
    def pairs(self, split: Split) -> tuple[list[str], list[str]]:
        """Return the questions and the answers of a split."""

    def sentences(self, split: Split) -> list[str]:
        """Return the sentences of the split, or none if the split is not evaluated."""
        if split not in self.splits:
            return []

        questions, answers = self.pairs(split)

        return questions + answers

    def evaluate(self, embedded: Embedded, split: Split) -> TaskResult:
        """Rank the answers by their similarity with each question."""
        questions, answers = self.pairs(split)
        ranks = ranks_of(embedded, questions, answers)
        metrics = {
            "mrr_10": reciprocal_rank_at(ranks, 10),
            "recall_1": recall_at(ranks, 1),
            "recall_10": recall_at(ranks, 10),
        }

        return TaskResult(metrics, {"row": list(range(len(ranks))), "rank": ranks})


class PairRetrieval(PairTask, CorpusTask):
    """`PairTask` on files of your own, with questions (``anchor``) and answers (``positive``)."""

    reads = ("anchor", "positive")

    def pairs(self, split: Split) -> tuple[list[str], list[str]]:
        """Return the two columns of the files of a split."""
        rows = self.rows(split)
        return rows["anchor"][:], rows["positive"][:]


class HeldOutRetrieval(PairTask):
    """`PairTask` on the held-out rows of the training data, as a dev set.

    ``dev_rows`` is the maximum number of rows, the first ones; None uses all. Without `take`, there
    are no rows.
    """

    splits: tuple[Split, ...] = ("dev",)

    def __init__(self, dev_rows: int | None = None) -> None:
        self.dev_rows = dev_rows
        self._pairs: list[tuple[str, str]] = []

    def take(self, rows: Any, columns: Sequence[str]) -> None:
        """Take the pairs of two columns of held-out rows, without those that lack a sentence."""
        first, second = columns
        if first == second or not {first, second} <= set(rows.column_names):
            return

        pairs = zip(rows[first][:], rows[second][:], strict=True)
        self._pairs = [pair for pair in pairs if None not in pair][: self.dev_rows]

    def lacking(self) -> str | None:
        """Return why there is nothing to retrieve, or None if there is."""
        distinct = len({second for _, second in self._pairs})
        return None if distinct > 1 else f"{distinct} held-out rows have a positive to retrieve"

    def pairs(self, split: Split) -> tuple[list[str], list[str]]:
        """Return the held-out pairs."""
        return [first for first, _ in self._pairs], [second for _, second in self._pairs]


def ranks_of(embedded: Embedded, questions: Sequence[str], answers: Sequence[str]) -> list[int]:
    """Return the rank of the answer to each question among all distinct answers: (n,)."""
    indices = {answer: index for index, answer in enumerate(dict.fromkeys(answers))}
    targets = torch.tensor([indices[answer] for answer in answers])
    right: dict[str, list[int]] = {}
    for question, index in zip(questions, targets.tolist(), strict=True):
        right.setdefault(question, []).append(index)

    candidates = embedded[list(indices)]
    comparison = Comparison.of(embedded.answers.similarity, candidates)
    ranks: list[int] = []
    for start in range(0, len(questions), _QUESTIONS):
        block = questions[start : start + _QUESTIONS]
        scores = comparison.matrix(embedded[block], candidates)
        target_scores = scores.gather(
            1, targets[start : start + len(block), None].to(scores.device)
        )
        is_ahead = scores >= target_scores
        for number, question in enumerate(block):
            is_ahead[number, right[question]] = False

        ranks += (1 + is_ahead.sum(dim=1)).tolist()

    return ranks
