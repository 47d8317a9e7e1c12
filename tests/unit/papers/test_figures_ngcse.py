"""The numbers of NGCSE's figures: correlations, intervals, and what the authors released."""

import math
import os
import runpy
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from lightning_cse.config import experiments_dir
from lightning_cse.papers.figures import ngcse, ngcse_studies
from lightning_cse.papers.files import read_artefact
from lightning_cse.papers.statistics import correlation
from lightning_cse.runs import summarise

PATTERNS = {
    "Wiki": ("dropout", "token_shuffle", "STS", "STS_HT"),
    "NLI": (
        "dropout",
        "token_cutoff",
        "NLI",
        "STS",
        "SUP",
    ),
}
RELEASED = [f"{domain}.{pattern}" for domain, patterns in PATTERNS.items() for pattern in patterns]


@pytest.fixture(scope="module")
def published():
    """The thirteen settings and the encoder before training, as published."""
    table = pd.read_csv(experiments_dir() / "ngcse" / "published_rfd.csv")
    return (
        table.rename(columns={"setting": "title"}).set_index("title", drop=False).rename_axis(None)
    )


@pytest.fixture(scope="module")
def released(repository):
    """The settings that the authors released; the test is skipped where their curves are
    missing.
    """
    data, given = os.environ.get("LIGHTNING_CSE_DATA"), os.environ.get("LIGHTNING_CSE_CURVES")
    folder = Path(given) if given else Path(str(data)).parent / "paper" / "ngcse_curves"
    if not folder.is_dir():
        pytest.skip(
            f"{folder} does not exist; the released NGCSE curves are not part of this repository"
        )
    return reader(repository)(folder)


def reader(repository):
    found: Callable[[Path], pd.DataFrame] = runpy.run_path(
        f"{repository}/scripts/ngcse_figures.py"
    )["released_runs"]
    return found


@pytest.mark.parametrize("setting", RELEASED)
def test_released_curves_give_the_published_summary(setting, released, published):
    got = released.set_index("title").loc[setting, ngcse.SUMMARY].astype(float)
    assert got.to_dict() == pytest.approx(published.loc[setting, ngcse.SUMMARY].to_dict(), abs=1e-6)


def test_a_release_has_the_keys_of_a_run(tmp_path, repository):
    folder = tmp_path / "wiki" / "sts_ht"
    folder.mkdir(parents=True)
    (folder / "metrics").write_text(
        "step,loss,stsb,sickr,avg\n5,9.6,0.55,0.4,0.45\n10,9.6,0.6,0.4,0.45\n"
    )
    for name, a, u in (("train", 1.0, -3.0), ("eval", 0.5, -2.0)):
        rows = "".join(f"{step},{a + step},{u - step}\n" for step in (0, 5, 10))
        (folder / f"{name}_alignment_and_uniformity").write_text(
            f"step,alignment,uniformity\n{rows}"
        )
    (run,) = reader(repository)(tmp_path).to_dict("records")
    assert run["curves"]["val/stsb/spearman"] == [(5, 0.55), (10, 0.6)]
    assert run["curves"]["diag/held_out/alignment"] == [
        (0, 1.0),
        (5, 6.0),
        (10, 11.0),
    ]
    assert run["title"] == "Wiki.STS_HT"
    assert (run["rfd_alignment"], run["rfd_uniformity"], run["best_step"]) == (0.5, -1.0, 10)
    assert {name: run[name] for name in ngcse.SUMMARY} == asdict(summarise(run["curves"]))


def test_the_published_settings_are_thirteen(published):
    assert (
        published.loc["pretrained", "best_score"],
        published.loc["pretrained", "best_step"],
    ) == (0.3173, 0)
    settings = ngcse.settings(published.drop("pretrained"))
    assert settings["final_score"].mul(100).round(1).tolist() == [
        *(
            81.1,
            79.7,
            81.2,
            81.5,
            81.4,
            83.3,
        ),
        *(
            78.1,
            80.0,
            79.6,
            83.0,
            84.1,
            84.6,
            85.5,
        ),
    ]
    assert settings["rfd"].count() == 9
    printed = ngcse.published_settings(read_artefact(experiments_dir() / "ngcse" / "figure1.yaml"))
    for name in ("rfd_alignment", "rfd_uniformity", "final_score"):
        assert printed[name].to_dict() == pytest.approx(
            settings[name].to_dict(),
            abs=6e-4,
            nan_ok=True,
        )


def test_the_tendency_of_the_authors_nine_settings(published):
    rows, text = ngcse.correlations(ngcse.settings(published.drop("pretrained")))
    for cells in (
        "| RFD_a, all | 9 | +0.898 [+0.58, +0.98] |",
        "| RFD_u, all | 9 | +0.268 [-0.48, +0.79] |",
        "| RFD_u, Wiki | 4 | -0.587",
        "| RFD_a + RFD_u, NLI | 5 | +0.945 ",
    ):
        assert cells in text
    assert [row["scope"] for row in rows[::3]] == ["all", "Wiki", "NLI"]


def test_fishers_interval_by_hand_and_by_scipy():
    x, y = (
        [
            1.0,
            2.0,
            3.0,
            4.0,
            5.0,
            6.0,
            7.0,
        ],
        [
            2.0,
            1.0,
            4.0,
            3.0,
            7.0,
            5.0,
            6.0,
        ],
    )
    r = np.corrcoef(x, y)[0, 1]
    z = 0.5 * math.log((1 + r) / (1 - r))
    ends = [z - 1.959964 / 2, z + 1.959964 / 2]
    want = [(math.exp(2 * e) - 1) / (math.exp(2 * e) + 1) for e in ends]
    assert correlation(x, y, ranks=False) == pytest.approx((r, *want), abs=1e-6)
    assert correlation(x, y, ranks=False)[1:] == pytest.approx(
        tuple(stats.pearsonr(x, y).confidence_interval())
    )


def test_the_interval_of_ranks():
    x, y = (
        [
            1.0,
            2.0,
            3.0,
            4.0,
            5.0,
        ],
        [
            0.1,
            0.2,
            0.4,
            0.3,
            100.0,
        ],
    )
    half = 1.959964 * math.sqrt((1 + 0.81 / 2) / 2)
    want = (0.9, *(math.tanh(math.atanh(0.9) + sign * half) for sign in (-1, 1)))
    assert correlation(x, y, ranks=True) == pytest.approx(want, abs=1e-6)
    assert correlation(
        x,
        np.exp(np.asarray(y) / 50).tolist(),
        ranks=True,
    ) == pytest.approx(want, abs=1e-6)


@pytest.mark.parametrize(
    ("x", "y", "want"),
    [
        ([1, 2, 3], [1, 3, 2], (pytest.approx(0.5), None, None)),
        ([1, 2, 3, 4], [2, 4, 6, 8], (pytest.approx(1), None, None)),
        ([1, 2], [1, 2], (None, None, None)),
        ([1, 2, 3], [1, 1, 1], (None, None, None)),
    ],
)
def test_no_correlation_or_no_interval(x, y, want):
    assert correlation(x, y, ranks=False) == want


def test_correlations_are_of_settings_and_empty_below_three():
    runs = pd.DataFrame(
        [
            [
                f"Wiki.{k}",
                k / 10,
                -k / 10,
                0.8 + k / 100,
            ]
            for k in (
                0,
                1,
                2,
                3,
                3,
            )
        ],
        columns=["title", "rfd_alignment", "rfd_uniformity", "final_score"],
    ).reindex(columns=["title", *ngcse.SUMMARY])
    rows, _ = ngcse.correlations(ngcse.settings(runs))
    found = {(row["measure"], row["scope"]): row for row in rows}
    assert found["RFD_a", "Wiki"]["settings"] == 4
    assert found["RFD_a", "Wiki"]["pearson"] == pytest.approx(1)
    assert found["RFD_u", "all"]["spearman"] == pytest.approx(-1)
    assert found["RFD_a + RFD_u", "all"]["pearson"] is None, "the sum does not vary"
    text = ngcse.correlations(ngcse.settings(runs[:2]))[1]
    assert "| RFD_a, all | 2 |  |  |" in text


def test_the_pooled_interval_by_hand():
    runs = pd.DataFrame(
        {
            "value": [
                0,
                0,
                5,
                5,
                5,
            ],
            "score": [
                70.0,
                72.0,
                75.0,
                76.0,
                80.0,
            ],
        }
    )
    squares = sum((s - 71) ** 2 for s in (70, 72)) + sum((s - 77) ** 2 for s in (75, 76, 80))
    half = [
        3.182446 * math.sqrt(squares / 3 / n) for n in (2, 3)
    ]  # Student's t, three degrees of freedom
    assert ngcse_studies.pooled_interval(runs).tolist() == pytest.approx(half, abs=1e-5)
    assert ngcse_studies.pooled_interval(runs.drop_duplicates("value")) is None
