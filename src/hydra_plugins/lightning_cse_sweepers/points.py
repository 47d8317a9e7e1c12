"""``hydra/sweeper=points``: a sweep whose points are listed, since they form no rectangle.

python -m lightning_cse.train -m hydra/sweeper=points hydra.sweeper.file=points.yaml +profile=laptop

# points.yaml
- [+experiment=dualcse_cross, seed=0]
- [+experiment=gausscse, data.batch_size=32]
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.core.utils import JobReturn
from omegaconf import OmegaConf

from hydra_plugins.lightning_cse_sweepers._base import PointSweeper
from lightning_cse.config.overrides import order_overrides
from lightning_cse.config.points import listed_points, merged, not_of_one_point, rectangle
from lightning_cse.errors import ConfigError


@dataclass
class PointsSweeperConf:
    """What may be set under ``hydra.sweeper``."""

    _target_: str = "hydra_plugins.lightning_cse_sweepers.points.PointsSweeper"
    file: str | None = None
    points: list[Any] | None = None
    params: dict[str, Any] = field(default_factory=dict)


ConfigStore.instance().store(
    group="hydra/sweeper", name="points", node=PointsSweeperConf, provider="lightning_cse_sweepers"
)


class PointsSweeper(PointSweeper):
    """Runs listed points, each as often as what holds for all of them says (``seed=0,1,2``: three times).

    What the command line and ``hydra.sweeper.params`` set holds for every point that does not set the same itself.

    Args:
        file: a YAML list of lists of overrides.
        points: the same in a config.
        params: what holds for all points, as for Hydra's own sweeper.
    """

    def __init__(
        self, file: str | None = None, points: Sequence[Any] | None = None, params: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(params)
        self.file = file
        listed: Any = OmegaConf.to_container(points, resolve=True) if OmegaConf.is_config(points) else points
        self.points: Sequence[Any] | None = listed

    def sweep(self, arguments: list[str]) -> Sequence[JobReturn]:
        """Run every point; the first that raised in its launcher raises here, when all have ended.

        Raises:
            ConfigError: for points that are none.
        """
        jobs = self.jobs(arguments)
        self.folder()
        results = self.launch(jobs)
        for result in results:
            _ = result.return_value  # raises what the job raised
        return results

    def jobs(self, arguments: Sequence[str]) -> list[list[str]]:
        """The overrides of every point, in their order on a command line.

        Raises:
            ConfigError: for points that are none.
        """
        shared = self.read(arguments)
        jobs, faults = [], []
        for point in listed_points(self.file, self.points):
            own = self.parse(point.overrides)
            faults += [f"{point.place}: {o.input_line}: {why}" for o in own if (why := not_of_one_point(o))]
            jobs += [order_overrides(job) for job in rectangle(merged(shared, own))] if not faults else []
        if faults:
            raise ConfigError(faults)
        return jobs
