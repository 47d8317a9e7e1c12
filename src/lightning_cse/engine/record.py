"""The test of a run, and the record of everything that was measured."""

from __future__ import annotations

import dataclasses
import logging
import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
from hydra.core.hydra_config import HydraConfig

from lightning_cse import runs
from lightning_cse.callbacks import Lines
from lightning_cse.callbacks.checkpoints import BEST
from lightning_cse.data import OwnRows
from lightning_cse.data.files import sha256_of
from lightning_cse.engine.build import Parts
from lightning_cse.engine.trainer import Training
from lightning_cse.evaluation import TaskResult, keyed, suiting_tasks
from lightning_cse.methods.evaluated import Evaluated
from lightning_cse.runs.hashing import Identity, portable
from lightning_cse.runs.machine import device_name, peak_memory
from lightning_cse.runs.untrained import UNTRAINED

log = logging.getLogger(__name__)


def parameter_counts(parts: Parts) -> dict[str, int]:
    """Return the numbers of all parameters and of those that are trained."""
    sizes = [(weight.numel(), weight.requires_grad) for weight in parts.method.parameters()]
    return {
        "total": sum(size for size, _ in sizes),
        "trainable": sum(size for size, is_trained in sizes if is_trained),
    }


def cut_sentences(parts: Parts) -> dict[str, int]:
    """Count the sentences that are cut, in training by role, and warn of them."""
    longest = parts.encoder.max_length - max(map(len, parts.method.templates))
    by_role = parts.data.cut_to(longest)
    cut = {
        "sentences_cut": sum(by_role.values()),
        "evaluation_sentences_cut": int((parts.data.evaluation_tokens.lengths > longest).sum()),
    }

    if any(cut.values()):
        most = parts.data.max_tokens
        by_data = most is not None and most < longest
        log.warning(
            "%d training sentences and %d evaluation sentences are longer than %s, and are cut; to "
            "change this, override %s%s",
            *cut.values(),
            f"{most} tokens in training" if by_data else f"{longest} tokens",
            "data.max_tokens=null"
            if by_data
            else "encoder.max_length=NUMBER (auto: the encoder's own maximum)",
            "".join(f"\n  {name}: {count:,}" for name, count in by_role.items()),
        )

    return cut | by_role


def test(parts: Parts, training: Training, folder: runs.Run) -> dict[str, Any]:
    """Test the best checkpoint and the baselines, write their predictions, and return the metrics,
    what was left out, and the seconds; for files of one's own, also the dev scores of the best
    checkpoint and of the untrained encoder.
    """
    start = time.perf_counter()
    trainer = training.trainer
    parts.method.load_state_dict(runs.read_checkpoint(training.best.path)["state_dict"])
    parts.method.zero_grad(set_to_none=True)
    trainer.optimizers = []  # their states would take memory beside a baseline
    trainer.strategy.lr_scheduler_configs = []
    trainer.test(parts.method, parts.data, verbose=False)
    results = parts.method.results
    predictions = folder.predictions
    _write_predictions(trainer, predictions, results)
    left_out = {task: result.reason for task, result in results.items() if result.reason}
    baselines: dict[str, dict[str, float]] = {}
    dev: dict[str, Any] = {}
    for name, make_baseline in parts.make_baselines.items():
        module = Evaluated(make_baseline())
        if not suiting_tasks(parts.tasks, module.model, "test"):
            baselines[name] = {}
            continue

        tester = parts.make_trainer(
            logger=False,
            callbacks=[Lines(monitor="")],  # no line of a step
            enable_checkpointing=False,
            enable_progress_bar=trainer.progress_bar_callback is not None,
        )
        tester.test(module, parts.data, verbose=False)
        _write_predictions(tester, predictions, module.results, f"{name}-")
        baselines[name] = _metrics(module.results)
        if name == UNTRAINED and isinstance(parts.data.settings.rows, OwnRows):
            tester.validate(module, parts.data, verbose=False)
            dev = {
                "dev": {
                    "trained": _dev_scores(folder, training.best.best_step),
                    name: _metrics(module.results, "val/"),
                }
            }

    return {
        "metrics": _metrics(results),
        "baselines": baselines,
        **dev,
        "left_out": parts.left_out | left_out,
        "seconds": {"test": time.perf_counter() - start},
    }


def _metrics(results: Mapping[str, TaskResult], stage: str = "test/") -> dict[str, float]:
    return keyed({task: result.metrics for task, result in results.items()}, stage)


def _dev_scores(folder: runs.Run, step: int | None) -> dict[str, float]:
    """Return the dev scores at a step."""
    curves = runs.Curves(folder.curves_path).read()
    dev = {key: dict(points) for key, points in curves.items() if key.startswith("val/")}

    return {key: values[step] for key, values in dev.items() if step in values}


def _write_predictions(
    trainer: pl.Trainer, folder: Path, results: Mapping[str, TaskResult], prefix: str = ""
) -> None:
    for task, result in results.items():
        if result.predictions and trainer.is_global_zero:  # an average of other tasks has none
            runs.write_predictions(folder, f"{prefix}{task}", result.predictions)


def provenance(parts: Parts, folder: runs.Run, run_identity: Identity) -> dict[str, Any]:
    """Return what a run was made from: its identity, command, data, diagnostics, encoder and
    environment.
    """
    overrides = HydraConfig.get().overrides.task if HydraConfig.initialized() else []
    entries = {
        "name": folder.name,
        "config_hash": folder.config_hash,
        "seed": folder.seed,
        "key": run_identity.key,
        "overrides": portable(overrides),
        "decisive": run_identity.decisive,
        "version": parts.method.version,
        "model": parts.method.model.settings(),
        "parameters": parameter_counts(parts),
        "data": parts.digests,
        "task_data": {name: task.digests for name, task in parts.tasks.items()},
        "diagnostics": parts.diagnostics.sizes,
        "encoder": {"name": parts.encoder.name, **parts.encoder.digests},
        "environment": runs.environment(),
    }
    llm_rows = parts.data.provenance

    return entries | ({"provenance": llm_rows} if llm_rows else {})


def tunable(parts: Parts) -> dict[str, float | None]:
    """Return the values that a finder may change, by their keys."""
    return {"data.batch_size": parts.data.batch_size, "method.optimizer.lr": parts.method.lr}


def measured(
    parts: Parts,
    training: Training,
    folder: runs.Run,
    steps: int,
    configured: Mapping[str, float | None],
) -> dict[str, Any]:
    """Return the dev scores, the checkpoint, the device, and what the run took; ``configured`` are
    the `tunable` values of the config.
    """
    curves = runs.Curves(folder.curves_path).read()
    best = training.best
    monitor = str(best.monitor)
    timing = training.timing
    device = training.trainer.strategy.root_device
    score = best.best_model_score
    tuned = {key: value for key, value in tunable(parts).items() if configured[key] != value}

    return {
        "steps": steps,
        "best": {
            "step": best.best_step,
            "score": None if score is None else float(score),
            "monitor": monitor,
        },
        "final": _final(curves),
        "summary": dataclasses.asdict(runs.summarise(curves, monitor)),
        **({"tuned": tuned} if tuned else {}),
        "stopped_early": _stopped_early(parts, training, steps),
        "checkpoint": {"sha256": sha256_of(folder.checkpoints / BEST)},
        "device": device_name(device),
        "passes": parts.encoder.passes(device).name,
        "precision": str(training.trainer.precision),
        "seconds": {"training": timing.training, "evaluation": timing.evaluation},
        "evaluation_share": timing.evaluation / max(timing.evaluation + timing.training, 1e-9),
        "sentences_per_second": timing.sentences / max(timing.training, 1e-9),
        "peak_memory_mib": peak_memory(),
    }


def _final(curves: Mapping[str, list[tuple[int, float]]]) -> dict[str, float]:
    """Return the values of the last validation."""
    evaluated = {key: points for key, points in curves.items() if key.startswith(("val/", "diag/"))}
    last = max((points[-1][0] for points in evaluated.values()), default=0)

    return {key: points[-1][1] for key, points in evaluated.items() if points[-1][0] == last}


def _stopped_early(parts: Parts, training: Training, steps: int) -> str | None:
    """Return why training ended before its last step, or None if it did not."""
    if parts.method.is_over:
        return "the learning rate is below that of method.schedule.least"

    stopper = training.stopper
    if stopper is None or steps >= training.total or stopper.wait_count < stopper.patience:
        return None

    by = f" by more than {abs(stopper.min_delta):g}" if stopper.min_delta else ""

    return f"{stopper.monitor} has not improved{by} in {stopper.patience} evaluations"


def final_values(record: Mapping[str, Any]) -> dict[str, float]:
    """Return the finite numbers of a record for a table of runs: ``test/...``, ``best/score``,
    ``summary/...``.
    """
    best = {f"best/{key}": record["best"][key] for key in ("score", "step")}
    summary = {f"summary/{key}": value for key, value in (record.get("summary") or {}).items()}
    values = {**record["metrics"], **best, **summary}

    return {
        key: value for key, value in values.items() if value is not None and math.isfinite(value)
    }
