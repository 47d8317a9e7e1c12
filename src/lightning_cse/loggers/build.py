"""The loggers that a config names, with what W&B and TensorBoard need to know of the run."""

import inspect
import logging
import os
import pkgutil
import re
import shutil
from collections.abc import Mapping, Sequence
from typing import Any

from pytorch_lightning.loggers import Logger, TensorBoardLogger, WandbLogger
from requests.utils import get_netrc_auth

from lightning_cse.errors import install_hint, one_line
from lightning_cse.loggers.guard import Guard, guarded
from lightning_cse.runs import Run

log = logging.getLogger("lightning_cse.loggers")

STEP = "trainer/global_step"  # the axis of every curve in W&B
_SETTINGS = {
    "reinit": "create_new",  # not the process's global run: runs of a sweep stay apart
    "console": "off",
    "silent": True,
    # The record holds commit, versions and machine; metadata would hold the whole command line.
    "disable_git": True,
    "disable_code": True,
    "save_code": False,
    "x_disable_meta": True,
    "x_disable_machine_info": True,
    "x_save_requirements": False,
    "init_timeout": 30.0,
    "login_timeout": 30.0,
    "finish_timeout": 60.0,
}


def build_loggers(
    nodes: Mapping[str, Any],
    run: Run,
    settings: Mapping[str, Any],
    *,
    group: str,
    tags: Sequence[str],
    resumed_at: int | None,
) -> list[Guard]:
    """Return the loggers of a run by the nodes of the config, each with a ``_target_``.

    ``resumed_at`` is the step from which the run is resumed; TensorBoard drops what was logged
    after it.

    A logger that cannot be built, for example because its package is missing, is left out with a
    warning: it must not fail the run.
    """
    loggers = []
    for name, node in nodes.items():
        options = {key: value for key, value in node.items() if key != "_target_"}
        logger_class: type[Logger] = pkgutil.resolve_name(node["_target_"])
        classes: list[Any] = [logger_class]
        if issubclass(logger_class, WandbLogger):
            classes = [_Summaries, logger_class]
            options = _of_wandb(options, run, settings, group, tags, resumed_at)
        elif issubclass(logger_class, TensorBoardLogger):
            options = _of_tensorboard(run, resumed_at) | options

        elif "save_dir" in inspect.signature(logger_class).parameters:
            options = {"save_dir": run.path} | options

        try:
            logger: Any = guarded(*classes)(**options)
        except Exception as error:  # noqa: BLE001 - see above
            module = getattr(error, "name", None)
            if isinstance(error, ImportError) and issubclass(logger_class, TensorBoardLogger):
                module = "tensorboard"  # Lightning does not name it

            message = "logger.%s: %s%s: the run continues without it"
            log.warning(message, name, one_line(error), install_hint(module))
            continue

        if isinstance(logger, WandbLogger):
            _start_wandb(logger)
        else:
            logger.log_hyperparams({**settings, "group": group, "tags": " ".join(tags)})

        loggers.append(logger)

    return loggers


def log_final(logger: Any, values: Mapping[str, float], step: int) -> None:
    """Log the final values of a run; TensorBoard's table of runs has them beside the settings."""
    if isinstance(logger, TensorBoardLogger):
        logger.log_hyperparams(logger.hparams, metrics=dict(values), step=step)
    else:
        logger.log_metrics(dict(values), step=step)


def _of_tensorboard(run: Run, resumed_at: int | None) -> dict[str, Any]:
    folder = run.path / "tensorboard"
    options = {"save_dir": folder, "name": "", "version": "", "default_hp_metric": False}
    if resumed_at is None:
        shutil.rmtree(folder, ignore_errors=True)
        return options

    return {**options, "purge_step": resumed_at + 1}


def _of_wandb(
    options: Mapping[str, Any],
    run: Run,
    settings: Mapping[str, Any],
    group: str,
    tags: Sequence[str],
    resumed_at: int | None,
) -> dict[str, Any]:
    """Return the arguments of a WandbLogger; what the config says comes last."""
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", run.name)
    method = (settings.get("method") or {}).get("_target_", "").rpartition(".")[2].lower()
    encoder = (settings.get("encoder") or {}).get("name", "")
    words = [word[:64] for word in dict.fromkeys((method, encoder, *tags)) if word]  # W&B's limit
    options = dict(options)

    return {
        "id": f"{name}-{run.config_hash}-s{run.seed}",
        "name": f"{run.name}-s{run.seed}",
        "group": group,
        "job_type": "train",
        "tags": words,
        "config": dict(settings),
        "save_dir": run.path,
        "mode": _mode(options.pop("offline", None)),
        "resume": None if resumed_at is None else "allow",  # None replaces a run of the same id
        "settings": _SETTINGS,
        **options,
    }


class _Summaries(Logger):
    """Give W&B's table of runs the highest of each dev score and the lowest of each loss; a base
    class before WandbLogger.

    A pattern such as ``val/*`` would compete with Lightning's own, ``*``.
    """

    _defined: frozenset[str] = frozenset()

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Define the metrics that are new, and log all of them."""
        for key in metrics.keys() - self._defined:
            best = {"val": "max,last", "train": "min,last"}.get(key.partition("/")[0])
            if key.endswith(("/learning_rate", "threshold")):
                best = None

            self.experiment.define_metric(key, step_metric=STEP, summary=best)  # type: ignore[attr-defined]  # WandbLogger's

        self._defined = self._defined.union(metrics)
        super().log_metrics(dict(metrics), step)  # type: ignore[safe-super]


def _start_wandb(logger: Any) -> None:
    """Start the run of W&B."""
    logger._wandb_init.pop("anonymous", None)  # set by Lightning 2.6; W&B warns about it
    experiment = logger.experiment
    if experiment is None:
        return

    if logger._wandb_init["mode"] == "offline":
        folder = f"{logger.save_dir}/wandb"
        log.info("W&B: offline in %s; `wandb sync` on the folder in it uploads the run", folder)
    else:
        log.info("W&B: %s", getattr(experiment, "url", None))


def _mode(offline: bool | None) -> str:
    """Return ``online``, ``offline`` or ``disabled``; only who is logged in is online."""
    requested = os.environ.get("WANDB_MODE", "").lower()
    if requested == "disabled":
        return requested
    if offline or requested == "offline":
        return "offline"
    if is_logged_in():
        return "online"
    if requested or offline is False:
        log.warning("W&B: not logged in, so the run is logged offline; `wandb login` changes that")

    return "offline"


def is_logged_in() -> bool:
    """Whether W&B would find credentials in the places where it looks itself; neither user nor
    server is asked.
    """
    key = os.environ.get("WANDB_API_KEY") or os.environ.get("WANDB_IDENTITY_TOKEN_FILE")
    return bool(key or get_netrc_auth(os.environ.get("WANDB_BASE_URL") or "https://api.wandb.ai"))
