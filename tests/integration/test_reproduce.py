"""A table from the command to the file, with real runs of the tiny encoder; then what the command
says of them.
"""

import json
import os
import subprocess
import sys

import pytest

from lightning_cse.config import experiments_dir
from lightning_cse.papers.files import find_artefacts
from lightning_cse.reproduce import main

ROWS = ["DualCSE-Cross", "DualCSE-Cross w/o both"]
TINY = ["dualcse/table5", "--profile", "tiny"]


def test_a_table_is_run_and_then_found(tmp_path, capfd):
    command = [sys.executable, "-m", "lightning_cse.reproduce", *TINY, "--only", *ROWS]
    own = {"LIGHTNING_CSE_RUNS": str(tmp_path), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    environment = {**os.environ, **own}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "2 runs: 2 missing" in done.stdout
    table = done.stdout[done.stdout.rindex("DualCSE, Table 5") :]
    assert all(one in table for one in (*ROWS, "80.18", "64.68", "tiny in place of roberta_base"))
    records = {path: path.read_text() for path in tmp_path.glob("dualcse*/*/record.json")}
    assert len(records) == 2
    for text in records.values():
        assert f"{100 * json.loads(text)['metrics']['test/rte/accuracy_all']:.2f}" in table
    written = (tmp_path / "reproduce" / "dualcse").glob("table5.tiny.*")
    assert {path.suffix for path in written} >= {".md", ".csv", ".tex"}

    runs = ["--runs-dir", str(tmp_path)]
    assert main([*TINY, "--only", *ROWS, *runs]) == 0
    assert {path: path.read_text() for path in records} == records
    assert "missing" not in capfd.readouterr().out

    assert main([*TINY, "--no-run", *runs, "--format", "csv"]) == 0
    lines = capfd.readouterr().out.splitlines()
    start = "DualCSE-Cross w/o contradiction,roberta_base,RTE all,0,,"
    start = start.replace("roberta_base", "tiny")
    assert any(line.startswith(start) and "64.57" in line for line in lines)

    assert main([*TINY, "--status", *runs]) == 3
    assert "4 runs: 2 finished, 2 missing\n" in capfd.readouterr().out


@pytest.mark.slow
def test_a_text_without_a_measured_row_has_no_table(tmp_path, capfd):
    assert main(["dualcse/table6", "--profile", "tiny", "--runs-dir", str(tmp_path)]) == 0
    shown = " ".join(capfd.readouterr().out.split())
    assert shown.startswith("**DualCSE, Table 6: Sentence pairs of the two data sets**")
    assert "(paper 32,000)" in shown
    assert "Counted in the sample corpus" in shown
    written = {path.name for path in (tmp_path / "reproduce" / "dualcse").iterdir()}
    assert written == {"table6.tiny.text.md", "table6.tiny.pairs.csv"}


def test_the_overview_and_the_list_name_every_artefact(tmp_path, capfd):
    everything = ["--all", "--dry-run", "--profile", "tiny", "--runs-dir", str(tmp_path)]
    for arguments in (everything, []):
        assert main(arguments) == 0
        shown = capfd.readouterr().out
        places = [shown.index(f"{key} ") for key in find_artefacts(experiments_dir())]
        assert places == sorted(places)
    assert not list(tmp_path.iterdir())


def test_a_table_outside_the_repository(tmp_path, capfd, monkeypatch):
    """A table and an experiment of one's own in one folder; the experiment is trained and shown."""
    folder = tmp_path / "own"
    (folder / "experiment").mkdir(parents=True)
    (folder / "mine").mkdir()
    experiment = "# @package _global_\ndefaults: [/experiment/simcse_unsup, _self_]\nname: own\n"
    (folder / "experiment" / "own.yaml").write_text(experiment)
    (folder / "mine" / "table.yaml").write_text(
        "title: t\nsource: Mine, Table 1\nencoders: [bert_base]\nseeds: 1\n"
        "columns: {steps: {field: steps, scale: 1, decimals: 0}}\n"
        "rows: {own: {experiment: own}, theirs: {experiment: simcse_unsup}}\n"
    )
    monkeypatch.setenv("LIGHTNING_CSE_CONFIG_DIR", "")
    places = [
        f"--experiments={folder}",
        f"--config-dir={folder}",
        f"--runs-dir={tmp_path / 'runs'}",
    ]
    assert main(["mine/table", *places, "--profile", "tiny", "--only", "own"]) == 0
    shown = capfd.readouterr().out
    assert f"--config-dir={folder}" in shown
    (record,) = (tmp_path / "runs" / "own").glob("*/record.json")
    row = next(line for line in shown.splitlines()[::-1] if line.startswith("own "))
    assert str(json.loads(record.read_text())["steps"]) in row


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["dualcse/tabel5"], "did you mean 'dualcse/table5'"),
        (["dualcse/table5", "--only", "DualCSE-Bros"], "did you mean 'DualCSE-Cross'"),
        (["dualcse/table5", "--encoder", "robert_base"], "did you mean 'roberta_base'"),
        (["dualcse/table5", "--set", "method.los.temperature=1"], "temperature"),
        (["dualcse/table5", "--set", "seed=3"], "--seeds"),
    ],
)
def test_mistakes(arguments, told, tmp_path, capfd):
    assert main([*arguments, "--dry-run", "--runs-dir", str(tmp_path)]) == 2
    shown = capfd.readouterr().err
    assert told in shown
    assert "Traceback" not in shown
