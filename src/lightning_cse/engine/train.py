"""A training run from its config to its record."""

from __future__ import annotations

import contextlib
import logging
import traceback
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytorch_lightning as pl
import torch
from hydra.core.hydra_config import HydraConfig
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf
from pytorch_lightning.utilities import rank_zero_only

from lightning_cse import runs
from lightning_cse.callbacks import Evaluation, Interrupts
from lightning_cse.config.check import devices
from lightning_cse.config.compose import in_sweep, portable, recipe_name
from lightning_cse.config.key import training_key
from lightning_cse.engine.build import (
    automatic_reading,
    build,
    check_nodes,
    plain,
    resolve_automatic,
)
from lightning_cse.engine.fit import Job, fit_and_test
from lightning_cse.errors import Interrupted, TrainingError, one_line
from lightning_cse.loggers import CurvesLogger
from lightning_cse.runs.table import print_run

if TYPE_CHECKING:
    from lightning_cse.loggers import RunView

log = logging.getLogger(__name__)


def run(cfg: DictConfig) -> runs.Outcome:
    """Train a method and print the table; the command calls this once per point of a sweep."""
    outcome = train(cfg)
    if rank_of(cfg) == 0:
        folder = runs.Run.at(Path(outcome.folder))
        print_run(folder.read(), folder.record_path)

    return outcome


def train(cfg: DictConfig) -> runs.Outcome:
    """Train the method that a config describes, unless this is done, and return the outcome.

    A finished run is skipped (``force=true`` starts again). An interrupted or failed run is resumed
    from its last checkpoint, and gives the same numbers as a run that was never stopped. This
    process holds the lock of the run's folder. Raises the errors of `Run.claim`, Interrupted after
    Ctrl-C or SIGTERM, and user errors; once training has begun, an error is also written to the
    run's ``failed.json``.
    """
    rank = rank_of(cfg)
    _quiet(cfg, rank)
    with Interrupts(force=cfg.force) as interrupts:
        job = _prepare(cfg, interrupts)
        if rank:
            return _follow(job)

        leave_failed = in_sweep() and not cfg.retry_failed
        with job.folder.claim(
            force=cfg.force,
            leave_failed=leave_failed,
        ) as unfinished:
            if unfinished:
                with _logging_to(job.folder.log_path):
                    record = _run(job)
            else:
                record = job.folder.read()
                _report_finished(job, record)

    score = record.get("best", {}).get("score")
    return runs.Outcome(
        "finished" if unfinished else "skipped",
        str(job.folder.path),
        score,
    )


def rank_of(cfg: DictConfig) -> int:
    """Return the rank of this process: 0 writes everything."""
    return int(rank_zero_only.rank) if devices(cfg) > 1 else 0  # type: ignore[attr-defined]  # set by Lightning


def _quiet(cfg: DictConfig, rank: int) -> None:
    """Silence Lightning's tips, and all processes but the first."""
    # No tips of Lightning, and no list of missing hardware.
    logging.getLogger("pytorch_lightning").setLevel(logging.WARNING)
    if devices(cfg) == 1:
        rank_zero_only.rank = 0  # type: ignore[attr-defined]  # Lightning takes it from the environment, as under srun
    if rank:
        logging.getLogger("lightning_cse").setLevel(logging.ERROR)  # the first process logs it


def _prepare(cfg: DictConfig, interrupts: Interrupts) -> Job:
    """Resolve and check the config, build its objects, and name the run's folder."""
    key = training_key(plain(cfg))  # of the settings as they were requested
    resolved = resolve_automatic(cfg)
    check_nodes(cfg)
    pl.seed_everything(
        cfg.seed,
        workers=True,
        verbose=False,
    )

    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()  # else, in a sweep, that of the previous point

    parts = build(cfg)
    decides: dict[str, Any] = {
        "data": parts.digests,
        "encoder": {"name": parts.encoder.name, **parts.encoder.digests},
        "resolved": resolved | automatic_reading(cfg, parts.encoder),
    }

    config = plain(cfg)
    folder = runs.Run(
        Path(cfg.paths.runs_dir).expanduser(),
        str(cfg.name),
        runs.config_hash(config, **decides),
        cfg.seed,
    )

    return Job(
        cfg,
        parts,
        folder,
        key,
        runs.decisive(config, **decides),
        interrupts,
    )


def _follow(job: Job) -> runs.Outcome:
    """Take part in a training as another process than the first, which alone writes."""
    if job.folder.status == "finished" and not job.cfg.force:
        return runs.Outcome("skipped", str(job.folder.path))

    resumes = job.last.is_file() and not job.cfg.force
    with contextlib.suppress(Interrupted):  # the first process raises it, too
        fit_and_test(
            job,
            [],
            job.last if resumes else None,
        )

    return runs.Outcome("finished", str(job.folder.path))


def _report_finished(job: Job, record: Mapping[str, Any]) -> None:
    """Log that a run is finished, and which baselines it has no values of."""
    log.info("%s is finished; force=true runs it again", job.folder.path)
    recorded = record.get("baselines", ())
    missing = [name for name in job.cfg.baselines if name not in recorded]

    if missing:
        log.warning("it has no values of the baselines %s: force=true adds them", missing)


def _run(job: Job) -> dict[str, Any]:
    """Start or resume the run in its folder, with the lock held, and return the record."""
    step, evaluation_due = _resume_point(job.last) if job.last.is_file() else (None, False)
    job.folder.start(OmegaConf.to_yaml(job.cfg, resolve=True), job.key)
    _report_start(job, step)
    curves = runs.Curves(job.folder.curves_path)
    _cut_curves(curves, step, evaluation_due)
    views = _views(job, resumed_at=step)
    exit_code = 1

    try:
        loggers = [CurvesLogger(curves), *views]
        record = _record(
            job,
            fit_and_test(
                job,
                loggers,
                None if step is None else job.last,
            ),
        )
        job.folder.finish(record)
        job.interrupts.continues = "finds the run finished"
        exit_code = 0

        if not job.cfg.keep_last:
            job.last.unlink(missing_ok=True)

        for view in views:
            view.conclude(record)
    except Interrupted as interrupted:
        exit_code = 128 + interrupted.signum
        raise
    except Exception as error:
        job.folder.fail(error, stage="training")
        raise
    finally:
        for view in views:
            view.close(exit_code)

    if job.cfg.figures:
        _draw_figures(job, curves)

    return record


def _report_start(job: Job, step: int | None) -> None:
    """Log what is trained, and from where."""
    cfg = job.cfg
    log.info(
        "%s: %d training rows, %s, recipe %s, %s, %s; everything is written to %s",
        cfg.name,
        len(job.parts.data.train),
        job.parts.encoder.name,
        recipe_name(cfg),
        cfg.trainer.accelerator,
        cfg.trainer.precision,
        job.folder.path,
    )

    if step is not None:
        log.info(
            "resuming from step %d of %s",
            step,
            job.last,
        )
        job.interrupts.continues = f"continues from step {step}"


def _cut_curves(
    curves: runs.Curves,
    step: int | None,
    evaluation_due: bool,
) -> None:
    """Remove what will be logged again after the checkpoint's step."""
    prefix = "train/" if evaluation_due else ""

    def is_kept(at: int, key: str) -> bool:
        if step is None or at > step:
            return False
        return at < step or key.startswith(prefix)

    curves.keep(is_kept)


def _record(job: Job, results: Mapping[str, Any]) -> dict[str, Any]:
    """Return the record of a finished run."""
    overrides = HydraConfig.get().overrides.task if HydraConfig.initialized() else []
    record = {
        "name": job.folder.name,
        "config_hash": job.folder.config_hash,
        "seed": job.folder.seed,
        "key": job.key,
        "overrides": portable(overrides),
        "decisive": job.decisive,
        **results,
    }

    if job.parts.data.provenance:
        record["provenance"] = job.parts.data.provenance

    return record


def _resume_point(last: Path) -> tuple[int, bool]:
    """Return the step of a checkpoint, and whether its evaluation is still due."""
    try:
        state = torch.load(
            last,
            map_location="cpu",
            weights_only=True,
        )
        return int(state["global_step"]), bool(state["callbacks"][Evaluation.__qualname__]["due"])
    except Exception as error:  # torch raises many kinds
        fault = f"{last} is damaged ({one_line(error)}): force=true starts this run again"
        raise TrainingError(fault) from error


def _views(job: Job, *, resumed_at: int | None) -> list[RunView]:
    """Return the view that the config names, if any; a view must not fail the run."""
    cfg = job.cfg
    if not cfg.logger:
        return []

    choices = HydraConfig.get().runtime.choices if HydraConfig.initialized() else {}
    sweep = choices.get("sweep")
    try:  # called outside Hydra, which would build every node of the settings
        view = instantiate(cfg.logger, _partial_=True)(
            run=job.folder,
            group=f"{cfg.name}/{sweep}" if sweep else str(cfg.name),
            settings=plain(cfg),
            resumed_at=resumed_at,
            tags=[str(choices[name]) for name in ("profile", "debug") if choices.get(name)],
        )
    except Exception as error:  # noqa: BLE001 - a missing package or a wrong folder, for example
        log.warning(
            "the run continues without %s: %s",
            cfg.logger._target_,
            error,
        )
        return []

    return [view]


def _draw_figures(job: Job, curves: runs.Curves) -> None:
    """Draw the curves; a failure does not matter to the run."""
    from lightning_cse.loggers.plots import run_figures  # matplotlib

    try:
        run_figures(
            curves.read(),
            job.folder.figures,
            job.cfg.monitor,
        )
    except Exception as error:  # noqa: BLE001 - the run is finished
        log.warning("no figures: %s", error)


@contextlib.contextmanager
def _logging_to(path: Path) -> Iterator[None]:
    """Also write logs, warnings and the traceback of an error to a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handler = logging.FileHandler(path, encoding="utf-8")
    handler.setFormatter(logging.Formatter("[%(asctime)s][%(name)s][%(levelname)s] - %(message)s"))
    root = logging.getLogger()
    root.addHandler(handler)
    logging.captureWarnings(True)

    try:
        yield
    except BaseException as error:
        with path.open("a", encoding="utf-8") as file:
            traceback.print_exception(error, file=file)
        error.log_path = path  # type: ignore[attr-defined]  # for the message of the command
        raise
    finally:
        logging.captureWarnings(False)
        root.removeHandler(handler)
        handler.close()
