"""The last lines of a run on own files: better or worse than the untrained encoder."""

from lightning_cse.runs.table import run_table
from lightning_cse.runs.untrained import comparison


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
