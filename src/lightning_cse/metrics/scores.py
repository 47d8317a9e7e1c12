"""Metrics of scores: thresholds, precision and recall, rank correlation, McNemar's test.

All functions accept lists, arrays, series and tensors of any precision and device, and compute in
float64. They raise ValueError if an input is empty, not 1-d or not finite, or if the lengths
differ.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

Values: TypeAlias = ArrayLike | Tensor
Column: TypeAlias = NDArray[np.float64]
Subsets: TypeAlias = Iterable[tuple[Values, Values]]
"""``[(gold, scores), ...]``, one entry per subset."""


def best_threshold(
    labels: Values, scores: Values, grid: Values | None = None, strict: bool = False
) -> tuple[float, float]:
    r"""Return the threshold with the highest accuracy, and that accuracy.

    .. math:: \gamma^* = \arg\max_{\gamma} \frac{1}{n} \sum_{i=1}^{n} [ (s_i \ge \gamma) = l_i ]

    with labels :math:`l` in {0, 1} and scores :math:`s`, bigger for yes, both of shape ``(n,)``. Of
    equally good thresholds the first one wins.

    Source: RTE of DualCSE (no grid, ``strict=True``); two-way NLI of GaussCSE (``grid = [k / 1000
    for k in range(1001)]``).  Differs: nothing; one sort instead of one pass per threshold.

    ``grid`` has the thresholds to try, in this order. If it is None, every way to cut the scores is
    tried, lowest first: one threshold below all scores, the midpoints of neighbouring distinct
    scores, and one above all. With ``strict``, a score must exceed the threshold (:math:`>`), not
    only reach it.

    Examples:
        >>> best_threshold([0, 1, 1], [0.25, 0.75, 1.0])
        (0.5, 1.0)
        >>> best_threshold([0, 1, 1], [0.25, 0.75, 1.0], grid=[0.0, 0.3, 0.6])
        (0.3, 1.0)
    """
    positive, values = labels_and_scores(labels, scores)
    order = np.argsort(values, kind="stable")
    positive = positive[order]
    values = values[order]
    thresholds = _cuts(values, strict) if grid is None else as_column(grid, "grid")
    # The number of scores below each threshold, and of positives among the k lowest scores.
    below = np.searchsorted(values, thresholds, side="right" if strict else "left")
    positives = np.concatenate([[0], np.cumsum(positive)])
    true_negatives = below - positives[below]
    true_positives = positives[-1] - positives[below]
    accuracies = (true_negatives + true_positives) / len(values)
    best = int(np.argmax(accuracies))  # the first of equals

    return float(thresholds[best]), float(accuracies[best])


def _cuts(ascending: Column, strict: bool) -> Column:
    distinct = np.unique(ascending)
    low = distinct[:-1]
    high = distinct[1:]
    middle = 0.5 * low + 0.5 * high
    # Between neighbouring floats the midpoint rounds to one of them; take the one that still cuts.
    if strict:
        middle = np.where(middle < high, middle, low)
    else:
        middle = np.where(middle > low, middle, high)

    below = min(distinct[0] - 1, np.nextafter(distinct[0], -np.inf))
    above = max(distinct[-1] + 1, np.nextafter(distinct[-1], np.inf))

    return np.concatenate([[below], middle, [above]])


def threshold_accuracy(
    labels: Values, scores: Values, threshold: float, strict: bool = False
) -> float:
    r"""Return the share of labels that a score cut at a threshold gets right.

    .. math:: \frac{1}{n} \sum_{i=1}^{n} [ (s_i \ge \gamma) = l_i ]

    Symbols, ``strict``, sources and errors are those of `best_threshold`.

    Examples:
        >>> threshold_accuracy([0, 1, 1], [0.25, 0.5, 1.0], threshold=0.5)
        1.0
    """
    positive, values = labels_and_scores(labels, scores)
    accepted = values > threshold if strict else values >= threshold

    return float(np.mean(accepted == positive))


def auprc(labels: Values, scores: Values, grid: Values | None = None) -> float:
    r"""Return the area under the precision-recall curve of a score, between 0 and 1.

    .. math:: \sum_{k=1}^{K} (R_k - R_{k-1}) \, \frac{P_k + P_{k-1}}{2}, \qquad R_0 = 0, \; P_0 = 1

    with labels :math:`l` in {0, 1} and scores :math:`s`, both of shape ``(n,)``; :math:`P_k` and
    :math:`R_k` are precision and recall of "yes" for :math:`s_i \ge \gamma_k`, and
    :math:`\gamma_1 > \dots > \gamma_K` are the distinct scores, or the thresholds of ``grid``
    (precision is 1 above all scores, and the area ends where the grid does). Straight lines join
    these points, so this is not average precision, which is a sum of rectangles: equal scores have
    an area of :math:`(1 + p) / 2` with the share :math:`p` of positive labels.

    Source: GaussCSE, the authors' evaluation (`sklearn.metrics.precision_recall_curve` and `auc`);
    the paper itself names a grid, ``[k / 1000 for k in range(1001)]``.  Differs: no positive label
    is an error here, where scikit-learn warns and sets recall to 1.
    """
    positive, values = labels_and_scores(labels, scores)
    if not positive.any():
        raise ValueError("labels must have a 1")

    order = np.argsort(-values, kind="stable")
    positive = positive[order]
    values = values[order]
    thresholds = np.unique(values if grid is None else as_column(grid, "grid"))[::-1]
    accepted = np.searchsorted(-values, -thresholds, side="right")
    true_positives = np.concatenate([[0], np.cumsum(positive)])[accepted]
    precision = np.where(accepted > 0, true_positives / np.maximum(accepted, 1), 1.0)
    # Integrate over counts and divide once: with rounded recalls, a perfect score is below 1.
    heights = np.concatenate([[1.0], precision])
    counts = np.concatenate([[0], true_positives])

    return float(np.trapezoid(heights, counts) / positive.sum())


def auc(labels: Values, scores: Values) -> float:
    r"""Return the area under the ROC curve: how often a positive row beats a negative one.

    .. math:: \frac{1}{|P| \, |N|} \sum_{i \in P} \sum_{j \in N}
              \left( [s_i > s_j] + \frac{[s_i = s_j]}{2} \right)

    with scores :math:`s` of shape ``(n,)``, the rows :math:`P` with label 1 and the rows :math:`N`
    with label 0. It raises ValueError if either label is missing.
    """
    return float(np.mean(placements(labels, scores)[0]))


def auc_error(labels: Values, scores: Values) -> float:
    r"""Return the standard error of `auc` over the rows; it needs two rows of each label.

    .. math:: \sqrt{ \frac{S^2(V_P)}{|P|} + \frac{S^2(V_N)}{|N|} }

    with the share :math:`V_P` of negative rows below each positive row (ties count half), the share
    :math:`V_N` of positive rows above each negative row, and the variance :math:`S^2`.

    Source: DeLong, DeLong and Clarke-Pearson 1988.  Differs: nothing.
    """
    variances = [np.var(side, ddof=1) / len(side) for side in placements(labels, scores)]
    return float(np.sqrt(sum(variances)))


def placements(labels: Values, scores: Values) -> tuple[Column, Column]:
    """Return the placements of the positive and of the negative rows, in the order of the rows."""
    positive, values = labels_and_scores(labels, scores)
    if positive.all() or not positive.any():
        raise ValueError("labels must have a 0 and a 1")

    high, low = values[positive], values[~positive]

    return _share_below(np.sort(low), high), 1 - _share_below(np.sort(high), low)


def _share_below(ordered: Column, values: Column) -> Column:
    # The left and the right place add up to twice the number below, where ties count half.
    twice_below = np.searchsorted(ordered, values) + np.searchsorted(ordered, values, "right")

    return twice_below / (2 * len(ordered))


@dataclass(frozen=True)
class DeLong:
    """DeLong's test of two paired AUCs: ``difference`` is A minus B, ``error`` its standard error.

    Source: DeLong, DeLong and Clarke-Pearson 1988.
    """

    auc_a: float
    auc_b: float
    error: float

    @property
    def difference(self) -> float:
        """The AUC of A minus that of B."""
        return self.auc_a - self.auc_b

    @property
    def pvalue(self) -> float:
        """The two-sided p-value of a normal difference; 1 for equal scores."""
        if self.error == 0:
            return 1.0 if self.difference == 0 else 0.0

        return math.erfc(abs(self.difference) / self.error / math.sqrt(2))


def delong(labels: Values, scores_a: Sequence[Values], scores_b: Sequence[Values]) -> DeLong:
    r"""Compare the AUCs of two methods on the same rows, each the mean over its runs.

    .. math:: \mathrm{Var} = \frac{S^2(\bar V^a_P - \bar V^b_P)}{|P|}
              + \frac{S^2(\bar V^a_N - \bar V^b_N)}{|N|}

    with labels in {0, 1}, ``(n,)``; a sequence of scores, ``(n,)`` each, for each method, one for
    each run; and :math:`\bar V` the means over the runs of what `auc_error` defines. The runs are
    given, so the error is that of the rows.

    Source: DeLong, DeLong and Clarke-Pearson 1988.  Differs: the mean over runs, whose components
    are the means of theirs; nothing for one run.  It raises ValueError for fewer than two rows of
    a label.

    Examples:
        >>> delong([0, 0, 1, 1], [[0.1, 0.2, 0.3, 0.4]], [[0.1, 0.3, 0.2, 0.4]]).difference
        0.25
    """
    parts = []
    for scores in (scores_a, scores_b):
        placed = [placements(labels, run_scores) for run_scores in scores]
        parts.append([np.mean(side, axis=0) for side in zip(*placed, strict=True)])

    if min(map(len, parts[0])) < 2:
        raise ValueError("labels must have two 0 and two 1")

    variances = [np.var(a - b, ddof=1) / len(a) for a, b in zip(*parts, strict=True)]
    area_a, area_b = (float(np.mean(positive)) for positive, _ in parts)

    return DeLong(area_a, area_b, float(np.sqrt(sum(variances))))


def share_larger(first: Values, second: Values) -> float:
    r"""Return the share of pairs whose first score is larger; ties are wrong.

    .. math:: \frac{1}{n} \sum_{i=1}^{n} [ a_i > b_i ]

    with the scores :math:`a` and :math:`b`, both of shape ``(n,)``. It is the accuracy of
    implicitness with the scores of the implicit and the explicit sentences, and the accuracy of
    the direction of entailment with the scores (premise, hypothesis) and (hypothesis, premise).

    Source: ImpScore, authors' code, and DualCSE, EIS; GaussCSE, direction of entailment.

    Examples:
        >>> share_larger([0.5, 0.5], [0.25, 0.5])
        0.5
    """
    larger, smaller = as_columns(first, second, ("first", "second"))
    return float(np.mean(larger > smaller))


def recall_at(ranks: Values, k: int) -> float:
    r"""Return the share of queries whose answer is among the first ``k``.

    .. math:: \frac{1}{n} \sum_{i=1}^{n} [ r_i \le k ]

    with the rank :math:`r_i` of the answer to each query, 1 for the best, of shape ``(n,)``.

    Examples:
        >>> recall_at([1, 3, 12, 2], k=2)
        0.5
    """
    return float(np.mean(as_column(ranks, "ranks") <= k))


def reciprocal_rank_at(ranks: Values, k: int) -> float:
    r"""Return the mean reciprocal rank, where a rank above ``k`` counts 0 (MRR@k).

    .. math:: \frac{1}{n} \sum_{i=1}^{n} \frac{[ r_i \le k ]}{r_i}

    with the rank :math:`r_i` of the answer to each query, 1 for the best, of shape ``(n,)``.

    Examples:
        >>> reciprocal_rank_at([1, 2, 12], k=10)
        0.5
    """
    column = as_column(ranks, "ranks")
    return float(np.mean(np.where(column <= k, 1 / column, 0.0)))


def spearman(gold: Values, scores: Values, *, constant: float | None = None) -> float:
    r"""Return the rank correlation of scores with gold values.

    .. math:: \rho = \frac{\mathrm{cov}(R(g), R(s))}{\sigma_{R(g)} \, \sigma_{R(s)}}

    with gold values :math:`g` and scores :math:`s`, ``(n,)``, and their ranks :math:`R`; ties have
    their mean rank.

    Source: Spearman 1904, as `scipy.stats.spearmanr` computes it.  Differs: if a side is constant
    (or has one value), scipy gives NaN; here it is an error, or the result is ``constant`` if
    given.
    """
    from scipy import stats  # type: ignore[import-untyped, unused-ignore]  # slow import

    columns = as_columns(gold, scores, ("gold", "scores"))
    if any(np.all(values == values[0]) for values in columns):
        if constant is None:
            raise ValueError("gold and scores must vary for a correlation")

        return constant

    return float(stats.spearmanr(*columns).statistic)


def spearman_all(subsets: Subsets, *, constant: float | None = None) -> float:
    r"""Return one correlation over all subsets together ("all"), the setting of SimCSE's tables.

    .. math:: \rho ( g^{(1)} \Vert \dots \Vert g^{(K)}, \; s^{(1)} \Vert \dots \Vert s^{(K)} )

    with ``subsets = [(gold, scores), ...]`` and :math:`\Vert` concatenation. ``constant`` and
    errors are those of `spearman`; no subset is an error too.

    Source: Gao et al. 2021 (SimCSE), appendix on STS evaluation settings.  Differs: nothing.
    """
    gold, scores = zip(*_columns(subsets), strict=True)
    return spearman(np.concatenate(gold), np.concatenate(scores), constant=constant)


def spearman_mean(
    subsets: Subsets, *, weighted: bool = False, constant: float | None = None
) -> float:
    r"""Return the mean of the subsets' correlations ("mean"), or weighted by pairs ("wmean").

    .. math:: \frac{1}{K} \sum_{k=1}^{K} \rho ( g^{(k)}, s^{(k)} ), \qquad
              \frac{\sum_k n_k \, \rho ( g^{(k)}, s^{(k)} )}{\sum_k n_k}

    Source: SentEval, ``all.spearman``.  Differs: nothing. ``constant`` and errors are as in
    `spearman_all`.
    """
    columns = _columns(subsets)
    correlations = [spearman(*pair, constant=constant) for pair in columns]
    weights = [len(gold) for gold, _ in columns] if weighted else None

    return float(np.average(correlations, weights=weights))


AGGREGATIONS: dict[str, Callable[..., float]] = {
    "all": spearman_all,
    "mean": spearman_mean,
    "wmean": partial(spearman_mean, weighted=True),
}
"""The three ways of the STS literature to aggregate subsets."""


def _columns(subsets: Subsets) -> list[tuple[Column, Column]]:
    return [as_columns(gold, scores, ("gold", "scores")) for gold, scores in subsets]


@dataclass(frozen=True)
class McNemar:
    r"""McNemar's test: do two classifiers differ in what they get right?

    With :math:`b` and :math:`c` the numbers of examples that only A and only B gets right: if the
    two do not differ, :math:`b` is binomial with :math:`b + c` trials of probability 1/2.

    Source: McNemar 1947; correction: Edwards 1948.  Differs: nothing.
    """

    both_right: int  # number of examples that both get right
    only_a: int
    only_b: int
    neither: int

    @property
    def examples(self) -> int:
        """The number of all examples."""
        return self.both_right + self.only_a + self.only_b + self.neither

    @property
    def pvalue(self) -> float:
        r"""The exact two-sided p-value.

        .. math:: \min ( 1, 2 \sum_{k=0}^{\min(b, c)} \binom{b + c}{k} 2^{-(b + c)} )
        """
        from scipy.stats import binomtest  # slow import

        differing = self.only_a + self.only_b

        return float(binomtest(self.only_a, differing).pvalue) if differing else 1.0

    @property
    def statistic(self) -> float:
        r"""The chi-squared statistic with continuity correction; 0 for b = c = 0.

        .. math:: (|b - c| - 1)^2 / (b + c)

        For :math:`b = c` this is :math:`1 / (b + c)`, where R leaves the correction out and gives
        0.
        """
        differing = self.only_a + self.only_b
        return (abs(self.only_a - self.only_b) - 1) ** 2 / differing if differing else 0.0

    @property
    def pvalue_asymptotic(self) -> float:
        """The p-value of `statistic` under chi-squared with one degree of freedom."""
        return math.erfc(math.sqrt(self.statistic / 2))


def mcnemar(correct_a: Values, correct_b: Values) -> McNemar:
    """Return McNemar's test of two classifiers; each ``(n,)``, 1 (or True) where it is right."""
    a, b = (as_flags(side) for side in as_columns(correct_a, correct_b, ("correct_a", "correct_b")))
    return McNemar(
        both_right=int(np.sum(a & b)),
        only_a=int(np.sum(a & ~b)),
        only_b=int(np.sum(~a & b)),
        neither=int(np.sum(~a & ~b)),
    )


def as_column(values: Values, name: str) -> Column:
    """Return a non-empty 1-d float64 array of finite values, or raise ValueError."""
    if isinstance(values, Tensor):  # numpy knows neither bfloat16 nor other devices
        values = values.detach().cpu().double().numpy()

    column = np.asarray(values, dtype=np.float64)
    if column.ndim != 1 or column.size == 0:
        raise ValueError(f"{name} must be a non-empty 1-d sequence, got shape {column.shape}")
    if not np.isfinite(column).all():
        raise ValueError(f"{name} must be finite, got {column[~np.isfinite(column)][0]}")

    return column


def as_columns(first: Values, second: Values, names: tuple[str, str]) -> tuple[Column, Column]:
    """Return two arrays as `as_column` does, or raise ValueError, also if their lengths differ."""
    columns = as_column(first, names[0]), as_column(second, names[1])
    if len(columns[0]) != len(columns[1]):
        got = f"{len(columns[0])} and {len(columns[1])}"
        raise ValueError(f"{' and '.join(names)} must be equally long, got {got}")

    return columns


def as_flags(values: Column) -> NDArray[np.bool_]:
    """Return zeros and ones as booleans, or raise ValueError."""
    if not np.isin(values, (0, 1)).all():
        raise ValueError("labels must be 0 or 1")

    return np.asarray(values == 1)


def labels_and_scores(labels: Values, scores: Values) -> tuple[NDArray[np.bool_], Column]:
    """Return labels as booleans and scores as float64, or raise ValueError."""
    label_values, values = as_columns(labels, scores, ("labels", "scores"))
    return as_flags(label_values), values
