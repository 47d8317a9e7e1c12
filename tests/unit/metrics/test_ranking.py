"""nDCG, recall and AUC against scikit-learn, against loops over the definitions, and by hand."""

import itertools
import math
import statistics

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from sklearn.metrics import ndcg_score

from lightning_cse.metrics import auc, auc_error, ndcg, recall

relevance = st.lists(st.sampled_from([0, 0, 0, 1, 2, 3]), min_size=2, max_size=30)


def trec_eval(ranked: list[float], judged: list[float], k: int) -> float:
    """``ndcg_cut`` as trec_eval's m_ndcg_cut.c computes it: linear gains, log2 of the rank plus one."""

    def total(gains: list[float]) -> float:
        return math.fsum(
            gain / math.log2(rank + 1)
            for rank, gain in enumerate(gains, start=1)
            if rank <= k and gain > 0
        )

    return total(ranked) / ideal if (ideal := total(sorted(judged, reverse=True))) > 0 else 0.0


@given(relevance, st.integers(1, 12))
def test_ndcg_is_scikit_learns_and_trec_evals(ranked: list[float], k: int) -> None:
    scores = list(
        range(len(ranked), 0, -1)
    )  # all documents are judged, and their order is theirs in the list
    assert ndcg(ranked, ranked, k) == pytest.approx(ndcg_score([ranked], [scores], k=k), abs=1e-12)
    assert ndcg(ranked, ranked, k) == pytest.approx(trec_eval(ranked, ranked, k), abs=1e-12)


@given(relevance, relevance, st.integers(1, 12))
def test_judged_documents_that_are_not_found_count_in_the_ideal(
    found: list[float], lost: list[float], k: int
) -> None:
    assert ndcg(found, found + lost, k) == pytest.approx(
        trec_eval(found, found + lost, k), abs=1e-12
    )
    relevant = sum(value > 0 for value in found + lost)
    assert recall(found, found + lost, k) == (
        sum(v > 0 for v in found[:k]) / relevant if relevant else 0
    )


def test_by_hand() -> None:
    # 2 at rank 2 and 1 at rank 3, ideally 2 at rank 1 and 1 at rank 2; -1 counts as 0.
    expected = (2 / math.log2(3) + 1 / 2) / (2 + 1 / math.log2(3))
    assert ndcg([0, 2, 1], [1, 2, 0]) == ndcg([-1, 2, 1], [1, 2, -1]) == pytest.approx(expected)
    assert ndcg([0, 2, 1], [1, 2], k=1) == recall([0, 2, 1], [1, 2], k=1) == 0
    assert recall([0, 2, 1], [1, 2, 3], k=3) == pytest.approx(2 / 3)
    assert (ndcg([], [1]), recall([], [1]), ndcg([0], [0]), recall([0], [0])) == (0, 0, 0, 0)


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(-3, 3)), min_size=2, max_size=15))
def test_auc_is_the_share_of_pairs_in_the_right_order(rows: list[tuple[int, int]]) -> None:
    yes, no = ([score for label, score in rows if label == kind] for kind in (1, 0))
    assume(yes and no)
    pairs = [(a > b) + (a == b) / 2 for a, b in itertools.product(yes, no)]
    assert auc(*zip(*rows, strict=True)) == pytest.approx(np.mean(pairs))


def test_the_error_of_auc_is_delong_s_and_that_of_drawing_rows_anew() -> None:
    generator = np.random.default_rng(0)
    yes, no = (
        generator.normal(0.8, 1, 90).round(1),
        generator.normal(0, 1, 150).round(1),
    )  # with ties
    labels = np.repeat([1, 0], [90, 150])
    above = [[float(a > b) + float(a == b) / 2 for b in no] for a in yes]
    of_yes, of_no = (
        [sum(row) / 150 for row in above],
        [sum(column) / 90 for column in zip(*above, strict=True)],
    )
    error = auc_error(labels, [*yes, *no])
    assert error == pytest.approx(
        math.sqrt(statistics.variance(of_yes) / 90 + statistics.variance(of_no) / 150)
    )
    drawn = [
        auc(labels, [*generator.choice(yes, 90), *generator.choice(no, 150)]) for _ in range(2000)
    ]
    assert error == pytest.approx(np.std(drawn), rel=0.05)


def test_auc_needs_both_labels() -> None:
    with pytest.raises(ValueError, match="labels must have a 0 and a 1, got 1 in all 2 rows"):
        auc([1, 1], [0.1, 0.2])
