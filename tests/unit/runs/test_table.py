"""The final table of a run."""

import io
from pathlib import Path
from typing import Any

from rich.console import Console

from lightning_cse.runs.table import print_run, run_table

RTE = {
    "test/rte/accuracy_explicit": 0.912345,
    "test/rte/accuracy_implied": 0.703,
    "test/rte/accuracy_neutral": 0.66005,
    "test/rte/accuracy_contradiction": 1.0,
    "test/rte/accuracy_all": 0.8188487,
}
RECORD: dict[str, Any] = {
    "name": "dualcse_[cross]",
    "metrics": {
        **RTE,
        "test/eis/accuracy": 0.9997,
        "test/rte/threshold": 0.53125,
    },
    "baselines": {
        "untrained": {**dict.fromkeys(RTE, 0.5), "test/rte/accuracy_all": None},
        "length": {"test/eis/accuracy": 0.999},
    },
    "best": {
        "step": 875,
        "score": 0.7426,
        "monitor": "val/rte/accuracy_all",
    },
    "steps": 1000,
    "seconds": {
        "training": 183.21,
        "evaluation": 22.2,
        "test": 4.0,
    },
    "device": "cpu",
    "precision": "bf16-mixed",
}


def text(record):
    """Return what a table looks like as plain text."""
    sink = io.StringIO()
    Console(file=sink, width=100).print(run_table(record))
    return sink.getvalue()


def cells(shown, name):
    """Return the numbers of the row that starts with a name."""
    (row,) = [line for line in shown.splitlines() if line.startswith(f"{name} ")]
    return row.removeprefix(name).split()


def test_method_and_baselines():
    shown = text(RECORD)
    assert cells(shown, "dualcse_[cross]") == [
        "91.23",
        "70.30",
        "66.00",
        "100.00",
        "81.88",
        "99.97",
    ]
    assert cells(shown, "untrained encoder") == ["50.00", "50.00", "50.00", "50.00", "-", "-"]
    assert cells(shown, "LENGTH") == ["-", "-", "-", "-", "-", "99.90"]
    heads = ["explicit", "implied", "neutral", "contradiction", "All", "EIS"]
    assert shown.splitlines()[1].split() == [
        "test,",
        "%",
        *heads,
    ]
    assert cells(shown, "test/rte/threshold") == ["0.5312"]
    assert "best checkpoint: step 875 of 1000, val/rte/accuracy_all 0.7426" in shown
    assert "time: training 183.2 s, evaluation 22.2 s, test 4.0 s (cpu, bf16-mixed)" in shown
    assert "final score" not in shown


def test_sts_and_transfer_tables():
    sts = {f"test/sts{year}/spearman_all": year / 100 for year in range(12, 17)}
    sts |= {
        "test/stsb/spearman": 0.8203,
        "test/sickr/spearman": 0.17,
        "test/sts_avg/spearman_all": 0.2345,
    }
    transfer = {f"test/{task}/accuracy_senteval": 0.5 for task in ("mr", "cr", "transfer_avg")}
    shown = text(
        {"name": "simcse", "metrics": sts | transfer | {"test/snli_direction/accuracy": 0.5}}
    )
    heads = [line.split() for line in shown.splitlines() if line.startswith("test, %")]
    assert heads[0][2:] == ["STS12", "STS13", "STS14", "STS15", "STS16", "STS-B", "SICK-R", "Avg"]
    assert heads[2][2:] == ["senteval"] * 3
    assert [line.split()[1:] for line in shown.splitlines() if line.startswith("simcse")] == [
        ["12.00", "13.00", "14.00", "15.00", "16.00", "82.03", "17.00", "23.45"],
        ["50.00"],
        ["50.00"] * 3,
    ]


def test_symmetric_score_has_no_direction():
    left_out = {
        "sick_direction": ["its score is the same both ways"],
        "eis": ["it needs implicitness"],
    }
    shown = text(
        {
            "name": "simcse",
            "metrics": {"test/sick/auprc": 0.5},
            "left_out": left_out,
        }
    )
    assert [line.split()[1:] for line in shown.splitlines() if line.startswith("simcse")] == [
        ["50.00"],
        ["-"],
    ]


def test_final_score():
    summary = {"final_score": 0.73124, "best_score": 0.7426}
    for evaluations, of in {
        8: "5 best of 8",
        3: "3 best of 3",
        None: "best",
    }.items():
        shown = text(RECORD | {"summary": {**summary, "evaluations": evaluations}})
        assert f"final score (mean of the {of} dev scores" in shown
        assert "): 0.7312" in shown or not evaluations
    assert "final score" not in text(
        RECORD | {"summary": {"final_score": 0.7426, "best_score": 0.7426}}
    )
    assert text({}) == ""


def test_printed_table_ends_with_the_path(capsys):
    path = Path("/a/very" * 20)
    print_run(RECORD, path)
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == f"record: {path}"
    assert any(line.endswith("EIS") for line in lines)
