"""Measure the speed and memory of the pairwise Gaussian similarity, compared with a plain version
of its formula.

    make bench-gaussian                           # or: python benchmarks/gaussian.py
    make bench-gaussian ARGS="--repetitions 9"

Both sides compute `gaussian_similarity_matrix` of n by n Gaussians of width d in float32 on the
CPU, alone ("forward") and with the gradients of a randomly weighted sum ("both"). Repetitions
alternate between the sides, so that a busy machine slows both; the first of each is not counted.
Memory is measured in a fresh process for each case. It is the rise of the resident set after the
inputs are made and the libraries are warm (both sides have run once on two rows).
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from lightning_cse.embeddings import GaussianEmbedding
from lightning_cse.runs import environment
from lightning_cse.similarity import gaussian_similarity_matrix

CASES = ((32, 384), (128, 384), (512, 768))
REDUCES = ("mean_of_sims", "sim_of_sum")
PASSES = ("forward", "both")
MIB = 2**20

Matrix = Callable[[GaussianEmbedding, GaussianEmbedding, Any], Tensor]


def naive(a: GaussianEmbedding, b: GaussianEmbedding, reduce: str) -> Tensor:
    """Compute the formula directly, over a tensor of all pairs and dimensions."""
    a_variance, b_variance = a.log_variance.exp()[:, None], b.log_variance.exp()
    distance = (a.mean[:, None] - b.mean).square()
    kl = ((a_variance + distance) / b_variance - 1 - (a.log_variance[:, None] - b.log_variance)) / 2
    return (1 / (1 + kl)).mean(dim=-1) if reduce == "mean_of_sims" else 1 / (1 + kl.sum(dim=-1))


SIDES: dict[str, Matrix] = {"naive": naive, "ours": gaussian_similarity_matrix}


def make_work(n: int, d: int, reduce: str, passes: str) -> Callable[[str], None]:
    """Make inputs, and return a function that computes on them for a given side."""
    generator = torch.Generator().manual_seed(0)
    means, logs = torch.randn(2, 2, n, d, generator=generator)
    weights = torch.randn(n, n, generator=generator)
    leaves = [
        tensor.requires_grad_(passes == "both")
        for k in range(2)
        for tensor in (means[k].tanh(), logs[k].clone())
    ]
    a, b = GaussianEmbedding(*leaves[:2]), GaussianEmbedding(*leaves[2:])

    def work(side: str) -> None:
        similarity = SIDES[side](a, b, reduce)
        if passes == "both":
            torch.autograd.grad(similarity, leaves, weights)

    return work


def seconds(n: int, d: int, reduce: str, passes: str, repetitions: int) -> dict[str, list[float]]:
    """Return the seconds of each repetition, by side."""
    work = make_work(n, d, reduce, passes)
    times: dict[str, list[float]] = {side: [] for side in SIDES}
    for repetition in range(repetitions + 1):
        for side in sorted(SIDES, reverse=repetition % 2 == 0):
            start = time.perf_counter()
            work(side)
            if repetition:
                times[side].append(time.perf_counter() - start)
    return times


def highest_resident() -> int:
    """Return the largest resident set so far, in bytes."""
    status = Path("/proc/self/status")
    if status.is_file():
        return next(
            int(line.split()[1]) * 1024
            for line in status.read_text().splitlines()
            if line[:5] == "VmHWM"
        )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def forget_highest_resident() -> bool:
    """Reset the largest resident set, and return whether the system can do so."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return False
    return True


def measure_memory(side: str, n: int, d: int, reduce: str, passes: str) -> dict[str, Any]:
    """Return the memory in bytes above the inputs; run it in a process of its own."""
    for warm in SIDES:
        make_work(2, d, reduce, passes)(warm)
    work = make_work(n, d, reduce, passes)
    reset = forget_highest_resident()
    before = highest_resident()
    work(side)
    source = (
        "VmHWM, reset before"
        if reset
        else "rise of the process's peak, which misses what lies below an earlier peak"
    )
    return {"bytes": highest_resident() - before, "how": source}


def memory(side: str, n: int, d: int, reduce: str, passes: str) -> dict[str, Any]:
    """Run `measure_memory` in a fresh process."""
    command = [sys.executable, __file__, "--memory", side, str(n), str(d), reduce, passes]
    process = subprocess.run(command, capture_output=True, text=True, check=True)
    result: dict[str, Any] = json.loads(process.stdout)
    return result


def bench(repetitions: int) -> list[dict[str, Any]]:
    """Measure all cases."""
    rows = []
    for n, d in CASES:
        for reduce in REDUCES:
            for passes in PASSES:
                times = seconds(n, d, reduce, passes, repetitions)
                median = {side: statistics.median(values) for side, values in times.items()}
                used = {side: memory(side, n, d, reduce, passes) for side in SIDES}
                rows.append(
                    {
                        "n": n,
                        "d": d,
                        "reduce": reduce,
                        "passes": passes,
                        "seconds": times,
                        "speed, ours over naive": median["naive"] / median["ours"],
                        "peak bytes above inputs": {
                            side: value["bytes"] for side, value in used.items()
                        },
                        "memory measured by": used["ours"]["how"],
                    }
                )
    return rows


def show(rows: list[dict[str, Any]], repetitions: int, out: Console) -> None:
    """Print the results as a table."""
    table = Table(title=f"medians of {repetitions}", title_justify="left")
    for column in (
        "n x n x d",
        "reduce",
        "passes",
        "naive ms",
        "ours ms",
        "times as fast",
        "naive MiB",
        "ours MiB",
    ):
        table.add_column(column, justify="left" if column in {"reduce", "passes"} else "right")
    for row in rows:
        times, used = row["seconds"], row["peak bytes above inputs"]
        table.add_row(
            f"{row['n']} x {row['n']} x {row['d']}",
            row["reduce"],
            row["passes"],
            *(f"{1000 * statistics.median(times[side]):.1f}" for side in SIDES),
            f"{row['speed, ours over naive']:.1f}",
            *(f"{used[side] / MIB:.1f}" for side in SIDES),
        )
    out.print(table)


def main() -> None:
    """Measure, print and write; see the top of this file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument(
        "--json", type=Path, metavar="FILE", default=Path(__file__).with_suffix(".json")
    )
    parser.add_argument("--memory", nargs=5, help=argparse.SUPPRESS)
    args = parser.parse_args()
    out = Console(width=max(120, Console().width), highlight=False)
    if args.memory:
        side, n, d, reduce, passes = args.memory
        out.print(json.dumps(measure_memory(side, int(n), int(d), reduce, passes)), soft_wrap=True)
        return
    if args.repetitions < 1:
        parser.error("--repetitions: at least 1")
    about = environment() | {"load": os.getloadavg()[0]}
    rows = bench(args.repetitions)
    show(rows, args.repetitions, out)
    args.json.write_text(json.dumps({"environment": about, "cases": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
