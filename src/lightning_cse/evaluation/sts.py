"""Semantic textual similarity: do similar sentences get similar embeddings?"""

from typing import ClassVar

import pandas as pd
from datasets import Dataset

from lightning_cse.evaluation.task import CorpusTask, Embedded, Split, TaskResult
from lightning_cse.metrics import AGGREGATIONS, spearman


class STS(CorpusTask):
    r"""Semantic textual similarity: does the similarity of embeddings rank pairs as human scores
    do?

    The rank correlation of the model's ``similarity`` of each pair with its gold score, in
    float64; ties get their mean rank. Metric of a corpus without subsets: ``spearman``. Metrics
    of one with subsets (STS12 to STS16): ``spearman_all``, over all subsets together;
    ``spearman_mean``, the mean of the subsets' correlations; ``spearman_wmean``, the same
    weighted by their numbers of pairs. The limits count the rows of each subset. The scores of your
    own files may have any range, since only their order counts, but they must differ.

    Source: Agirre et al. 2012 to 2016, Cer et al. 2017, Marelli et al. 2014. Tables show
    ``spearman_all``, and no regressor is trained on STS-B and SICK-R: SimCSE, its edition of
    SentEval; the means: SentEval.  Differs: 0 if one side is constant, where scipy gives NaN:
    the scores of a collapsed model rank nothing, and training must continue.
    """

    needs = ("similarity",)
    limited_by = "subset"
    reads = ("sentence1", "sentence2", "score")

    @property
    def metrics(self) -> tuple[str, ...]:
        """One correlation, or three if the corpus has subsets."""
        if "subset" in self.rows("test").column_names:
            return ("spearman_all", "spearman_mean", "spearman_wmean")

        return ("spearman",)

    def select(self, rows: Dataset, split: Split) -> Dataset:
        """Return the rows of a split; those of your own files must have different scores."""
        rows = super().select(rows, split)
        if self.own is not None and len(set(rows["score"])) < 2:
            reason = f"all scores are {rows['score'][0]:g}; a rank correlation needs different ones"
            raise self.unmeasurable(rows, reason)

        return rows

    def evaluate(self, embedded: Embedded, split: Split) -> TaskResult:
        """Correlate similarity and gold score over the pairs of the split."""
        rows = self.rows(split)
        gold = rows["score"][:]
        scores = embedded.ask("similarity", rows).tolist()
        predictions = {"row": list(range(len(rows))), "gold": gold, "score": scores}
        if "subset" not in rows.column_names:
            return TaskResult({"spearman": spearman(gold, scores, constant=0.0)}, predictions)

        predictions = {"subset": rows["subset"][:], **predictions}
        groups = pd.DataFrame(predictions).groupby("subset", sort=False)
        subsets = [(group["gold"], group["score"]) for _, group in groups]
        metrics = {
            f"spearman_{aggregation}": aggregate(subsets, constant=0.0)
            for aggregation, aggregate in AGGREGATIONS.items()
        }

        return TaskResult(metrics, predictions)


class STSB(STS):
    """STS Benchmark: training is evaluated on its dev split.

    Source: Cer et al. 2017; SimCSE evaluates its dev split while training.  Differs: as `STS`.
    """

    corpora: ClassVar = {"dev": "stsb/dev", "test": "stsb/test"}
