"""From a command line or a program to a task: the entry point of every Hydra command.

A command line takes this path: its words are put in order (`ordered`), Hydra composes them into a
config, `complete` changes what follows from its values, `check` refuses what cannot run, and the
task is imported and called. A sweep composes every point, and tries its values out before the first
point starts. Nothing heavy is imported until the config is checked, so ``--help`` and typos are
answered at once.
"""

import argparse
import contextlib
import gc
import importlib
import logging
import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hydra
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.singleton import Singleton
from hydra.types import RunMode
from omegaconf import DictConfig, open_dict

from lightning_cse.config import compose, conf_dir, encoder_configs
from lightning_cse.config.check import OPEN, check, devices
from lightning_cse.config.compose import (
    APPENDED,
    PROVIDER,
    CompositionError,
    complete,
    is_group,
    register,
    unread,
    use_config_dir,
)
from lightning_cse.errors import ConfigError, report, reported, user_error

log = logging.getLogger(__name__)

_ONE_RUN = "one call from Python is one run: call it in a loop, or sweep with the command train"
_ONE_TORCHRUN = (
    "torchrun starts the processes of one run: call it once per point, or sweep by "
    "hydra/launcher=submitit_slurm (docs/clusters.md)"
)
_RESULT = "LIGHTNING_CSE_RESULT"  # the file to which a separate process writes the result of a run


@reported
def launch(task: str, config_name: str, args: Sequence[str] | None = None) -> int:
    """Read and check the command line, and run a task: once, or once per point of a sweep.

    The task is ``"module:function"``, imported after the check; it returns a
    `lightning_cse.runs.Outcome` or None. A sweep continues after a point has failed; a table of the
    points is printed at the end.
    """
    argv = sys.argv
    full_error = os.environ.get("HYDRA_FULL_ERROR", "0")
    words = _without_config_dir(argv[1:] if args is None else args)
    register()
    runner = Runner(task, config_name, verbose=full_error == "1", is_command=True)
    command = hydra.main(version_base="1.3", config_path=str(conf_dir()), config_name=config_name)

    try:
        os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra raises its exceptions instead of printing them
        sys.argv = [argv[0], *ordered(as_custom(words))]
        with explained():
            command(runner)()
    finally:
        sys.argv = argv
        os.environ["HYDRA_FULL_ERROR"] = full_error
        sweep = compose.current_sweep
        compose.current_sweep = None
        code = sweep.finish() if sweep else 0

    if runner.error is not None:
        raise runner.error

    return code


def call(task: str, config_name: str, overrides: Sequence[str]) -> Any:
    """Run a task in a program: return its result, raise its errors, and leave Hydra as it was."""
    if isinstance(overrides, str):
        raise ConfigError([f"overrides: must be a list such as [{overrides!r}], got one string"])

    words = ordered(as_custom(overrides))
    before = Singleton.get_state()
    register()
    if not logging.root.handlers:  # the program has not set up logging
        logging.basicConfig(stream=sys.stdout, format="%(message)s")
        logging.getLogger("lightning_cse").setLevel(logging.INFO)

    try:
        GlobalHydra.instance().clear()  # for a program that was itself started by Hydra
        with hydra.initialize_config_dir(str(conf_dir()), config_name, "1.3"):
            with explained():
                cfg = hydra.compose(config_name, words, return_hydra_config=True)

            if cfg.hydra.mode == RunMode.MULTIRUN:
                raise ConfigError([_ONE_RUN])

            HydraConfig.instance().set_config(cfg)
            with open_dict(cfg):
                del cfg["hydra"]

            return Runner(task, config_name).run(cfg)
    finally:
        Singleton.set_state(before)


@contextlib.contextmanager
def explained() -> Iterator[None]:
    """Replace Hydra's error for words that do not compose by a user error."""
    try:
        yield
    except CompositionError as error:
        from lightning_cse.config.suggestions import explain

        raise user_error(error) or explain(error) from error


# A run -----------------------------------------------------------------------------------


@dataclass(eq=False)
class Runner:
    """The task as Hydra calls it; launchers pickle it for their workers."""

    task: str
    config_name: str
    verbose: bool = False
    is_command: bool = False
    error: Exception | None = None

    def __call__(self, cfg: DictConfig) -> Any:
        """Run the task, and keep its error; in a sweep, return the outcome of the point."""
        if not compose.in_sweep():
            try:
                self.run(cfg)
            except Exception as error:  # noqa: BLE001 - `launch` raises it
                self.error = error

            return None

        from lightning_cse.runs.sweep import PointOutcome

        overrides = list(map(str, HydraConfig.get().overrides.task))
        try:
            result = self.run(cfg)
        except Exception as error:  # noqa: BLE001 - in the sweep's table, too
            sys.stderr.write(f"{' '.join(overrides)}: ")
            report(error, verbose=self.verbose)
            result = error

        return PointOutcome.of(overrides, result)

    def run(self, cfg: DictConfig) -> Any:
        """Complete and check the config, import the task and return its result."""
        # The threads of tokenizers may deadlock once a data loader forks.
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
        register()
        for source in HydraConfig.get().runtime.config_sources:
            if source.provider == PROVIDER:
                from lightning_cse.data.corpora import register_corpora

                register_corpora(Path(source.path))

        complete(cfg)
        check(cfg, self.config_name)
        if keys := unread(cfg, map(str, HydraConfig.get().overrides.task)):
            log.warning("no task or data set of this command reads %s", ", ".join(keys))
        if self.config_name == "train" and devices(cfg) > 1 and not _is_own_process():
            if compose.in_sweep() and "TORCHELASTIC_RUN_ID" in os.environ:
                raise ConfigError([_ONE_TORCHRUN])

            return _in_own_process(list(map(str, HydraConfig.get().overrides.task)))

        return _run_task(self._imported(), cfg)

    def _imported(self) -> Callable[[DictConfig], Any]:
        """Import the task, without collecting garbage on the way."""
        module, _, function = self.task.partition(":")
        is_first = self.is_command and module not in sys.modules
        if is_first:
            # Imports leave hardly any garbage, and collections take a sixth of their time.
            gc.disable()

        found: Callable[[DictConfig], Any] = getattr(importlib.import_module(module), function)
        if is_first:
            gc.freeze()  # modules stay to the end; a program's own objects may not
            gc.enable()

        return found


def _is_own_process() -> bool:
    """Whether Lightning may start this process's command line again for another device."""
    spec = sys.modules["__main__"].__spec__
    return spec is not None and spec.name == "lightning_cse.train" and not compose.in_sweep()


def _in_own_process(overrides: Sequence[str]) -> Any:
    """Run a point in a process of its own: return its result, raise its errors."""
    command = [sys.executable, "-m", "lightning_cse.train", *overrides, "hydra.mode=RUN"]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "result")
        process = subprocess.Popen(command, env=os.environ | {_RESULT: str(file)})
        code = wait_for(process)
        if not file.is_file():
            line = " ".join(command)
            raise RuntimeError(f"the process of the run ended with exit code {code}: {line}")

        result = pickle.loads(file.read_bytes())  # noqa: S301 - from our own process

    if isinstance(result, BaseException):
        raise result

    return result


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


def _run_task(task: Callable[[DictConfig], Any], cfg: DictConfig) -> Any:
    """Run a task; in a process of `_in_own_process`, write the result or error to its file."""
    file = os.environ.pop(_RESULT, None)  # processes that this one starts must not inherit it
    if file is None:
        return task(cfg)

    try:
        result = task(cfg)
    except BaseException as error:  # noqa: BLE001 - raised again by the waiting process
        result = error

    Path(file).write_bytes(pickle.dumps(result))
    if isinstance(result, BaseException):
        sys.exit(1)

    return result


# Words of a command line -----------------------------------------------------------------


def as_custom(args: Iterable[str]) -> list[str]:
    """Write ``encoder=<folder or hub id>`` as ``encoder=custom encoder.source=...``."""
    written = []
    for arg in args:
        key, _, value = arg.partition("=")
        encoders = value.strip("'\"").split(",") if key == "encoder" else []
        places = [one for one in encoders if "/" in one or (one and Path(one).is_dir())]

        if places and not set(encoders) & encoder_configs().keys():
            written += ["encoder=custom", f"encoder.source={','.join(map(repr, places))}"]
        else:
            written.append(arg)

    return written


def ordered(args: Iterable[str]) -> list[str]:
    """Put experiment, profile, sweep and debug first, with their plus, and flags last.

    Another plus stays only where it chooses an option of a group, or adds to an open node, whose
    key may exist already. A node is also open if the command line sets its class. Hydra refuses
    unknown keys without a plus.

    Examples:
        >>> ordered(["-m", "seed=0,1", "+debug=tiny", "experiment=simcse", "++force=true"])
        ['+experiment=simcse', '+debug=tiny', 'seed=0,1', 'force=true', '-m']
    """

    def place(arg: str) -> int:
        name = arg.lstrip("+").partition("=")[0]
        if name in APPENDED and "=" in arg:
            return APPENDED.index(name)

        is_override = arg[:1] != "-" and ("=" in arg or arg[:1] == "~")

        return len(APPENDED) if is_override else len(APPENDED) + 1

    words = sorted(args, key=place)
    classes = [name for word in words if (name := _class_set_by(word))]

    return [_with_its_plus(word, (*OPEN, *classes)) for word in words]


def _class_set_by(arg: str) -> str:
    """Return the node whose class an override sets, with a dot at its end; otherwise nothing."""
    name, _, value = arg.lstrip("+").partition("=")
    if name.endswith("._target_"):
        return name.removesuffix("_target_")

    return f"{name}." if value.startswith("{") and "_target_:" in value else ""


def _with_its_plus(arg: str, open_nodes: tuple[str, ...]) -> str:
    """Return an override with a plus only where Hydra needs one."""
    plain = arg.lstrip("+")
    name, equals, value = plain.partition("=")
    if value == "null" and (name in APPENDED or is_group(name)):
        from lightning_cse.config.suggestions import no_option

        raise ConfigError([no_option(name, value)])

    if name in APPENDED and equals:
        return f"+{plain}"

    if is_group(name):
        return arg
    if _class_set_by(arg) == f"{name}.":
        return f"++{plain}"
    if name.startswith(open_nodes):
        return f"++{plain}" if arg != plain else arg

    return plain


def _without_config_dir(words: Iterable[str]) -> list[str]:
    """Read configs of the folder that a command line names by --config-dir; return the rest."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--config-dir", "-cd", type=Path)
    given, rest = parser.parse_known_args(list(words))
    if given.config_dir is not None:
        use_config_dir(given.config_dir)

    return rest
