"""From a command line or a program to a task: the entry point of every Hydra command.

A command line takes this path: Hydra composes its words into a config, `complete` changes what
follows from its values, `check` refuses what cannot run, and the task is imported and called. A
sweep composes every point, and tries its values out before the first point starts. Nothing heavy is
imported while Hydra composes, so ``--help`` and typos are answered at once.
"""

import contextlib
import importlib
import io
import logging
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import hydra
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.singleton import Singleton
from hydra.types import RunMode
from omegaconf import DictConfig

from lightning_cse.config.check import check
from lightning_cse.config.compose import (
    APPENDED,
    CONFIG_DIRS,
    CompositionError,
    complete,
    in_sweep,
    task_overrides,
    without_hydra,
)
from lightning_cse.errors import ConfigError, report, reported
from lightning_cse.paths import conf_dir, encoder_configs

_ONE_RUN = "one call from Python is one run: call it in a loop, or sweep with the command train"


@reported
def launch(task: str, config_name: str, args: Sequence[str] | None = None) -> int:
    """Have Hydra read the command line, and run a task: once, or once per point of a sweep.

    The task is ``"module:function"``, imported after the check; it returns a
    `lightning_cse.runs.Outcome` or None. A sweep continues after a point has failed; a table of the
    points is printed at the end.
    """
    argv = sys.argv
    words = ordered(argv[1:] if args is None else args)
    runner = Runner(task, config_name, sys.stderr)
    command = hydra.main(version_base="1.3", config_path=str(conf_dir()), config_name=config_name)
    printed = io.StringIO()  # Hydra prints a traceback for most errors, and then exits
    sys.argv = [argv[0], *words]
    try:
        with explained(words, config_name), contextlib.redirect_stderr(printed):
            command(runner)()
    except SystemExit as ending:
        if ending.code == 1 and isinstance(ending.__context__, Exception):
            from lightning_cse.config.suggestions import explain  # for faulty words alone

            raise explain(ending.__context__, words, config_name) from ending.__context__

        sys.stderr.write(printed.getvalue())
        return int(ending.code or 0)
    finally:
        sys.argv = argv

    if runner.error is not None:
        raise runner.error

    return 0


def call(task: str, config_name: str, overrides: Sequence[str]) -> Any:
    """Run a task in a program: return its result, raise its errors, and leave Hydra as it was."""
    if isinstance(overrides, str):
        raise ConfigError([f"overrides: must be a list such as [{overrides!r}], got one string"])

    words = ordered(overrides)
    before = Singleton.get_state()
    if not logging.root.handlers:  # the program has not set up logging
        logging.basicConfig(stream=sys.stdout, format="%(message)s")
        logging.getLogger("lightning_cse").setLevel(logging.INFO)

    try:
        GlobalHydra.instance().clear()  # for a program that was itself started by Hydra
        with hydra.initialize_config_dir(str(conf_dir()), config_name, "1.3"):
            with explained(words, config_name):
                cfg = hydra.compose(config_name, words, return_hydra_config=True)

            if cfg.hydra.mode == RunMode.MULTIRUN:
                raise ConfigError([_ONE_RUN])

            HydraConfig.instance().set_config(cfg)
            return Runner(task, config_name).run(without_hydra(cfg))
    finally:
        Singleton.set_state(before)


@contextlib.contextmanager
def explained(words: Sequence[str], config_name: str) -> Iterator[None]:
    """Replace Hydra's error for words that do not compose by a user error."""
    try:
        yield
    except CompositionError as error:  # of the command line only with HYDRA_FULL_ERROR=1
        from lightning_cse.config.suggestions import explain  # for faulty words alone

        raise explain(error, words, config_name) from error


# A run -----------------------------------------------------------------------------------


@dataclass(eq=False)
class Runner:
    """The task as Hydra calls it; launchers pickle it for their workers."""

    task: str
    config_name: str
    stderr: TextIO | None = None
    error: Exception | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return (Runner, (self.task, self.config_name))

    def __call__(self, cfg: DictConfig) -> float | None:
        """Run the task; keep its error or, in a sweep, write the outcome of the point and return
        its dev score, for sweepers that choose the next point by it.
        """
        with contextlib.redirect_stderr(self.stderr or sys.stderr):
            try:
                result = self.run(cfg)
            except Exception as error:  # noqa: BLE001 - `launch` raises it, or the table has it
                result = error

            if in_sweep():
                _end_point(result)
                score: float | None = getattr(result, "score", None)
                return score

            if isinstance(result, Exception):
                self.error = result

        return None

    def run(self, cfg: DictConfig) -> Any:
        """Complete and check the config, import the task and return its result."""
        overrides = task_overrides()
        sources = HydraConfig.get().runtime.config_sources
        for source in sources:
            if source.provider in CONFIG_DIRS:
                from lightning_cse.data.declarations import register_corpora

                register_corpora(Path(source.path))

        complete(cfg, overrides)
        check(cfg, self.config_name)
        module, _, name = self.task.partition(":")
        return getattr(importlib.import_module(module), name)(cfg)


def _end_point(result: Any) -> None:
    """Report the error of a point, if it is one, and write its outcome for the sweep's table."""
    from lightning_cse.runs.sweep import PointOutcome

    overrides = task_overrides()
    if isinstance(result, Exception):
        sys.stderr.write(f"{' '.join(overrides)}: ")
        report(result, verbose=os.environ.get("HYDRA_FULL_ERROR") == "1")

    settings = HydraConfig.get()
    folder = Path(settings.runtime.cwd, settings.sweep.dir)
    PointOutcome.of(overrides, result).write(folder / f"{settings.job.num}.json")


def wait_for(process: subprocess.Popen[bytes]) -> int:
    """Return the exit code of a process; if this one is interrupted or terminated, so is the other,
    which is waited for while it saves its state.
    """
    try:
        return process.wait()
    except BaseException as stop:
        if type(stop) is not KeyboardInterrupt:  # a terminal sends Ctrl-C to both
            process.terminate()

        process.wait()
        raise


# Words of a command line -----------------------------------------------------------------


def ordered(words: Sequence[str]) -> list[str]:
    """Put +experiment=, +profile=, +adapter=, +sweep= and +debug= first, in this order, and flags
    last; ``encoder=<folder or hub id>`` is ``encoder=custom encoder.source=...``.

    Examples:
        >>> ordered(["-m", "seed=0,1", "+debug=tiny", "+experiment=simcse"])
        ['+experiment=simcse', '+debug=tiny', 'seed=0,1', '-m']
        >>> ordered(["encoder=my/bert"])
        ['encoder=custom', "encoder.source='my/bert'"]
    """
    ranks = {f"+{group}": rank for rank, group in enumerate(APPENDED)}

    def rank_of(word: str) -> int:
        is_flag = word.startswith("-") or ("=" not in word and not word.startswith("~"))
        return len(ranks) + 1 if is_flag else ranks.get(word.partition("=")[0], len(ranks))

    for word in words:
        _refuse(word)

    return [part for word in sorted(words, key=rank_of) for part in _with_source(word)]


def _with_source(word: str) -> list[str]:
    key, _, value = word.partition("=")
    sources = [source.strip("'\"") for source in value.split(",")]
    if key != "encoder" or encoder_configs().keys() & set(sources):
        return [word]

    if not all(source and ("/" in source or Path(source).is_dir()) for source in sources):
        return [word]

    return ["encoder=custom", f"encoder.source={','.join(map(repr, sources))}"]


_SINGLE = ("experiment", "profile", "sweep", "debug", "method", "data", "encoder", "trainer")


def _refuse(word: str) -> None:
    """Refuse what Hydra would read as something else."""
    key, _, value = word.lstrip("+-").partition("=")
    if word.startswith("--") and key in APPENDED:
        raise ConfigError([f"{word}: there is no such flag; write +{key}=NAME"])

    # Lightning gives the processes of other devices the working directory.
    if key == "hydra.run.dir" and Path(value.strip("'\"")).resolve() != Path.cwd():
        reason = "a run's folder follows from its config; set paths.runs_dir, in which it is"
        raise ConfigError([f"{key}: cannot be set; {reason}"])

    if key in _SINGLE and value.startswith("["):
        raise ConfigError([f"{key}: takes one option, got the list {value}"])
