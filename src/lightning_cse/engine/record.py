"""The record of a run: what it was made from, and everything that was measured."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from lightning_cse import runs
from lightning_cse.callbacks.checkpoints import BEST
from lightning_cse.config.compose import task_overrides
from lightning_cse.data.files import sha256_of
from lightning_cse.engine.build import Parts
from lightning_cse.engine.trainer import Training
from lightning_cse.runs.machine import device_name, peak_memory
from lightning_cse.runs.redaction import portable


def make_record(
    parts: Parts,
    training: Training,
    folder: runs.Run,
    key: str,
    decisive: Mapping[str, Any],
    tested: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the record of a run: its identity (`runs.decisive`, and the key by which tables find
    it), what it was made from, its training, and the entries of its test.
    """
    return {
        "name": folder.name,
        "config_hash": folder.config_hash,
        "seed": folder.seed,
        "key": key,
        "overrides": portable(task_overrides()),
        "decisive": decisive,
        **_inputs(parts),
        "environment": runs.environment(),
        **tested,
        **_training(parts, training, folder),
        "seconds": {
            "training": training.timing.training,
            "evaluation": training.timing.evaluation,
            **tested["seconds"],
        },
        "peak_memory_mib": peak_memory(),
    }


def _inputs(parts: Parts) -> dict[str, Any]:
    llm_rows = parts.data.provenance

    return {
        "version": parts.method.version,
        "model": parts.method.model.settings(),
        "parameters": parts.parameter_counts,
        "data": parts.digests,
        "rows": parts.data.counts,
        "task_data": {name: task.digests for name, task in parts.tasks.items()},
        "diagnostics": parts.diagnostics.sizes,
        "encoder": parts.encoder_digests,
        **({"provenance": llm_rows} if llm_rows else {}),
    }


def _training(parts: Parts, training: Training, folder: runs.Run) -> dict[str, Any]:
    """Return the dev scores, the checkpoint, the device and the speed of a training."""
    curves = runs.Curves(folder.curves_path).read()
    best = training.best
    timing = training.timing
    device = training.trainer.strategy.root_device
    score = best.best_model_score

    return {
        "steps": training.steps,
        "best": {
            "step": best.best_step,
            "score": None if score is None else float(score),
            "monitor": parts.monitor,
        },
        "final": _last_validation(curves),
        "summary": dataclasses.asdict(runs.summarise(curves, parts.monitor)),
        "stopped_early": training.stopped_early,
        "checkpoint": {"sha256": sha256_of(folder.checkpoints / BEST)},
        "device": device_name(device),
        "passes": parts.encoder.passes(device).name,
        "precision": str(training.trainer.precision),
        "evaluation_share": timing.evaluation / max(timing.evaluation + timing.training, 1e-9),
        "sentences_per_second": timing.sentences / max(timing.training, 1e-9),
    }


def _last_validation(curves: Mapping[str, list[tuple[int, float]]]) -> dict[str, float]:
    """Return the values of the last validation."""
    evaluated = {key: points for key, points in curves.items() if key.startswith(("val/", "diag/"))}
    last = max((points[-1][0] for points in evaluated.values()), default=0)

    return {key: points[-1][1] for key, points in evaluated.items() if points[-1][0] == last}
