"""A table from the command to the file, with real runs of the tiny encoder; then what a second look at it says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from lightning_cse.config import experiments_dir
from lightning_cse.papers.artefacts import find_artefacts
from lightning_cse.reproduce import main

ROWS = ["DualCSE-Cross", "DualCSE-Cross w/o both"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("reproduce") / "runs"


@pytest.fixture(scope="module")
def done(runs: Path) -> subprocess.CompletedProcess[str]:
    """Two rows of DualCSE's Table 5, as a user asks for them."""
    command = [sys.executable, "-m", "lightning_cse.reproduce", "dualcse/table5", "--profile", "tiny"]
    environment = {**os.environ, "LIGHTNING_CSE_RUNS": str(runs), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [*command, "--only", *ROWS], env=environment, capture_output=True, text=True, timeout=280, check=False
    )


def records_of(runs: Path) -> dict[Path, float]:
    return {path: path.stat().st_mtime for path in runs.glob("dualcse*/*/record.json")}


def test_what_is_missing_is_run_and_the_table_printed(done: subprocess.CompletedProcess[str], runs: Path) -> None:
    assert done.returncode == 0, done.stderr
    assert "0 of 2 runs are there, 2 are missing" in done.stdout
    assert len(records_of(runs)) == 2
    table = done.stdout[done.stdout.rindex("DualCSE, Table 5") :]
    for shown in (*ROWS, "80.18", "64.68", "tiny in place of roberta_base"):
        assert shown in " ".join(table.split())
    measured = {json.loads(path.read_text())["metrics"]["test/rte/accuracy_all"] for path in records_of(runs)}
    for value in measured:
        assert f"{100 * value:.2f}" in table
    written = {path.suffix for path in (runs / "reproduce" / "dualcse").glob("table5.tiny.*")}
    assert written >= {".md", ".csv", ".tex"}


def test_asked_again_nothing_is_run(
    done: subprocess.CompletedProcess[str], runs: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    before = records_of(runs)
    code = main(["dualcse/table5", "--profile", "tiny", "--only", *ROWS, "--runs-dir", str(runs)])
    assert code == 0
    assert records_of(runs) == before
    shown = capfd.readouterr().out
    assert "missing" not in shown.split("DualCSE, Table 5")[0]


def test_rows_without_a_run_stay_empty(
    done: subprocess.CompletedProcess[str], runs: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    arguments = ["dualcse/table5", "--profile", "tiny", "--no-run", "--runs-dir", str(runs), "--format", "csv"]
    assert main(arguments) == 0
    lines = capfd.readouterr().out.splitlines()
    (empty,) = [line for line in lines if line.startswith("DualCSE-Cross w/o contradiction,") and ",RTE all," in line]
    assert ",0," in empty  # n
    assert "64.57" in empty


def test_the_status_counts(
    done: subprocess.CompletedProcess[str], runs: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["dualcse/table5", "--profile", "tiny", "--status", "--runs-dir", str(runs)]) == 3
    assert "4 runs: 2 done, 2 missing" in capfd.readouterr().out


@pytest.mark.slow
def test_a_text_that_no_run_fills_has_no_table_beside_it(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["dualcse/table6", "--profile", "tiny", "--runs-dir", str(tmp_path)]) == 0
    shown = " ".join(capfd.readouterr().out.split())
    assert shown.startswith("DualCSE, Table 6: Sentence pairs of the two data sets train dev test")
    assert "(paper 32,000)" in shown
    assert "Counted in the sample corpus" in shown
    assert "A premise of INLI with its four hypotheses makes four pairs" in shown
    for absent in ("Not measured here", " - ", "table6.tiny.md"):
        assert absent not in shown
    written = {path.name for path in (tmp_path / "reproduce" / "dualcse").iterdir()}
    assert written == {"table6.tiny.text.md", "table6.tiny.pairs.csv"}


def test_the_map_names_every_artefact(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["--all", "--dry-run", "--profile", "tiny", "--runs-dir", str(tmp_path)]) == 0
    shown = capfd.readouterr().out
    for key in find_artefacts(experiments_dir()):
        assert key in shown
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["dualcse/tabel5"], "did you mean 'dualcse/table5'"),
        (["dualcse/table5", "--only", "DualCSE-Bros"], "did you mean 'DualCSE-Cross'"),
        (["dualcse/table5", "--encoder", "robert_base"], "did you mean 'roberta_base'"),
        (["dualcse/table5", "--set", "method.los.temperature=1"], "temperature"),
        (["dualcse/table5", "--set", "seed=3"], "seeds"),
    ],
)
def test_mistakes_are_told_in_one_message(
    arguments: list[str], told: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main([*arguments, "--dry-run", "--runs-dir", str(tmp_path)]) == 2
    shown = capfd.readouterr()
    assert told in shown.err
    assert "Traceback" not in shown.err


def test_without_an_artefact_all_are_listed(capfd: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    shown = capfd.readouterr().out
    assert "gausscse/table3" in shown
    assert shown.index("dualcse/table2") < shown.index("gausscse/table1") < shown.index("ngcse/figure1")


def test_what_is_not_allowed_is_told_and_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("LIGHTNING_CSE_ASK_LLMS", raising=False)
    arguments = ["dualcse/table2", "--only", "Gemini-1.5-Pro", "--runs-dir", str(tmp_path)]
    for flags in ([], ["--dry-run"], ["--status"]):
        assert main([*arguments, *flags]) == 0
        shown = " ".join(capfd.readouterr().out.split())
        assert "LIGHTNING_CSE_ASK_LLMS=1 in the environment runs it" in shown
        assert ("97.90" in shown) == (not flags)
    monkeypatch.setenv("LIGHTNING_CSE_ASK_LLMS", "1")
    assert main([*arguments, "--status"]) == 3
    assert "1 run: 1 missing" in capfd.readouterr().out
