"""``python -m lightning_cse.export`` as a user starts it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from sentence_transformers import SentenceTransformer

from lightning_cse.analysis import exporting
from lightning_cse.engine.load import load_model
from lightning_cse.export import main
from lightning_cse.runs import Run

# A busy machine may take minutes to load torch; pytest's own limit is made for tests that start no process.
pytestmark = pytest.mark.timeout(900)

LIMITS = tuple(f"limits.{split}_{what}=8" for split in ("dev", "test") for what in ("rows", "pairs"))
SMALL = ("baselines=none", "data.train_rows=12", "diag.sentences=16", *LIMITS)


@pytest.fixture(scope="module")
def gauss(run_tiny: Callable[..., Run], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("gauss")
    return run_tiny(folder, "+experiment=gausscse", "corpora=sample", *SMALL).path


def start(folder: Path, repository: Path, *args: str, python: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(repository / "src")}
    return subprocess.run(
        [sys.executable, *python, *args], cwd=folder, env=environment, capture_output=True, text=True, timeout=600
    )


def test_help_imports_nothing_heavy(tmp_path: Path, repository: Path) -> None:
    done = start(tmp_path, repository, "-m", "lightning_cse.export", "--help", python=("-X", "importtime"))
    assert done.returncode == 0
    imported = {line.rpartition("|")[2].strip().partition(".")[0] for line in done.stderr.splitlines() if "|" in line}
    assert "argparse" in imported
    assert not imported & {"torch", "pytorch_lightning", "transformers", "sentence_transformers", "hydra", "numpy"}
    for word in ("--view", "--force", "trust_remote_code", "the explicit view"):
        assert " ".join(word.split()) in " ".join(done.stdout.split())
    assert max(map(len, done.stdout.splitlines())) <= 120


@pytest.mark.slow
def test_what_is_wrong_with_a_command_line_is_told_before_anything_is_loaded(tmp_path: Path, repository: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "notes.txt").write_text("mine")
    code = """
import sys
from lightning_cse.export import main
def loaded(*arguments):
    code = main(list(arguments))
    print(code, *(name for name in ("torch", "transformers", "sentence_transformers") if name in sys.modules))
loaded("--model", "tiny", "--to", "there")
loaded("--model", "tiny", "--to", "there", "--force")
loaded("--model", "./none", "--to", "new")
loaded("--model", "length", "--to", "new")
"""
    done = start(tmp_path, repository, "-c", code)
    assert done.stdout.splitlines() == ["2"] * 4, done.stderr
    assert done.stderr.count("error: ") == 4


@pytest.mark.slow
def test_the_folder_is_loaded_where_this_package_is_not(gauss: Path, tmp_path: Path, repository: Path) -> None:
    made = start(tmp_path, repository, "-m", "lightning_cse.export", "--model", str(gauss), "--to", "made")
    assert made.returncode == 0, made.stderr
    assert made.stdout == "made\n"
    assert "Traceback" not in made.stderr
    code = """
import sys
sys.modules["lightning_cse"] = None
from sentence_transformers import SentenceTransformer
print(*SentenceTransformer("made", device="cpu").encode("The kettle is on.", show_progress_bar=False).tolist())
"""
    done = start(tmp_path, repository, "-W", "error::FutureWarning", "-c", code)
    assert done.returncode == 0, done.stderr
    assert "MISSING" not in done.stderr
    want = load_model(str(gauss)).answers.embed(["The kettle is on."]).views()["mean"][0].tolist()
    assert [float(value) for value in done.stdout.splitlines()[-1].split()] == pytest.approx(want, abs=1e-5)


def test_a_run_is_exported_told_and_replaced(
    gauss: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    command = ("--model", str(gauss), "--to", "new/made")
    assert main(command) == 0
    out, err = capfd.readouterr()
    assert out == "new/made\n"
    first, second = err.splitlines()
    assert first == "GaussCSE: the view mean"
    assert second.startswith("checked with sentence-transformers 6.")
    width = load_model(str(gauss)).encoder.width
    assert SentenceTransformer("new/made", device="cpu").get_embedding_dimension() == width
    before = (tmp_path / "new/made/model.safetensors").stat().st_ino
    capfd.readouterr()
    assert main(command) == 2
    assert capfd.readouterr().err == (
        "error: --to: new/made is there and is not empty; give another folder, or --force to replace it\n"
    )
    assert (tmp_path / "new/made/model.safetensors").stat().st_ino == before
    assert main((*command, "--force")) == 0
    assert (tmp_path / "new/made/model.safetensors").stat().st_ino != before
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["made"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--model", "./nowhere"), "there is no folder "),
        (("--model", "run"), "the run run has no record.json: finish it"),
        (("--model", "llm"), "llm has no encoder"),
        (("--model", "tny"), "there is no model 'tny' - did you mean 'tiny'?"),
        (("--model", "run", "--pooling", "cls"), "pooling: a run is evaluated as it was trained"),
        (("--model", "tiny", "--pooling", "clas"), "pooling: must be one of"),
        (("--model", "tiny", "--view", "implicit"), "tiny (PointModel) has no view 'implicit' (it has: primary)"),
        (("--model", "tiny", "--to", "a.txt"), "--to: a.txt is a file; give the name of a folder"),
        (("--model", "tiny", "--to", "run"), "--to: run is there and is not empty"),
        (("--model", "tiny", "--to", "run", "--force"), "and run has no modules.json"),
    ],
)
def test_one_clear_error(
    arguments: tuple[str, ...],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run").mkdir()
    for name, text in {"a.txt": "a\n", "run/config.yaml": "a: 1\n"}.items():
        (tmp_path / name).write_text(text)
    given = arguments if "--to" in arguments else (*arguments, "--to", "new/made")
    assert main(given) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert err.count("error: ") == 1
    assert message in err
    assert "Traceback" not in err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.txt", "run"]


def test_an_interrupt_is_told_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(exporting, "differences", interrupted)
    assert main(["--model", "tiny", "--to", str(tmp_path / "new" / "made")]) == 130
    assert "interrupted" in capfd.readouterr().err
    assert list(tmp_path.iterdir()) == []
