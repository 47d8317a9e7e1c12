"""Measure the memory and the reading time of training data, for a million sentences like those of
Wikipedia.

    make bench-data                               # or: python benchmarks/data.py
    make bench-data ARGS="--rows 1000000 --encoder tiny"

The sentences are made up, as long as those of Wikipedia, and read from a file: data=wiki_sentences
with data.train=[FILE]. Each case is a fresh process that builds the data, tokenises the sentences
and iterates over some batches, as training does. The first time, it fills the token cache; the
second time, it reads from it. Memory is the peak of the resident set above that of the same process
with a thousand sentences. It includes the pages of the token cache, which is mapped; the system
reclaims them when needed.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gaussian import highest_resident  # beside this file
from rich.console import Console
from rich.table import Table

from lightning_cse.runs import environment

FEW = 1000
GOAL_MIB = 1536
BATCHES = 200
MIB = 2**20


def sentences(count: int) -> Iterator[str]:
    """Yield made-up sentences of 12 to 34 words (on average 23, about 130 characters), like those
    of Wikipedia.
    """
    draw = random.Random(0)  # noqa: S311 - no secret
    syllables = [
        a + b for a in "bcdfglmnprstv" for b in ("a", "e", "i", "o", "u", "an", "er", "in")
    ]
    words = [
        "".join(draw.choices(syllables, k=draw.choice((1, 2, 2, 3, 4)))) for _ in range(50_000)
    ]
    for number in range(count):
        yield " ".join((str(number), *draw.choices(words, k=draw.randint(12, 34)), "."))


def measure(encoder: str, file: str, cache: str, size: int) -> dict[str, float]:
    """Build the data of a file and iterate over batches; run it in a process of its own."""
    from hydra.utils import instantiate

    from lightning_cse.config.compose import compose
    from lightning_cse.data import ContrastiveDataModule

    overrides = ("method=simcse_unsup", "suite=stsb", "data=wiki_sentences", f"encoder={encoder}")
    cfg = compose(
        "train",
        *overrides,
        f"data.train=['{file}']",
        f"data.batch_size={size}",
        f"paths.cache_dir='{cache}'",
    )
    tokenizer = instantiate(cfg.encoder).tokenizer
    start = time.perf_counter()
    data = ContrastiveDataModule(instantiate(cfg.data), tokenize=tokenizer, seed=0)
    read = time.perf_counter()
    data.setup()
    ready = time.perf_counter()
    loader, times = iter(data.train_dataloader()), []
    next(loader)
    for _ in range(min(BATCHES, len(data.train) // size - 1)):
        begun = time.perf_counter()
        next(loader)
        times.append(time.perf_counter() - begun)
    return {
        "rows": len(data.train),
        "read_seconds": read - start,
        "token_seconds": ready - read,
        "batch_ms": 1000 * statistics.median(times),
        "peak_mib": highest_resident() / MIB,
    }


def bench(rows: int, encoder: str, size: int) -> list[dict[str, Any]]:
    """Measure few and many sentences, without and with a token cache, each in a fresh process."""
    found = []
    with tempfile.TemporaryDirectory() as there:
        for count in (FEW, rows):
            file = Path(there) / f"{count}.txt"
            with file.open("w", encoding="utf-8") as out:
                out.writelines(f"{sentence}\n" for sentence in sentences(count))
            for cached in (False, True):
                command = [
                    sys.executable,
                    __file__,
                    "--measure",
                    encoder,
                    str(file),
                    f"{there}/cache",
                    str(size),
                ]
                done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
                found.append({"sentences": count, "cached": cached, **json.loads(done.stdout)})
    return found


def show(cases: list[dict[str, Any]], out: Console) -> None:
    """Print the cases, and the memory of the many sentences above that of the few."""
    table = Table(
        "sentences",
        "token cache",
        "read s",
        "tokenise s",
        "a batch ms",
        "peak MiB",
        "above the few MiB",
    )
    base = max(case["peak_mib"] for case in cases if case["sentences"] == FEW)
    for case in cases:
        times = (
            f"{case['read_seconds']:.1f}",
            f"{case['token_seconds']:.1f}",
            f"{case['batch_ms']:.2f}",
        )
        above = case["peak_mib"] - base
        memory = (f"{case['peak_mib']:,.0f}", f"{above:,.0f}" if case["sentences"] > FEW else "")
        table.add_row(
            f"{case['sentences']:,}", "read" if case["cached"] else "filled", *times, *memory
        )
    out.print(table, f"goal for a million sentences: below {GOAL_MIB:,} MiB above the few")


def main() -> None:
    """Measure and print; see the top of this file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--encoder", default="minilm_l6", help="whose tokenizer is used")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument(
        "--json", type=Path, metavar="FILE", default=Path(__file__).with_suffix(".json")
    )
    parser.add_argument("--measure", nargs=4, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.measure:
        encoder, file, cache, size = given.measure
        Console(soft_wrap=True).print_json(json.dumps(measure(encoder, file, cache, int(size))))
        return
    about = environment() | {"load": os.getloadavg()[0]}
    cases = bench(given.rows, given.encoder, given.batch_size)
    show(cases, Console(width=max(120, Console().width), highlight=False))
    given.json.write_text(json.dumps({"environment": about, "cases": cases}, indent=2) + "\n")


if __name__ == "__main__":
    main()
