"""The final table of a run, and its last lines on files of one's own."""

from pathlib import Path

from lightning_cse.runs.table import comparison, print_run, run_table

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


# Better or worse than the untrained encoder


def record(after, *, epochs=3):
    return {
        "name": "mine",
        "metrics": {"test/own_nli/auc": after, "test/own_nli/threshold": 0.1},
        "baselines": {"untrained": {"test/own_nli/auc": 0.8, "test/own_nli/threshold": 0.9}},
        "dev": {
            "trained": {"val/own_nli/auc": 0.75, "val/other/x": 1.0},
            "untrained": {"val/own_nli/auc": 0.5},
        },
        "decisive": {
            "config": {"method": {"optimizer": {"lr": 2e-5}}, "trainer": {"max_epochs": epochs}}
        },
    }


def test_both_splits_are_compared():
    better = [
        "dev, and the difference from the untrained encoder: own_nli/auc 75.00 (+25.00)",
        "test, and the difference from the untrained encoder: own_nli/auc 85.00 (+5.00)",
    ]
    assert list(comparison(record(0.85))) == better
    assert run_table(record(0.85)).splitlines()[-2:] == better


def test_a_worse_model_is_said_to_be_worse_with_advice():
    *_, last = comparison(record(0.7825))
    assert last == (
        "worse than the untrained encoder: test/own_nli/auc -1.75; try method.optimizer.lr=5e-06 "
        "and trainer.max_epochs=1, or more rows"
    )
    *_, last = comparison(record(0.7, epochs=1))
    assert last.endswith("; try method.optimizer.lr=5e-06, or more rows")


def test_other_records_have_no_comparison():
    assert list(comparison({"metrics": {"test/stsb/spearman": 0.5}})) == []
