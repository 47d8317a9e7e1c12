"""A run that is stopped, in whatever way and at whatever moment, and started again: the same to the last bit."""

from __future__ import annotations

import functools
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from lightning_cse import training
from lightning_cse.callbacks import BestAndLast, Evaluation, StepLog
from lightning_cse.loggers import CurvesLogger
from lightning_cse.methods import DualCSE
from lightning_cse.records import RunFolder

RunTiny = Callable[..., RunFolder]

# Two epochs of three batches (8, 8, 4), evaluated and saved after every second step: at the end of no epoch but the last.
SMALL = (
    "+experiment=dualcse_cross",
    "baselines=none",
    "encoder.layers=1",
    "data.train_rows=20",
    "data.held_out_rows=8",
    "diag.sentences=16",
    "eval_every=2",
    *(f"suite.{task}.{split}_rows=6" for task in ("rte", "eis") for split in ("dev", "test")),
)
STEPS = 6


class Killed(BaseException):
    """Neither the run nor Lightning may turn it into anything else."""


@pytest.fixture(autouse=True)
def no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures take half of such a run and are drawn from the curves, which are compared."""
    monkeypatch.setattr(training, "run_figures", lambda *args: [])


def outcome(folder: RunFolder) -> dict[str, Any]:
    """Everything a run leaves but what it took: parameters, optimizer, random states, curves, predictions, record."""
    record = folder.read()
    for measured in ("seconds", "sentences_per_second", "peak_memory_mib", "environment", "overrides"):
        del record[measured]
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
    return {"record": record, "curves": folder.curves.read_text(), "files": files, **checkpoints, **predictions}


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


def same(folder: RunFolder, reference: RunFolder) -> None:
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
    (training, "_save_predictions"),
    (RunFolder, "finish"),
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
def reference(tmp_path_factory: pytest.TempPathFactory, run_tiny: RunTiny) -> Callable[..., RunFolder]:
    """The run of the same overrides that is never stopped."""
    done: dict[tuple[str, ...], RunFolder] = {}

    def run(*overrides: str) -> RunFolder:
        if overrides not in done:
            done[overrides] = run_tiny(tmp_path_factory.mktemp("reference"), *SMALL, *overrides)
        return done[overrides]

    return run


# In this process


def test_killed_at_every_moment(run_tiny: RunTiny, tmp_path: Path) -> None:
    seen: list[str] = []
    with killed_at(-1, seen):
        whole = run_tiny(tmp_path / "whole", *SMALL)
    assert seen.count("training_step") == STEPS
    assert seen.count("on_train_epoch_end") == 2
    assert seen.count("log_metrics") == STEPS + 4  # evaluations at 0, 2, 4, 6
    assert {name for _, name in MOMENTS} == set(seen)
    for moment in range(len(seen)):
        place = tmp_path / str(moment)
        kill(run_tiny, place, moment)
        folder = run_tiny(place, *SMALL)
        found = differences(outcome(whole), outcome(folder))
        assert not found, f"killed before {seen[moment]}, moment {moment} of {len(seen)}:\n" + "\n".join(found[:10])
        shutil.rmtree(place)


def test_killed_again_and_again(run_tiny: RunTiny, reference: Callable[..., RunFolder], tmp_path: Path) -> None:
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
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_killed_at_every_step_of_other_runs(
    variant: str, run_tiny: RunTiny, reference: Callable[..., RunFolder], tmp_path: Path
) -> None:
    overrides, steps = VARIANTS[variant]
    whole = reference(*overrides)
    assert whole.read()["steps"] == steps
    # Before the step's values are logged, but for the first step, which is as good as none.
    for step in range(2, steps + 1):
        place = tmp_path / str(step)
        seen: list[str] = []
        with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
            patch.setattr(CurvesLogger, "log_metrics", _dies_at(CurvesLogger.log_metrics, step, seen))
            run_tiny(place, *SMALL, *overrides)
        same(run_tiny(place, *SMALL, *overrides), whole)
        shutil.rmtree(place)


def _dies_at(original: Callable[..., Any], at: int, seen: list[str]) -> Callable[..., Any]:
    def mortal(self: CurvesLogger, metrics: dict[str, float], step: int | None = None) -> None:
        if step == at:
            raise Killed
        original(self, metrics, step)

    return mortal
