"""From a command line to a task: one way in for every Hydra command.

Nothing heavy is imported until the config is checked, so that ``--help`` and a typo are answered at once.
"""

from __future__ import annotations

import importlib
import itertools
import os
import re
import sys
from collections.abc import Sequence
from typing import Any

import hydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from lightning_cse.config import sweeps
from lightning_cse.config.check import check
from lightning_cse.config.compose import CompositionError, plain_line
from lightning_cse.config.paths import conf_dir
from lightning_cse.config.resolvers import register
from lightning_cse.config.suggestions import APPENDED, explain
from lightning_cse.errors import ConfigError, report, reported, user_error
from lightning_cse.runs.sweep import Point

_CHOICE = re.compile(rf"(?s)^\+{{0,2}}((?P<group>{'|'.join(APPENDED)})=.*)$")


def launch(task: str, config_name: str, *, free_text: Sequence[str] = ()) -> None:
    """Read the command line, check it, and run a task with the composed config, once or once a point of a sweep.

    The points of a sweep run on after one has failed; a table of them is printed at the end.

    Args:
        task: ``"module:function"``, imported after the check; it returns a `lightning_cse.runs.Outcome` or None.
        config_name: the primary config, ``train`` for ``conf/train.yaml``.
        free_text: keys whose value is text as it stands (a path, a sentence), whatever Hydra's grammar makes of it.

    Raises:
        SystemExit: with an exit code of `lightning_cse.errors`, unless it is 0.
    """
    if code := _launch(task, config_name, free_text):
        sys.exit(code)


@reported
def _launch(task: str, config_name: str, free_text: Sequence[str]) -> int:
    argv, full_error = sys.argv, os.environ.get("HYDRA_FULL_ERROR", "0")
    os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra raises its exceptions, in place of printing them
    runner, sweeps.current = Runner(task, config_name, verbose=full_error == "1"), None
    try:
        sys.argv = [argv[0], *ordered(quote_free_text(argv[1:], free_text))]
        hydra.main(version_base="1.3", config_path=str(conf_dir()), config_name=config_name)(runner)()
    except CompositionError as error:
        if any(arg.startswith(("--config-", "-cd", "-cp", "-cn")) for arg in argv):  # configs that we do not know
            raise user_error(error) or ConfigError([plain_line(error)]) from error
        given = itertools.takewhile(lambda arg: arg[0] != "-", sys.argv[1:])
        raise user_error(error) or explain(given, config_name, error) from error
    finally:
        sys.argv, os.environ["HYDRA_FULL_ERROR"] = argv, full_error
        code = sweeps.finish()
    if runner.error is not None:
        raise runner.error
    return code


class Runner:
    """The task as Hydra calls it. An instance and not a closure, since launchers pickle it into their workers."""

    def __init__(self, task: str, config_name: str, *, verbose: bool) -> None:
        register()
        self.task, self.config_name, self.verbose = task, config_name, verbose
        self.error: Exception | None = None
        self.__module__ = f"lightning_cse.{config_name}"  # Hydra names the job after its last part

    def __call__(self, cfg: DictConfig) -> Any:
        """Check the config, import the task and run it; in a sweep, return what became of the point."""
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # its threads may deadlock once a data loader forks
        register()
        overrides = list(map(str, HydraConfig.get().overrides.task))
        try:
            check(cfg, self.config_name, overrides)
            sweeps.take_gpu(cfg)
            module, _, function = self.task.partition(":")
            result = getattr(importlib.import_module(module), function)(cfg)
        except Exception as error:  # noqa: BLE001 - reported by the handler, or in the sweep's table
            if not sweeps.in_sweep():
                self.error = error
                return None
            sys.stderr.write(f"{' '.join(overrides)}: ")
            report(error, verbose=self.verbose)
            result = error
        return Point.of(overrides, result) if sweeps.in_sweep() else None


def ordered(args: Sequence[str]) -> list[str]:
    """Put experiment, profile, sweep and debug first, in this order and with their plus, and flags last.

    Example:
        >>> ordered(["-m", "seed=0,1", "+debug=tiny", "experiment=simcse"])
        ['+experiment=simcse', '+debug=tiny', 'seed=0,1', '-m']
    """

    def place(arg: str) -> int:
        is_override = arg[:1] != "-" and ("=" in arg or arg[:1] == "~")
        match = _CHOICE.match(arg)
        return APPENDED.index(match["group"]) if match else len(APPENDED) + (not is_override)

    return [_CHOICE.sub(r"+\1", arg) for arg in sorted(args, key=place)]


def quote_free_text(args: Sequence[str], keys: Sequence[str]) -> list[str]:
    r"""Quote the values of some keys for Hydra, unless they are quoted already or this is a multirun.

    Example:
        >>> quote_free_text(["model=it's in a, b=c", "seed=1"], ["model"])
        ["model='it\\'s in a, b=c'", 'seed=1']
    """
    if {"-m", "--multirun"} & set(args):
        return list(args)
    free = re.compile(rf"""(?s)\+{{0,2}}({"|".join(keys) or "-"})=(?!null$|(["']).*\2$)""")
    quoted = [arg.replace("'", r"\'").replace("=", "='", 1) + "'" for arg in args]
    return [new if free.match(arg) else arg for arg, new in zip(args, quoted, strict=True)]
