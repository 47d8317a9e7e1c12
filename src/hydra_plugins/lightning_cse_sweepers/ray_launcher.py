r"""``hydra/launcher=ray``: one point a Ray task, on this machine or on a cluster.

    python -m lightning_cse.train -m ... hydra/launcher=ray
    python -m lightning_cse.train -m ... hydra/launcher=ray hydra.launcher.ray.init.address=auto \
        hydra.launcher.ray.remote.num_gpus=1

The settings have the names they have in hydra-ray-launcher, whose place this takes: that one asks for cloudpickle<3,
which joblib 1.6 refuses, for boto3, and for Ray's dashboard, and it gives up the other points when a worker dies.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.core.utils import JobReturn
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf

from lightning_cse.errors import ConfigError


@dataclass
class RayConf:
    """``init`` are arguments of `ray.init`, ``remote`` options of a point's task; a plus adds others."""

    init: dict[str, Any] = field(
        default_factory=lambda: {
            "address": None,  # null: a Ray of its own, on this machine; auto: the one that runs already
            "num_cpus": None,  # how many this machine offers; null: all it has
            "num_gpus": None,
            "include_dashboard": False,
            "object_store_memory": 80 * 1024 * 1024,  # the least Ray takes; nothing large goes through it
            "log_to_driver": True,
            "logging_level": "error",
        }
    )
    remote: dict[str, Any] = field(
        default_factory=lambda: {
            "num_cpus": 1,
            "num_gpus": 0,
            "max_retries": 0,  # the same command tries again; Ray would do it at once, before anybody saw why
        }
    )


@dataclass
class RayLauncherConf:
    """What may be set under ``hydra.launcher``."""

    _target_: str = "hydra_plugins.lightning_cse_sweepers.ray_launcher.RayLauncher"
    ray: RayConf = field(default_factory=RayConf)


ConfigStore.instance().store(
    group="hydra/launcher", name="ray", node=RayLauncherConf, provider="lightning_cse_sweepers"
)


class RayLauncher(Launcher):
    """Runs every point as a task of Ray; a point whose worker dies fails alone.

    Args:
        ray: ``init`` and ``remote``, as in `RayConf`.
    """

    def __init__(self, ray: Mapping[str, Any]) -> None:
        settings: Any = OmegaConf.to_container(ray, resolve=True) if OmegaConf.is_config(ray) else ray
        self.init: dict[str, Any] = dict(settings["init"])
        self.remote: dict[str, Any] = dict(settings["remote"])
        self.config: DictConfig = OmegaConf.create()
        self.hydra_context: HydraContext | None = None
        self.task_function: TaskFunction | None = None

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """Hold on to what Hydra hands over."""
        self.config = config
        self.hydra_context = hydra_context
        self.task_function = task_function

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """Run the points, as many at once as Ray has places for, and return what came of them in their order.

        Raises:
            ConfigError: if Ray is not installed, or cannot be started or reached.
        """
        try:
            from hydra_plugins.lightning_cse_sweepers import _ray
        except ImportError as error:
            raise ConfigError([f"hydra/launcher=ray needs pip install 'lightning_cse[ray]' ({error})"]) from error

        if self.hydra_context is None or self.task_function is None:
            raise RuntimeError("setup() comes before launch()")
        points = list(enumerate(job_overrides, start=initial_job_idx))
        work = _ray.Work(self.hydra_context, self.config, self.task_function)
        return _ray.launch(work, points, init=self.init, remote=self.remote)
