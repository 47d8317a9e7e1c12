"""``python -m lightning_cse.describe`` as a user starts it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Command = Callable[..., "subprocess.CompletedProcess[str]"]

# A busy machine may take minutes to load torch; pytest's own limit is made for tests that start no process.
pytestmark = pytest.mark.timeout(900)


@pytest.fixture
def command(tmp_path: Path, repository: Path) -> Command:
    """Start ``lightning_cse.describe`` in an empty folder, with runs and caches in it."""

    def start(*args: str) -> subprocess.CompletedProcess[str]:
        environment = os.environ | {
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": str(repository / "src"),
            "LIGHTNING_CSE_RUNS": str(tmp_path / "runs"),
            "LIGHTNING_CSE_CACHE": str(tmp_path / "cache"),
            "HF_HOME": str(tmp_path / "hub"),
        }
        environment.pop("LIGHTNING_CSE_DATA", None)
        line = [sys.executable, "-m", "lightning_cse.describe", *args]
        return subprocess.run(line, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=400)

    return start


def test_a_data_set_of_the_sample_is_described(command: Command, tmp_path: Path) -> None:
    done = command("data=ngcse_nli_nli", "+profile=laptop", "encoder=tiny")
    assert done.returncode == 0, done.stderr
    path = Path(done.stdout.splitlines()[-1].removeprefix("summary: "))
    summary = json.loads((tmp_path / path).read_text())
    assert summary["overrides"] == ["+profile=laptop", "data=ngcse_nli_nli", "encoder=tiny"]
    assert [each["name"] for each in summary["sets"]] == ["ngcse_nli_nli", "STS-B dev"]
    assert path.with_name("histograms.png").is_file()


def test_a_corpus_that_is_not_there_and_no_data_set_at_all(command: Command, tmp_path: Path) -> None:
    missing = command("data=inli", "encoder=tiny")
    assert missing.returncode == 2
    assert "python -m lightning_cse.prepare inli" in missing.stderr
    nothing = command()
    assert nothing.returncode == 2
    assert "data: no data was chosen - add data=<one of these>:\n    implicit_pairs" in nothing.stderr
    assert "Traceback" not in missing.stderr + nothing.stderr
    assert not (tmp_path / "runs" / "describe").exists()
