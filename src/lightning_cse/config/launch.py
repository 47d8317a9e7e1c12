"""From a command line to a task: one way in for every Hydra entry point, and one way to fail.

    if __name__ == "__main__":
        launch("lightning_cse.running.training:run", config_name="train")

Nothing heavy is imported until the task itself runs, so ``--help`` answers at once.
"""

from __future__ import annotations

import importlib
import math
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig

from lightning_cse.config.causes import user_error
from lightning_cse.config.overrides import check_overrides, flags_last, order_overrides, quote_free_text
from lightning_cse.config.paths import conf_dir
from lightning_cse.config.resolvers import register
from lightning_cse.errors import LightningCSEError

Task = Callable[[DictConfig], "float | None"]

EXIT_BUG = 1
EXIT_USER = 2
EXIT_INTERRUPTED = 130
_BASIC_LAUNCHER = "hydra._internal.core_plugins.basic_launcher.BasicLauncher"


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
    no traceback unless ``HYDRA_FULL_ERROR=1``), with 1 for any other, and with 130 when interrupted. In a multirun in
    this process a point that fails is told at once and the others still run; the sweeper gets NaN for it.

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
    runner = _Runner(task, config_name)
    try:
        code = _run(runner, config_name, config_dir, free_text)
    except KeyboardInterrupt:
        code = EXIT_INTERRUPTED
    except SystemExit:
        runner.summarise()
        raise
    if code == EXIT_INTERRUPTED:
        sys.stderr.write(f"interrupted; the same command continues {goes_on}\n")
    code = max(code, runner.summarise())
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
            return _tell(mistake)  # raised in a worker of another launcher
        raise
    except LightningCSEError as error:  # the same, with HYDRA_FULL_ERROR=1
        return _tell(error)
    return 0


@dataclass(frozen=True)
class _Failure:
    overrides: str
    by_user: bool


class _Runner:
    """The task as Hydra calls it. An instance and not a closure: other launchers pickle it into their workers."""

    def __init__(self, task: Task | str, config_name: str) -> None:
        self._task = task
        self._points = 0
        self._failures: list[_Failure] = []
        # Hydra names the job, and its log file, after the last part of the task's module.
        self.__module__ = f"lightning_cse.{config_name}"

    def __call__(self, cfg: DictConfig) -> float | None:
        _prepare_process()
        job = HydraConfig.get()
        self._points += 1
        if job.mode != RunMode.MULTIRUN:
            try:
                return self._load()(cfg)
            except Exception as error:
                if (mistake := user_error(error)) is None:
                    raise
                raise SystemExit(_tell(mistake)) from error
        if job.launcher._target_ != _BASIC_LAUNCHER:
            return self._load()(cfg)
        try:
            return self._load()(cfg)
        except Exception as error:  # noqa: BLE001 - told, and counted; the other points still run
            self._note(error, " ".join(job.overrides.task))
            return math.nan

    def summarise(self) -> int:
        """Say which points of a multirun failed; return the exit code they ask for."""
        if not self._failures:
            return 0
        which = "; ".join(failure.overrides for failure in self._failures)
        sys.stderr.write(f"error: {len(self._failures)} of {self._points} points failed: {which}\n")
        return EXIT_USER if all(failure.by_user for failure in self._failures) else EXIT_BUG

    def _load(self) -> Task:
        if isinstance(self._task, str):
            module, _, name = self._task.partition(":")
            task: Task = getattr(importlib.import_module(module), name)
            return task
        return self._task

    def _note(self, error: Exception, overrides: str) -> None:
        mistake = user_error(error)
        sys.stderr.write(f"the point {overrides} failed, the others go on\n")
        if mistake is None:
            traceback.print_exception(error)
        else:
            _tell(mistake)
        # The exception itself is not kept: its traceback would hold on to the point's model.
        self._failures.append(_Failure(overrides, by_user=mistake is not None))


def _prepare_process() -> None:
    # The tokenizers' own threads warn, and may deadlock, once a data loader forks.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    register()


def _tell(error: LightningCSEError) -> int:
    if os.environ.get("HYDRA_FULL_ERROR") == "1":
        traceback.print_exception(error)
    sys.stderr.write(f"error: {error}\n")
    return EXIT_USER
