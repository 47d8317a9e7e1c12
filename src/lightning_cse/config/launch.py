"""From a command line or a program to a task: the entry point of every Hydra command.

Nothing heavy is imported until the config is checked, so ``--help`` and typos are answered at once.
"""

import contextlib
import importlib
import itertools
import logging
import os
import pickle
import re
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import hydra
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.singleton import Singleton
from omegaconf import DictConfig, open_dict

from lightning_cse.config import compose, conf_dir, encoder_configs
from lightning_cse.config.check import check, devices
from lightning_cse.config.compose import (
    APPENDED,
    CompositionError,
    name_encoder,
    parse,
    plain_line,
    register,
)
from lightning_cse.errors import ConfigError, report, reported, stop_signals, user_error

_ONE_RUN = "one call from Python is one run; call it in a loop, or sweep with python -m lightning_cse.train"
_RESULT = "LIGHTNING_CSE_RESULT"  # the file to which a separate process writes the result of a run
_CHOICE = re.compile(rf"(?s)^\+{{0,2}}((?P<group>{'|'.join(APPENDED)})=.*)$")


@reported
def launch(task: str, config_name: str, args: Sequence[str] | None = None) -> int:
    """Read the command line, check it, and run a task with the composed config: once, or once per point of a sweep.

    The task is ``"module:function"``, imported after the check; it returns a `lightning_cse.runs.Outcome` or None. A
    sweep continues after a point has failed; a table of the points is printed at the end.
    """
    argv, full_error = sys.argv, os.environ.get("HYDRA_FULL_ERROR", "0")
    os.environ["HYDRA_FULL_ERROR"] = (
        "1"  # makes Hydra raise its exceptions instead of printing them
    )
    runner = Runner(task, config_name, verbose=full_error == "1")
    try:
        sys.argv = [argv[0], *ordered(as_custom(argv[1:] if args is None else args))]
        with _explained(sys.argv[1:], config_name):
            hydra.main(version_base="1.3", config_path=str(conf_dir()), config_name=config_name)(
                runner
            )()
    finally:
        sys.argv, os.environ["HYDRA_FULL_ERROR"] = argv, full_error
        sweep, compose.current_sweep = compose.current_sweep, None
        code = sweep.finish() if sweep else 0
    if runner.error is not None:
        raise runner.error
    return code


def call(task: str, config_name: str, overrides: Sequence[str]) -> Any:
    """Run a task in a program: return its result, raise its errors, and leave Hydra as it was."""
    if isinstance(overrides, str):
        raise ConfigError([f"overrides: must be a list such as [{overrides!r}], got one string"])
    words, before = ordered(as_custom(overrides)), Singleton.get_state()
    try:
        GlobalHydra.instance().clear()  # for a program that was itself started by Hydra
        with hydra.initialize_config_dir(str(conf_dir()), config_name, "1.3"), _heard():
            register()
            with _explained(words, config_name):
                for word in words:
                    if (
                        word.startswith(("-", "+sweep=", "hydra.mode="))
                        or parse(word).is_sweep_override()
                    ):
                        raise ConfigError([f"{word}: {_ONE_RUN}"])
                cfg = hydra.compose(config_name, words, return_hydra_config=True)
            HydraConfig.instance().set_config(cfg)
            with open_dict(cfg):
                del cfg["hydra"]
            return Runner(task, config_name, verbose=False).run(cfg)
    finally:
        Singleton.set_state(before)


@contextlib.contextmanager
def _explained(words: Sequence[str], config_name: str) -> Iterator[None]:
    """Replace Hydra's error for words that do not compose by one that explains what is wrong with them."""
    try:
        yield
    except CompositionError as error:
        from lightning_cse.config.suggestions import explain

        if any(
            word.startswith(("--config-", "-cd", "-cp", "-cn")) for word in words
        ):  # configs that we do not know
            raise user_error(error) or ConfigError([plain_line(error)]) from error
        given = itertools.takewhile(lambda word: word[:1] != "-", words)
        raise user_error(error) or explain(given, config_name, error) from error


@contextlib.contextmanager
def _heard() -> Iterator[None]:
    """Print the progress where the program has not set up logging."""
    root, ours = logging.getLogger(), logging.getLogger("lightning_cse")
    handlers, level = list(root.handlers), ours.level
    if not handlers:
        logging.basicConfig(stream=sys.stdout, format="%(message)s")
        ours.setLevel(logging.INFO)
    try:
        yield
    finally:
        ours.setLevel(level)
        root.handlers[:] = handlers


class Runner:
    """The task as Hydra calls it: an instance and not a closure, since launchers pickle it for their workers."""

    def __init__(self, task: str, config_name: str, *, verbose: bool) -> None:
        register()
        self.task, self.config_name, self.verbose = task, config_name, verbose
        self.error: Exception | None = None

    def __call__(self, cfg: DictConfig) -> Any:
        """Run the task, and keep its error; in a sweep, return the outcome of the point."""
        overrides = list(map(str, HydraConfig.get().overrides.task))
        try:
            result = self.run(cfg)
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

    def run(self, cfg: DictConfig) -> Any:
        """Check the config, import the task and return its result."""
        os.environ.setdefault(
            "TOKENIZERS_PARALLELISM", "false"
        )  # its threads may deadlock once a data loader forks
        register()
        for folder in _own_folders():
            from lightning_cse.data.corpora import register_corpora

            register_corpora(folder)
        name_encoder(cfg)
        overrides = list(map(str, HydraConfig.get().overrides.task))
        check(cfg, self.config_name, overrides, all_read=not compose.in_sweep())
        if self.config_name == "train" and devices(cfg) > 1 and not _is_own_process():
            return _in_own_process(overrides)
        compose.take_gpu()
        module, _, function = self.task.partition(":")
        return _told(getattr(importlib.import_module(module), function), cfg)


def _is_own_process() -> bool:
    """Whether this process was started for the run alone, so that Lightning may start its command line again."""
    spec = sys.modules["__main__"].__spec__
    return spec is not None and spec.name == "lightning_cse.train" and not compose.in_sweep()


def _own_folders() -> list[str]:
    """Return the folders given with ``--config-dir``."""
    sources = HydraConfig.get().runtime.config_sources
    return [source.path for source in sources if source.provider == "command-line"]


def _in_own_process(overrides: Sequence[str]) -> Any:
    """Run a point in a separate process: return its result, raise its errors, and pass signals on."""
    folders = [f"--config-dir={folder}" for folder in _own_folders()]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "result")
        command = [
            sys.executable,
            "-m",
            "lightning_cse.train",
            *overrides,
            "hydra.mode=RUN",
            *folders,
        ]
        process = subprocess.Popen(
            command, env=os.environ | {_RESULT: str(file)}, start_new_session=True
        )
        previous = {}
        if threading.current_thread() is threading.main_thread():
            forward = lambda signum, _: os.killpg(process.pid, signum)  # noqa: E731 - to all processes of the run
            previous = {one: signal.signal(one, forward) for one in stop_signals()}
        try:
            code = process.wait()
        finally:
            for signum, handler in previous.items():
                signal.signal(signum, handler)
        if not file.is_file():
            raise RuntimeError(
                f"the process of the run ended with exit code {code}: {' '.join(command)}"
            )
        result = pickle.loads(file.read_bytes())  # noqa: S301 - from our own process
    if isinstance(result, BaseException):
        raise result
    return result


def _told(task: Callable[[DictConfig], Any], cfg: DictConfig) -> Any:
    """Run a task; in a process that `_in_own_process` started, write the result or error to its file."""
    file = os.environ.pop(_RESULT, None)  # processes that this one starts must not inherit it
    if file is None:
        return task(cfg)
    try:
        result = task(cfg)
    except BaseException as error:  # noqa: BLE001 - raised again by the waiting process
        Path(file).write_bytes(pickle.dumps(error))
        sys.exit(1)
    Path(file).write_bytes(pickle.dumps(result))
    return result


def as_custom(args: Iterable[str]) -> list[str]:
    """Write ``encoder=<folder or hub id>`` as ``encoder=custom encoder.source=...``; several of them are a sweep."""
    written = []
    for arg in args:
        key, _, given = arg.partition("=")
        values = [given.strip("'\"")] if given[:1] in ("'", '"') else given.split(",")
        unnamed = [one for one in values if key == "encoder" and one not in encoder_configs()]
        places = [one for one in unnamed if "/" in one or (one and Path(one).is_dir())]
        if places and places != values:
            raise ConfigError(
                [f"{arg}: a sweep takes either options of conf/encoder or folders and hub ids"]
            )
        written += (
            ["encoder=custom", f"encoder.source={','.join(map(repr, places))}"] if places else [arg]
        )
    return written


def ordered(args: Sequence[str]) -> list[str]:
    """Put experiment, profile, sweep and debug first, in this order and with their plus, and flags last.

    Examples:
        >>> ordered(["-m", "seed=0,1", "+debug=tiny", "experiment=simcse"])
        ['+experiment=simcse', '+debug=tiny', 'seed=0,1', '-m']
    """

    def place(arg: str) -> int:
        is_override = arg[:1] != "-" and ("=" in arg or arg[:1] == "~")
        match = _CHOICE.match(arg)
        return APPENDED.index(match["group"]) if match else len(APPENDED) + (not is_override)

    return [_CHOICE.sub(r"+\1", arg) for arg in sorted(args, key=place)]
