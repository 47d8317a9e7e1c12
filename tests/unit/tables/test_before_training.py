"""RFD before training: the rule, and what the kept runs of Figure 1 say of it."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from lightning_cse.paths import experiments_dir
from lightning_cse.tables import figures
from lightning_cse.tables.files import read_spec
from lightning_cse.tables.keep import kept_folders
from lightning_cse.tables.plan import Plan
from lightning_cse.tables.records import RunsTable
from lightning_cse.tables.spec import Request


@pytest.mark.slow
def test_rfd_before_training_of_the_kept_runs_orders_their_scores():
    spec = read_spec(experiments_dir() / "ngcse" / "before_training.yaml")
    table = RunsTable(Path("none"), kept_folders(experiments_dir()))
    result = figures.make(Plan(spec, Request("small"), table))
    rows = pd.DataFrame(result.tables["rule"]).set_index(["of", "score", "RFD", "scope"])
    start, training = (
        rows.loc[("Figure 1", "STS-B dev", when, "within domains")]
        for when in ("step 0", "training")
    )
    assert (start["both"], training["both"]) == ("13 of 14", "15 of 16")
    assert start["pearson"] == pytest.approx(0.746, abs=1e-3)
    assert training["pearson"] == pytest.approx(0.848, abs=1e-3)


def test_the_rule_and_the_regret_of_following_it():
    module = figures.load_file(experiments_dir() / "ngcse" / "figures.py")
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
    (row,) = module.at_step_0(runs).to_dict("records")
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
    (by_domain,) = module.rule(summary)
    assert by_domain["pearson"] == pytest.approx(
        np.corrcoef(summary["rfd"], summary["final_score"])[0, 1]
    )
    # Of b and d, the sums are equal; of c and d, the score has the other order.
    assert by_domain["pairs"] == "4 of 5"
    assert by_domain["both"] == "1 of 1"
    (chosen,) = module.regret(summary)
    assert (chosen["best"], chosen["chosen"], chosen["place"]) == ("A.d", "A.c", 2)
    assert chosen["regret"] == pytest.approx(5.0)
    assert chosen["random"] == pytest.approx(80 - 71.25)
