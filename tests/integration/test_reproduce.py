"""A table from the command to the file, with real runs of the tiny encoder; then what the command
says of them.
"""

import json
import os
import subprocess
import sys

import pytest

from lightning_cse.paths import experiments_dir
from lightning_cse.reproduce import main
from lightning_cse.tables.files import find_specs

pytestmark = pytest.mark.slow
ROWS = ["DualCSE-Cross", "DualCSE-Cross w/o both"]
TINY = ["dualcse/table5", "--profile", "tiny"]


def test_a_table_is_run_and_then_found(tmp_path, capfd):
    command = [sys.executable, "-m", "lightning_cse.reproduce", *TINY, "--only", *ROWS]
    variables = {"LIGHTNING_CSE_RUNS": str(tmp_path), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    environment = {**os.environ, **variables}
    process = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr
    assert "2 runs: 2 missing" in process.stdout
    for part in (*ROWS, "80.18", "64.68", "encoder tiny"):
        assert part in process.stdout

    records = {path: path.read_text() for path in tmp_path.glob("dualcse*/*/record.json")}
    assert len(records) == 2
    for text in records.values():
        accuracy = f"{100 * json.loads(text)['metrics']['test/rte/accuracy_all']:.2f}"
        assert accuracy in process.stdout

    runs = ["--runs-dir", str(tmp_path)]
    assert main([*TINY, "--only", *ROWS, *runs]) == 0
    assert {path: path.read_text() for path in records} == records
    assert "missing" not in capfd.readouterr().out

    assert main([*TINY, "--no-run", *runs, "--format", "csv"]) == 0
    lines = capfd.readouterr().out.splitlines()
    start = "DualCSE-Cross w/o contradiction,tiny,RTE all,0,,"
    assert any(line.startswith(start) and "64.57" in line for line in lines)

    assert main([*TINY, "--status", *runs]) == 3
    assert "4 runs: 2 finished, 2 missing\n" in capfd.readouterr().out


def test_a_text_without_a_measured_row_has_no_table(tmp_path, capfd):
    assert main(["dualcse/table6", "--profile", "tiny", "--runs-dir", str(tmp_path)]) == 0
    stdout = " ".join(capfd.readouterr().out.split())
    assert stdout.startswith("**DualCSE, Table 6: Sentence pairs of the two data sets**")
    assert "32000" in stdout.replace(",", "")
    assert "Counted in the sample corpus" in stdout
    written = {path.name for path in (tmp_path / "reproduce" / "dualcse").iterdir()}
    assert written == {"table6.tiny.text.md", "table6.tiny.pairs.csv"}


def test_the_overview_and_the_list_name_every_spec(tmp_path, capfd):
    everything = ["--all", "--dry-run", "--profile", "tiny", "--runs-dir", str(tmp_path)]
    listed = ["--list", *everything[2:]]
    for arguments in (everything, listed, []):
        assert main(arguments) == 0
        stdout = capfd.readouterr().out
        positions = [stdout.index(f"{key} ") for key in find_specs(experiments_dir())]
        assert positions == sorted(positions)

    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["dualcse/tabel5"], "did you mean 'dualcse/table5'"),
        (["dualcse/table5", "--only", "DualCSE-Bros"], "did you mean 'DualCSE-Cross'"),
        (["dualcse/table5", "--encoder", "robert_base"], "did you mean 'roberta_base'"),
        (["dualcse/table5", "--set", "method.los.temperature=1"], "temperature"),
        (["dualcse/table5", "--set", "seed=3"], "--seeds"),
    ],
)
def test_mistakes(arguments, message, tmp_path, capfd):
    assert main([*arguments, "--dry-run", "--runs-dir", str(tmp_path)]) == 2
    stderr = capfd.readouterr().err
    assert message in stderr
    assert "Traceback" not in stderr
