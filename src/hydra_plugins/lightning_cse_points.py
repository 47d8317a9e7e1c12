"""``hydra/sweeper=points``, the sweeper of all commands: grids as Hydra's own, and lists of points.

python -m lightning_cse.train +experiment=gausscse data.batch_size=16,32 seed=0,1 -m
python -m lightning_cse.train -m hydra.sweeper.file=points.yaml +profile=laptop seed=0,1

# points.yaml
- [+experiment=dualcse_cross]
- [+experiment=gausscse, data.batch_size=32]
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped,unused-ignore]
from hydra.core.config_store import ConfigStore
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.core.plugins import Plugins
from hydra.core.utils import JobReturn
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf

from lightning_cse.config import sweeps
from lightning_cse.config.check import check
from lightning_cse.config.compose import CompositionError
from lightning_cse.config.launch import ordered
from lightning_cse.errors import ConfigError, user_error


@dataclass
class PointsSweeperConf:
    """What may be set under ``hydra.sweeper``."""

    _target_: str = "hydra_plugins.lightning_cse_points.PointsSweeper"
    file: str | None = None
    points: list[Any] | None = None
    params: dict[str, Any] = field(default_factory=dict)


ConfigStore.instance().store(group="hydra/sweeper", name="points", node=PointsSweeperConf, provider="lightning_cse")


class PointsSweeper(Sweeper):
    """Runs every combination of the values given, for each of the listed points if there are any.

    What the command line and ``hydra.sweeper.params`` set holds for every point that does not set the same itself.
    Every value is checked before the first point starts.

    Args:
        file: a YAML list of lists of overrides.
        points: the same in a config.
        params: what holds for all points, as for Hydra's own sweeper.
    """

    def __init__(self, file: str | None, points: Sequence[Any] | None, params: Mapping[str, Any]) -> None:
        self.file = file
        self.points: Any = OmegaConf.to_container(points, resolve=True) if OmegaConf.is_config(points) else points
        self.params = params

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """Hold on to what Hydra hands over, and build the launcher."""
        self.cfg = config
        self.loader = hydra_context.config_loader
        self.runs = Plugins.instance().instantiate_launcher(
            hydra_context=hydra_context, task_function=task_function, config=config
        )

    def sweep(self, arguments: list[str]) -> Sequence[JobReturn]:
        """Check every override, and run every point."""
        from lightning_cse.runs.sweep import Sweep  # a single run needs no table

        jobs = self.jobs(arguments)
        self._check(jobs)
        sweeps.current = Sweep(Path(str(self.cfg.hydra.sweep.dir)), jobs)
        return self.runs.launch(jobs, initial_job_idx=0)

    def jobs(self, arguments: Sequence[str]) -> list[list[str]]:
        """Return the overrides of every point, in their order on a command line."""
        shared = self._parse([*(f"{key}={value}" for key, value in self.params.items()), *arguments])
        jobs = []
        for point in self._listed():
            own = self._parse(point)
            taken = {override.key_or_group for override in own}
            merged = [other for other in shared if other.key_or_group not in taken]
            jobs += [ordered(job) for job in _combinations([*merged, *own])]
        return jobs

    def _listed(self) -> list[list[str]]:
        listed, place = self.points, "hydra.sweeper.points"
        if self.file is not None:
            place = self.file
            try:
                listed = yaml.safe_load(Path(self.file).expanduser().read_text(encoding="utf-8"))
            except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
                raise ConfigError([f"hydra.sweeper.file={self.file}: {' '.join(str(error).split())}"]) from error
        if listed is None and self.file is None:
            return [[]]
        points = listed if isinstance(listed, list) else []
        if not points or not all(isinstance(p, list) and all(isinstance(one, str) for one in p) for p in points):
            raise ConfigError([f"{place}: must be a list of points, each a list of overrides: [[seed=0, ...], ...]"])
        return points

    def _parse(self, lines: Sequence[str]) -> list[Override]:
        return OverridesParser.create(config_loader=self.loader).parse_overrides(list(lines))

    def _check(self, jobs: Sequence[Sequence[str]]) -> None:
        """Compose and check as many points as it takes for every override to be in one; seeds are alike."""
        seen: set[str] = set()
        name = str(self.cfg.hydra.job.config_name)
        for job in jobs:
            if not (new := {one for one in job if not one.startswith("seed=")} - seen) and seen:
                continue
            seen |= new
            try:
                check(self.loader.load_sweep_config(self.cfg, list(job)), name, job)
            except CompositionError as error:
                from lightning_cse.config.suggestions import explain

                raise (user_error(error) or explain(job, name, error)) from error


def _combinations(overrides: Sequence[Override]) -> list[list[str]]:
    """Return every combination of the values, the last key's changing fastest; a later key wins."""
    lines: dict[str, list[str]] = {}
    for override in overrides:
        key = override.get_key_element()
        if override.is_interval_sweep():
            raise ConfigError([f"{override.input_line}: a grid takes values, such as 1e-5,3e-5"])
        if override.is_sweep_override():
            lines[key] = [f"{key}={value}" for value in override.sweep_string_iterator()]
        else:
            lines[key] = [key if override.is_delete() else f"{key}={override.get_value_element_as_str()}"]
    return [list(combination) for combination in itertools.product(*lines.values())]
