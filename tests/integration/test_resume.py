"""A run that is stopped, in whatever way and at whatever moment, and started again: the same to the last bit."""

from __future__ import annotations

import errno
import functools
import json
import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from lightning_cse.callbacks import BestAndLast, Evaluation, StepLog
from lightning_cse.engine import train as training
from lightning_cse.errors import Interrupted, LightningCSEError, TrainingError
from lightning_cse.loggers import CurvesLogger
from lightning_cse.methods import DualCSE
from lightning_cse.runs import Curves, Run, disk_errors

RunTiny = Callable[..., Run]

# Two epochs of three batches (8, 8, 4), evaluated and saved after every second step: not at the end of the first.
SMALL = (
    "+experiment=dualcse_cross",
    "baselines=none",
    "keep_last=true",
    "encoder.layers=1",
    "data.train_rows=20",
    "data.held_out_rows=8",
    "diag.sentences=16",
    "eval_every=2",
    *(f"limits.{split}_{what}=6" for split in ("dev", "test") for what in ("rows", "pairs")),
)
STEPS = 6
ROLES = "[anchor,positive,intermediate,negative]"

# What a record says of the machine, the command and the time, which differ between two runs of one point.
COSTS = (
    "seconds",
    "evaluation_share",
    "sentences_per_second",
    "peak_memory_mib",
    "environment",
    "overrides",
)


class Killed(BaseException):
    """Neither the run nor Lightning may turn it into anything else."""


def outcome(folder: Run) -> dict[str, Any]:
    """Everything a run leaves but what it took: parameters, optimizer, random states, curves, predictions, record."""
    record = folder.read()
    for apart in COSTS:
        del record[apart]
    last = torch.load(folder.checkpoints / "last.ckpt", weights_only=True)
    for state in last["callbacks"].values():
        state.pop("seconds", None)
    best = torch.load(folder.checkpoints / "best.ckpt", weights_only=True)
    files = sorted(str(path.relative_to(folder.path)) for path in folder.path.rglob("*"))
    predictions = {path.name: path.read_bytes() for path in folder.predictions.iterdir()}
    # What loops have counted is Lightning's own; whether it matters shows in all the rest.
    checkpoints = {
        f"{name}.{key}": v for name, c in (("best", best), ("last", last)) for key, v in c.items() if key != "loops"
    }
    return {"record": record, "curves": folder.curves_path.read_text(), "files": files, **checkpoints, **predictions}


def differences(one: Any, other: Any, where: str = "") -> list[str]:
    """Where two outcomes differ, to the last bit."""
    if type(one) is not type(other):
        return [f"{where}: {type(one).__name__} and {type(other).__name__}"]
    if isinstance(one, dict):
        if one.keys() != other.keys():
            return [f"{where}: {sorted(map(str, one.keys() ^ other.keys()))} in one only"]
        return [line for key in one for line in differences(one[key], other[key], f"{where}/{key}")]
    if isinstance(one, list | tuple):
        if len(one) != len(other):
            return [f"{where}: {len(one)} and {len(other)} items"]
        return [
            line for k, (a, b) in enumerate(zip(one, other, strict=True)) for line in differences(a, b, f"{where}/{k}")
        ]
    same = torch.equal(one, other) if isinstance(one, torch.Tensor) else one == other
    return [] if same else [f"{where}: {one!r} and {other!r}"[:300]]


def same(folder: Run, reference: Run) -> None:
    __tracebackhide__ = True
    found = differences(outcome(reference), outcome(folder))
    assert not found, "\n".join(["the run that was stopped differs from the one that was not:", *found[:10]])


MOMENTS: tuple[tuple[Any, str], ...] = (
    (DualCSE, "training_step"),
    (StepLog, "on_train_batch_end"),  # the step is made, nothing of it is logged
    (CurvesLogger, "log_metrics"),  # before the step's values, and between these and the evaluation's
    (Evaluation, "_measure"),
    (BestAndLast, "_save"),  # evaluated and logged, not saved
    (BestAndLast, "_write"),  # before the best, and between the best and the last
    (DualCSE, "on_train_epoch_end"),
    (DualCSE, "on_train_end"),
    (training, "_test"),
    (training.runs, "write_predictions"),
    (Run, "finish"),
)


@contextmanager
def killed_at(moment: int, seen: list[str], moments: tuple[tuple[Any, str], ...] = MOMENTS) -> Iterator[None]:
    """Die when this many of the moments have passed; ``seen`` gets their names."""
    with pytest.MonkeyPatch.context() as patch:
        for owner, name in moments:
            patch.setattr(owner, name, _mortal(getattr(owner, name), name, moment, seen))
        yield


def _mortal(original: Callable[..., Any], name: str, moment: int, seen: list[str]) -> Callable[..., Any]:
    @functools.wraps(original)
    def mortal(*args: Any, **kwargs: Any) -> Any:
        if len(seen) == moment:
            raise Killed
        seen.append(name)
        return original(*args, **kwargs)

    return mortal


def kill(run_tiny: RunTiny, place: Path, moment: int, *overrides: str, **options: Any) -> list[str]:
    seen: list[str] = []
    with killed_at(moment, seen, **options), pytest.raises(Killed):
        run_tiny(place, *SMALL, *overrides)
    return seen


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory, run_tiny: RunTiny) -> Callable[..., Run]:
    """The run of the same overrides that is never stopped."""
    done: dict[tuple[str, ...], Run] = {}

    def run(*overrides: str) -> Run:
        if overrides not in done:
            done[overrides] = run_tiny(tmp_path_factory.mktemp("reference"), *SMALL, *overrides)
        return done[overrides]

    return run


# In this process


@pytest.mark.slow
@pytest.mark.timeout(900)  # some thirty runs, for a machine that is busy
def test_killed_at_every_moment(run_tiny: RunTiny, tmp_path: Path) -> None:
    seen: list[str] = []
    with killed_at(-1, seen):
        whole = run_tiny(tmp_path / "whole", *SMALL)
    assert seen.count("training_step") == STEPS
    assert seen.count("on_train_epoch_end") == 2
    assert seen.count("log_metrics") == STEPS + 4  # evaluations at 0, 2, 4, 6
    assert {name for _, name in MOMENTS} == set(seen)
    saved = seen.index("_write")  # all moments before it go back to the very start
    for moment in (0, 1, 4, saved - 1, *range(saved, len(seen))):
        place = tmp_path / str(moment)
        kill(run_tiny, place, moment)
        folder = run_tiny(place, *SMALL)
        found = differences(outcome(whole), outcome(folder))
        assert not found, f"killed before {seen[moment]}, moment {moment} of {len(seen)}:\n" + "\n".join(found[:10])
        shutil.rmtree(place)


def test_killed_again_and_again(run_tiny: RunTiny, reference: Callable[..., Run], tmp_path: Path) -> None:
    moments = ((DualCSE, "training_step"),)
    for count in (1, 4, 3, 3):  # at steps 2, 5, 7 - which there is not - hence in the second start from step 4
        seen: list[str] = []
        try:
            with killed_at(count, seen, moments):
                folder = run_tiny(tmp_path, *SMALL)
        except Killed:
            continue
    same(folder, reference())


VARIANTS = {
    # accumulated: batches of epochs 3 + 3 make steps after batches 2, 3, 5, 6; evaluation at 0, 1, 2, 3, 4
    "drop_last": (("data.drop_last=true", "trainer.max_epochs=3"), 6),
    "accumulated": (("trainer.accumulate_grad_batches=2", "eval_every=1"), 4),
    "accumulated, rarely saved": (("trainer.accumulate_grad_batches=2", "eval_every=3"), 4),
    "saved at the end of an epoch": (("eval_every=3",), 6),
    "saved at every step": (("eval_every=1",), 6),
    "a trailing row joins": (("data.train_rows=17",), 4),
    "bi-encoder, dropout while measuring": (("method=dualcse_bi", "diag.dropout=true", "diag.evaluation=none"), 6),
    "a head": (("method=simcse", "data=inli_triplets", "data.rows.positive=implied"), 6),
    "by steps": (("trainer.max_epochs=-1", "trainer.max_steps=5"), 5),
    "bfloat16": (("trainer.precision=bf16-mixed",), 6),
    "never better than at first": (("method.optimizer.lr=0.0",), 6),
    # Two heads, warm-up and weight decay, and an accuracy of the determinant beside each direction's.
    "GaussCSE": (("method=gausscse", "data=nli_triplets", "suite=nli", "monitor=val/snli/auprc"), 6),
    # Four terms of Gaussians, and directions of three corpora watched or tested.
    "DualGauss": (("method=dualgauss", "suite=inli_direction"), 6),
    # Vectors of a frozen encoder, which are in no checkpoint and are made anew.
    "ImpScore": (
        (
            *("method=impscore", "data=inli_implicit_pairs", "data.rows.explicit=implied"),
            *("monitor=val/eis/accuracy", "method.optimizer.lr=0.01"),
        ),
        6,
    ),
    # LLM rows that wait when the run is killed, over the end of an epoch too.
    "NGCSE": (
        (
            *("method=ngcse", "method.contrastive=hierarchical_triplet", f"method.roles={ROLES}", "diag.dropout=true"),
            *("data=ngcse_wiki_sts", "data.llm_rows_together=6", "suite=stsb", "monitor=val/stsb/spearman"),
        ),
        6,
    ),
    # Two passes with dropout a step, and evaluations that draw dropout masks of their own between the steps.
    "unsupervised SimCSE": (
        ("method=simcse_unsup", "data=wiki_sentences", "suite=stsb", "monitor=val/stsb/spearman", "diag.dropout=true"),
        6,
    ),
}


QUICK = ("accumulated", "a head", "ImpScore", "NGCSE", "unsupervised SimCSE")
"""Each keeps something that no other does."""


def _killed_and_resumed(run_tiny: RunTiny, place: Path, step: int, *overrides: str) -> Run:
    """Die before the values of a step are logged, and start the same command again."""
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
        patch.setattr(CurvesLogger, "log_metrics", _dies_at(CurvesLogger.log_metrics, step))
        run_tiny(place, *SMALL, *overrides)
    return run_tiny(place, *SMALL, *overrides)


@pytest.mark.parametrize("variant", QUICK)
def test_killed_once(variant: str, run_tiny: RunTiny, reference: Callable[..., Run], tmp_path: Path) -> None:
    overrides, steps = VARIANTS[variant]
    whole = reference(*overrides)
    assert whole.read()["steps"] == steps
    same(_killed_and_resumed(run_tiny, tmp_path, steps - 1, *overrides), whole)


@pytest.mark.slow
@pytest.mark.parametrize("variant", VARIANTS)
def test_killed_at_every_step(variant: str, run_tiny: RunTiny, reference: Callable[..., Run], tmp_path: Path) -> None:
    overrides, steps = VARIANTS[variant]
    for step in range(2, steps + 1):
        same(_killed_and_resumed(run_tiny, tmp_path / str(step), step, *overrides), reference(*overrides))
        shutil.rmtree(tmp_path / str(step))


def _dies_at(original: Callable[..., Any], at: int) -> Callable[..., Any]:
    def mortal(self: CurvesLogger, metrics: dict[str, float], step: int | None = None) -> None:
        if step == at:
            raise Killed
        original(self, metrics, step)

    return mortal


def test_every_generator_goes_on_where_it_was(
    run_tiny: RunTiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    step, drawn = DualCSE.training_step, []

    def drawing(self: DualCSE, batch: dict[str, Any], batch_idx: int) -> dict[str, Any]:
        numpy = [np.random.random(), np.random.standard_normal()]  # noqa: NPY002 - an augmentation might
        drawn.append((self.global_step, random.random(), random.gauss(0, 1), *numpy, torch.rand(1).item()))
        return step(self, batch, batch_idx)

    monkeypatch.setattr(DualCSE, "training_step", drawing)
    run_tiny(tmp_path / "whole", *SMALL)
    whole, drawn[:] = list(drawn), []
    kill(run_tiny, tmp_path / "killed", 5, moments=((DualCSE, "training_step"),))
    assert drawn == whole[:5]
    drawn.clear()
    run_tiny(tmp_path / "killed", *SMALL)
    assert drawn == whole[4:]


def test_the_best_stays_the_best_of_all_starts(reference: Callable[..., Run]) -> None:
    record = reference("method.optimizer.lr=0.0").read()
    assert (record["best"]["step"], record["steps"]) == (2, STEPS)  # the first, since no later one is better
    assert record["best"]["score"] == record["final"]["val/rte/accuracy_all"]


def test_a_failed_run_is_done_again(
    run_tiny: RunTiny, reference: Callable[..., Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for moment, checkpoint in ((2, None), (5, 4)):  # before the first checkpoint, and after the second
        with monkeypatch.context() as patch:
            patch.setattr(DualCSE, "training_step", _fails_at(moment, DualCSE.training_step))
            with pytest.raises(RuntimeError, match=f"a bug at step {moment}"):
                run_tiny(tmp_path, *SMALL)
        (failed,) = tmp_path.rglob("failed.json")
        failure = json.loads(failed.read_text())
        assert (failure["type"], failure["stage"]) == ("RuntimeError", "training")
        assert failure["message"] == f"a bug at step {moment}"
        assert "training_step" in failure["traceback"]
        assert not list(tmp_path.rglob("record.json"))
        last = failed.parent / "checkpoints" / "last.ckpt"
        assert (torch.load(last, weights_only=True)["global_step"] if last.is_file() else None) == checkpoint
        assert Run(tmp_path / "runs", "dualcse_cross", failed.parent.name.split("-")[0], 0).status == "failed"
    folder = run_tiny(tmp_path, *SMALL)
    assert folder.status == "finished"
    assert not folder.failed_path.exists()
    same(folder, reference())


def _fails_at(step: int, original: Callable[..., Any]) -> Callable[..., Any]:
    def training_step(self: DualCSE, batch: dict[str, Any], batch_idx: int) -> dict[str, Any]:
        if self.global_step + 1 == step:
            raise RuntimeError(f"a bug at step {step}")
        return original(self, batch, batch_idx)

    return training_step


# Ctrl-C and SIGTERM


def stopped_at(run_tiny: RunTiny, place: Path, owner: Any, name: str, count: int, *overrides: str, n: int = 1) -> str:
    """Send a signal, or several, when a method is called this many times; return what the run says."""
    original, calls = getattr(owner, name), []
    signum = signal.SIGINT if count % 2 else signal.SIGTERM

    def stops(*args: Any, **kwargs: Any) -> Any:
        calls.append(name)
        if len(calls) == count:
            for _ in range(n):
                os.kill(os.getpid(), signum)
        return original(*args, **kwargs)

    with pytest.MonkeyPatch.context() as patch, pytest.raises(Interrupted) as caught:
        patch.setattr(owner, name, stops)
        run_tiny(place, *SMALL, *overrides)
    assert caught.value.signum == signum
    assert not list(place.rglob("failed.json"))
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    return str(caught.value)


def test_a_signal_in_a_step_saves_that_step(run_tiny: RunTiny, reference: Callable[..., Run], tmp_path: Path) -> None:
    for step in (1, 2, 3, 6):  # the second and the last are evaluated
        place = tmp_path / str(step)
        said = stopped_at(run_tiny, place, DualCSE, "training_step", step)
        assert said == f"stopped at step {step}; the same command continues from there"
        (last,) = place.rglob("last.ckpt")
        assert torch.load(last, weights_only=True)["global_step"] == step
        same(run_tiny(place, *SMALL), reference())


@pytest.mark.slow
@pytest.mark.parametrize("variant", VARIANTS)
def test_a_signal_in_every_step(variant: str, run_tiny: RunTiny, reference: Callable[..., Run], tmp_path: Path) -> None:
    overrides, steps = VARIANTS[variant]
    for step in range(1, steps + 1):
        stopped_at(run_tiny, tmp_path / str(step), StepLog, "on_train_batch_start", step, *overrides)
        same(run_tiny(tmp_path / str(step), *SMALL, *overrides), reference(*overrides))
        shutil.rmtree(tmp_path / str(step))


def test_signals_again_and_again(run_tiny: RunTiny, reference: Callable[..., Run], tmp_path: Path) -> None:
    measured = "diag.dropout=true"  # draws random numbers in an evaluation that is due when the run is resumed
    stopped_at(run_tiny, tmp_path, DualCSE, "training_step", 2, measured)
    stopped_at(run_tiny, tmp_path, Evaluation, "_measure", 1, measured)  # in the evaluation that is due
    stopped_at(run_tiny, tmp_path, DualCSE, "training_step", 1, measured)
    same(run_tiny(tmp_path, *SMALL, measured), reference(measured))


def test_signals_outside_of_the_steps(run_tiny: RunTiny, reference: Callable[..., Run], tmp_path: Path) -> None:
    assert stopped_at(run_tiny, tmp_path, training, "build", 1) == "stopped; the same command starts the run"
    assert not list(tmp_path.rglob("*.*"))
    said = stopped_at(run_tiny, tmp_path, Evaluation, "_measure", 1)
    assert said == "stopped; the same command starts the run"
    said = stopped_at(run_tiny, tmp_path, DualCSE, "training_step", 3, n=2)  # the second one stops at once
    assert said == "stopped; the same command continues from step 2"
    said = stopped_at(run_tiny, tmp_path, training, "_test", 1)
    assert said == "stopped; the same command repeats only the test"
    same(run_tiny(tmp_path, *SMALL), reference())


@pytest.mark.parametrize("content", [b"", b"no checkpoint", None, "keys"])
def test_a_damaged_checkpoint_is_reported(content: Any, run_tiny: RunTiny, tmp_path: Path) -> None:
    kill(run_tiny, tmp_path, 3, moments=((DualCSE, "training_step"),))
    (last,) = tmp_path.rglob("last.ckpt")
    if content == "keys":
        torch.save({"global_step": 2}, last)
    else:
        last.write_bytes(last.read_bytes()[: last.stat().st_size // 2] if content is None else bytes(content))
    with pytest.raises(TrainingError, match=r"last\.ckpt is damaged \(.+\): force=true"):
        run_tiny(tmp_path, *SMALL)
    assert run_tiny(tmp_path, *SMALL, "force=true").status == "finished"


# A full disk


@pytest.mark.parametrize(("which", "time", "kept"), [("best", 1, None), ("last", 1, None), ("last", 2, 2)])
def test_a_disk_that_fills_up_in_a_checkpoint_keeps_the_one_before(
    which: str,
    time: int,
    kept: int | None,
    run_tiny: RunTiny,
    reference: Callable[..., Run],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write, written = BestAndLast._write, []

    def fills_up(self: BestAndLast, trainer: Any, path: Path, **options: Any) -> None:
        written.append(path.stem)
        if path.stem == which and written.count(which) == time:
            path.parent.mkdir(exist_ok=True)
            path.with_suffix(".part").symlink_to("/dev/full")
        write(self, trainer, path, **options)

    with monkeypatch.context() as patch, pytest.raises(TrainingError, match=rf"{which}\.ckpt could not be w") as caught:
        patch.setattr(BestAndLast, "_write", fills_up)
        run_tiny(tmp_path, *SMALL)
    assert "the disk is full" in str(caught.value)
    assert "start the same command again" in str(caught.value)
    assert "\n" not in str(caught.value)
    last = [torch.load(path, weights_only=True)["global_step"] for path in tmp_path.rglob("last.ckpt")]
    assert last == ([] if kept is None else [kept])
    assert not list(tmp_path.rglob("*.part"))
    (failed,) = tmp_path.rglob("failed.json")
    assert json.loads(failed.read_text())["type"] == "TrainingError"
    same(run_tiny(tmp_path, *SMALL), reference())


def test_a_disk_that_fills_up_between_write_and_name_keeps_the_one_before(
    run_tiny: RunTiny, reference: Callable[..., Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace, seen = Path.replace, []

    def full(self: Path, target: Path) -> Path:
        if self.name == "last.part":
            seen.append(target)
            if len(seen) == 2:
                raise OSError(errno.ENOSPC, "No space left on device")
        return replace(self, target)

    with monkeypatch.context() as patch, pytest.raises(TrainingError, match="the disk is full"):
        patch.setattr(Path, "replace", full)
        run_tiny(tmp_path, *SMALL)
    assert torch.load(seen[0], weights_only=True)["global_step"] == 2
    same(run_tiny(tmp_path, *SMALL), reference())


def test_a_disk_that_fills_up_in_the_curves_is_one_message_too(
    run_tiny: RunTiny, reference: Callable[..., Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append, seen = Curves.append, []

    def full(self: Curves, step: int, values: dict[str, float]) -> None:
        if step == 5:
            seen.append(step)
            with disk_errors(self.path), self.path.open("a") as file:
                file.write("5,train/l")  # half a line gets there
                raise OSError(errno.ENOSPC, "No space left on device")
        append(self, step, values)

    with (
        monkeypatch.context() as patch,
        pytest.raises(LightningCSEError, match=r"no space left to write .*curves\.csv"),
    ):
        patch.setattr(Curves, "append", full)
        run_tiny(tmp_path, *SMALL)
    assert len(seen) == 1
    same(run_tiny(tmp_path, *SMALL), reference())


# For real: kill -9 and Ctrl-C

DIES = """
import os, runpy, signal, sys

how, at = sys.argv.pop(1), int(sys.argv.pop(1))
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs inherit that it is ignored

def half_written(event, args):  # the file is cut to half, as a kill in the middle of writing would leave it
    if event == "os.rename" and str(args[1]).endswith("last.ckpt"):
        os.truncate(args[0], os.path.getsize(args[0]) // 2)
        os.kill(os.getpid(), signal.SIGKILL)

if how == "write":
    sys.addaudithook(half_written)
else:
    from lightning_cse.callbacks import StepLog

    original = StepLog.on_train_batch_end

    def on_train_batch_end(self, trainer, *args):
        if trainer.global_step == at:
            os.kill(os.getpid(), getattr(signal, how))
        original(self, trainer, *args)

    StepLog.on_train_batch_end = on_train_batch_end
runpy.run_module("lightning_cse.train", run_name="__main__", alter_sys=True)
"""


@pytest.mark.timeout(1200)  # five processes, each of which loads torch
def test_a_process_killed_in_every_way_ends_where_an_undisturbed_one_does(
    tmp_path: Path, repository: Path, reference: Callable[..., Run]
) -> None:
    (tmp_path / "dies.py").write_text(DIES)
    environment = os.environ | {
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(repository / "src"),
        "LIGHTNING_CSE_RUNS": str(tmp_path / "runs"),
        "LIGHTNING_CSE_CACHE": str(tmp_path / "cache"),
    }

    def command(*start: str) -> subprocess.CompletedProcess[str]:
        line = [sys.executable, *start, "+debug=tiny", *SMALL]
        return subprocess.run(line, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=400)

    def saved(name: str = "last.ckpt") -> int | None:
        found = list(tmp_path.rglob(name))
        return torch.load(found[0], weights_only=True)["global_step"] if found else None

    done = command("dies.py", "SIGKILL", "2")  # before the first checkpoint
    assert (done.returncode, saved()) == (-signal.SIGKILL, None), done.stderr
    (run,) = (tmp_path / "runs" / "dualcse_cross").iterdir()
    assert "\n1,train/loss," in (run / "curves.csv").read_text()

    done = command("dies.py", "SIGINT", "3")  # Ctrl-C, a step after the first checkpoint
    assert (done.returncode, saved()) == (130, 3), done.stderr
    assert "stopped at step 3; the same command continues from there" in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr
    assert not (run / "failed.json").exists()

    done = command("dies.py", "write", "0")  # while the next checkpoint is being written
    assert (done.returncode, saved()) == (-signal.SIGKILL, 3), done.stderr
    part = run / "checkpoints" / "last.part"
    assert 0 < part.stat().st_size < (run / "checkpoints" / "last.ckpt").stat().st_size
    assert "resuming from step 3" in done.stdout

    done = command("dies.py", "SIGKILL", "5")  # in the middle of the second epoch
    assert (done.returncode, saved()) == (-signal.SIGKILL, 4), done.stderr

    done = command("-m", "lightning_cse.train")
    assert done.returncode == 0, done.stderr
    assert "resuming from step 4" in done.stdout
    assert done.stdout.splitlines()[-1] == f"record: {run / 'record.json'}"
    folder = Run(tmp_path / "runs", "dualcse_cross", run.name.split("-")[0], 0)
    same(folder, reference())
    assert folder.read()["overrides"] == ["+experiment=dualcse_cross", "+debug=tiny", *SMALL[1:]]
