"""Hydra through its public interface: composed configs, options of groups, the project's resolvers, and sweeps."""

import contextlib
import functools
import os
import re
import socket
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import hydra
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.core.utils import JobReturn
from hydra.errors import HydraException
from hydra.experimental.callback import Callback
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError  # type: ignore[import-untyped,unused-ignore]

from lightning_cse.config import SAMPLE_DIR, conf_dir, encoder_name
from lightning_cse.errors import ConfigError, did_you_mean

if TYPE_CHECKING:
    from lightning_cse.runs.sweep import Sweep

# The groups that no defaults list names: each is appended with a plus, and later ones override earlier ones.
APPENDED: Final = ("experiment", "profile", "sweep", "debug")
# Keys that are set by choosing an option of a group.
CHOSEN: Final = {"name": "experiment", "suite": "suite", "pattern": "pattern", "data": "data"}
CONFIG_DIR: Final = "LIGHTNING_CSE_CONFIG_DIR"
"""The environment variable with a folder of further configs; ``hydra_plugins`` hands it to Hydra."""
# Errors that Hydra raises for overrides or configs that do not compose.
CompositionError = (HydraException, OmegaConfBaseException, YAMLError, ValueError)


def _hydra() -> contextlib.AbstractContextManager[None]:
    """Return a context in which Hydra reads ``conf/``; inside a command, Hydra as the command set it up."""
    register()
    running = GlobalHydra.instance().is_initialized()
    return (
        contextlib.nullcontext()
        if running
        else hydra.initialize_config_dir(str(conf_dir()), version_base="1.3")
    )


@functools.cache
def compose(config_name: str, *overrides: str) -> DictConfig:
    """Compose a primary config with overrides, Hydra's own node included; the result is shared, so do not change it."""
    with _hydra():
        return hydra.compose(config_name, list(overrides), return_hydra_config=True)


@functools.cache
def options(group: str) -> tuple[str, ...]:
    """Return the options of a group, except for parts of others (``_name``); none if there is no such group."""
    with _hydra():
        found = GlobalHydra.instance().config_loader().get_group_options(group)
    return tuple(sorted(name for name in found if not name.startswith("_")))


def use_config_dir(folder: Path) -> None:
    """Read the configs of a folder beside those of ``conf/``, in this process and in those that it starts."""
    if not folder.is_dir():
        raise ConfigError([f"--config-dir: there is no folder {folder.absolute()}"])
    os.environ[CONFIG_DIR] = str(folder.absolute())
    for cached in (compose, options, _composed):
        cached.cache_clear()


def compose_run(config_name: str, overrides: Iterable[str]) -> DictConfig:
    """Compose a config without Hydra's node: once for each set of group choices, with plain values filled in after.

    Hydra takes half a second; many runs of a table share the choices. Deletions, additions and values for a package,
    which are rare, are left to Hydra.
    """
    parsed = [parse(line) for line in overrides]
    plain = [one for one in parsed if not is_choice(one)]
    if any(
        one.is_delete() or one.is_add() or one.is_sweep_override() or one.package for one in plain
    ):
        return _composed(config_name, tuple(str(one.input_line) for one in parsed)).copy()
    choices = [str(one.input_line) for one in parsed if is_choice(one)]
    cfg = _composed(config_name, tuple(choices)).copy()
    OmegaConf.set_struct(cfg, True)
    for one in plain:
        added = one.is_force_add()
        OmegaConf.update(cfg, one.key_or_group, one.value(), merge=True, force_add=added)
    return cfg


@functools.cache
def _composed(config_name: str, overrides: tuple[str, ...]) -> DictConfig:
    cfg = compose(config_name, *overrides)
    return OmegaConf.masked_copy(cfg, [str(key) for key in cfg if key != "hydra"])


def describe(group: str, option: str) -> str:
    """Return the first line of the comment that opens an option's file."""
    file = conf_dir() / group / f"{option}.yaml"
    lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
    return next(
        (line.strip("# ") for line in lines if line.startswith("#") and "@package" not in line), ""
    )


@functools.cache
def parse(line: str) -> Override:
    """Parse one override, or raise Hydra's `OverrideParseException`."""
    return OverridesParser.create().parse_override(line)


def is_choice(override: Override) -> bool:
    """Whether an override chooses an option of a group."""
    group = override.key_or_group
    return "." not in group and not isinstance(override.value(), dict) and bool(options(group))


def plain_line(error: BaseException) -> str:
    """Return a message of Hydra or OmegaConf, with its cause's, in one line and without their trailers."""
    lines = [
        line.strip() for part in (error, error.__cause__ or "") for line in str(part).splitlines()
    ]
    return " ".join(
        line
        for line in lines
        if not line.startswith(("full_key:", "object_type=", "reference_type="))
    )


def register() -> None:
    """Register ``${recipe:...}`` and ``${sample_dir:}``; calling it again changes nothing."""
    OmegaConf.register_new_resolver("recipe", _recipe, replace=True)
    OmegaConf.register_new_resolver("sample_dir", lambda: str(SAMPLE_DIR), replace=True)


def _recipe(key: str, *, _root_: DictConfig) -> Any:
    """Return ``recipe.<encoder.name>.<key>``, such as a paper's value for BERT, else ``recipe.default.<key>``."""
    recipes, name = _recipes(_root_), recipe_name(_root_)
    numbers = recipes.get("default", {}) | recipes.get(name, {})
    if key in numbers:
        return numbers[key]
    near = did_you_mean(key, {str(known) for node in recipes.values() for known in node})
    raise ConfigError(
        [f"${{recipe:{key}}}: neither recipe.{name}.{key} nor recipe.default.{key} exists{near}"]
    )


def recipe_name(cfg: DictConfig) -> str:
    """Return the name of the recipe that a config takes its numbers from: its encoder's name, or ``default``."""
    name = str(OmegaConf.select(cfg, "encoder.name", default="default"))
    return name if name in _recipes(cfg) else "default"


def _recipes(cfg: DictConfig) -> dict[str, dict[str, Any]]:
    recipes: Any = OmegaConf.to_container(cfg.get("recipe") or OmegaConf.create(), resolve=True)
    return {name: numbers for name, numbers in recipes.items() if numbers}


def name_encoder(cfg: DictConfig) -> None:
    """Rename an encoder whose source is not that of its option, to the folder's name or its name on the hub."""
    node: Any = cfg.get("encoder") or {}
    option = conf_dir() / "encoder" / f"{node.get('name')}.yaml"
    if (source := node.get("source")) and option.is_file():
        own: Any = OmegaConf.load(option)
        if source != own.get("source"):
            folder = Path(source).expanduser()
            node.name, node.source = (
                encoder_name(source),
                str(folder.absolute()) if folder.is_dir() else source,
            )
            node.package = None if node.package == own.package else node.package


def portable(overrides: Iterable[Any]) -> list[str]:
    """Return overrides for a record, in which the folder of a model or an encoder is reduced to its name."""
    return [
        re.sub(r"^((?:model|encoder\.source)=['\"]?)[/~].*/(?=[^/])", r"\1", str(one))
        for one in overrides
    ]


current_sweep: "Sweep | None" = None
"""The sweep of this process, set by the sweeper, since Hydra gives its callers no other access to it."""
_gpu: Any = None  # the lock of the GPU that this process uses, until it ends


def in_sweep() -> bool:
    """Whether the current job is a point of a sweep."""
    return HydraConfig.initialized() and HydraConfig.get().mode == RunMode.MULTIRUN


class Outcomes(Callback):
    """Write ``<hydra.sweep.dir>/<number>.json`` when a point ends, in the process that runs it."""

    def on_job_end(self, config: DictConfig, job_return: JobReturn, **kwargs: Any) -> None:
        """Write the outcome of the point; a point that never gets here was killed."""
        if in_sweep() and hasattr(job_return.return_value, "write"):
            folder = Path(config.hydra.runtime.cwd, str(config.hydra.sweep.dir))
            job_return.return_value.write(folder / f"{config.hydra.job.num}.json")


def take_gpu() -> None:
    """Make ``cuda`` mean another GPU in each worker of a joblib sweep, as long as there are enough."""
    global _gpu  # noqa: PLW0603 - a worker runs many points, and keeps its GPU
    if _gpu is not None or not in_sweep() or "joblib" not in HydraConfig.get().launcher._target_:
        return
    import torch
    from filelock import FileLock, Timeout

    folder = Path(HydraConfig.get().runtime.cwd, HydraConfig.get().sweep.dir)
    for device in range(torch.cuda.device_count()):
        lock = FileLock(folder / f"gpu-{socket.gethostname()}-{device}.lock", timeout=0)
        try:
            lock.acquire()
        except Timeout:
            continue
        _gpu = lock
        torch.cuda.set_device(device)  # unlike environment variables, it can be set at any time
        return
