"""Hydra through its public interface: configs, options of groups, and resolvers."""

import contextlib
import functools
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import hydra
from hydra.core.config_loader import ConfigLoader
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.core.plugins import Plugins
from hydra.errors import HydraException
from hydra.plugins.search_path_plugin import SearchPathPlugin
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError  # type: ignore[import-untyped,unused-ignore]

from lightning_cse.config.own_data import add_test_sets, replace_values
from lightning_cse.config.recipe import recipe_value
from lightning_cse.errors import ConfigError
from lightning_cse.paths import SAMPLE_DIR, conf_dir, encoder_name

APPENDED = ("experiment", "profile", "adapter", "sweep", "debug")
"""The groups that no defaults list names, in the order in which they override each other."""
CONFIG_DIRS = ("command-line", "config-dir")
"""The names under which Hydra lists the folders of --config-dir: its own option, and ours."""
# Errors that Hydra raises for overrides or configs that do not compose; a TypeError for an option
# that is no text, a RecursionError for a YAML alias or a value that contains itself.
CompositionError = (
    HydraException,
    OmegaConfBaseException,
    YAMLError,
    ValueError,
    TypeError,
    AttributeError,
    AssertionError,
    RecursionError,
)


# Configs and their groups --------------------------------------------------------------------


@contextlib.contextmanager
def initialized() -> Iterator[ConfigLoader]:
    """Have Hydra read ``conf/``, unless it is initialised, and yield what reads the configs."""
    with contextlib.ExitStack() as stack:
        if not GlobalHydra.instance().is_initialized():
            stack.enter_context(hydra.initialize_config_dir(str(conf_dir()), version_base="1.3"))

        yield GlobalHydra.instance().config_loader()


@functools.cache
def compose(config_name: str, *overrides: str) -> DictConfig:
    """Compose a config with Hydra's own node; the result is shared, so do not change it."""
    with initialized():
        return hydra.compose(config_name, list(overrides), return_hydra_config=True)


def use_config_dir(folder: Path) -> None:
    """Compose with the configs of a folder beside those of ``conf/``, for commands that Hydra does
    not start.
    """
    if not folder.is_dir():
        raise ConfigError([f"--config-dir: there is no folder {folder.absolute()}"])

    class OwnConfigs(SearchPathPlugin):
        def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
            search_path.append("config-dir", f"file://{folder.absolute()}")

    Plugins.instance().register(OwnConfigs)
    compose.cache_clear()


def compose_run(config_name: str, overrides: Iterable[str]) -> DictConfig:
    """Compose and complete a config, without Hydra's node."""
    words = list(overrides)
    with initialized():
        cfg = hydra.compose(config_name, words)

    complete(cfg, words)

    return cfg


def without_hydra(cfg: DictConfig) -> DictConfig:
    """Return a copy of a config without Hydra's node."""
    return OmegaConf.masked_copy(cfg, [str(key) for key in cfg if key != "hydra"])


def options(group: str) -> list[str]:
    """Return the options of a group, without parts of others (``_name``)."""
    with initialized() as loader:
        return [name for name in loader.get_group_options(group) if not name.startswith("_")]


def parse(line: str) -> Override:
    """Parse one override, or raise Hydra's `OverrideParseException`."""
    return OverridesParser.create().parse_overrides([line])[0]


def plain_line(error: BaseException) -> str:
    """Return a message of Hydra or OmegaConf, with its cause's, in one line."""
    text = f"{error}\n{error.__cause__ or ''}"
    trailers = ("full_key:", "object_type=", "reference_type=", "Config search path", "provider=")
    lines = [line.strip() for line in text.splitlines()]

    return " ".join(line for line in lines if line and not line.startswith(trailers))


# Resolvers -----------------------------------------------------------------------------------


def _needed(advice: str) -> None:
    """Raise ConfigError: only the user knows this value, and ``advice`` says how to give it."""
    raise ConfigError([f"this experiment needs {advice}"])


OmegaConf.register_new_resolver("recipe", recipe_value, replace=True)
OmegaConf.register_new_resolver("sample_dir", lambda: str(SAMPLE_DIR), replace=True)
OmegaConf.register_new_resolver("needed", _needed, replace=True)


# What follows from a composed config ---------------------------------------------------------


def complete(cfg: DictConfig, overrides: Iterable[str]) -> None:
    """Name the encoder of a composed config, add your own test sets to its suite, and set what data
    of your own replaces unless an override sets it.
    """
    with contextlib.suppress(OmegaConfBaseException), open_dict(cfg):  # `check` reports it
        _name_encoder(cfg)
        add_test_sets(cfg)
        replace_values(cfg, overrides)


def _name_encoder(cfg: DictConfig) -> None:
    """Name an encoder of another source than its option's after its folder or hub id."""
    node = cfg.get("encoder")
    if not isinstance(node, DictConfig) or not isinstance(source := node.get("source"), str):
        return

    file = conf_dir() / "encoder" / f"{node.get('name')}.yaml"
    option: Any = OmegaConf.load(file) if file.is_file() else node
    if source == option.get("source"):
        return

    node.name = encoder_name(source)
    if Path(source).expanduser().is_dir():
        node.source = str(Path(source).expanduser().absolute())

    if node.get("package") == option.package:
        node.package = None


# The current job ----------------------------------------------------------------------------


def task_overrides() -> list[str]:
    """Return the overrides of the current job, as they were written; none outside Hydra."""
    if not HydraConfig.initialized():
        return []

    words: Any = OmegaConf.to_container(HydraConfig.get().overrides.task)

    return list(words)


def in_sweep() -> bool:
    """Whether the current job is a point of a sweep."""
    return HydraConfig.initialized() and HydraConfig.get().mode == RunMode.MULTIRUN
