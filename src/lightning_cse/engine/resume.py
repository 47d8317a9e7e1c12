"""Where a run starts: at step 0, at the checkpoint of an interrupted run, or nowhere."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from lightning_cse import runs
from lightning_cse.callbacks import AtomicCheckpointIO, RandomState
from lightning_cse.callbacks.checkpoints import environment_of
from lightning_cse.config.check import devices
from lightning_cse.config.compose import in_sweep
from lightning_cse.engine.processes import Start, agree, started
from lightning_cse.errors import TrainingError, one_line
from lightning_cse.methods import Method

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Checkpoint:
    """The checkpoint from which a run is resumed; ``is_over``: only its test is left."""

    path: Path
    step: int
    is_over: bool
    state: dict[str, Any] = field(repr=False)


@contextlib.contextmanager
def claimed(cfg: DictConfig, folder: runs.Run, rank: int) -> Iterator[Start]:
    """Yield where a run starts, in every process; the first one holds the lock of its folder."""
    last = folder.checkpoints / "last.ckpt"
    if rank:
        yield _follow(cfg, folder, last)
        return

    leave_failed = in_sweep() and not cfg.retry_failed
    with folder.claim(force=cfg.force, leave_failed=leave_failed) as is_unfinished:
        start = Start(not is_unfinished, is_resumed=is_unfinished and last.is_file())
        if devices(cfg) > 1 and started():
            agree(cfg, folder, start)

        yield start


def _follow(cfg: DictConfig, folder: runs.Run, last: Path) -> Start:
    """Return where the first process starts, which alone writes."""
    if started():
        return agree(cfg, folder)
    if cfg.force:
        return Start(finished=False)

    # Lightning has started this process beside the first one, which waits for it.
    return Start(folder.status == "finished", is_resumed=last.is_file())


def read_checkpoint(folder: runs.Run, count: int, rank: int) -> Checkpoint:
    """Return the last checkpoint of an interrupted run, after checking all that it needs; the first
    process cuts the curves to what they were then.

    Raises TrainingError for a damaged file, and for another number of processes.
    """
    path = folder.checkpoints / "last.ckpt"
    runs.check_checkpoint(path)
    try:
        state = AtomicCheckpointIO().load_checkpoint(path)
        checkpoint = Checkpoint(path, int(state["global_step"]), bool(state["is_over"]), state)
        random_state = state["callbacks"][RandomState.__qualname__]
        curves = state["curves"]
    except KeyError as error:
        raise TrainingError(
            f"{path} was written by another version of lightning_cse (it has no {error}): continue "
            "with that version, or train again with force=true"
        ) from error
    except Exception as error:  # torch raises many kinds
        raise TrainingError(f"{path} cannot be read ({one_line(error)})") from error

    RandomState.check(random_state, count)
    if rank == 0:
        runs.Curves(folder.curves_path).restore(curves)

    callbacks: dict[str, Any] = state["callbacks"]
    if any(callback.get("best_step", -1) >= 0 for callback in callbacks.values()):
        runs.check_checkpoint(folder.checkpoints / "best.ckpt")

    return checkpoint


def report_changes(checkpoint: Checkpoint, method: Method) -> None:
    """Report what was different when a run was started, and changes its last digits."""
    now = environment_of(method)
    for name, before in checkpoint.state.get("environment", {}).items():
        if before != now.get(name):
            text = "%s was %s when the run was started, now it is %s"
            log.warning(text, name, before, now.get(name))


def restore(checkpoint: Checkpoint, method: Method, *callbacks: Any) -> None:
    """Give method and callbacks their state of a training that is over."""
    method.on_load_checkpoint(checkpoint.state)
    for callback in callbacks:
        callback.load_state_dict(checkpoint.state["callbacks"][callback.state_key])


def report_other_data(folder: runs.Run, key: str) -> None:
    """Report interrupted runs of the same settings and seed, whose data or encoder were others."""
    for path in folder.path.parent.glob(f"*-s{folder.seed}"):
        other = runs.Run.at(path)
        if path != folder.path and other.key == key and other.status == "interrupted":
            log.warning("an interrupted run of these settings with other data is in %s", path)
