"""Two-way natural language inference: is the hypothesis entailed by the premise or not?"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
from torch import Tensor

from lightning_cse.data import Rows
from lightning_cse.data.sources import read_sources
from lightning_cse.errors import DataError
from lightning_cse.evaluation.task import Answers, Embedded, Split, Task, TaskResult
from lightning_cse.metrics import auprc, best_threshold, threshold_accuracy

GRID: Final = np.arange(1001) / 1000
"""The thresholds that are tried, in this order."""


class PairTask:
    """Labelled sentence pairs of a dev and of a test split, read when first asked for.

    Args:
        data_dir: where the corpora are.
        dev: ``corpus/split`` that a threshold is tuned on, and that training is watched on.
        test: ``corpus/split`` that is tested on.
        watched: whether training is watched on dev; a test set that borrows another corpus's dev split need not.
        dev_rows: watch only the first so many dev rows while training; a threshold for the test is tuned on all.
        test_rows: use only the first so many test rows.
    """

    def __init__(
        self,
        *,
        data_dir: str,
        dev: str,
        test: str,
        watched: bool = True,
        dev_rows: int | None = None,
        test_rows: int | None = None,
    ) -> None:
        self.data_dir = Path(data_dir)
        self.sources = {"dev": dev, "test": test}
        self.limits = {"dev": dev_rows, "test": test_rows}
        self.splits: tuple[Split, ...] = ("dev", "test") if watched else ("test",)
        self.suffix = "_matched" if test.endswith("/dev_matched") else ""

    @cached_property
    def dev(self) -> Rows:
        """All rows of dev."""
        return self._read("dev")

    @cached_property
    def test(self) -> Rows:
        """All rows of test."""
        return self._read("test")

    def _read(self, split: Split) -> Rows:
        (rows,) = read_sources([self.sources[split]], self.data_dir, key=f"suite: {split}")
        return rows

    def rows(self, split: Split) -> Rows:
        """Return the rows that a split is evaluated on."""
        rows, limit = (self.dev if split == "dev" else self.test), self.limits[split]
        return rows if limit is None else rows[:limit]  # a slice is a copy, and every evaluation asks several times

    @property
    def digests(self) -> dict[str, str]:
        """The sha256 of the files of both splits."""
        return {file.name: file.sha256 for rows in (self.dev, self.test) for file in rows.files}


class NLI(PairTask, Task):
    r"""Two-way NLI: a pair is entailed iff its score reaches a threshold :math:`\gamma`.

    The score is ``entailment_score(premise, hypothesis)`` (GaussCSE: sim(hypothesis || premise)); entailment is
    positive, everything else negative, pairs without a gold label included. :math:`\gamma` is scanned over 0, 0.001,
    ..., 1 on the dev split (the first of the best), and used on the test split. Metrics: ``accuracy``, ``auprc`` (exact
    precision-recall curve, trapezoids) and ``threshold``.

    Source: GaussCSE, NLI experiment, and the authors' code: one threshold, tuned on SNLI dev, for the test sets of
    SNLI, MNLI and SICK (the paper says "the development set").  Differs: the paper's AUPRC is over the 1,001
    thresholds, the code's is exact, as here.
    """

    name = "nli"
    needs = ("entailment_score",)
    metrics = ("accuracy", "auprc", "threshold")

    def rows(self, split: Split) -> Rows:
        """Return the rows that a split is evaluated on.

        Raises:
            DataError: if none of them is entailed, so that there is no precision-recall curve.
        """
        rows = super().rows(split)
        if not any(_entailed(rows)):
            raise DataError(
                f"{rows.files[0].path}: none of the {len(rows)} pairs that are used is an entailment; "
                f"raise limits.{split}_pairs"
            )
        return rows

    def sentences(self, split: Split) -> list[str]:
        """Return the sentences of the split; for test also those of dev, which the threshold is tuned on."""
        tables = [self.rows("dev")] if split == "dev" else [self.dev, self.rows("test")]
        return [s for rows in tables for column in ("premise", "hypothesis") for s in rows.column(column)]

    def evaluate(self, answers: Answers, embedded: Embedded, split: Split) -> TaskResult:
        """Tune the threshold on dev, and count on the split what lies on the right side of it."""
        rows = self.rows(split)
        tuned = rows if split == "dev" else self.dev
        tuned_scores = self._scores(answers, embedded, tuned)
        threshold, _ = best_threshold(_entailed(tuned), tuned_scores, grid=GRID)
        scores = tuned_scores if split == "dev" else self._scores(answers, embedded, rows)
        labels = _entailed(rows)
        metrics = {
            "accuracy": threshold_accuracy(labels, scores, threshold),
            "auprc": auprc(labels, scores),
            "threshold": threshold,
        }
        predictions: dict[str, list[Any]] = {
            "row": list(range(len(rows))),
            "label": labels,
            "score": scores.tolist(),
            "prediction": (scores >= threshold).tolist(),
        }
        return TaskResult(metrics, predictions)

    def _scores(self, answers: Answers, embedded: Embedded, rows: Rows) -> Tensor:
        premise, hypothesis = (embedded[rows.column(column)] for column in ("premise", "hypothesis"))
        return self.ask(answers, "entailment_score", premise, hypothesis).double()


def _entailed(rows: Rows) -> list[bool]:
    return [label == "entailment" for label in rows.column("label")]
