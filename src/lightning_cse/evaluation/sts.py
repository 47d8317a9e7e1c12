"""Semantic textual similarity: do similar sentences get similar embeddings?"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

from lightning_cse.data import Rows
from lightning_cse.data.sources import read_sources
from lightning_cse.errors import TaskError
from lightning_cse.evaluation.task import Answers, Embedded, Split, Task, TaskResult, first_of_each
from lightning_cse.metrics import spearman, spearman_all, spearman_mean, spearman_wmean

SIDES = (("sentence1", "sentence2"), ("premise", "hypothesis"))
"""What corpora call the two sentences of a pair."""


class STS(Task):
    r"""Semantic textual similarity: does the similarity of embeddings put pairs in the order of people's scores?

    The method's ``similarity`` of each pair against its gold score; rank correlations (ties given their mean rank,
    float64). Metric of a corpus in one piece: ``spearman``. Metrics of one with subsets (STS12 to STS16):
    ``spearman_all``, over all subsets put together; ``spearman_mean``, the mean of the subsets' correlations;
    ``spearman_wmean``, the same weighted by their numbers of pairs.

    Where one side is constant the correlation is undefined and `metrics.spearman` raises ValueError; here it is 0 then:
    the scores of a collapsed model order nothing, training must outlive them, and a record holds no NaN.

    Source: Agirre et al. 2012 to 2016, Cer et al. 2017, Marelli et al. 2014; tables show ``spearman_all``, and no
    regressor is trained on STS-B and SICK-R: SimCSE, its edition of SentEval; the means: SentEval.  Differs: 0 where
    scipy gives NaN.

    Args:
        data_dir: where the corpora are.
        dev: ``corpus/split`` that training is watched on; None for no part in training.
        test: ``corpus/split`` that is tested on.
        dev_rows: use only the first so many dev rows, of each subset.
        test_rows: use only the first so many test rows, of each subset.
    """

    name = "sts"
    needs = ("similarity",)

    def __init__(
        self,
        *,
        data_dir: str,
        test: str,
        dev: str | None = None,
        dev_rows: int | None = None,
        test_rows: int | None = None,
    ) -> None:
        self.data_dir = Path(data_dir)
        self.sources: dict[Split, str] = {"test": test} if dev is None else {"dev": dev, "test": test}
        self.limits: dict[Split, int | None] = {"dev": dev_rows, "test": test_rows}
        self.splits: tuple[Split, ...] = tuple(self.sources)

    @cached_property
    def _dev(self) -> Rows:
        return self._read("dev")

    @cached_property
    def _test(self) -> Rows:
        return self._read("test")

    def _read(self, split: Split) -> Rows:
        (rows,) = read_sources([self.sources[split]], self.data_dir, key=f"suite: {split}")
        limit = self.limits[split]
        if limit is None:
            return rows
        return first_of_each(rows, "subset", limit) if "subset" in rows.names else rows[:limit]

    def rows(self, split: Split) -> Rows:
        """Return the rows that a split is evaluated on.

        Raises:
            TaskError: if there is no such split.
        """
        if split not in self.sources:
            raise TaskError(f"the task {self.name} on {self.sources['test']} has no {split} split")
        return self._dev if split == "dev" else self._test

    @property
    def digests(self) -> dict[str, str]:
        """The sha256 of the files of its splits."""
        return {file.name: file.sha256 for split in self.splits for file in self.rows(split).files}

    @property
    def metrics(self) -> tuple[str, ...]:
        """One correlation, or three where the corpus has subsets."""
        if "subset" in self.rows("test").names:
            return ("spearman_all", "spearman_mean", "spearman_wmean")
        return ("spearman",)

    def sentences(self, split: Split) -> list[str]:
        """Return the sentences of the split."""
        if split not in self.splits:
            return []
        rows = self.rows(split)
        return [sentence for side in _sides(rows) for sentence in rows.column(side)]

    def evaluate(self, answers: Answers, embedded: Embedded, split: Split) -> TaskResult:
        """Correlate similarity and gold score over the pairs of the split."""
        rows = self.rows(split)
        gold = rows.column("score")
        first, second = (embedded[rows.column(side)] for side in _sides(rows))
        scores = self.ask(answers, "similarity", first, second).tolist()
        predictions = {"row": list(range(len(rows))), "gold": gold, "score": scores}
        if "subset" not in rows.names:
            return TaskResult({"spearman": spearman(gold, scores, constant=0.0)}, predictions)
        names = rows.column("subset")
        places = {name: [row for row, other in enumerate(names) if other == name] for name in dict.fromkeys(names)}
        subsets = [([gold[row] for row in place], [scores[row] for row in place]) for place in places.values()]
        metrics = {
            "spearman_all": spearman_all(subsets, constant=0.0),
            "spearman_mean": spearman_mean(subsets, constant=0.0),
            "spearman_wmean": spearman_wmean(subsets, constant=0.0),
        }
        return TaskResult(metrics, {"subset": names} | predictions)


class STSB(STS):
    """STS Benchmark, in one piece: its dev split is watched while training.

    Source: Cer et al. 2017; SimCSE watches its dev split while training.  Differs: as `STS`.

    Args:
        data_dir: where the corpora are.
        dev_rows: use only the first so many dev rows.
        test_rows: use only the first so many test rows.
    """

    name = "stsb"

    def __init__(self, *, data_dir: str, dev_rows: int | None = None, test_rows: int | None = None) -> None:
        super().__init__(data_dir=data_dir, dev="stsb/dev", test="stsb/test", dev_rows=dev_rows, test_rows=test_rows)


def _sides(rows: Rows) -> tuple[str, str]:
    return next((sides for sides in SIDES if sides[0] in rows.names), SIDES[0])
