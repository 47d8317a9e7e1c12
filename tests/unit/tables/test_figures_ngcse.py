"""The numbers of NGCSE's figures: correlations, intervals, and what the authors released."""

import itertools
import math
import os
import runpy
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from lightning_cse.paths import experiments_dir
from lightning_cse.tables.figures import load_file

ngcse = load_file(experiments_dir() / "ngcse" / "figures.py")
ngcse_studies = load_file(experiments_dir() / "ngcse" / "studies.py")


@pytest.fixture(scope="module")
def published():
    """The thirteen settings and the encoder before training, as published."""
    table = pd.read_csv(experiments_dir() / "ngcse" / "published_rfd.csv")
    return table.set_index("setting", drop=False).rename_axis(None)


def released_runs(repository, folder):
    script = runpy.run_path(f"{repository}/scripts/ngcse_figures.py")
    return script["released_runs"](folder).set_index("setting", drop=False).rename_axis(None)


def test_released_curves_give_the_published_summary(repository, published):
    data = os.environ.get("LIGHTNING_CSE_DATA", "")
    default = Path(data).parent / "paper" / "ngcse_curves"
    folder = Path(os.environ.get("LIGHTNING_CSE_CURVES", default))
    if not folder.is_dir():
        pytest.skip(f"{folder} does not exist; the released curves are not in this repository")

    released = released_runs(repository, folder)[ngcse.SUMMARY].astype(float)
    assert len(released) == 9
    want = published.loc[released.index, ngcse.SUMMARY]
    assert released.to_numpy() == pytest.approx(want.to_numpy(), abs=1e-6)


def test_the_partial_correlation_is_that_of_a_regression():
    rng = np.random.default_rng(0)
    groups = np.repeat(["a", "b", "c"], [4, 5, 3])
    shift = 10 * np.repeat([0.0, 1.0, 2.0], [4, 5, 3])
    x, y = rng.normal(size=(2, 12)) + shift
    design = pd.get_dummies(groups, dtype=float).to_numpy()
    hat = design @ np.linalg.pinv(design)
    r, low, high = ngcse.correlation(x, y, ranks=False, groups=groups)
    half = 1.959964 / math.sqrt(12 - 3 - 2)

    assert r == pytest.approx(np.corrcoef(x - hat @ x, y - hat @ y)[0, 1])
    assert ngcse.correlation(x, y, ranks=False)[0] > 0.9 > abs(r)
    assert (low, high) == pytest.approx(np.tanh([math.atanh(r) - half, math.atanh(r) + half]))


def test_ordered_pairs_by_all_permutations():
    measures = np.array([[0, 0], [1, 1], [2, 0.5], [5, 5], [6, 6], [7, 4.0]])
    score = np.array([1.0, 3.0, 2.0, 0.0, 0.5, -1.0])
    groups = ["a"] * 3 + ["b"] * 3
    pairs = [(0, 1), (0, 2), (3, 4)]
    counts = []
    for first, second in itertools.product(itertools.permutations(range(3)), repeat=2):
        permuted = score[[*first, *(3 + np.array(second))]]
        counts.append(sum(permuted[low] < permuted[high] for low, high in pairs))

    result = ngcse.ordered_pairs(measures, score, groups)
    exact = np.mean(np.array(counts) >= 3)

    assert (result.pairs, result.agreeing) == (3, 3)
    assert result.pvalue == pytest.approx(exact, abs=0.02)
    assert ngcse.ordered_pairs(measures, -score, groups).agreeing == 0


def test_differences_are_paired_by_seed():
    scores = {
        "Wiki.dropout": [0.60, 0.62, 0.64],
        "Wiki.STS": [0.63, 0.64, 0.68],
        "Wiki.STS_HT": [0.7],
    }
    by_setting = pd.Series(scores, name="final_score").explode()
    runs = by_setting.rename_axis("setting").reset_index()
    runs["seed"] = runs.groupby("setting").cumcount()
    runs["rfd_alignment"] = -runs["final_score"]
    runs["rfd_uniformity"] = 0.0
    result = ngcse.differences(runs[::-1])
    by_pair = {(row["setting"], row["against"]): row for row in result}
    row = by_pair["Wiki.STS", "Wiki.dropout"]
    half = stats.t.ppf(0.975, 2) * np.std([0.03, 0.02, 0.04], ddof=1) / math.sqrt(3)

    assert by_pair.keys() == {
        ("Wiki.STS", "Wiki.dropout"),
        ("Wiki.STS_HT", "Wiki.dropout"),
        ("Wiki.STS_HT", "Wiki.STS"),
    }
    assert (row["seeds"], row["final_score"]) == (3, pytest.approx(0.03))
    assert row["final_score_high"] == pytest.approx(0.03 + half)
    assert row["rfd_alignment_low"] == pytest.approx(-0.03 - half)
    assert math.isnan(by_pair["Wiki.STS_HT", "Wiki.STS"]["final_score_low"])


def test_changes_are_paired_by_run():
    values = {
        "value": [0, 0, 0, 5, 5, 9],
        "run": [0, 1, 2, 0, 1, 0],
        "score": [70.0, 72.0, 99.0, 75.0, 78.0, 71.0],
    }
    result = ngcse_studies.changes(pd.DataFrame(values), 0)
    assert {value: result[value].dropna().tolist() for value in result} == {
        0: [0, 0, 0],
        5: [5, 6],
        9: [1],
    }


def test_the_rule_and_the_regret_of_following_it():
    curves = {
        f"diag/{side}/{measure}": [(0, value), (10, 9.0)]
        for (side, measure), value in {
            ("held_out", "alignment"): 0.5,
            ("eval", "alignment"): 0.3,
            ("held_out", "uniformity"): -1.0,
            ("eval", "uniformity"): -2.0,
        }.items()
    }
    runs = pd.DataFrame({"curves": [curves], "rfd_alignment": [7.0], "rfd_uniformity": [7.0]})
    (row,) = ngcse.at_step_0(runs).to_dict("records")
    assert row["rfd_alignment"] == pytest.approx(0.2)
    assert row["rfd_uniformity"] == pytest.approx(1.0)

    summary = pd.DataFrame(
        {
            "rfd_alignment": [0.1, 0.125, 0.4, 0.25],
            "rfd_uniformity": [0.0, 0.125, 0.0, 0.0],
            "final_score": [0.60, 0.70, 0.75, 0.80],
        },
        index=["A.a", "A.b", "A.c", "A.d"],
    ).eval("rfd = rfd_alignment + rfd_uniformity")
    (by_domain,) = ngcse.rule(summary)
    assert by_domain["pearson"] == pytest.approx(
        np.corrcoef(summary["rfd"], summary["final_score"])[0, 1]
    )
    # Of b and d, the sums are equal; of c and d, the score has the other order.
    assert by_domain["pairs"] == "4 of 5"
    assert by_domain["both"] == "1 of 1"
    (chosen,) = ngcse.regret(summary)
    assert (chosen["best"], chosen["chosen"], chosen["place"]) == ("A.d", "A.c", 2)
    assert chosen["regret"] == pytest.approx(5.0)
    assert chosen["random"] == pytest.approx(80 - 71.25)
