"""Measure the speed of training and encoding, compared with sentence-transformers under the same
conditions.

    make bench                                    # or: python benchmarks/bench.py
    make bench ARGS="--steps 20 --precision bf16"
    make bench ARGS="--chunk 64 --batch 512"      # method.chunk_size, for batches above memory
    make bench ARGS="--encoder mpnet_base --batch 32"
    make bench ARGS="--encoder qwen2_5_coder_0_5b --adapter lora --batch 16 --steps 3"
    make bench ARGS=--profile                     # only the shares of a step's time

Both sides have the same rows, encoder, pooling, adapter, precision and threads. They train
all-MiniLM-L6-v2 or ``--encoder`` on INLI triplets (from ``LIGHTNING_CSE_DATA`` if set, else from
the sample corpus) with the in-batch softmax, AdamW, gradient clipping at 1 and batches of 64
triplets. Our side is ``+experiment=simcse_inli`` (Lightning's Trainer, SimCSE with its head;
without evaluation, checkpoints or logging). Their side is SentenceTransformerTrainer with
MultipleNegativesRankingLoss or, with ``--chunk``, CachedMultipleNegativesRankingLoss. Repetitions
alternate, so that a busy machine slows both sides. The first step of each is not counted.
Tokenisation counts on both sides (ours once, theirs per batch). If there is a GPU, both sides use
it. Config, method and data are built as by the training command.
"""

from __future__ import annotations

import argparse
import os
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from measuring import (
    DEFAULT,
    ON_GPU,
    ROLES,
    Measured,
    Size,
    console,
    machine,
    results_file,
    rounded,
    save,
    seconds_of,
    silence,
    table_of,
)
from ours import LIGHTNING, config_of, for_theirs, sentences_of, simcse, train_ours
from rich.console import Console
from shares import Profile, matrix_rate, operations

AIMS = {"bf16": (2.6, 1.8), "float32": (2.0, 1.4)}
"""The project's aims for training and encoding on a CPU: our speed divided by theirs."""

TASKS = ("training", "encoding")
COLUMNS = ("", "lightning_cse", "sentence-transformers", "ratio")
SEQUENCES = 8
"""The sequences that DualCSE encodes per row: its four sentences, twice each."""


def compare(size: Size, repetitions: int) -> dict[str, Measured]:
    """Return sentences per second of both sides in training and encoding, and their ratios, by
    name.
    """
    from theirs import train_theirs

    cfg, device = simcse(size), "cuda" if ON_GPU else "cpu"
    rows = sentences_of(cfg)
    result = {
        f"{task} {side}": Measured() for task in TASKS for side in ("ours", "theirs", "ratio")
    }
    for repetition in range(repetitions):
        speed: dict[str, float] = {}
        trained: dict[str, Any] = {}
        sides = ("ours", "theirs") if repetition % 2 else ("theirs", "ours")
        for side in sides:
            if side == "ours":
                seconds, trained[side] = train_ours(cfg)
            else:
                seconds, trained[side] = train_theirs(rows, **for_theirs(cfg))
            speed[f"training {side}"] = size.batch * len(ROLES) / seconds
        sentences = [sentence for column in rows.values() for sentence in column]
        trained = {side: model.to(device).eval() for side, model in trained.items()}
        encode = {"ours": trained["ours"].model.embed, "theirs": trained["theirs"].encode}
        with (
            torch.autocast(device, torch.bfloat16, enabled=size.precision == "bf16"),
            torch.inference_mode(),
        ):
            for side in sides:
                encode[side](sentences[: size.batch])
                speed[f"encoding {side}"] = len(sentences) / seconds_of(
                    partial(encode[side], sentences)
                )
        for task in TASKS:
            speed[f"{task} ratio"] = speed[f"{task} ours"] / speed[f"{task} theirs"]
        for name, value in speed.items():
            result[name].values.append(value)
    return result


def bench(size: Size, repetitions: int, out: Console) -> dict[str, Any]:
    """Measure everything at one precision, print the results and return them."""
    speeds = compare(size, repetitions)
    rows = []
    for task in TASKS:
        cells = [str(speeds[f"{task} {side}"]) for side in ("ours", "theirs", "ratio")]
        rows.append(dict(zip(COLUMNS, (task, *cells), strict=True)))

    result: dict[str, Any] = {name: measured.values for name, measured in speeds.items()}
    has_dualcse = size.chunk is None and size == replace(size, encoder=DEFAULT, adapter=None)
    for architecture in ("cross", "bi") if has_dualcse else ():
        cfg = config_of(f"dualcse_{architecture}", replace(size, steps=max(3, size.steps // 2)))
        speed = Measured([SEQUENCES * size.batch / train_ours(cfg)[0] for _ in range(repetitions)])
        rows.append({"": f"DualCSE {architecture} (sequences)", "lightning_cse": str(speed)})
        result[f"dualcse {architecture}"] = speed.values
    title = f"{size.precision}: sentences a second, median (range) of {repetitions}"
    out.print(table_of(rows, title))
    aims = "" if ON_GPU or not has_dualcse else " (aims: {} and {})".format(*AIMS[size.precision])
    times = " and encoding ".join(f"{speeds[f'{task} ratio'].median:.2f}" for task in TASKS)
    out.print(f"training is {times} times as fast as sentence-transformers' trainer{aims}")
    return result | profiled(size, speeds["training ours"].median, out)


def profiled(size: Size, speed: float | None, out: Console) -> dict[str, Any]:
    """Print and return the shares of a step, and the training speed as a share of the rate of
    matrix products.
    """
    cfg = simcse(replace(size, steps=4))
    watch = Profile(step=2)
    seconds, _ = train_ours(cfg, watch)
    result: dict[str, Any] = {"shares": watch.shares()}
    out.print(
        "one training step: "
        + ", ".join(f"{operation} {share:.1%}" for operation, share in result["shares"].items())
    )
    rate = matrix_rate(size.precision)
    sentences = size.batch * len(ROLES)
    share = operations(cfg) * (speed or sentences / seconds) / sentences / rate
    out.print(
        f"large matrix products: {rate / 1e9:.0f} GFLOP/s; "
        f"training does {share:.0%} of that, padding aside\n"
    )
    return result | {"matrix products, operations a second": rate, "of these in training": share}


def main() -> None:
    """Measure and print; see the top of this file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--steps", type=int, default=6, help="steps a repetition, the first of which is not counted"
    )
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--batch", type=int, default=64, help="triplets a batch")
    parser.add_argument(
        "--chunk", type=int, metavar="K", help="sentences whose activations are in memory at once"
    )
    parser.add_argument("--encoder", default=DEFAULT, help="a file of conf/encoder")
    parser.add_argument("--adapter", help="a file of conf/adapter, for both sides")
    parser.add_argument("--precision", choices=sorted(LIGHTNING), help="both if not given")
    parser.add_argument("--profile", action="store_true", help="only the shares of a step")
    parser.add_argument(
        "--json",
        type=Path,
        metavar="FILE",
        help="for the numbers, in the place of results/<machine>.json",
    )
    args = parser.parse_args()
    if args.steps < 2:
        parser.error("--steps: at least 2")

    silence()
    out = console()
    corpus = "INLI" if os.environ.get("LIGHTNING_CSE_DATA") else "the sample corpus"
    about = machine()
    model = args.encoder + (f" with {args.adapter}" if args.adapter else "")
    out.print(
        f"{model} on {corpus}, batches of {args.batch} triplets, {args.steps} steps a repetition"
    )
    where = about.get("gpu") or about["machine"]["cpu"]
    out.print(f"{where}, {about['threads']} threads, load {about['load']}, {about['versions']}\n")
    chosen = [args.precision] if args.precision else list(LIGHTNING)
    sizes = {
        precision: Size(precision, args.steps, args.batch, args.chunk, args.encoder, args.adapter)
        for precision in chosen
    }
    if args.profile:
        results = {precision: profiled(size, None, out) for precision, size in sizes.items()}
    else:
        results = {
            precision: bench(size, args.repetitions, out) for precision, size in sizes.items()
        }
    name = (
        (f"{model}, " if model != DEFAULT else "")
        + f"batch {args.batch}"
        + (f", chunk {args.chunk}" if args.chunk else "")
        + args.profile * ", profile"
    )
    save(
        args.json or results_file(),
        {name: rounded({"machine": about, "corpus": corpus, "results": results})},
    )


if __name__ == "__main__":
    main()
