"""The final table of a run."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from lightning_cse.runs import table as tables
from lightning_cse.runs.table import print_run, run_table

RTE = {
    "test/rte/accuracy_explicit": 0.912345,
    "test/rte/accuracy_implied": 0.703,
    "test/rte/accuracy_neutral": 0.66005,
    "test/rte/accuracy_contradiction": 1.0,
    "test/rte/accuracy_all": 0.8188487,
}
RECORD: dict[str, Any] = {
    "name": "dualcse_cross",
    "metrics": {**RTE, "test/eis/accuracy": 0.9997, "test/rte/threshold": 0.53125},
    "baselines": {
        "untrained": {**dict.fromkeys(RTE, 0.5), "test/rte/accuracy_all": None},
        "length": {"test/eis/accuracy": 0.999},
    },
    "best": {"step": 875, "score": 0.7426, "monitor": "val/rte/accuracy_all"},
    "steps": 1000,
    "seconds": {"training": 183.21, "evaluation": 22.2, "test": 4.0},
    "device": "cpu",
    "precision": "bf16-mixed",
}


def text(record: dict[str, Any], width: int = 100) -> str:
    """Return what a table looks like as plain text."""
    sink = io.StringIO()
    Console(file=sink, width=width).print(run_table(record))
    return sink.getvalue()


def cells(shown: str, name: str) -> list[str]:
    """Return the numbers of the row that starts with a name."""
    (row,) = [line for line in shown.splitlines() if line.startswith(f"{name} ")]
    return row.removeprefix(name).split()


def test_rows_are_the_method_and_its_baselines() -> None:
    shown = text(RECORD)
    assert cells(shown, "dualcse_cross") == ["91.23", "70.30", "66.00", "100.00", "81.88", "99.97"]
    assert cells(shown, "untrained encoder") == ["50.00", "50.00", "50.00", "50.00", "-", "-"]
    assert cells(shown, "LENGTH") == ["-", "-", "-", "-", "-", "99.90"]
    first, second = shown.splitlines()[:2]
    assert first.split() == ["RTE"] * 5
    assert second.split() == ["test,", "%", "explicit", "implied", "neutral", "contradiction", "All", "EIS"]


def test_what_has_no_column_is_listed_below() -> None:
    shown = text(RECORD)
    assert cells(shown, "test/rte/threshold") == ["0.5312"]
    assert shown.index("threshold") > shown.index("LENGTH")


def test_a_baseline_without_a_value_has_no_row_and_no_column() -> None:
    sts = {"test/sts12/spearman_all": 0.5, "test/sts12/spearman_mean": 0.4, "test/other/value": 0.3}
    baselines = {"untrained": sts, "length": {"test/sts12/spearman_all": None}}
    shown = text({"name": "simcse", "metrics": sts, "baselines": baselines})
    assert "LENGTH" not in shown
    assert shown.count("untrained encoder") == 3
    assert cells(text({"name": "simcse", "baselines": baselines}), "simcse") == ["-"] * 8  # the method's row stays


def test_facts_below() -> None:
    shown = text(RECORD)
    assert "best checkpoint: step 875 of 1000, val/rte/accuracy_all 0.7426" in shown
    assert "time: training 183.2 s, evaluation 22.2 s, test 4.0 s (cpu, bf16-mixed)" in shown


def test_other_tasks() -> None:
    record = {"name": "simcse", "metrics": {"test/new/value": 0.71234, "val/stsb/spearman": 0.8}}
    shown = text(record)
    assert cells(shown, "test/new/value") == ["0.7123"]
    assert "RTE" not in shown
    assert "EIS" not in shown
    assert "val/" not in shown


def test_sts_and_transfer_have_tables_of_their_own() -> None:
    sts = {f"test/sts{year}/spearman_all": year / 100 for year in range(12, 17)}
    sts |= {"test/stsb/spearman": 0.8203, "test/sickr/spearman": 0.17, "test/sts_avg/spearman_all": 0.2345}
    transfer = {
        f"test/{task}/accuracy_senteval": place / 10
        for place, task in enumerate(("mr", "cr", "subj", "mpqa", "sst2", "trec", "mrpc", "transfer_avg"), start=1)
    }
    shown = text({"name": "simcse", "metrics": sts | transfer | {"test/snli_direction/accuracy": 0.5}})
    heads = [line.split() for line in shown.splitlines() if line.startswith("test, %")]
    assert heads[0][2:] == ["STS12", "STS13", "STS14", "STS15", "STS16", "STS-B", "SICK-R", "Avg"]
    assert heads[2][2:] == ["senteval"] * 8
    assert [line.split()[1:] for line in shown.splitlines() if line.startswith("simcse")] == [
        ["12.00", "13.00", "14.00", "15.00", "16.00", "82.03", "17.00", "23.45"],
        ["50.00"],  # STS-B stands once, with its like
        ["10.00", "20.00", "30.00", "40.00", "50.00", "60.00", "70.00", "80.00"],
    ]
    alone = text({"name": "gausscse", "metrics": {"test/stsb/spearman": 0.8, "test/snli_direction/accuracy": 0.5}})
    assert "STS12" not in alone
    assert cells(alone, "gausscse") == ["50.00", "80.00"]


def test_other_aggregations_of_sts_are_one_table() -> None:
    values = {"all": 0.1, "mean": 0.2, "wmean": 0.3}
    sts = {
        f"test/sts{year}/spearman_{aggregate}": value + year / 1000
        for year in range(12, 17)
        for aggregate, value in values.items()
    }
    baselines = {"untrained": dict.fromkeys(sts, 0.5), "length": {"test/snli_direction/accuracy": 0.5}}
    shown = text({"name": "ngcse_wiki_sts_ht_final", "metrics": sts, "baselines": baselines})
    lines = [line.split() for line in shown.splitlines()]
    assert ["other", "aggregations,", "%", "of", "subsets", "STS12", "STS13", "STS14", "STS15", "STS16"] in lines
    assert ["ngcse_wiki_sts_ht_final", "mean", "21.20", "21.30", "21.40", "21.50", "21.60"] in lines
    assert ["ngcse_wiki_sts_ht_final", "wmean", "31.20", "31.30", "31.40", "31.50", "31.60"] in lines
    assert ["untrained", "encoder", "mean", *["50.00"] * 5] in lines
    assert "spearman" not in shown
    assert all(len(line) <= 100 for line in shown.splitlines())
    some = text({"name": "x", "metrics": {"test/sts14/spearman_wmean": 0.25}})
    assert cells(some, "x") == ["wmean", "25.00"]
    assert "STS12" not in some


def test_the_final_score_is_told_where_it_is_not_the_best() -> None:
    told = "final score (mean of the five best dev scores): 0.7312"
    for summary, shown in (
        ({"final_score": 0.73124, "best_score": 0.7426}, True),
        ({"final_score": 0.7426, "best_score": 0.7426}, False),
        ({"final_score": None, "best_score": None}, False),
    ):
        lines = text(RECORD | {"summary": summary}).splitlines()
        assert (told in lines) == shown
        assert any(line.startswith("final score") for line in lines) == shown
    lines = text(RECORD | {"summary": {"final_score": 0.73124, "best_score": 0.7426}}).splitlines()
    assert lines[lines.index(told) - 1].startswith("best checkpoint: ")


def test_a_task_alone_shows_its_own_columns_only() -> None:
    shown = text({"name": "x", "metrics": {"test/eis/accuracy": 0.5}})
    assert "EIS" in shown
    assert "RTE" not in shown


def test_an_empty_record_is_no_error() -> None:
    assert text({}).strip() == ""
    assert text({"name": "x", "metrics": {}, "baselines": None, "best": None, "seconds": None}).strip() == ""


def test_a_long_name_folds_and_the_numbers_stay() -> None:
    name = "dualcse_cross_no_contradiction_no_intra_sentence_and_more"
    shown = text({**RECORD, "name": name})
    assert all(len(line) <= 100 for line in shown.splitlines())
    for number in ("91.23", "70.30", "66.00", "100.00", "81.88", "99.97"):
        assert number in shown


def test_markup_in_names_is_text() -> None:
    shown = text({"name": "a[bold]b", "metrics": {"test/x[red]": 1.0}})
    assert "a[bold]b" in shown
    assert "test/x[red]" in shown


def test_printed_into_a_pipe_it_is_wide_enough_and_ends_with_the_path() -> None:
    path = "/runs/[x]/" + "y" * 150 + "/record.json"
    source = str(Path(tables.__file__).parents[2])
    code = (
        f"import sys; sys.path.insert(0, {source!r})\nfrom pathlib import Path\n"
        f"from lightning_cse.runs.table import print_run\nprint_run({RECORD!r}, Path({path!r}))"
    )
    for encoding in ("utf-8", "ascii"):
        done = subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONIOENCODING": encoding, "COLUMNS": "40"},
            capture_output=True,
            text=True,
            check=True,
            encoding=encoding,
        )
        assert done.stdout.splitlines()[-1] == f"record: {path}"
        assert "\x1b" not in done.stdout
        assert "contradiction" in done.stdout
        assert done.stderr == ""


def test_print_run_goes_to_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    print_run(RECORD, Path("runs/record.json"))
    out, err = capsys.readouterr()
    assert out.endswith("record: runs/record.json\n")
    assert err == ""
