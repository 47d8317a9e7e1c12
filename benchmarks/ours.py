"""Our side of the benchmarks: training as with ``+experiment=simcse_inli``, without evaluation and
record.
"""

from __future__ import annotations

import os
import time
from typing import Any

import pytorch_lightning as pl
from hydra.utils import instantiate
from measuring import ON_GPU, ROLES, Clock, Size
from omegaconf import DictConfig, OmegaConf

from lightning_cse.config.compose import compose_run
from lightning_cse.encoders.find import find_encoder
from lightning_cse.engine.build import build

LIGHTNING = {"bf16": "bf16-mixed", "float32": "32-true"}


class LightningClock(Clock, pl.Callback):
    """A clock for Lightning's Trainer."""

    def on_train_batch_end(self, *_: Any) -> None:
        """Record the end of a step."""
        self.tick()


def config_of(experiment: str, size: Size, *overrides: str) -> DictConfig:
    """Return the config of an experiment as the training command composes it."""
    settings = [
        f"+experiment={experiment}",
        f"encoder={size.encoder}",
        *([f"+adapter={size.adapter}"] if size.adapter else []),
        "diag.evaluation=none",
        f"data.batch_size={size.batch}",
        f"data.train_rows={size.steps * size.batch}",
        "data.held_out_rows=2",
        f"method.chunk_size={size.chunk or 'null'}",
        "paths.cache_dir=null",
        f"trainer.precision={LIGHTNING[size.precision]}",
        f"trainer.accelerator={'gpu' if ON_GPU else 'cpu'}",
        "trainer.max_epochs=1",
        *([] if os.environ.get("LIGHTNING_CSE_DATA") else ["paths=sample"]),
    ]
    return compose_run("train", [*settings, *overrides])


def simcse(size: Size, *overrides: str) -> DictConfig:
    """Return the config of SimCSE on INLI triplets, one per premise, so that both sides have the
    same rows.
    """
    return config_of("simcse_inli", size, "data.rows.positive=explicit", *overrides)


def sentences_of(cfg: DictConfig) -> dict[str, list[str]]:
    """Return the training sentences of a config by role."""
    rows = build(cfg).data.train
    return {role: rows[role][:] for role in ROLES}


def train_ours(
    cfg: DictConfig, *callbacks: pl.Callback, **trained_with: Any
) -> tuple[float, pl.LightningModule]:
    """Train one epoch with Lightning; return seconds per step (including tokenisation), and the
    method.
    """
    pl.seed_everything(0, workers=True, verbose=False)
    parts = build(cfg)
    start = time.perf_counter()
    parts.data.setup()
    tokenising = time.perf_counter() - start
    clock = LightningClock()
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    trainer = instantiate(cfg.trainer, **quiet, callbacks=[clock, *callbacks], **trained_with)
    trainer.fit(parts.method, parts.data)
    return clock.seconds + tokenising / len(clock.ends), parts.method


def for_theirs(cfg: DictConfig) -> dict[str, Any]:
    """Return the settings with which sentence-transformers trains as a config says."""
    encoder = cfg.encoder
    return {
        "folder": str(find_encoder(encoder.name, encoder.source, encoder.package)),
        "pooling": encoder.pooling,
        "adapter": encoder.adapter and OmegaConf.to_container(encoder.adapter),
        "max_length": encoder.max_length,
        "batch": cfg.data.batch_size,
        "lr": cfg.method.optimizer.lr,
        "clip": cfg.trainer.gradient_clip_val,
        "temperature": cfg.method.loss.temperature,
        "chunk": cfg.method.chunk_size,
        "bf16": cfg.trainer.precision == LIGHTNING["bf16"],
    }
