"""The test of a run: its best checkpoint, then the baselines."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Any

import pytorch_lightning as pl

from lightning_cse import runs
from lightning_cse.callbacks import Lines
from lightning_cse.data import OwnRows
from lightning_cse.engine.build import Parts
from lightning_cse.engine.trainer import Training
from lightning_cse.evaluation import TaskResult, keyed, suiting_tasks
from lightning_cse.methods.evaluated import Evaluated
from lightning_cse.runs.table import UNTRAINED

log = logging.getLogger(__name__)


def test(training: Training, parts: Parts, folder: runs.Run) -> dict[str, Any]:
    """Test the best checkpoint and the baselines, write their predictions, and return the entries
    of the record: metrics, what was left out, and the seconds; for files of one's own, also the dev
    scores of the best checkpoint and of the untrained encoder.
    """
    start = time.perf_counter()
    tested = _test_best(training, parts, folder) | _test_baselines(training, parts, folder)

    return {**tested, "seconds": {"test": time.perf_counter() - start}}


def fast_dev_run(parts: Parts) -> None:
    """Make one step, one validation and one test, which leave nothing."""
    trainer = parts.make_trainer(callbacks=[parts.diagnostics, *parts.callbacks])
    trainer.fit(parts.method, parts.data)
    trainer.test(parts.method, parts.data, verbose=False)
    log.info("trainer.fast_dev_run: a step, a validation and a test were made; there is no record")


def _test_best(training: Training, parts: Parts, folder: runs.Run) -> dict[str, Any]:
    trainer = training.trainer
    method = parts.method
    method.load_state_dict(runs.read_checkpoint(training.best.path)["state_dict"])
    method.zero_grad(set_to_none=True)
    trainer.optimizers = []  # their states would take memory beside a baseline
    trainer.strategy.lr_scheduler_configs = []
    trainer.test(method, parts.data, verbose=False)
    _write_predictions(trainer, folder, method.results)
    reasons = {task: result.reason for task, result in method.results.items() if result.reason}

    return {"metrics": _metrics(method.results, "test/"), "left_out": parts.left_out | reasons}


def _test_baselines(training: Training, parts: Parts, folder: runs.Run) -> dict[str, Any]:
    baselines: dict[str, dict[str, float]] = {}
    dev: dict[str, dict[str, float]] = {}
    for name, make_baseline in parts.make_baselines.items():
        baselines[name] = {}
        module = Evaluated(make_baseline())
        if not suiting_tasks(parts.tasks, module.model, "test"):
            continue

        trainer = parts.make_trainer(
            logger=False,
            callbacks=[Lines(monitor="")],  # no line of a step
            enable_checkpointing=False,
            enable_progress_bar=training.trainer.progress_bar_callback is not None,
        )
        trainer.test(module, parts.data, verbose=False)
        _write_predictions(trainer, folder, module.results, f"{name}-")
        baselines[name] = _metrics(module.results, "test/")
        if name == UNTRAINED and isinstance(parts.data.settings.rows, OwnRows):
            trainer.validate(module, parts.data, verbose=False)
            curves = runs.Curves(folder.curves_path).read()
            dev["trained"] = {
                key: value
                for key, points in curves.items()
                for step, value in points
                if key.startswith("val/") and step == training.best.best_step
            }
            dev[name] = _metrics(module.results, "val/")

    return {"baselines": baselines, **({"dev": dev} if dev else {})}


def _metrics(results: Mapping[str, TaskResult], prefix: str) -> dict[str, float]:
    return keyed({task: result.metrics for task, result in results.items()}, prefix)


def _write_predictions(
    trainer: pl.Trainer, folder: runs.Run, results: Mapping[str, TaskResult], prefix: str = ""
) -> None:
    for task, result in results.items():
        if result.predictions and trainer.is_global_zero:  # an average of other tasks has none
            runs.write_predictions(folder.predictions, f"{prefix}{task}", result.predictions)
