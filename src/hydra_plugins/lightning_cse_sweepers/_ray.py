"""Ray's side of ``hydra/launcher=ray``: start or reach it, hand out the points, collect what came of them."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Before ray is loaded, which reads them then: nothing is to be sent anywhere, and a point is as urgent as it would be
# under any other launcher (Ray's workers would leave the processor to whoever else wants it).
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("RAY_worker_niceness", "0")

import ray
from hydra.core.hydra_config import HydraConfig
from hydra.core.singleton import Singleton
from hydra.core.utils import JobReturn, JobStatus, configure_log, filter_overrides, run_job, setup_globals
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, open_dict
from ray.exceptions import RayError, RayTaskError

from lightning_cse.errors import ConfigError

log = logging.getLogger(__name__)

Point = tuple[int, Sequence[str]]
"""The number of a point in its sweep, and its overrides."""

_STARTS = 4
_OF_A_NEW_RAY = ("num_cpus", "num_gpus", "include_dashboard", "object_store_memory")


@dataclass(frozen=True)
class Work:
    """What every point shares."""

    context: HydraContext
    config: DictConfig
    task: TaskFunction


def launch(
    work: Work, points: Sequence[Point], *, init: Mapping[str, Any], remote: Mapping[str, Any]
) -> list[JobReturn]:
    """Run the points as tasks of Ray, and return what came of them in their order.

    A task that Ray lost (its worker was killed, its node went away) comes back as failed; the others go on.

    Raises:
        ConfigError: if Ray cannot be started or reached, or refuses a setting.
    """
    setup_globals()
    configure_log(work.config.hydra.hydra_logging, work.config.hydra.verbose)
    Path(str(work.config.hydra.sweep.dir)).mkdir(parents=True, exist_ok=True)
    with _running(init):
        log.info("Ray is launching %d points, with %s", len(points), _resources())
        try:
            task = ray.remote(**remote)(_run)
        except (TypeError, ValueError) as error:
            raise ConfigError([f"hydra.launcher.ray.remote: {error}"]) from error
        # Once for all points: it holds every config source.
        shared = ray.put((work, Singleton.get_state()))
        running = []
        for number, overrides in points:
            log.info("\t#%d : %s", number, " ".join(filter_overrides(overrides)))
            running.append(task.remote(shared, number, list(overrides)))
        return [_result(reference, point) for reference, point in zip(running, points, strict=True)]


def _run(shared: tuple[Work, dict[Any, Any]], number: int, overrides: list[str]) -> JobReturn:
    """One point, in a worker."""
    work, singletons = shared
    setup_globals()
    Singleton.set_state(singletons)
    config = work.context.config_loader.load_sweep_config(work.config, overrides)
    with open_dict(config):
        config.hydra.job.id = f"{config.hydra.job.name}_{number}"
        config.hydra.job.num = number
    HydraConfig.instance().set_config(config)
    return run_job(
        hydra_context=work.context,
        task_function=work.task,
        config=config,
        job_dir_key="hydra.sweep.dir",
        job_subdir_key="hydra.sweep.subdir",
    )


def _result(reference: Any, point: Point) -> JobReturn:
    number, overrides = point
    try:
        result: JobReturn = ray.get(reference)
    except RayError as error:
        # A RayTaskError brings the traceback as text, the others advice of many lines.
        cause = error.cause if isinstance(error, RayTaskError) else error
        why = f"{type(cause).__name__}: {' '.join(str(cause).split()).partition('. ')[0]}"
        log.error("#%d was lost: %s", number, why)
        result = JobReturn(overrides=list(overrides), status=JobStatus.FAILED)
        result.return_value = RuntimeError(f"Ray lost point #{number}: {why}")
    return result


@contextmanager
def _running(init: Mapping[str, Any]) -> Iterator[None]:
    """Ray, started or reached; what was started here ends here."""
    if ray.is_initialized():
        yield
        return
    settings = {key: value for key, value in init.items() if value is not None}
    if "address" in settings and settings["address"] != "local":
        settings = {key: value for key, value in settings.items() if key not in _OF_A_NEW_RAY}
    else:
        # Unless told so, Ray would look for one that is running, and refuse to be told how many processors it has.
        settings["address"] = "local"
    for attempt in range(_STARTS):
        try:
            ray.init(**settings)
            break
        except Exception as error:
            ray.shutdown()
            # Half a minute is all that Ray gives itself to start, which a busy machine exceeds.
            if "timed out during startup" in str(error) and attempt + 1 < _STARTS:
                log.warning("Ray did not start in time; once more")
                continue
            what = " ".join(str(error).split())
            raise ConfigError([f"hydra.launcher.ray.init: Ray cannot be had: {what}"]) from error
    try:
        yield
    finally:
        ray.shutdown()


def _resources() -> str:
    """Processors and GPUs, as ``2 CPU`` or ``16 CPU, 4 GPU``."""
    found = ray.cluster_resources()
    return ", ".join(f"{found[kind]:g} {kind}" for kind in ("CPU", "GPU") if kind in found)
