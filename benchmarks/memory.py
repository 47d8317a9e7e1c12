"""Compare the memory that a training estimates before its first step with what the run takes.

    LIGHTNING_CSE_DATA=CORPORA python benchmarks/memory.py encoder=minilm_l6 encoder=FOLDER

Each argument is the override of an encoder (several, with commas between them). SimCSE trains some
steps on NLI triplets with it, at the batch size given, evaluates on the way, and tests the best
checkpoint beside the untrained encoder. Measured is the peak memory of the process over what it has
before its first step, with the weights. The peak grows for about a hundred steps.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

import pytorch_lightning as pl

from lightning_cse.callbacks.memory import GIB, Memory, MemoryEstimate
from lightning_cse.runs import environment
from lightning_cse.runs.machine import return_freed_memory

NAME = "memory.json"


class Kept(MemoryEstimate):
    """The estimate, and the memory of the process before it, in a file of the run's folder."""

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Measure, then estimate."""
        # Weights are mapped from their file, and in memory only once they are read.
        sum(float(weight.sum()) for weight in pl_module.parameters())
        return_freed_memory()
        self.before = resident()
        super().on_train_start(trainer, pl_module)

    def report(self, trainer: pl.Trainer, memory: Memory) -> None:
        """Keep it."""
        kept = {"estimated": memory.total, **asdict(memory), "before": self.before}
        (Path(trainer.default_root_dir) / NAME).write_text(json.dumps(kept))


def main() -> None:
    """Make a run for each encoder, and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("encoders", nargs="+")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--precision", default="32-true")
    given = parser.parse_args()
    sys.stdout.write(f"{environment()['machine']['cpu']}\n")
    for encoder in given.encoders:
        with tempfile.TemporaryDirectory() as folder:
            numbers = measure(encoder.split(","), given, Path(folder))

        ratio = numbers["estimated"] / numbers["measured"]
        sys.stdout.write(f"{encoder}: {numbers}, estimated / measured {ratio:.2f}\n")
        sys.stdout.flush()


def resident() -> int:
    """Return the bytes of memory that this process has now (Linux)."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def measure(encoder: list[str], given: argparse.Namespace, folder: Path) -> dict[str, float]:
    """Make a short run in a process, and return the memory estimated and measured, in GiB."""
    command = [
        *(sys.executable, "-m", "lightning_cse.train"),
        "+experiment=simcse_sup",
        "corpora=partial",
        "suite=stsb",
        *encoder,
        f"paths.runs_dir={folder}",
        f"data.batch_size={given.batch}",
        f"trainer.precision={given.precision}",
        f"trainer.max_steps={given.steps}",
        "trainer.accelerator=cpu",
        "trainer.max_epochs=-1",
        "least_evaluations=1",
        "limits.dev_pairs=200",
        "limits.test_pairs=200",
        "diag.sentences=100",
        "data.train_rows=2000",
        "data.held_out_rows=50",
        "+callbacks.kept._target_=memory.Kept",
        "logger=csv",
    ]
    path = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        command, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(done.stderr)

    (kept,) = folder.rglob(NAME)
    numbers = json.loads(kept.read_text())
    peak = json.loads((kept.parent / "record.json").read_text())["peak_memory_mib"] * 2**20
    numbers["measured"] = peak - numbers["before"] + numbers["weights"]

    return {name: round(number / GIB, 2) for name, number in numbers.items()}


if __name__ == "__main__":
    main()
