"""Configs as Hydra composes them, by its public interface: the options of groups, and the resolvers of the project."""

from __future__ import annotations

import contextlib
import functools
from pathlib import Path
from typing import Any, Final

import hydra
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError  # type: ignore[import-untyped,unused-ignore]

from lightning_cse.config import conf_dir
from lightning_cse.errors import ConfigError, did_you_mean

APPENDED: Final = ("experiment", "profile", "sweep", "debug")
"""The groups that no defaults list names: each is appended with a plus, and a later one wins over an earlier one."""

CHOSEN: Final = {"name": "experiment", "suite": "suite", "pattern": "pattern", "data": "data"}
"""Keys that are set by choosing an option of a group."""

CompositionError = (HydraException, OmegaConfBaseException, YAMLError, ValueError)
"""What Hydra raises for overrides or configs that do not compose."""


def _hydra() -> contextlib.AbstractContextManager[None]:
    """Hydra with ``conf/``; inside a command, that of the command."""
    register()
    running = GlobalHydra.instance().is_initialized()
    return contextlib.nullcontext() if running else hydra.initialize_config_dir(str(conf_dir()), version_base="1.3")


@functools.cache
def compose(config_name: str, *overrides: str) -> DictConfig:
    """Compose a primary config with overrides, Hydra's own node included; the result is shared, so do not change it."""
    with _hydra():
        return hydra.compose(config_name, list(overrides), return_hydra_config=True)


@functools.cache
def options(group: str) -> tuple[str, ...]:
    """Return the options of a group without parts of others (``_name``); none if there is no such group."""
    with _hydra():
        found = GlobalHydra.instance().config_loader().get_group_options(group)
    return tuple(sorted(name for name in found if not name.startswith("_")))


def describe(group: str, option: str) -> str:
    """Return the first line of the comment that opens an option's file."""
    file = conf_dir() / group / f"{option}.yaml"
    lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
    return next((line.strip("# ") for line in lines if line.startswith("#") and "@package" not in line), "")


def parse(line: str) -> Override:
    """Parse one override, or raise Hydra's `OverrideParseException`."""
    return OverridesParser.create().parse_override(line)


def is_choice(override: Override) -> bool:
    """Whether an override chooses an option of a group."""
    group = override.key_or_group
    return "." not in group and not isinstance(override.value(), dict) and bool(options(group))


def plain_line(error: BaseException) -> str:
    """Return a message of Hydra or OmegaConf, with its cause's, in one line and without their trailers."""
    lines = [line.strip() for part in (error, error.__cause__ or "") for line in str(part).splitlines()]
    return " ".join(line for line in lines if not line.startswith(("full_key:", "object_type=", "reference_type=")))


def register() -> None:
    """Register ``${recipe:...}`` and ``${sample_dir:}``; calling it again changes nothing."""
    OmegaConf.register_new_resolver("recipe", _recipe, replace=True)
    OmegaConf.register_new_resolver("sample_dir", _sample_dir, replace=True)


def _recipe(key: str, *, _root_: DictConfig) -> Any:
    """Return ``recipe.<encoder.name>.<key>`` if it is there, else ``recipe.default.<key>``.

    So ``encoder=bert_base`` on the command line brings the paper's learning rate for BERT with it.

    Raises:
        ConfigError: the recipe has the key for neither; OmegaConf wraps it in an exception of its own.
    """
    encoder = OmegaConf.select(_root_, "encoder.name", default="default")
    recipe: Any = OmegaConf.to_container(_root_.get("recipe") or OmegaConf.create(), resolve=True)
    for name in (encoder, "default"):
        if isinstance(numbers := recipe.get(name), dict) and key in numbers:
            return numbers[key]
    near = did_you_mean(key, {str(known) for node in recipe.values() for known in node or ()})
    raise ConfigError([f"${{recipe:{key}}}: neither recipe.{encoder}.{key} nor recipe.default.{key} exists{near}"])


def _sample_dir() -> str:
    """Return the folder of the sample corpus in the package."""
    return str(Path(__file__).resolve().parents[1] / "data" / "sample")
