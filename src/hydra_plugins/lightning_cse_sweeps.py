r"""Hydra plugins: the sweeper of all commands, and a launcher for Ray.

``hydra/sweeper=points``: grids as in Hydra's own sweeper, and lists of points.

    python -m lightning_cse.train +experiment=gausscse data.batch_size=16,32 seed=0,1 -m
    python -m lightning_cse.train -m hydra.sweeper.file=points.yaml +profile=laptop seed=0,1

    # points.yaml
    - [+experiment=dualcse_cross]
    - [+experiment=gausscse, data.batch_size=32]

``hydra/launcher=ray``: one Ray task per point, on this machine or on a cluster.

    python -m lightning_cse.train -m ... hydra/launcher=ray
    python -m lightning_cse.train -m ... hydra/launcher=ray hydra.launcher.ray.init.address=auto \
        hydra.launcher.ray.remote.num_gpus=1
"""

import contextlib
import itertools
import logging
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped,unused-ignore]
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.core.plugins import Plugins
from hydra.core.singleton import Singleton
from hydra.core.utils import (
    JobReturn,
    JobStatus,
    configure_log,
    filter_overrides,
    run_job,
    setup_globals,
)
from hydra.plugins.launcher import Launcher
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from hydra.utils import get_method
from omegaconf import DictConfig, OmegaConf, open_dict

from lightning_cse.config.check import check
from lightning_cse.config.compose import complete
from lightning_cse.config.launch import explained, ordered
from lightning_cse.errors import BUG, ConfigError, LightningCSEError, install_hint, one_line

log = logging.getLogger(__name__)


@dataclass
class PointsSweeper(Sweeper):
    """Run every combination of the given values, for each of the listed points if there are any.

    The command line and ``hydra.sweeper.params`` apply to every point that does not set the same
    key itself. Every value is checked before the first point starts. ``report``, as
    ``module.function``, returns the text of the end in place of the table of scores.
    """

    file: str | None
    points: Sequence[Any] | None
    params: Mapping[str, Any]
    report: str | None = None

    def setup(
        self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig
    ) -> None:
        """Keep the objects that Hydra passes, and build the launcher."""
        self.cfg = config
        self.loader = hydra_context.config_loader
        self.task = task_function
        self.points_launcher = Plugins.instance().instantiate_launcher(
            hydra_context=hydra_context, task_function=task_function, config=config
        )

    def sweep(self, arguments: list[str]) -> Sequence[JobReturn]:
        """Check every override, and run every point."""
        from lightning_cse.runs.sweep import Sweep  # a single run needs no table

        jobs = self.jobs(arguments)
        self._check(jobs)
        report = get_method(self.report) if self.report else None
        sweep = Sweep(Path(str(self.cfg.hydra.sweep.dir)), jobs, report)
        # Launchers may print while `launch` holds back what Hydra prints of errors.
        with contextlib.redirect_stderr(getattr(self.task, "stderr", None) or sys.stderr):
            try:
                returns = self.points_launcher.launch(jobs, initial_job_idx=0)
            except (LightningCSEError, KeyboardInterrupt):
                sweep.finish()
                raise
            except Exception as error:  # noqa: BLE001 - of a launcher whose worker was killed
                returns = []
                code = sweep.finish() or BUG
                sys.stderr.write(f"error: {one_line(error)}\n")
            else:
                code = sweep.finish()

        if code:
            sys.exit(code)

        return returns

    def jobs(self, arguments: Sequence[str]) -> list[list[str]]:
        """Return the overrides of every point, in their order on a command line."""
        params = ordered([f"{key}={value}" for key, value in self.params.items()])
        shared = self._parse([*params, *arguments])
        points = [self._parse(ordered(point)) for point in self._listed()]

        return [ordered(job) for point in points for job in _combinations([*shared, *point])]

    def _listed(self) -> list[list[str]]:
        """Return the points of the file or the config; without either, an empty one."""
        points: Any = self.points
        key = "hydra.sweeper.points"
        if self.file is not None:
            key = f"hydra.sweeper.file={self.file}"
            points = yaml.safe_load(Path(self.file).expanduser().read_text(encoding="utf-8"))
        elif points is None:
            return [[]]

        is_list = isinstance(points, Sequence) and len(points) > 0
        if not is_list or any(isinstance(p, str) or not isinstance(p, Sequence) for p in points):
            raise ConfigError([f"{key}: must be a list of points, each a list of overrides"])

        return [list(map(str, point)) for point in points]

    def _parse(self, lines: Sequence[str]) -> list[Override]:
        return OverridesParser.create(config_loader=self.loader).parse_overrides(list(lines))

    def _check(self, jobs: Sequence[Sequence[str]]) -> None:
        """Check points until all overrides are covered."""
        checked: set[str] = set()
        for job in jobs:
            new = {override for override in job if not override.startswith("seed=")} - checked
            if checked and not new:
                continue

            checked |= new
            config_name = str(self.cfg.hydra.job.config_name)
            with explained(job, config_name):
                cfg = self.loader.load_sweep_config(self.cfg, list(job))

            complete(cfg, job)
            check(cfg, config_name)


def _combinations(overrides: Sequence[Override]) -> list[list[str]]:
    """Return every combination of the values; a later override of a key replaces an earlier one,
    and the last key changes fastest.
    """
    lines: dict[tuple[str, str | None], list[str]] = {}
    for override in overrides:
        key = override.get_key_element()
        if override.is_delete():
            values = [key]
        elif override.is_sweep_override():
            values = [f"{key}={value}" for value in override.sweep_string_iterator()]
        else:
            values = [f"{key}={override.get_value_element_as_str()}"]

        lines[override.key_or_group, override.package] = values

    return [list(combination) for combination in itertools.product(*lines.values())]


class RayLauncher(Launcher):
    """Run every point as a Ray task; if a worker dies, only its point fails."""

    # Of Hydra's own Ray launcher (hydra-ray-launcher 1.2.2) the points that still run are lost when
    # the worker of one dies, and its cloudpickle<3 excludes joblib 1.6.

    def __init__(self, ray: DictConfig) -> None:
        self.settings: Any = OmegaConf.to_container(ray, resolve=True)

    def setup(
        self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig
    ) -> None:
        """Keep the objects that Hydra passes."""
        self.config = config
        self.work = (hydra_context, config, task_function)

    def launch(
        self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int
    ) -> Sequence[JobReturn]:
        """Run the points, as many at once as Ray can, and return their results in order."""
        try:
            import ray
        except ImportError as error:
            fault = f"hydra/launcher=ray needs Ray ({error}){install_hint('ray')}"
            raise ConfigError([fault]) from error

        setup_globals()
        configure_log(self.config.hydra.hydra_logging, self.config.hydra.verbose)
        init = self.settings["init"]
        try:
            ray.init(**{key: value for key, value in init.items() if value is not None})
        except Exception as error:
            raise ConfigError([f"hydra.launcher.ray.init: {one_line(error)}"]) from error

        try:
            log.info("Ray is launching %d points", len(job_overrides))
            task = ray.remote(**self.settings["remote"])(_run)
            shared = ray.put((*self.work, Singleton.get_state()))  # it holds every config source
            references = [
                task.remote(shared, number, list(job))
                for number, job in enumerate(job_overrides, start=initial_job_idx)
            ]
            points = zip(references, job_overrides, strict=True)

            return [self._result(ray, reference, job) for reference, job in points]
        finally:
            ray.shutdown()

    @staticmethod
    def _result(ray: Any, reference: Any, overrides: Sequence[str]) -> JobReturn:
        """Return the result of a point; one whose worker was lost counts as failed."""
        try:
            result: JobReturn = ray.get(reference)
        except ray.exceptions.RayError as error:
            log.error("%s was lost: %s", " ".join(filter_overrides(overrides)), error)
            return JobReturn(overrides=list(overrides), status=JobStatus.FAILED)

        return result


def _run(shared: Any, number: int, overrides: list[str]) -> JobReturn:
    """Run a point in a worker of Ray."""
    context, shared_config, task, singletons = shared
    setup_globals()
    Singleton.set_state(singletons)
    config = context.config_loader.load_sweep_config(shared_config, overrides)

    with open_dict(config):
        config.hydra.job.id = f"{config.hydra.job.name}_{number}"
        config.hydra.job.num = number

    HydraConfig.instance().set_config(config)

    return run_job(task, config, "hydra.sweep.dir", "hydra.sweep.subdir", context)
