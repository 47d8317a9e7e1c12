"""Hydra through its public interface: configs, options of groups, resolvers, and sweeps."""

import contextlib
import functools
import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hydra
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.core.utils import JobReturn
from hydra.errors import HydraException
from hydra.experimental.callback import Callback
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError  # type: ignore[import-untyped,unused-ignore]

from lightning_cse.config import conf_dir, encoder_name
from lightning_cse.errors import ConfigError
from lightning_cse.runs.hashing import SAMPLE_DIR

if TYPE_CHECKING:
    from lightning_cse.runs.sweep import Sweep

# The groups that no defaults list names: each is appended with a plus, and later ones override
# earlier ones.
APPENDED = ("experiment", "profile", "adapter", "sweep", "debug")
CONFIG_DIR = "LIGHTNING_CSE_CONFIG_DIR"
"""The environment variable with a folder of further configs; a plugin gives it to Hydra."""
SHARED = ("corpora", "limits", "own", "transfer")  # read by other nodes alone
PROVIDER = "lightning_cse"
"""The name under which Hydra lists that folder."""
# Errors that Hydra raises for overrides or configs that do not compose.
CompositionError = (HydraException, OmegaConfBaseException, YAMLError, ValueError)


# Configs and their groups --------------------------------------------------------------------


@functools.cache
def compose(config_name: str, *overrides: str) -> DictConfig:
    """Compose a config with Hydra's own node; the result is shared, so do not change it."""
    register()
    with contextlib.ExitStack() as stack:
        if not GlobalHydra.instance().is_initialized():
            stack.enter_context(hydra.initialize_config_dir(str(conf_dir()), version_base="1.3"))

        return hydra.compose(config_name, list(overrides), return_hydra_config=True)


def use_config_dir(folder: Path) -> None:
    """Read the configs of a folder beside those of ``conf/``, here and in processes started
    later.
    """
    if not folder.is_dir():
        raise ConfigError([f"--config-dir: there is no folder {folder.absolute()}"])

    os.environ[CONFIG_DIR] = str(folder.absolute())
    compose.cache_clear()


def compose_run(config_name: str, overrides: Iterable[str]) -> DictConfig:
    """Compose a config without Hydra's node: once per set of group choices, then with plain values.

    Hydra takes half a second; many runs of a table share the choices. Deletions, additions and
    values for a package, which are rare, are left to Hydra.
    """
    parsed = [parse(line) for line in overrides]
    values = [one for one in parsed if not is_choice(one)]
    if any(
        one.is_add() or one.is_delete() or one.is_sweep_override() or one.package for one in values
    ):
        values = []

    words = [str(one.input_line) for one in parsed if not values or is_choice(one)]
    cfg = without_hydra(compose(config_name, *words))
    OmegaConf.set_struct(cfg, True)
    for one in values:
        OmegaConf.update(
            cfg, one.key_or_group, one.value(), merge=True, force_add=one.is_force_add()
        )

    complete(cfg)

    return cfg


def without_hydra(cfg: DictConfig) -> DictConfig:
    """Return a copy of a config without Hydra's node."""
    return OmegaConf.masked_copy(cfg, [str(key) for key in cfg if key != "hydra"])


def options(group: str) -> tuple[str, ...]:
    """Return the options of a group, without parts of others (``_name``)."""
    names = {path.stem for root in _roots() for path in Path(root, group).glob("*.yaml")}
    return tuple(sorted(name for name in names if not name.startswith("_")))


def _roots() -> list[Path]:
    """Return the folders of configs: ``conf/``, and that of --config-dir."""
    own = os.environ.get(CONFIG_DIR)
    return [conf_dir(), Path(own)] if own else [conf_dir()]


@functools.cache
def parse(line: str) -> Override:
    """Parse one override, or raise Hydra's `OverrideParseException`."""
    return OverridesParser.create().parse_override(line)


def is_group(name: str) -> bool:
    """Whether a name is that of a config group: of ``conf/``, --config-dir or Hydra."""
    if "/" in name or "@" in name:
        return True

    return name.isidentifier() and any(Path(root, name).is_dir() for root in _roots())


def is_choice(override: Override) -> bool:
    """Whether an override chooses an option of a group."""
    return not isinstance(override.value(), dict) and is_group(override.key_or_group)


def plain_line(error: BaseException) -> str:
    """Return a message of Hydra or OmegaConf, with its cause's, in one line."""
    text = f"{error}\n{error.__cause__ or ''}"
    trailers = ("full_key:", "object_type=", "reference_type=")
    lines = [line.strip() for line in text.splitlines()]

    return " ".join(line for line in lines if line and not line.startswith(trailers))


# Resolvers -----------------------------------------------------------------------------------


def register() -> None:
    """Register the resolvers ``recipe``, ``sample_dir`` and ``needed``; calling it again changes
    nothing.
    """
    OmegaConf.register_new_resolver("recipe", _recipe, replace=True)
    OmegaConf.register_new_resolver("sample_dir", lambda: str(SAMPLE_DIR), replace=True)
    OmegaConf.register_new_resolver("needed", _needed, replace=True)


def _needed(what: str) -> None:
    """Raise ConfigError: only the user knows this value, and ``what`` says how to give it."""
    raise ConfigError([f"this experiment needs {what}"])


def _recipe(key: str, *, _root_: DictConfig) -> Any:
    """Return ``recipe.<encoder.name>.<key>``, else ``recipe.default.<key>``."""
    recipes = _recipes(_root_)
    name = recipe_name(_root_)
    numbers = recipes.get("default", {}) | recipes.get(name, {})

    if key in numbers:
        return numbers[key]

    raise ConfigError([f"${{recipe:{key}}}: recipe.{name} and recipe.default lack {key}"])


def recipe_name(cfg: DictConfig) -> str:
    """Return the name of a config's recipe: its encoder's name, or ``default``."""
    name = str(OmegaConf.select(cfg, "encoder.name", default="default"))
    return name if name in _recipes(cfg) else "default"


def _recipes(cfg: DictConfig) -> dict[str, dict[str, Any]]:
    recipes: Any = OmegaConf.to_container(cfg.get("recipe") or OmegaConf.create(), resolve=True)
    return {name: numbers for name, numbers in recipes.items() if numbers}


# What follows from a composed config ---------------------------------------------------------


def complete(cfg: DictConfig) -> None:
    """Name the encoder of a composed config, and remove tests of ``suite=own`` without files."""
    name_encoder(cfg)
    suite = cfg.get("suite") or {}
    without_files = [
        name
        for name, task in suite.items()
        if isinstance(task, DictConfig) and task.get("files", "") is None
    ]

    with open_dict(cfg):
        for name in without_files:
            del suite[name]


def unread(cfg: DictConfig, overrides: Iterable[str]) -> list[str]:
    """Return the overridden keys below `SHARED` that no node of a completed config refers to."""
    text = OmegaConf.to_yaml(cfg)
    keys = [line.lstrip("+").partition("=")[0] for line in overrides]
    found = []

    for key in keys:
        node, *names = key.split(".")
        if node in SHARED and names and f"${{{node}.{names[0]}}}" not in text:
            found.append(key)

    return found


def name_encoder(cfg: DictConfig) -> None:
    """Name an encoder of another source than its option's after its folder or hub id."""
    node: Any = cfg.get("encoder") or {}
    source = node.get("source")
    option = conf_dir() / "encoder" / f"{node.get('name')}.yaml"

    if not source or not option.is_file():
        return

    own: Any = OmegaConf.load(option)
    if source == own.get("source"):
        return

    folder = Path(source).expanduser()
    node.name = encoder_name(source)
    if folder.is_dir():
        node.source = str(folder.absolute())

    if node.package == own.package:
        node.package = None


# Sweeps --------------------------------------------------------------------------------------

current_sweep: "Sweep | None" = None
"""The sweep of this process; Hydra gives its callers no other access to it."""


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
