"""What both sweepers share: the launcher they hand points to, and how overrides are read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.core.plugins import Plugins
from hydra.core.utils import JobReturn
from hydra.plugins.launcher import Launcher
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf

from lightning_cse.config.points import params_lines


class PointSweeper(Sweeper):
    """A sweeper that makes points out of its parameters and the command line.

    Args:
        params: ``hydra.sweeper.params``, overrides by key.
    """

    def __init__(self, params: Mapping[str, Any] | None) -> None:
        self.params = params
        self.config: DictConfig = OmegaConf.create()
        self._hydra_context: HydraContext | None = None
        self._launcher: Launcher | None = None
        self._launched = 0

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """Hold on to what Hydra hands over, and build the launcher."""
        self.config = config
        self._hydra_context = hydra_context
        self._launcher = Plugins.instance().instantiate_launcher(
            hydra_context=hydra_context, task_function=task_function, config=config
        )

    def read(self, arguments: Sequence[str]) -> list[Override]:
        """The parameters of the sweep and the overrides of the command line, which come later and win."""
        return self.parse([*params_lines(self.params), *arguments])

    def parse(self, lines: Sequence[str]) -> list[Override]:
        """Parse overrides; ``glob(...)`` looks at the options that there are."""
        return OverridesParser.create(config_loader=self._context.config_loader).parse_overrides(list(lines))

    def folder(self) -> Path:
        """The folder of the sweep, made now, with the config of the whole in it as Hydra's own sweeper leaves it."""
        folder = Path(str(self.config.hydra.sweep.dir))
        folder.mkdir(parents=True, exist_ok=True)
        OmegaConf.save(self.config, folder / "multirun.yaml")
        return folder

    def launch(self, points: Sequence[Sequence[str]]) -> Sequence[JobReturn]:
        """Hand points to the launcher, numbered on from the last ones, and return what came of them in their order."""
        if self._launcher is None:
            raise RuntimeError("setup() comes before launch()")
        first = self._launched
        self._launched += len(points)
        return self._launcher.launch(points, initial_job_idx=first)

    @property
    def _context(self) -> HydraContext:
        if self._hydra_context is None:
            raise RuntimeError("setup() comes before anything else")
        return self._hydra_context
