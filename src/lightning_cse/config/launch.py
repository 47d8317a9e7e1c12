"""From a command line to a task: one way in for every Hydra entry point, and one way to fail.

    if __name__ == "__main__":
        launch("lightning_cse.engine.train:run", config_name="train")

Nothing heavy is imported until the task itself runs, so ``--help`` answers at once.
"""

from __future__ import annotations

import importlib
import math
import os
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

import hydra
from hydra.conf import HydraConf
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from lightning_cse.config.causes import user_error
from lightning_cse.config.gpus import one_gpu
from lightning_cse.config.outcomes import Kind, Outcome, Sweep, in_sweep, listening, one_line, place, write
from lightning_cse.config.overrides import check_overrides, flags_last, order_overrides, quote_free_text
from lightning_cse.config.paths import conf_dir
from lightning_cse.config.resolvers import register
from lightning_cse.errors import LightningCSEError
from lightning_cse.runs import Busy, FailedBefore
from lightning_cse.runs import Outcome as RunOutcome

Task = Callable[[DictConfig], "RunOutcome | float | None"]

EXIT_BUG = 1
EXIT_USER = 2
EXIT_BUSY = 3
EXIT_INTERRUPTED = 130


def launch(
    task: Task | str,
    config_name: str,
    *,
    config_dir: Path | None = None,
    free_text: Sequence[str] = (),
    goes_on: str = "from the last checkpoint",
) -> None:
    """Read the command line, check it, and run ``task`` with the composed config, once or once a point of a sweep.

    The process ends with 0 when all went well, with 2 for an error that is the user's to mend (one message on stderr,
    no traceback unless ``HYDRA_FULL_ERROR=1``), with 3 when nothing is lacking but what somebody else is running, with
    1 for any other error, and with 130 when interrupted. In a multirun, whatever its launcher, a point that fails is
    told at once and the others still run; the sweeper gets NaN for it (None for one that somebody else is running), and
    a summary at the end names it again.

    Args:
        task: what to run, or ``"module:function"``, imported only when the first point starts. Its value goes to the
            sweeper (the best dev score, say).
        config_name: the primary config, ``train`` for ``conf/train.yaml``; it also names the job in Hydra's log.
        config_dir: where the configs are; the project's own ``conf/`` by default.
        free_text: keys whose value is text as it stands (a path, a sentence), whatever Hydra's grammar makes of it.
        goes_on: from where the same command continues after an interrupt.

    Raises:
        SystemExit: with the code above, unless it is 0.
    """
    sweep = Sweep()
    try:
        with sweep.watching():
            code = _run(_Runner(task, config_name), config_name, config_dir, free_text)
    except KeyboardInterrupt:
        code = EXIT_INTERRUPTED
    except BaseException:
        _summarise(sweep)
        raise
    if code == EXIT_INTERRUPTED:
        sys.stderr.write(f"interrupted; the same command continues {goes_on}\n")
    if not code or sweep.began:
        found = _summarise(sweep)
        code = code or found
    if code:
        sys.exit(code)


def _run(runner: _Runner, config_name: str, config_dir: Path | None, free_text: Sequence[str]) -> int:
    _prepare_process()
    try:
        folder = config_dir or conf_dir()
        sys.argv[1:] = flags_last(order_overrides(quote_free_text(sys.argv[1:], free_text)))
        check_overrides(sys.argv[1:], folder, config_name)
    except LightningCSEError as error:
        return _tell(error)
    try:
        hydra.main(version_base="1.3", config_path=str(folder.resolve()), config_name=config_name)(runner)()
    except SystemExit as ending:
        # Lightning answers Ctrl-C with sys.exit(1), and so does Hydra to an exception: what led there tells them apart.
        if isinstance(ending.__context__, KeyboardInterrupt):
            return EXIT_INTERRUPTED
        if ending.code == EXIT_BUG and (mistake := user_error(ending.__context__)) is not None:
            return _tell(mistake)  # raised by a sweeper or a launcher
        raise
    except LightningCSEError as error:  # the same, with HYDRA_FULL_ERROR=1
        return _tell(error)
    return 0


def _summarise(sweep: Sweep) -> int:
    """Say what became of the points of a multirun; return the exit code they ask for."""
    code = {"good": 0, "user": EXIT_USER, "bug": EXIT_BUG, "busy": EXIT_BUSY}[sweep.verdict()]
    (sys.stderr if code else sys.stdout).write(sweep.summary())
    return code


class _Runner:
    """The task as Hydra calls it. An instance and not a closure: other launchers pickle it into their workers."""

    def __init__(self, task: Task | str, config_name: str) -> None:
        self._task = task
        # Hydra names the job, and its log file, after the last part of the task's module.
        self.__module__ = f"lightning_cse.{config_name}"

    def __call__(self, cfg: DictConfig) -> float | None:
        _prepare_process()
        if in_sweep():
            return self._point(cfg, HydraConfig.get())
        try:
            return self._load()(cfg)
        except Exception as error:
            if (mistake := user_error(error)) is None:
                raise
            raise SystemExit(_tell(mistake)) from error

    def _point(self, cfg: DictConfig, job: HydraConf) -> float | None:
        """Run a point of a sweep, which raises nothing: what became of it is told here, and to the driver in a file."""
        overrides = tuple(map(str, job.overrides.task))
        start = time.perf_counter()
        value: float | None = math.nan
        with listening() as told:
            kind: Kind
            reason, by_user = "", False
            try:
                with one_gpu(cfg, job):
                    value = self._load()(cfg)
                if isinstance(value, RunOutcome):
                    told.folder, told.skipped, value = Path(value.folder), value.status == "skipped", value.score
                kind = "skipped" if told.skipped else "finished"
            except Busy as busy:
                # None and not NaN: a search must not take it for a failure, since its value is on the way.
                value, kind, reason = None, "busy", str(busy)
                sys.stderr.write(f"{busy}\n")
            except FailedBefore as before:
                kind, reason = "left", str(before)
                sys.stderr.write(f"{before}\n")
            except Exception as error:  # noqa: BLE001 - told, and counted; the other points still run
                kind, reason, by_user = "failed", *_told_failure(error, " ".join(overrides))
        folder = None if told.folder is None else str(told.folder)
        seconds = time.perf_counter() - start
        outcome = Outcome(overrides, kind, folder, reason, by_user, seconds, None if value is None else float(value))
        try:
            write(place(job), outcome)
        except (OSError, LightningCSEError) as error:
            sys.stderr.write(f"could not write {place(job)}: {error}\n")
        return value

    def _load(self) -> Task:
        if isinstance(self._task, str):
            module, _, name = self._task.partition(":")
            task: Task = getattr(importlib.import_module(module), name)
            return task
        return self._task


def _told_failure(error: Exception, overrides: str) -> tuple[str, bool]:
    """Tell why a point failed; return the same in one line, and whether it is the user's to mend."""
    mistake = user_error(error)
    sys.stderr.write(f"the point {overrides} failed, the others go on\n")
    if mistake is None:
        traceback.print_exception(error)
    else:
        _tell(mistake)
    sys.stderr.flush()
    return one_line(mistake or error), mistake is not None


def _prepare_process() -> None:
    # The tokenizers' own threads warn, and may deadlock, once a data loader forks.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    register()


def _tell(error: LightningCSEError) -> int:
    if os.environ.get("HYDRA_FULL_ERROR") == "1":
        traceback.print_exception(error)
    sys.stderr.write(f"error: {error}\n")
    return EXIT_BUSY if isinstance(error, Busy) else EXIT_USER
