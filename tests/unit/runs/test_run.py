"""The folder of a run: status, lock, record; and the device that an accelerator stands for."""

import errno
import json
import math
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from lightning_cse import runs
from lightning_cse.errors import DataError, LightningCSEError
from lightning_cse.runs import Busy, Curves, FailedBefore, Run, find_runs, write_atomic, write_json

RECORD = {"name": "x", "config_hash": "0a", "seed": 3, "metrics": {"a": 0.1 + 0.2}}
HOLDS = """
import sys, time
from pathlib import Path
from lightning_cse.runs import Run
with Run(Path(sys.argv[1]), "x", "0a", 3).lock():
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def run(tmp_path):
    return Run(tmp_path / "runs", "x", "0a", 3)


def started(code, *arguments):
    """Start code in a process of its own."""
    environment = {**os.environ, "PYTHONPATH": str(Path(runs.__file__).parents[2])}
    command = [sys.executable, "-c", code, *map(str, arguments)]

    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


@pytest.fixture
def holder(run):
    """A process that holds the lock of the run."""
    with started(HOLDS, run.root) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_path_and_back(run, tmp_path):
    assert run.path == tmp_path / "runs" / "x" / "0a-s3"
    restored = Run.at(run.path)
    assert (restored.path, restored.name, restored.config_hash, restored.seed) == (
        run.path,
        "x",
        "0a",
        3,
    )
    with pytest.raises(LightningCSEError, match="not the folder of a run"):
        Run.at(tmp_path)


def test_status_from_new_to_finished(run):
    assert run.status == "new"
    with run.lock():
        assert run.status == "new"  # as it was found
        assert Run.at(run.path).status == "running"
        run.start("a: 1\n")
        run.checkpoints.mkdir()
        (run.checkpoints / "last.ckpt").touch()
        (run.checkpoints / ".best.ckpt.0a.tmp").touch()

    assert run.status == "interrupted"
    run.fail(ValueError("two\nlines"), "training")
    assert (run.status, run.reason()) == ("failed", "ValueError: two lines")
    assert "ValueError" in json.loads(run.failed_path.read_text())["traceback"]
    run.start("a: 1\n")
    assert [path.name for path in run.checkpoints.iterdir()] == ["last.ckpt"]
    assert (run.status, run.reason()) == ("interrupted", None)
    run.finish(RECORD | {"values": [math.inf, math.nan, 1.0]})
    assert run.status == "finished"
    assert run.read() == RECORD | {"values": [None, None, 1.0]}, "what is no number becomes null"
    assert not run.lock_path.exists()


def test_one_process_at_a_time(run, holder):
    assert run.status == "running"
    with pytest.raises(Busy, match=rf"0a-s3 \(pid {holder.pid}\) is in use"), run.lock():
        pass

    assert run.lock_path.exists()
    os.kill(holder.pid, signal.SIGKILL)  # the lock ends with its process
    holder.wait()
    assert run.status == "new"
    with run.lock(), pytest.raises(Busy), Run.at(run.path).lock():
        pass


def test_unusable_records(run):
    with pytest.raises(LightningCSEError, match=r"no record\.json: the run is new"):
        run.read()

    run.path.mkdir(parents=True)
    run.record_path.write_text('{"a": ')
    with pytest.raises(LightningCSEError, match="damaged"):
        run.read()


@pytest.mark.parametrize("content", [b"", b"[]", b"\xff", b'{"type": 1}', b'{"type": "a"'])
def test_a_damaged_failure_is_one_line(run, content):
    run.start("a: 1\n")
    run.failed_path.write_bytes(content)
    assert run.status == "failed"
    assert f"{run.failed_path} is damaged" in run.reason()
    with pytest.raises(FailedBefore, match="retry_failed=true"):
        run.claim(force=False, leave_failed=True).__enter__()


@pytest.mark.parametrize("cause", [errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS])
def test_after_a_refusal_of_the_system_a_run_is_tried_again(run, cause):
    run.start("a: 1\n")
    try:
        try:
            raise OSError(cause, os.strerror(cause))
        except OSError as error:
            raise LightningCSEError("not written") from error
    except LightningCSEError as error:
        run.fail(error, "training")

    assert run.status == "new"
    with run.claim(force=False, leave_failed=True) as unfinished:
        assert unfinished


@pytest.mark.parametrize(
    "change",
    [
        {"metrics": [1]},
        {"metrics": {"a": "x"}},
        {"seed": "3"},
        {"best": 1},
        {"decisive": {"confjg": {}}},
        {"seconds": {"training": None}},
        {"baselines": {"length": 2}},
        {"checkpoint": {}},
    ],
)
def test_records_of_another_shape(run, change):
    run.finish(RECORD | change)
    with pytest.raises(DataError, match=rf"record\.json is damaged \({next(iter(change))}"):
        run.read()


def test_clear_does_not_follow_links(run, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_text("x")
    run.path.mkdir(parents=True)
    (run.path / "link").symlink_to(outside)
    run.clear()
    assert list(run.path.iterdir()) == []

    run.path.rmdir()
    run.path.symlink_to(outside)
    with pytest.raises(LightningCSEError, match="is a link"):
        run.clear()

    assert (outside / "precious").read_text() == "x"


def test_find_runs(run):
    runs = [Run(run.root, "a/b", "0c", 1), run, Run(run.root, "x/0a-s3/evaluate/sts", "0d", 0)]
    for started in runs:
        started.start("")

    write_atomic(run.path / "wandb" / "0e-s0" / "config.yaml", "not ours")
    assert [(started.path, started.name) for started in find_runs(run.root)] == [
        (started.path, started.name) for started in runs
    ]


def test_full_disk_keeps_the_old_file(run, monkeypatch, caplog):
    run.start("old: true\n")
    run.finish(RECORD)

    def no_space(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", no_space)
        for action in (lambda: run.finish({}), lambda: run.start("")):
            with pytest.raises(LightningCSEError, match="no space left to write"):
                action()

        run.fail(RuntimeError("boom"), "training")  # the user must see this error

    assert "no space left to write" in caplog.text
    assert run.read() == RECORD
    assert sorted(path.name for path in run.path.iterdir()) == ["config.yaml", "record.json"]


def test_kill_while_writing_keeps_the_old_file(tmp_path):
    write_atomic(tmp_path / "file", "old")
    code = (
        "import os, signal, sys; from pathlib import Path; from lightning_cse.runs import write_atomic\n"
        "os.replace = lambda *a: os.kill(os.getpid(), signal.SIGKILL)\n"
        "write_atomic(Path(sys.argv[1]), 'new')"
    )
    assert started(code, tmp_path / "file").wait(60) == -signal.SIGKILL
    assert (tmp_path / "file").read_text() == "old"


def test_tables_of_run(run):
    assert run.curves().empty
    run.start("")
    for step, values in ((0, {"val/m": 0.5}), (1, {"train/loss": 2.0}), (2, {"val/m": 0.75})):
        Curves(run.curves_path).append(step, values)

    curves = run.curves()
    assert curves.index.tolist() == [0, 1, 2]
    assert curves["val/m"].dropna().to_dict() == {0: 0.5, 2: 0.75}
    run.finish(RECORD | {"baselines": {"length": {"a": 0.2}}})
    assert run.table().loc["a"].to_dict() == {"x": RECORD["metrics"]["a"], "length": 0.2}


def test_json_files_hold_finite_numbers(tmp_path):
    path = tmp_path / "task.json"
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(path, {"accuracy": float("nan")})

    assert not path.exists()
