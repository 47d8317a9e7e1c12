"""Resume an interrupted run: its last checkpoint, checked before anything is trained."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytorch_lightning as pl

from lightning_cse import runs
from lightning_cse.callbacks import AtomicCheckpointIO, RandomState
from lightning_cse.callbacks.checkpoints import BEST, LAST, environment_of
from lightning_cse.engine.processes import Processes
from lightning_cse.errors import TrainingError
from lightning_cse.methods import Method

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Checkpoint:
    """The checkpoint from which a run is resumed; ``is_over``: only its test is left."""

    path: Path
    step: int
    is_over: bool
    state: dict[str, Any] = field(repr=False)

    def report_changes(self, method: Method) -> None:
        """Report what was different when the run was started, and changes its last digits."""
        environment = environment_of(method)
        for name, before in self.state.get("environment", {}).items():
            if before != environment.get(name):
                text = "%s was %s when the run was started, now it is %s"
                log.warning(text, name, before, environment.get(name))

    def restore(self, trainer: pl.Trainer, method: Method) -> None:
        """Give method and callbacks their state of a training that is over."""
        method.on_load_checkpoint(self.state)
        states = self.state["callbacks"]
        callbacks: list[pl.Callback] = trainer.callbacks  # type: ignore[attr-defined]  # set by Lightning
        for callback in callbacks:
            if callback.state_key in states:
                callback.load_state_dict(states[callback.state_key])


def last_checkpoint(folder: runs.Run, processes: Processes) -> Checkpoint:
    """Return the last checkpoint of an interrupted run, after checking all that it needs; the first
    process cuts the curves to what they were then.

    Raises DataError for a damaged file, and TrainingError for one of another version or of another
    number of processes.
    """
    path = folder.checkpoints / LAST
    state = AtomicCheckpointIO().load_checkpoint(path)
    try:
        checkpoint = Checkpoint(path, int(state["global_step"]), bool(state["is_over"]), state)
        callbacks: dict[str, Any] = state["callbacks"]
        random_state = callbacks[RandomState.__qualname__]
        curves = state["curves"]
    except KeyError as error:
        raise TrainingError(
            f"{path} was written by another version of lightning_cse (it has no {error}): continue "
            "with that version, or train again with force=true"
        ) from error

    RandomState.check(random_state, processes.count)
    if processes.rank == 0:
        runs.Curves(folder.curves_path).restore(curves)

    if any(callback.get("best_step", -1) >= 0 for callback in callbacks.values()):
        runs.check_checkpoint(folder.checkpoints / BEST)

    return checkpoint
