"""The final table of a run."""

from pathlib import Path

from lightning_cse.runs.table import print_run

RECORD = {
    "name": "dualcse_[cross]",
    "metrics": {
        "test/rte/accuracy_explicit": 0.8188487,
        "test/rte/threshold": 0.53125,
        "test/rte/auc_explicit_se": 0.01,
        "test/sts12/spearman_all": 0.7,
        "test/mine/distance": 0.25,
    },
    "baselines": {
        "untrained": {"test/rte/accuracy_explicit": None},
        "length": {"test/eis/accuracy": 0.999},
    },
    "best": {"step": 875, "score": 0.7426, "monitor": "val/rte/accuracy_all"},
    "steps": 1000,
    "summary": {"final_score": 0.73124, "best_score": 0.7426, "evaluations": 8},
    "seconds": {"training": 183.21, "test": 4.0},
    "device": "cpu",
}


def test_table_has_the_baselines_and_ends_with_the_path(capsys):
    path = Path("/a/very" * 20)
    print_run(RECORD, path)
    lines = capsys.readouterr().out.splitlines()
    head = lines.index("") + 1
    assert lines[head].split() == ["test", "dualcse_[cross]", "untrained", "LENGTH"]
    cells = {" ".join(line.split()[:-3]): line.split()[-3:] for line in lines[head + 1 : head + 5]}
    assert cells == {
        "explicit entailments recognised, %": ["81.88", "-", "-"],
        "sts12: Spearman's correlation x 100": ["70.00", "-", "-"],
        "mine: distance, %": ["25.00", "-", "-"],
        "the more implicit sentence recognised, %": ["-", "-", "99.90"],
    }
    assert "2 more metrics are in the record" in lines
    assert "best checkpoint: step 875 of 1000, val/rte/accuracy_all 0.7426" in lines
    assert "final score (mean of the 5 best of 8 dev scores): 0.7312" in lines
    assert "time: training 183.2 s, test 4.0 s (cpu)" in lines
    assert lines[-1] == f"record: {path}"
