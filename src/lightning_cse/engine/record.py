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
import torch
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from lightning_cse import runs
from lightning_cse.data.cells import sha256_of
from lightning_cse.engine.build import Parts, built
from lightning_cse.engine.trainer import Training, test_trainer
from lightning_cse.evaluation import TaskResult, keyed
from lightning_cse.methods.evaluated import Evaluated
from lightning_cse.runs.hashing import Identity, portable
from lightning_cse.runs.machine import device_name, peak_memory

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
        log.warning(
            "%d training sentences and %d evaluation sentences are longer than encoder.max_length "
            "or data.max_tokens, and are cut%s",
            *cut.values(),
            "".join(f"\n  {name}: {count:,}" for name, count in by_role.items()),
        )

    return cut | by_role


def test(cfg: DictConfig, parts: Parts, training: Training, predictions: Path) -> dict[str, Any]:
    """Test the best checkpoint and the baselines, write their predictions, and return the metrics,
    what was left out, and the seconds.
    """
    start = time.perf_counter()
    trainer = training.trainer
    best = training.best.path
    runs.check_checkpoint(best)
    weights = torch.load(best, map_location="cpu", weights_only=True)["state_dict"]
    parts.method.load_state_dict(weights)
    parts.method.zero_grad(set_to_none=True)
    trainer.optimizers = []  # their states would take memory beside a baseline
    trainer.strategy.lr_scheduler_configs = []
    trainer.test(parts.method, parts.data, verbose=False)
    results = parts.method.results
    _write_predictions(trainer, predictions, results)
    left_out = {task: result.reason for task, result in results.items() if result.reason}
    baselines = {}
    for name in map(str, cfg.baselines):
        module = Evaluated(built(cfg.baselines[name]))
        quiet = test_trainer(cfg, trainer)
        quiet.test(module, parts.data, verbose=False)
        _write_predictions(quiet, predictions, module.results, f"{name}-")
        baselines[name] = _metrics(module.results)

    return {
        "metrics": _metrics(results),
        "baselines": baselines,
        "left_out": parts.left_out | left_out,
        "seconds": {"test": time.perf_counter() - start},
    }


def _metrics(results: Mapping[str, TaskResult]) -> dict[str, float]:
    return keyed({task: result.metrics for task, result in results.items()}, "test/")


def _write_predictions(
    trainer: pl.Trainer, folder: Path, results: Mapping[str, TaskResult], prefix: str = ""
) -> None:
    for task, result in results.items():
        if result.predictions and trainer.is_global_zero:  # an average of other tasks has none
            runs.write_predictions(folder, f"{prefix}{task}", result.predictions)


def provenance(
    cfg: DictConfig, parts: Parts, folder: runs.Run, run_identity: Identity
) -> dict[str, Any]:
    """Return what a run was made from: its identity, command, data, encoder and environment."""
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
        "encoder": {"name": parts.encoder.name, **parts.encoder.digests},
        "environment": runs.environment(),
    }
    llm_rows = parts.data.provenance

    return entries | ({"provenance": llm_rows} if llm_rows else {})


def measured(
    cfg: DictConfig,
    parts: Parts,
    training: Training,
    folder: runs.Run,
    steps: int,
    seconds: Mapping[str, float],
) -> dict[str, Any]:
    """Return the dev scores, the checkpoint, the device, and what the run took; ``seconds`` are
    those of the test.
    """
    curves = runs.Curves(folder.curves_path).read()
    best = training.best
    timing = training.timing
    device = training.trainer.strategy.root_device
    score = best.best_model_score

    return {
        "steps": steps,
        "best": {
            "step": best.best_step,
            "score": None if score is None else float(score),
            "monitor": cfg.monitor,
        },
        "final": _final(curves),
        "summary": dataclasses.asdict(runs.summarise(curves, cfg.monitor)),
        **({"tuned": tuned} if (tuned := _tuned(cfg, parts)) else {}),
        "stopped_early": _stopped_early(cfg, parts, curves, steps, training.total),
        "checkpoint": {"sha256": sha256_of(best.path)},
        "device": device_name(device),
        "passes": parts.encoder.passes(device),
        "precision": str(training.trainer.precision),
        "seconds": {"training": timing.training, "evaluation": timing.evaluation, **seconds},
        "evaluation_share": timing.evaluation / max(timing.evaluation + timing.training, 1e-9),
        "sentences_per_second": timing.sentences / max(timing.training, 1e-9),
        "peak_memory_mib": peak_memory(),
    }


def _tuned(cfg: DictConfig, parts: Parts) -> dict[str, float | None]:
    """Return the values that a finder has put in the place of the config's."""
    values = {"data.batch_size": parts.data.batch_size, "method.optimizer.lr": parts.method.lr}
    return {key: value for key, value in values.items() if OmegaConf.select(cfg, key) != value}


def _final(curves: Mapping[str, list[tuple[int, float]]]) -> dict[str, float]:
    """Return the values of the last validation."""
    evaluated = {key: points for key, points in curves.items() if key.startswith(("val/", "diag/"))}
    last = max((points[-1][0] for points in evaluated.values()), default=0)

    return {key: points[-1][1] for key, points in evaluated.items() if points[-1][0] == last}


def _stopped_early(
    cfg: DictConfig,
    parts: Parts,
    curves: Mapping[str, list[tuple[int, float]]],
    steps: int,
    total: int,
) -> str | None:
    """Return why training ended before its last step, or None if it did not."""
    if parts.method.is_over:
        return "the learning rate is below that of method.schedule.least"

    patience = cfg.callbacks.get("early_stopping", {}).get("patience")
    if patience is None or steps >= total:
        return None

    scores = [score for step, score in curves.get(cfg.monitor, ()) if step > 0]
    if len(scores) <= patience:
        return None

    least = cfg.callbacks.early_stopping.min_delta
    by = f" by more than {least:g}" if least else ""

    return f"{cfg.monitor} has not improved{by} in {patience} evaluations"


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
