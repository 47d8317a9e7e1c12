"""Runs of six steps for tests of training: how one is started and killed, and what it leaves."""

import os
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from stress_kills import COSTS

from lightning_cse.loggers import CurvesLogger
from lightning_cse.runs import Curves

# Two epochs of three batches (8, 8, 4), evaluated and saved after every second step: not at the end
# of the first.
LITTLE = (
    "baselines=none",
    "encoder.layers=1",
    "data.train_rows=20",
    "data.held_out_rows=8",
    "diag.sentences=16",
    "eval_every=2",
)
SMALL = ("+experiment=dualcse_cross", "limits.dev_rows=6", "limits.test_rows=6", *LITTLE)
STEPS = 6


class Killed(BaseException):
    """An exception that neither the run nor Lightning catches."""


@contextmanager
def dies_at(at):
    """Die before the values of a step are logged."""
    original = CurvesLogger.log_metrics

    def mortal(self, metrics, step=None):
        if step == at:
            raise Killed

        original(self, metrics, step)

    with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
        patch.setattr(CurvesLogger, "log_metrics", mortal)
        yield


def curves(run):
    """Return the values of a run by key and step."""
    return {key: dict(points) for key, points in Curves(run.curves_path).read().items()}


def environment(folder, runs="runs"):
    """Return the environment of a command whose runs and caches lie in a folder."""
    inherited = {key: value for key, value in os.environ.items() if key != "LIGHTNING_CSE_DATA"}
    return inherited | {
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(Path(__file__).resolve().parents[1] / "src"),
        "LIGHTNING_CSE_RUNS": str(folder / runs),
        "LIGHTNING_CSE_CACHE": str(folder / "cache"),
    }


def outcome(run):
    """Return all that a run leaves, except costs: its record, curves, files and checkpoints."""
    names = sorted(str(path.relative_to(run.path)) for path in run.path.rglob("*"))
    outputs = {
        "record": {key: value for key, value in run.read().items() if key not in COSTS},
        "curves": run.curves_path.read_text(),
        "files": names,
    }

    for name in ("best", "last"):
        checkpoint = torch.load(run.checkpoints / f"{name}.ckpt", weights_only=True)
        timing = checkpoint.get("callbacks", {}).get("Timing", {})
        for name_of_time in ("training", "evaluation"):
            timing.pop(name_of_time, None)

        checkpoint.pop("loops", None)  # Lightning's counts; if they matter, the rest differs too
        outputs[name] = checkpoint

    for path in run.predictions.iterdir():
        outputs[path.name] = path.read_bytes()

    return outputs


def leaves(value, where=""):
    """Yield place and value of everything in nested mappings and sequences."""
    if isinstance(value, dict | list | tuple):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, item in items:
            yield from leaves(item, f"{where}/{key}")
    else:
        yield where, repr(value.tolist() if isinstance(value, torch.Tensor) else value)


def assert_same(run, reference):
    """Assert that two runs left the same, to the last bit."""
    __tracebackhide__ = True
    result, expected = dict(leaves(outcome(run))), dict(leaves(outcome(reference)))
    different = [path for path in result | expected if result.get(path) != expected.get(path)]

    assert not different, "\n".join(["the runs differ:", *different[:10]])
