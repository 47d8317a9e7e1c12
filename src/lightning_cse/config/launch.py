"""From a command line to a task: one way in for every Hydra command.

Nothing heavy is imported until the config is checked, so that ``--help`` and a typo are answered at once.
"""

from __future__ import annotations

import importlib
import itertools
import os
import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import hydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from lightning_cse.config import compose, conf_dir, encoder_configs
from lightning_cse.config.check import check
from lightning_cse.config.compose import APPENDED, CompositionError, name_encoder, plain_line, register
from lightning_cse.errors import ConfigError, report, reported, user_error

_CHOICE = re.compile(rf"(?s)^\+{{0,2}}((?P<group>{'|'.join(APPENDED)})=.*)$")


@reported
def launch(task: str, config_name: str, args: Sequence[str] | None = None) -> int:
    """Read the command line, check it, and run a task with the composed config, once or once a point of a sweep.

    The task is ``"module:function"``, imported after the check; it returns a `lightning_cse.runs.Outcome` or None. The
    points of a sweep run on after one has failed; a table of them is printed at the end.
    """
    argv, full_error = sys.argv, os.environ.get("HYDRA_FULL_ERROR", "0")
    os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra raises its exceptions, in place of printing them
    runner = Runner(task, config_name, verbose=full_error == "1")
    try:
        sys.argv = [argv[0], *ordered(as_custom(argv[1:] if args is None else args))]
        hydra.main(version_base="1.3", config_path=str(conf_dir()), config_name=config_name)(runner)()
    except CompositionError as error:
        from lightning_cse.config.suggestions import explain

        if any(arg.startswith(("--config-", "-cd", "-cp", "-cn")) for arg in argv):  # configs that we do not know
            raise user_error(error) or ConfigError([plain_line(error)]) from error
        given = itertools.takewhile(lambda arg: arg[:1] != "-", sys.argv[1:])
        raise user_error(error) or explain(given, config_name, error) from error
    finally:
        sys.argv, os.environ["HYDRA_FULL_ERROR"] = argv, full_error
        sweep, compose.current_sweep = compose.current_sweep, None
        code = sweep.finish() if sweep else 0
    if runner.error is not None:
        raise runner.error
    return code


class Runner:
    """The task as Hydra calls it. An instance and not a closure, since launchers pickle it into their workers."""

    def __init__(self, task: str, config_name: str, *, verbose: bool) -> None:
        register()
        self.task, self.config_name, self.verbose = task, config_name, verbose
        self.error: Exception | None = None

    def __call__(self, cfg: DictConfig) -> Any:
        """Check the config, import the task and run it; in a sweep, return what became of the point."""
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # its threads may deadlock once a data loader forks
        register()
        overrides = list(map(str, HydraConfig.get().overrides.task))
        try:
            name_encoder(cfg)
            check(cfg, self.config_name, overrides, all_read=not compose.in_sweep())
            compose.take_gpu()
            module, _, function = self.task.partition(":")
            result = getattr(importlib.import_module(module), function)(cfg)
        except Exception as error:  # noqa: BLE001 - reported by the handler, or in the sweep's table
            if not compose.in_sweep():
                self.error = error
                return None
            sys.stderr.write(f"{' '.join(overrides)}: ")
            report(error, verbose=self.verbose)
            result = error
        if not compose.in_sweep():
            return None
        from lightning_cse.runs.sweep import Point

        return Point.of(overrides, result)


def as_custom(args: Iterable[str]) -> list[str]:
    """Write ``encoder=<folder or hub id>`` as ``encoder=custom encoder.source=...``; of several that is a sweep."""
    written = []
    for arg in args:
        key, _, given = arg.partition("=")
        values = [given.strip("'\"")] if given[:1] in ("'", '"') else given.split(",")
        unnamed = [one for one in values if key == "encoder" and one not in encoder_configs()]
        places = [one for one in unnamed if "/" in one or (Path(one) / "config.json").is_file()]
        if places and places != values:
            raise ConfigError([f"{arg}: a sweep takes options of conf/encoder, or folders and hub ids, not both"])
        written += ["encoder=custom", f"encoder.source={','.join(map(repr, places))}"] if places else [arg]
    return written


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
