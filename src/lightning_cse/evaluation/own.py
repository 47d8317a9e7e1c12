"""Your own test sets: STS, NLI and direction of entailment on any files, with or without a dev
side.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from lightning_cse.data import Rows
from lightning_cse.data.own import OwnFormat, read_table
from lightning_cse.errors import ConfigError, DataError
from lightning_cse.evaluation.direction import DirectionTask
from lightning_cse.evaluation.nli import NLI, pair_predictions
from lightning_cse.evaluation.sts import STS
from lightning_cse.evaluation.task import CorpusTask, Embedded, Split, TaskResult, entailed
from lightning_cse.metrics import auc, auprc, best_threshold


@dataclass(kw_only=True, eq=False)
class OwnTask(CorpusTask):
    """A task on your own files, in any form that `read_table` reads.

    Args:
        files: the test files: a path, a list of paths (their rows are concatenated), or
            ``{dev: ..., test: ...}``.
        columns: the columns of the files that have other names, by the names in ``reads``.
        delimiter, encoding: of the files (see `OwnFormat`).
        key: the config key of the files, for messages.
        dev_rows, test_rows: the maximum numbers of rows, the first ones of the files; None uses
            all.
    """

    reads: ClassVar[tuple[str, ...]]
    """The columns that it reads."""
    optional: ClassVar[tuple[str, ...]] = ()
    """The columns among them that a file may lack."""

    data_dir: str = ""
    files: Any
    columns: dict[str, str] | None = None
    delimiter: str | None = None
    encoding: str | None = None
    key: str = "files"

    def __post_init__(self) -> None:
        sources = dict(self.files) if isinstance(self.files, Mapping) else {"test": self.files}
        has_files = all(isinstance(some, str | Sequence) and some for some in sources.values())
        if not has_files or not {"test"} <= sources.keys() <= {"dev", "test"}:
            raise ConfigError(
                [
                    f"{self.key}: must be FILE, [FILE, ...] or {{dev: FILE, test: FILE}}, "
                    f"got {sources}"
                ]
            )

        self.files = sources
        self.without_dev = f"give it one: {self.key}={{dev: FILE, test: FILE}}"
        columns = self.columns or {}
        self.columns = {name: columns[name] for name in columns if name in self.reads} or None
        self.test = self.key
        self.dev = self.key if "dev" in sources else None
        super().__post_init__()

    def read(self, split: Split) -> Rows:
        """Read the files of a split, or raise DataError if a column is missing."""
        takes = f"{self.key} reads {', '.join(self.reads)}"
        rows = read_table(
            self.files[split],
            form=OwnFormat(self.columns or {}, self.delimiter, self.encoding, key="own"),
            key=self.key,
            takes=takes,
        )
        present = {*rows.names, *self.optional}
        missing = [name for name in self.reads if name not in present]
        if missing:
            columns = ", ".join(f"{name}: COLUMN" for name in missing)
            raise DataError(
                f"{self.key}: {rows.files[0].path}: no {' and no '.join(missing)}; columns "
                f'recognised: {", ".join(rows.names)}; set "own.columns={{{columns}}}"'
            )

        return rows

    @property
    def digests(self) -> dict[str, str]:
        """The sha256 of its files, by key, split, number and name."""
        digests = {}
        for split in self.sources:
            for number, file in enumerate(self.table(split).files, 1):
                digests[f"{self.key}/{split}/{number}-{Path(file.path).name}"] = file.sha256

        return digests


class OwnSTS(OwnTask, STS):
    """`STS` on files of your own; scores may have any range, since only their order counts."""

    reads = ("sentence1", "sentence2", "score")


class OwnNLI(OwnTask, NLI):
    r"""Two-way NLI on files of your own: a pair is entailed iff its score reaches a threshold
    :math:`\gamma`.

    With a dev side, :math:`\gamma` is tuned there; the metrics are ``accuracy`` and
    ``threshold``. Without one, it is tuned on even rows for odd rows, and vice versa; the
    metric is ``accuracy_two_fold``. The candidates are those of `best_threshold`, between
    neighbouring scores. ``auprc`` and ``auc``, which need no threshold, are always measured.

    Source: ours; `NLI` has the papers' protocol.
    """

    reads = ("premise", "hypothesis", "label")
    grid = None

    @property
    def metrics(self) -> tuple[str, ...]:
        """The names of its metrics, which say how the threshold is tuned."""
        if "dev" in self.sources:
            return (*super().metrics, "auc")

        return ("accuracy_two_fold", "auprc", "auc")

    def select(self, rows: Rows, split: Split) -> Rows:
        """Return the rows of a split; there must be entailed pairs and others."""
        rows = super().select(rows, split)
        if len(set(entailed(rows))) < 2:
            raise DataError(
                f"{self.key}: {rows.files[0].path}: all labels are {rows.column('label')[0]!r}; "
                "both entailed and other pairs are needed"
            )

        return rows

    def evaluate(self, embedded: Embedded, split: Split) -> TaskResult:
        """Tune the threshold, and apply it to the split."""
        if "dev" in self.sources:
            result = super().evaluate(embedded, split)
            area = auc(result.predictions["label"], result.predictions["score"])
            return TaskResult(result.metrics | {"auc": area}, result.predictions)

        rows = self.rows(split)
        labels = np.array(entailed(rows))
        scores = embedded.ask("entailment_score", rows).numpy()
        predicted = two_fold_predictions(labels, scores)
        metrics = {
            "accuracy_two_fold": float(np.mean(predicted == labels)),
            "auprc": auprc(labels, scores),
            "auc": auc(labels, scores),
        }

        return TaskResult(metrics, pair_predictions(labels, scores, predicted))


def two_fold_predictions(
    labels: NDArray[np.bool_], scores: NDArray[np.float64]
) -> NDArray[np.bool_]:
    """Classify each of two folds by the threshold tuned on the other one."""
    # Every second row of each label: with every second row of all, rows in turn would put one label
    # in a fold.
    fold = np.where(labels, np.cumsum(labels), np.cumsum(~labels)) % 2
    predicted = np.empty(len(labels), dtype=bool)
    for number in (0, 1):
        is_tested = fold == number
        threshold, _ = best_threshold(labels[~is_tested], scores[~is_tested])
        predicted[is_tested] = scores[is_tested] >= threshold

    return predicted


class OwnDirection(OwnTask, DirectionTask):
    """The direction of entailment on files of your own: of all pairs, or of those with the label
    entailment.
    """

    reads = ("premise", "hypothesis", "label")
    optional = ("label",)

    def select(self, rows: Rows, split: Split) -> Rows:
        """Return the entailed pairs."""
        rows = super().select(rows, split)
        if "label" not in rows.names:
            return rows

        chosen = np.flatnonzero(entailed(rows)).tolist()
        if not chosen:
            raise DataError(f"{self.key}: {rows.files[0].path}: no pair has the label entailment")

        return rows.select(chosen, reason="not entailed")
