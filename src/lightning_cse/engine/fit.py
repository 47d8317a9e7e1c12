"""Training and test of a run whose objects are built: what is measured becomes its record."""

from __future__ import annotations

import dataclasses
import hashlib
import logging
import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from omegaconf import DictConfig
from pytorch_lightning.loggers import Logger

from lightning_cse import runs
from lightning_cse.callbacks import (
    BestAndLast,
    Evaluation,
    Interrupts,
    RandomState,
    StepBar,
    StepLog,
)
from lightning_cse.config.check import devices
from lightning_cse.data.token_cache import token_table
from lightning_cse.devices import together
from lightning_cse.engine.build import Parts, built, plain
from lightning_cse.errors import TrainingError
from lightning_cse.evaluation import TaskResult, run_tasks
from lightning_cse.runs.machine import device_name, peak_memory

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Job:
    """A run to train: its config, the objects built from it, its folder and its hash's content."""

    cfg: DictConfig
    parts: Parts
    folder: runs.Run
    key: str
    decisive: dict[str, Any]
    interrupts: Interrupts

    @property
    def last(self) -> Path:
        """Return the checkpoint from which the run is resumed."""
        return self.folder.checkpoints / "last.ckpt"


@together()
def fit_and_test(
    job: Job,
    loggers: list[Logger],
    last: Path | None,
) -> dict[str, Any]:
    """Train from the start or the last checkpoint, test the best one, and return the results."""
    parts = job.parts
    parts.data.limit_train_batches = job.cfg.trainer.limit_train_batches
    parts.data.setup()
    cut = _count_cut(parts)

    steps = StepLog()
    evaluation = _evaluation(job.cfg, parts, job.interrupts)
    checkpoints = BestAndLast(job.folder.checkpoints, evaluation)
    bar = [StepBar(evaluation)] if loggers else []
    callbacks = [
        job.interrupts,
        RandomState(),
        steps,
        evaluation,
        *bar,
        checkpoints,
    ]
    trainer = _trainer(job, loggers, callbacks)
    _fit(job, trainer, last)
    _check_trained(job, trainer, checkpoints.best)

    job.interrupts.continues = "repeats only the test"
    start = time.perf_counter()
    metrics, baselines = _test(job, trainer, checkpoints.best)
    seconds = {
        "training": steps.seconds,
        "evaluation": evaluation.seconds,
        "test": time.perf_counter() - start,
    }

    return {
        "model": parts.method.model.settings(),
        "metrics": metrics,
        "baselines": baselines,
        "left_out": {name: [reason] for name, reason in parts.left_out.items()},
        "steps": trainer.global_step,
        "rows": parts.data.counts | cut,
        "device": device_name(trainer.strategy.root_device),
        "precision": str(trainer.precision),
        **_scores(job.cfg, job.folder, evaluation),
        **_inputs(job.cfg, parts, checkpoints.best),
        **_costs(seconds, steps.sentences),
    }


def _evaluation(
    cfg: DictConfig,
    parts: Parts,
    interrupts: Interrupts,
) -> Evaluation:
    """Return the callback that evaluates on the way."""
    return Evaluation(
        parts.tasks,
        parts.diagnostics,
        every=cfg.eval_every,
        least=cfg.least_evaluations,
        monitor=cfg.monitor,
        **cfg.callbacks.early_stopping,
        dropout=cfg.diag.dropout,
        interrupts=interrupts,
    )


def _trainer(
    job: Job,
    loggers: list[Logger],
    callbacks: list[pl.Callback],
) -> pl.Trainer:
    """Return Lightning's Trainer for a run."""
    settings = job.cfg.trainer
    used = settings.devices
    on_gpu = settings.accelerator in ("gpu", "cuda") and torch.cuda.is_available()

    if on_gpu and used == devices(job.cfg) == 1:
        used = [torch.cuda.current_device()]  # what "cuda" means here, which Lightning would ignore

    trainer: pl.Trainer = built(
        settings,
        logger=loggers or False,
        callbacks=callbacks,
        limit_train_batches=None,  # the data loader applies it
        devices=used,
        default_root_dir=str(job.folder.path),
        _convert_="all",
    )

    if trainer.global_rank:  # its own dropout masks
        pl.seed_everything(
            job.cfg.seed + trainer.global_rank,
            workers=True,
            verbose=False,
        )

    return trainer


def _scores(
    cfg: DictConfig,
    folder: runs.Run,
    evaluation: Evaluation,
) -> dict[str, Any]:
    """Return the dev scores for the record."""
    curves = runs.Curves(folder.curves_path).read()
    step = evaluation.best_step
    return {
        "best": {
            "step": step,
            "score": evaluation.best_score,
            "monitor": cfg.monitor,
        },
        "final": evaluation.latest,
        "summary": dataclasses.asdict(runs.summarise(curves, cfg.monitor)),
        "stopped_early": evaluation.stopped,
    }


def _inputs(
    cfg: DictConfig,
    parts: Parts,
    best: Path,
) -> dict[str, Any]:
    """Return the digests of data, encoder, best checkpoint and code, and the environment."""
    with best.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    return {
        "data": parts.digests,
        "task_data": {name: task.digests for name, task in parts.tasks.items()},
        "encoder": {"name": parts.encoder.name, **parts.encoder.digests},
        "checkpoint": {"sha256": sha256},
        "code": runs.code_digest(plain(cfg.method)),
        "environment": runs.environment(),
    }


def _costs(seconds: Mapping[str, float], sentences: int) -> dict[str, Any]:
    """Return times, speed and memory for the record."""
    training = seconds["training"]
    evaluation = seconds["evaluation"]
    return {
        "seconds": seconds,
        "evaluation_share": evaluation / max(evaluation + training, 1e-9),
        "sentences_per_second": sentences / max(training, 1e-9),
        "peak_memory_mib": peak_memory(),
    }


def _count_cut(parts: Parts) -> dict[str, int]:
    """Count the sentences that are cut, and give the model the evaluation's tokens."""
    longest = parts.encoder.max_length - max(map(len, parts.method.templates))
    evaluated = set(parts.diagnostics.sentences())
    for task in parts.tasks.values():
        evaluated.update(task.sentences("dev"), task.sentences("test"))

    table = token_table(
        sorted(evaluated),
        parts.encoder.tokenizer,
        parts.data.cache_dir,
    )
    parts.method.model.table = table  # embedded at every evaluation
    cut = {
        "sentences_cut": parts.data.longer_than(longest),
        "evaluation_sentences_cut": int((table.lengths > longest).sum()),
    }

    if any(cut.values()):
        log.warning(
            "%d training sentences and %d evaluation sentences are longer than encoder.max_length "
            "or data.max_tokens, and are cut",
            *cut.values(),
        )

    return cut


def _fit(
    job: Job,
    trainer: pl.Trainer,
    last: Path | None,
) -> None:
    """Train; name the rows of a failed step, and raise Ctrl-C where Lightning exits."""
    data = job.parts.data
    try:
        with warnings.catch_warnings():
            # Lightning 2.6 itself causes it with torch 2.13.
            warnings.filterwarnings("ignore", message=r".*isinstance\(treespec, LeafSpec\).*")
            trainer.fit(
                job.parts.method,
                data,
                ckpt_path=last,
                weights_only=True,
            )
    except SystemExit as ending:  # Lightning turns a KeyboardInterrupt into this
        if isinstance(ending.__context__, KeyboardInterrupt):
            raise ending.__context__ from None
        raise
    except TrainingError as error:
        if not error.rows:
            raise
        places = ", ".join(data.train.where(row) for row in error.rows[:3])
        raise TrainingError(f"{error} (the first: {places})", error.rows) from error


def _check_trained(
    job: Job,
    trainer: pl.Trainer,
    best: Path,
) -> None:
    """Raise TrainingError if there is no checkpoint to test."""
    if trainer.global_step == 0:
        limits = "trainer.limit_train_batches and trainer.max_time"
        raise TrainingError(f"no training step was made: see {limits}")
    if not best.is_file():
        cause = f"{job.cfg.monitor} was never a finite number"
        raise TrainingError(f"no best checkpoint: {cause}, see {job.folder.curves_path}")


# The test ------------------------------------------------------------------------------------

_baselines: dict[str, tuple[str, dict[str, TaskResult]]] = {}
"""The latest results of each baseline, with a key of their inputs, for the points of a sweep."""


def _test(
    job: Job,
    trainer: pl.Trainer,
    best: Path,
) -> tuple[dict[str, float], dict[str, dict[str, float]]]:
    """Return the test metrics of every task, for the best checkpoint and for the baselines."""
    parts = job.parts
    weights = torch.load(
        best,
        map_location="cpu",
        weights_only=True,
    )["state_dict"]
    parts.method.load_state_dict(weights)
    parts.method.to(trainer.strategy.root_device).eval()
    baselines = {}

    with trainer.precision_plugin.forward_context():
        results = run_tasks(parts.tasks, parts.method.model, "test")
        metrics = _metrics(job, trainer, results)
        for name in map(str, job.cfg.baselines):
            baseline_results = _baseline_results(job, trainer, name)
            baselines[name] = _metrics(
                job,
                trainer,
                baseline_results,
                f"{name}-",
            )

    for task, result in results.items():
        if result.reason:
            parts.left_out[task] = result.reason
            log.info(
                "the task %s is left out: %s",
                task,
                result.reason,
            )

    return metrics, baselines


def _baseline_results(
    job: Job,
    trainer: pl.Trainer,
    name: str,
) -> dict[str, TaskResult]:
    """Return the results of a baseline; points of a sweep with the same inputs share them."""
    node = job.cfg.baselines[name]
    device = trainer.strategy.root_device
    inputs = [
        plain(node),
        plain(job.cfg.suite),
        job.parts.digests,
        job.parts.encoder.digests,
    ]
    key = f"{inputs} {device} {trainer.precision}"

    if name not in _baselines or _baselines[name][0] != key:
        model = built(node).to(device).eval()
        _baselines[name] = (key, run_tasks(job.parts.tasks, model, "test"))

    return _baselines[name][1]


def _metrics(
    job: Job,
    trainer: pl.Trainer,
    results: Mapping[str, TaskResult],
    prefix: str = "",
) -> dict[str, float]:
    """Write the predictions of each task, and return its metrics by their keys."""
    metrics = {}
    for task, result in results.items():
        if result.predictions and trainer.is_global_zero:  # an average of other tasks has none
            runs.write_predictions(
                job.folder.predictions,
                f"{prefix}{task}",
                result.predictions,
            )
        for name, value in result.metrics.items():
            metrics[f"test/{task}/{name}"] = value

    return metrics
