"""The commands as a user starts them: few processes, and what they cost before anything heavy is
imported.
"""

import re
from pathlib import Path

import pytest
from small_runs import LITTLE

from lightning_cse import __main__
from lightning_cse.runs import find_runs
from lightning_cse.train import main as train

# A busy machine may take minutes to load torch; pytest's own limit is made for tests that start no
# process.
pytestmark = pytest.mark.timeout(900)

HEAVY = {"torch", "pytorch_lightning", "transformers", "datasets", "wandb", "matplotlib", "pandas"}
COMMANDS = sorted(
    path.stem
    for path in (Path(__file__).resolve().parents[2] / "src" / "lightning_cse").glob("*.py")
    if 'if __name__ == "__main__":' in path.read_text() and path.stem != "__main__"
)


@pytest.fixture
def in_process(in_place, workdir):
    """Run ``lightning_cse.train`` in this process; return exit code, stdout and stderr."""
    return lambda *args: in_place(train, *args)


def lightly(command, *line):
    """Run a command, which may not import anything heavy."""
    ended = command(*line, python=("-X", "importtime"))
    imported = set(re.findall(r"\|\s+(\w+)", ended.stderr))

    assert "hydra" in imported or "argparse" in imported
    assert not imported & HEAVY

    return ended


@pytest.mark.parametrize("name", COMMANDS)
def test_help_imports_nothing_heavy(name, command, workdir):
    ended = lightly(command, name, "--help")
    assert ended.returncode == 0
    started_as = {"list_runs": "lightning-cse runs"}.get(name, f"lightning_cse.{name}")
    assert started_as in ended.stdout

    if name == "evaluate":
        for text in ("model=MODEL +suite=NAME", "minilm_l6", "inli", "pooling: auto"):
            assert text in ended.stdout

    assert not list(workdir.iterdir())


@pytest.mark.parametrize("line", ["method.foo=1", "-m seed=0,1 epochs=1"])
def test_unknown_key_imports_nothing_heavy(line, command, workdir):
    ended = lightly(command, "train", "+experiment=dualcse_cross", *line.split())
    assert ended.returncode == 2
    assert re.search(r"^error: ", ended.stderr, re.MULTILINE)
    assert not list(workdir.iterdir())


CONSOLE = [
    ("", 0, "  runs       list the runs on disk"),
    ("trian +experiment=gausscse", 2, "unknown command 'trian' - did you mean 'train'? (choose"),
    ("runs --help", 0, "usage: lightning-cse runs"),
]


@pytest.mark.parametrize(("line", "code", "text"), CONSOLE)
def test_console_command(line, code, text, command, workdir):
    ended = command("__main__", *line.split())
    assert ended.returncode == code
    assert text in ended.stdout + ended.stderr


def test_console_command_knows_all():
    modules = [__main__.MODULES.get(name, name) for name in __main__.COMMANDS]
    assert sorted(modules) == COMMANDS


@pytest.mark.slow
def test_sweep_from_end_to_end(command, in_process, workdir):
    args = ("-m", "+experiment=dualcse_cross", "+debug=tiny", "seed=0,1", *LITTLE)
    ended = command("train", *args)

    assert ended.returncode == 0, ended.stderr
    row = r"^all seeds +2 +0\.\d{4} +0\.\d{4} +val/rte/accuracy_all$"
    assert re.search(row, ended.stdout, re.MULTILINE)

    runs = sorted(find_runs(workdir / "runs"), key=lambda run: run.seed)
    outcomes = [(run.name, run.seed, run.status) for run in runs]

    assert outcomes == [("dualcse_cross", seed, "finished") for seed in (0, 1)]
    assert "step 6/6" in runs[0].log_path.read_text()

    stamps = [run.record_path.stat().st_mtime_ns for run in runs]
    code, out, errors = in_process(*args, f"paths.data_dir={workdir},{workdir / 'nowhere'}")

    assert code == 2
    assert "4 points: 4 failed" in out
    assert "corpus 'inli', split 'train' was not found" in out
    assert "Traceback" not in errors

    code, out, _ = in_process(*args)
    assert code == 0
    assert "2 points: 2 finished before" in out
    assert [run.record_path.stat().st_mtime_ns for run in runs] == stamps


def test_missing_encoder_says_what_was_tried_and_what_helps(in_process, workdir):
    line = ("+experiment=dualcse_cross", "+debug=tiny", "encoder=bert_base")
    code, out, errors = in_process(*line)

    assert code == 2
    assert "Traceback" not in out + errors

    hints = ("set 'HF_HUB_OFFLINE=0'", "or minilm_l6 (pip install")

    for text in ("google-bert/bert-base-uncased", *hints):
        assert text in errors

    assert not list(find_runs(workdir / "runs"))
