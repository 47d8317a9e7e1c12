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

_CHOICE = re.compile(rf"^\+{{0,2}}(?P<rest>(?P<group>{'|'.join(APPENDED)})=.*)$", re.DOTALL)


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
    argv, before = sys.argv, os.environ.get("HYDRA_FULL_ERROR")
    os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra raises its exceptions, in place of printing them
    runner = Runner(task, config_name, verbose=before == "1")
    sweeps.current = None
    code = 0
    try:
        sys.argv = [argv[0], *ordered(quote_free_text(argv[1:], free_text))]
        hydra.main(version_base="1.3", config_path=str(conf_dir()), config_name=config_name)(runner)()
    except CompositionError as error:
        if known := user_error(error):
            raise known from error
        if any(arg.startswith(("--config-", "-cd", "-cp", "-cn")) for arg in sys.argv):  # configs we do not know
            raise ConfigError([plain_line(error)]) from error
        raise explain(itertools.takewhile(lambda arg: arg[0] != "-", sys.argv[1:]), config_name, error) from error
    finally:
        sys.argv = argv
        os.environ.pop("HYDRA_FULL_ERROR")
        os.environ |= {} if before is None else {"HYDRA_FULL_ERROR": before}
        if sweeps.current is not None:
            code = sweeps.current.finish()
    if runner.error is not None:
        raise runner.error
    return code


class Runner:
    """The task as Hydra calls it. An instance and not a closure, since launchers pickle it into their workers."""

    def __init__(self, task: str, config_name: str, *, verbose: bool) -> None:
        register()
        self.task = task
        self.config_name = config_name
        self.verbose = verbose
        self.error: Exception | None = None
        self.__module__ = f"lightning_cse.{config_name}"  # Hydra names the job after its last part

    def __call__(self, cfg: DictConfig) -> Any:
        """Check the config, import the task and run it; in a sweep, return what became of the point."""
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # its threads may deadlock once a data loader forks
        register()
        overrides = list(map(str, HydraConfig.get().overrides.task))
        try:
            check(cfg, self.config_name, overrides)
            module, _, function = self.task.partition(":")
            with sweeps.one_gpu(cfg):
                result = getattr(importlib.import_module(module), function)(cfg)
        except Exception as error:  # noqa: BLE001 - reported by the handler, or in the sweep's table
            self.error = error
            if not sweeps.in_sweep():
                return None
            sys.stderr.write(f"{' '.join(overrides)}: ")
            report(error, verbose=self.verbose)
            return sweeps.Point.of_error(overrides, error)
        return sweeps.Point.of_result(overrides, result) if sweeps.in_sweep() else result


def ordered(args: Sequence[str]) -> list[str]:
    """Put experiment, profile, sweep and debug first, in this order and with their plus, and flags last.

    Example:
        >>> ordered(["-m", "seed=0,1", "+debug=tiny", "experiment=simcse"])
        ['+experiment=simcse', '+debug=tiny', 'seed=0,1', '-m']
    """

    def place(arg: str) -> int:
        match = _CHOICE.match(arg)
        return APPENDED.index(match["group"]) if match else len(APPENDED) + (not _is_override(arg))

    return [_CHOICE.sub(r"+\g<rest>", arg) for arg in sorted(args, key=place)]


def _is_override(arg: str) -> bool:
    return not arg.startswith("-") and ("=" in arg or arg.startswith("~"))


def quote_free_text(args: Sequence[str], keys: Sequence[str]) -> list[str]:
    r"""Quote the values of some keys for Hydra, unless they are quoted already or this is a multirun.

    Example:
        >>> quote_free_text(["model=it's in a, b=c", "seed=1"], ["model"])
        ['model="it\'s in a, b=c"', 'seed=1']
    """

    def quoted(arg: str) -> str:
        key, _, value = arg.partition("=")
        if key.lstrip("+") not in keys or re.fullmatch(r"""(?s)(["']).*\1|null""", value):
            return arg
        # Hydra takes a backslash for itself where a quote or the end follows it.
        escaped = re.sub(r'(\\*)("|$)', lambda found: found[1] * 2 + ('\\"' if found[2] else ""), value)
        return f'{key}="{escaped}"'

    return list(args) if {"-m", "--multirun"} & set(args) else [quoted(arg) for arg in args]
