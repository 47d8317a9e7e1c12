"""The final table of a run."""

from pathlib import Path

from lightning_cse.runs.table import print_run

RECORD = {
    "name": "dualcse_[cross]",
    "metrics": {"test/rte/accuracy_all": 0.8188487, "test/rte/threshold": 0.53125},
    "baselines": {
        "untrained": {"test/rte/accuracy_all": None},
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
    assert lines[0].split() == ["test,", "%", "dualcse_[cross]", "untrained", "encoder", "LENGTH"]
    cells = {line.split()[0]: line.split()[1:] for line in lines[1:4]}
    assert cells == {
        "rte/accuracy_all": ["81.88", "-", "-"],
        "rte/threshold": ["0.5312", "-", "-"],
        "eis/accuracy": ["-", "-", "99.90"],
    }
    assert "best checkpoint: step 875 of 1000, val/rte/accuracy_all 0.7426" in lines
    assert "final score (mean of the 5 best of 8 dev scores): 0.7312" in lines
    assert "time: training 183.2 s, test 4.0 s (cpu)" in lines
    assert lines[-1] == f"record: {path}"
