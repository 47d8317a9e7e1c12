"""A task that takes no time, for tests of sweeps: the ``name`` of a point decides its outcome."""

import os
import signal
from pathlib import Path

from lightning_cse.errors import DataError
from lightning_cse.runs import Busy, FailedBefore, Outcome


def run(cfg):
    """Do what the config's name says, and return an outcome like that of a training run."""
    fate = str(cfg.get("name"))  # only the command train has one
    runs = Path(cfg.paths.runs_dir)
    if fate == "user":
        raise DataError("the corpus is missing")

    if fate == "bug":
        raise ValueError("an odd\nmatter")

    if fate == "busy":
        raise Busy.__new__(Busy, "somebody runs it")

    if fate == "left":
        raise FailedBefore("failed before")

    if fate == "killed":
        os.kill(os.getpid(), signal.SIGKILL)

    if fate == "interrupted":
        raise KeyboardInterrupt

    runs.mkdir(parents=True, exist_ok=True)
    with (runs / "done.txt").open("a") as file:
        file.write(f"{fate} {cfg.get('seed')}\n")

    return Outcome(
        status="skipped" if fate == "skipped" else "finished",
        folder=str(runs / f"{fate}-{cfg.get('seed')}-{cfg.get('data', {}).get('batch_size')}"),
        score=0.5 + cfg.get("seed", 0),
    )
