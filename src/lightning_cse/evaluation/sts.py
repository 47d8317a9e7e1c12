"""Semantic textual similarity: do similar sentences get similar embeddings?"""

from __future__ import annotations

from lightning_cse.evaluation.nli import PairTask
from lightning_cse.evaluation.task import Answers, Embedded, Split, Task, TaskResult
from lightning_cse.metrics import spearman


class STSB(PairTask, Task):
    r"""STS Benchmark: does the similarity of embeddings put pairs in the order of people's scores?

    The method's ``similarity`` of each pair against its gold score from 0 to 5. Metric: ``spearman``, their rank
    correlation over all pairs of the split (ties given their mean rank, float64).

    Where one side is constant the correlation is undefined and `metrics.spearman` raises ValueError; here it is 0 then:
    the scores of a collapsed model order nothing, training must outlive them, and a record holds no NaN.

    Source: Cer et al. 2017; SimCSE watches its dev split while training.  Differs: 0 where scipy gives NaN.

    Args:
        data_dir: where the corpora are.
        dev_rows: use only the first so many dev rows.
        test_rows: use only the first so many test rows.
    """

    name = "stsb"
    needs = ("similarity",)
    metrics = ("spearman",)

    def __init__(self, *, data_dir: str, dev_rows: int | None = None, test_rows: int | None = None) -> None:
        super().__init__(data_dir=data_dir, dev="stsb/dev", test="stsb/test", dev_rows=dev_rows, test_rows=test_rows)

    def sentences(self, split: Split) -> list[str]:
        """Return the sentences of the split."""
        rows = self.rows(split)
        return [*rows.column("sentence1"), *rows.column("sentence2")]

    def evaluate(self, answers: Answers, embedded: Embedded, split: Split) -> TaskResult:
        """Correlate similarity and gold score over the pairs of the split."""
        rows = self.rows(split)
        gold = rows.column("score")
        first, second = (embedded[rows.column(column)] for column in ("sentence1", "sentence2"))
        scores = self.ask(answers, "similarity", first, second).tolist()
        varies = min(len(set(gold)), len(set(scores))) > 1
        metrics = {"spearman": spearman(gold, scores) if varies else 0.0}
        return TaskResult(metrics, {"row": list(range(len(rows))), "gold": gold, "score": scores})
