"""Measure the speed and memory of the pairwise Gaussian similarity, compared with a plain version
of its formula.

    make bench-gaussian                           # or: python benchmarks/gaussian.py
    make bench-gaussian ARGS="--repetitions 9 --sizes 512x768"

Both sides compute `gaussian_similarity_matrix` of n by n Gaussians of width d in float32 on the
CPU, alone ("forward") and with the gradients of a randomly weighted sum ("both"). Repetitions
alternate between the sides, so that a busy machine slows both; the first of each is not counted.
Memory is measured in a fresh process for each case. It is the rise of the largest resident set
after the inputs are made and both sides have run once on two rows.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import torch
from measuring import (
    MIB,
    Measured,
    console,
    highest_resident,
    in_process,
    machine,
    print_measurement,
    save,
    seconds_of,
    table_of,
)
from torch import Tensor

from lightning_cse.embeddings import GaussianEmbedding
from lightning_cse.similarity import gaussian_similarity_matrix

SIZES = ("32x384", "128x384", "512x768")
REDUCES = ("mean_of_sims", "sim_of_sum")
PASSES = ("forward", "both")

Matrix = Callable[[GaussianEmbedding, GaussianEmbedding, Any], Tensor]


def naive(a: GaussianEmbedding, b: GaussianEmbedding, reduce: str) -> Tensor:
    """Compute the formula directly, over a tensor of all pairs and dimensions."""
    a_variance, b_variance = a.log_variance.exp()[:, None], b.log_variance.exp()
    distance = (a.mean[:, None] - b.mean).square()
    kl = ((a_variance + distance) / b_variance - 1 - (a.log_variance[:, None] - b.log_variance)) / 2
    return (1 / (1 + kl)).mean(dim=-1) if reduce == "mean_of_sims" else 1 / (1 + kl.sum(dim=-1))


SIDES: dict[str, Matrix] = {"naive": naive, "ours": gaussian_similarity_matrix}


def make_work(size: str, reduce: str, passes: str) -> Callable[[str], None]:
    """Make inputs, and return a function that computes on them for a given side."""
    n, d = map(int, size.split("x"))
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


def seconds(size: str, reduce: str, passes: str, repetitions: int) -> dict[str, Measured]:
    """Return the seconds of each repetition, by side."""
    work = make_work(size, reduce, passes)
    times = {side: Measured() for side in SIDES}
    for repetition in range(repetitions + 1):
        for side in sorted(SIDES, reverse=repetition % 2 == 0):
            time = seconds_of(partial(work, side))
            if repetition:
                times[side].values.append(time)

    return times


def measure_memory(side: str, size: str, reduce: str, passes: str) -> None:
    """Print the memory above the inputs; run it in a process of its own."""
    for warm in SIDES:
        make_work(f"2x{size.split('x')[1]}", reduce, passes)(warm)

    work = make_work(size, reduce, passes)
    with contextlib.suppress(OSError):  # on Linux, forget the peak of the imports
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")

    before = highest_resident()
    work(side)
    print_measurement(peak_mib=(highest_resident() - before) / MIB)


def main() -> None:
    """Measure, print and write; see the top of this file."""
    if sys.argv[1:2] == ["--measure"]:
        measure_memory(*sys.argv[2:])
        return

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--sizes", nargs="+", default=SIZES, help="n and d, as in 512x768")
    parser.add_argument(
        "--json", type=Path, metavar="FILE", default=Path(__file__).with_suffix(".json")
    )
    args = parser.parse_args()
    about = machine()
    cases, rows = [], []
    for case in product(args.sizes, REDUCES, PASSES):
        times = seconds(*case, args.repetitions)
        memory = {side: in_process(__file__, "--measure", side, *case) for side in SIDES}
        ratio = times["naive"].median / times["ours"].median
        row = dict(zip(("n x d", "reduce", "passes"), case, strict=True))
        cases.append(
            {
                **row,
                "seconds": {side: measured.values for side, measured in times.items()},
                "speed, ours over naive": ratio,
                "MiB above inputs": {side: memory[side]["peak_mib"] for side in SIDES},
            }
        )
        row |= {f"{side} ms": f"{1000 * times[side].median:.1f}" for side in SIDES}
        row["times as fast"] = f"{ratio:.1f}"
        rows.append(row | {f"{side} MiB": f"{memory[side]['peak_mib']:.1f}" for side in SIDES})

    console().print(table_of(rows, f"medians of {args.repetitions}"))
    save(args.json, {"environment": about, "cases": cases})


if __name__ == "__main__":
    main()
