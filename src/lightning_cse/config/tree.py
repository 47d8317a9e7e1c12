"""The tree of configs as Hydra finds it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

from hydra import version
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.utils import create_config_search_path
from hydra.core.config_search_path import SearchPathQuery
from hydra.core.object_type import ObjectType
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.core.utils import setup_globals
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError  # type: ignore[import-untyped,unused-ignore]

from lightning_cse.config.resolvers import register
from lightning_cse.errors import ConfigError

CompositionError = (HydraException, OmegaConfBaseException, YAMLError, ValueError)
"""What Hydra raises for overrides or configs that do not compose."""


class ConfigTree:
    """The tree of configs as Hydra finds it: its groups, their options, and what they compose to."""

    def __init__(self, folders: list[Path], config_name: str) -> None:
        version.setbase("1.3")
        setup_globals()
        register()
        search_path = create_config_search_path(str(folders[0].resolve()))
        for folder in folders[1:]:
            if not folder.is_dir():
                raise ConfigError([f"--config-dir: there is no folder {folder}"])
            search_path.prepend("command-line", f"file://{folder}", SearchPathQuery(provider="schema"))
        self.folders = folders
        self.name = config_name
        self.loader = ConfigLoaderImpl(search_path)
        self._options: dict[str, list[str]] = {}
        self._composed: dict[tuple[str, ...], DictConfig] = {}
        self._groups: dict[str, bool] = {}
        self._listed: dict[tuple[str, ...], frozenset[str]] = {}

    def parse(self, line: str) -> Override:
        """Parse one override, or raise Hydra's `OverrideParseException`."""
        # Not parse_override: that one forgets the loader, without which glob() has no options to choose from.
        return OverridesParser.create(config_loader=self.loader).parse_overrides([line])[0]

    def compose(self, overrides: Sequence[str]) -> DictConfig:
        """Compose the primary config with overrides, as for a single run; the result is not to be changed."""
        key = tuple(overrides)
        if key not in self._composed:
            self._composed[key] = self.loader.load_configuration(self.name, list(key), RunMode.RUN, from_shell=False)
        return self._composed[key]

    def listed_groups(self, overrides: Sequence[str]) -> set[str]:
        """The groups of the defaults list with ``overrides`` appended, as ``group`` or ``group@package``."""
        key = tuple(overrides)
        if key not in self._listed:
            defaults = self.loader.compute_defaults_list(self.name, list(key), RunMode.MULTIRUN)
            self._listed[key] = frozenset(defaults.overrides.known_choices)
        return set(self._listed[key])

    def is_group(self, name: str) -> bool:
        """Whether a key names a group: a folder of configs."""
        if name not in self._groups:
            self._groups[name] = "." not in name and bool(self.loader.get_group_options(name, None))
        return self._groups[name]

    def options(self, group: str) -> list[str]:
        """The options of a group, those in its folders as ``folder/option``, without parts (``_name``) of others."""
        if group not in self._options:
            found = list(self.loader.get_group_options(group, ObjectType.CONFIG))
            for inner in self.loader.get_group_options(group, ObjectType.GROUP):
                found += [f"{inner}/{option}" for option in self.options(f"{group}/{inner}")]
            self._options[group] = sorted(name for name in found if not name.startswith("_"))
        return self._options[group]

    def has_option(self, group: str, option: str) -> bool:
        """Whether a group override may name the option: it exists, or is for Hydra to resolve."""
        return option in self.options(group) or "${" in option

    @cached_property
    def groups(self) -> list[str]:
        """The top groups, without Hydra's own."""
        return sorted(group for group in self.loader.list_groups("") if group != "hydra")

    def unreadable(self) -> list[str]:
        """The files that OmegaConf cannot read, and why: Hydra does not say in which a bad ``${...}`` stands."""
        faults = []
        for file in sorted(file for folder in self.folders for file in folder.rglob("*.yaml")):
            try:
                OmegaConf.load(file)
            except (OmegaConfBaseException, YAMLError) as error:
                faults.append(f"{file}: {one_line(error)}")
        return faults

    def naming(self, group: str, option: str) -> list[str]:
        """The files that seem to choose an option in their defaults list: Hydra names only the primary config."""
        choice = re.compile(rf"(^|[\s/{{\[]){re.escape(group)}(@[^\s:]+)?:\s*{re.escape(option)}\b", re.MULTILINE)
        return [
            str(file.relative_to(folder))
            for folder in self.folders
            for file in sorted(folder.rglob("*.yaml"))
            if choice.search(file.read_text(encoding="utf-8"))
        ]

    def description(self, group: str, option: str) -> str:
        """The first line of the comment that opens a config, after the ``# @package`` line."""
        for folder in self.folders:
            file = folder / group / f"{option}.yaml"
            if file.is_file():
                for line in file.read_text(encoding="utf-8").splitlines():
                    if line.startswith("#") and "@package" not in line and line.strip("# "):
                        return line.strip("# ").strip()
                    if line.strip() and not line.startswith("#"):
                        break
        return ""


def one_line(error: BaseException) -> str:
    """Hydra's message and its cause's in one line, without OmegaConf's trailer."""
    parts = [str(error), str(error.__cause__ or "")]
    lines = [line.strip() for part in parts for line in part.splitlines() if line.strip()]
    return " ".join(line for line in lines if not line.startswith(("full_key:", "object_type=", "reference_type=")))
