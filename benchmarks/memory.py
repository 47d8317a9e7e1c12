"""Compare the memory that a training estimates before its first step with what it takes.

    LIGHTNING_CSE_DATA=CORPORA python benchmarks/memory.py encoder=minilm_l6 encoder=FOLDER

Each argument is the override of an encoder (several, with commas between them). SimCSE trains a few
steps on NLI triplets with it, in a process of its own, at the batch size given. Measured is the
growth of the process's peak memory over what it has before its first step, with the weights.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

import pytorch_lightning as pl
from hydra.utils import instantiate
from measuring import silence

from lightning_cse.callbacks.memory import GIB, Memory, MemoryEstimate
from lightning_cse.config.compose import compose
from lightning_cse.engine.build import build
from lightning_cse.runs import environment
from lightning_cse.runs.machine import peak_memory


class Kept(MemoryEstimate):
    """The estimate, and the memory of the process before it."""

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Measure, then estimate."""
        # Weights are mapped from their file, and in memory only once they are read.
        sum(float(weight.sum()) for weight in pl_module.parameters())
        self.before = resident()
        super().on_train_start(trainer, pl_module)

    def report(self, trainer: pl.Trainer, memory: Memory) -> None:
        """Keep it."""
        self.memory = memory


def main() -> None:
    """Measure in a process for each encoder, and print."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("encoders", nargs="+")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--precision", default="32-true")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        sys.stdout.write(json.dumps(measure(given)) + "\n")
        return

    sys.stdout.write(f"{environment()['machine']['cpu']}\n")
    for encoder in given.encoders:
        settings = [f"--{name}={getattr(given, name)}" for name in ("batch", "steps", "precision")]
        done = subprocess.run(
            [sys.executable, Path(__file__), encoder, "--child", *settings],
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        numbers = json.loads(done.stdout.splitlines()[-1])
        ratio = numbers["estimated"] / numbers["measured"]
        sys.stdout.write(f"{encoder}: {numbers}, estimated / measured {ratio:.2f}\n")


def resident() -> int:
    """Return the bytes of memory that this process has now (Linux)."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def measure(given: argparse.Namespace) -> dict[str, float]:
    """Train a few steps, and return the memory estimated and measured, in GiB."""
    cfg = compose(
        "train",
        "+experiment=simcse_sup",
        "corpora=partial",
        *given.encoders[0].split(","),
        f"data.batch_size={given.batch}",
        f"trainer.precision={given.precision}",
        f"trainer.max_steps={given.steps}",
        "trainer.accelerator=cpu",
        "diag.evaluation=none",
        "data.train_rows=2000",
        "data.held_out_rows=2",
    )
    pl.seed_everything(0, workers=True, verbose=False)
    silence()
    parts = build(cfg)
    parts.data.setup()
    kept = Kept()
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    trainer = instantiate(cfg.trainer, **quiet, callbacks=[kept])
    trainer.fit(parts.method, parts.data)
    memory = kept.memory

    return {
        "estimated": round(memory.total / GIB, 2),
        "measured": round((peak_memory() * 2**20 - kept.before + memory.weights) / GIB, 2),
        "weights": round(memory.weights / GIB, 2),
        "gradients": round(memory.gradients / GIB, 2),
        "optimizer": round(memory.optimizer / GIB, 2),
        "activations": round(memory.activations / GIB, 2),
        "overhead": round(memory.overhead / GIB, 2),
    }


if __name__ == "__main__":
    main()
