"""Measure how speed and memory grow, compared with sentence-transformers; each point is a fresh
process.

    make bench-growth                             # or: python benchmarks/growth.py; about 15
    minutes on two cores make bench-growth ARGS="--batch 4096 --chunk 64 --length --rows --devices
    --sides ours"    # one point

There are four curves. Training is measured by triplets per batch (of INLI or the sample corpus), by
tokens per sentence (made-up sentences of one length, 32 triplets), and by devices (64 triplets;
torchrun processes that share the threads equally). The data path is measured by rows of a file of
sentences: reading, tokenising, and one epoch of batches of 64 without training (theirs estimated
from 500 batches). Training points leave out the first step. Memory is the peak of the resident sets
of all processes of a point, including imports, or that of the GPU. Points are added to
results/<machine>.json with the machine's load, and replace earlier ones; the figure shows all
points of the file.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import sys
import tempfile
from functools import partial
from itertools import cycle, islice, product
from pathlib import Path
from string import ascii_lowercase
from typing import Any

import torch
from data import run as run_data
from data import sentences
from measuring import (
    MIB,
    ON_GPU,
    ROLES,
    Size,
    highest_resident,
    in_process,
    machine,
    print_measurement,
    results_file,
    rounded,
    save,
    saved,
    silence,
)

AXES = {
    "batch": ("triplets a batch", [8, 32, 128, 512]),
    "length": ("tokens a sentence", [8, 32, 128]),
    "rows": ("rows (data path)", [1_000, 30_000, 1_000_000]),
    "devices": ("devices", [1, 2]),
}
MEASURED = {"sentences_per_second": "sentences a second", "peak_mib": "MiB of memory at most"}
TRIPLETS = {"length": 32, "devices": 64}


# In the process of a point ------------------------------------------------------------------------


def point(side: str, spec: dict[str, Any]) -> None:
    """Measure one point and print it; run it in a process of its own."""
    silence()
    if "read" in spec:
        from theirs import read_theirs

        speed = spec["count"] / read_theirs(spec["read"], spec["folder"], 64)
    elif side == "ours":
        from ours import simcse, train_ours

        speed = spec["sentences"] / train_ours(simcse(Size(**spec["size"]), *spec["overrides"]))[0]
    else:
        from theirs import train_theirs

        rows = [
            json.loads(line) for line in Path(spec["file"]).read_text(encoding="utf-8").splitlines()
        ]
        columns = {role: [row[role] for row in rows] for role in ROLES}
        speed = spec["sentences"] / train_theirs(columns, **spec["theirs"])[0]
    peak = torch.cuda.max_memory_allocated() if ON_GPU and "size" in spec else highest_resident()
    print_measurement(sentences_per_second=speed, peak_mib=peak / MIB)


# In the process of the command --------------------------------------------------------------------


def measured(side: str, spec: dict[str, Any], devices: int = 1) -> dict[str, Any]:
    """Measure a point in separate processes; return sentences per second, and the memory of all of
    them.
    """
    command = [__file__, "--point", side, json.dumps(spec)]
    if devices > 1:
        processes = ("--standalone", "--nproc-per-node", str(devices))
        command = ["-m", "torch.distributed.run", *processes, *command]

    threads = max(1, torch.get_num_threads() // devices)

    return in_process(*command, OMP_NUM_THREADS=str(threads))


def training(
    axis: str, x: int, args: argparse.Namespace, scratch: str
) -> dict[str, dict[str, Any]]:
    """Return the results of both sides at a training point, on the rows of one file."""
    from ours import for_theirs, sentences_of, simcse

    batch = x if axis == "batch" else TRIPLETS[axis]
    devices = x if axis == "devices" else 1
    size = Size(args.precision, args.steps or max(3, 2 + 256 // batch), batch, args.chunk)
    columns = made_up(x, size.steps * batch) if axis == "length" else sentences_of(simcse(size))
    triplets = cycle(zip(*columns.values(), strict=True))  # the sample corpus is small
    file = Path(scratch, "rows.jsonl")
    with file.open("w", encoding="utf-8") as lines:
        for triplet in islice(triplets, size.steps * batch):
            lines.write(json.dumps(dict(zip(ROLES, triplet, strict=True))) + "\n")

    overrides = ["encoder.max_length=128", "data=file", f"data.train=['{file}']"]
    overrides.append("data.held_out_share=0")
    spec = {
        "size": vars(size),
        "overrides": overrides,
        "file": str(file),
        "theirs": for_theirs(simcse(size, *overrides)),
        "sentences": batch * len(ROLES),
    }
    if devices > 1:
        spec["overrides"] = [*overrides, f"trainer.devices={x}", "trainer.strategy=ddp"]

    return {side: measured(side, spec, devices) for side in args.sides}


def made_up(tokens: int, count: int) -> dict[str, list[str]]:
    """Return triplets of sentences with this many tokens, including [CLS] and [SEP]; each letter is
    one token.
    """
    draw = random.Random(0)  # noqa: S311 - no secret
    return {
        role: [" ".join(draw.choices(ascii_lowercase, k=tokens - 2)) for _ in range(count)]
        for role in ROLES
    }


def reading(x: int, args: argparse.Namespace, scratch: str) -> dict[str, dict[str, Any]]:
    """Return the results of both sides at a point of the data path; ours also with cached
    tokens.
    """
    from ours import config_of, for_theirs

    file, results = Path(scratch) / f"{x}.txt", {}
    with file.open("w", encoding="utf-8") as out:
        out.writelines(f"{sentence}\n" for sentence in sentences(x))
    for series in ("ours", "ours, tokens cached") if "ours" in args.sides else ():
        case = run_data("ours", "sentences", {"data.train": file}, f"{scratch}/cache")
        seconds = case["first_batch_seconds"] + x / 64 * case["batch_ms"] / 1000
        results[series] = {"sentences_per_second": x / seconds, "peak_mib": case["peak_mib"]}
    if "theirs" in args.sides:
        folder = for_theirs(config_of("simcse_inli", Size("float32", 2, 2)))["folder"]
        results["theirs"] = measured("theirs", {"read": str(file), "folder": folder, "count": x})
    return results


def draw(curves: dict[str, Any], title: str, path: Path) -> None:
    """Draw all curves: sentences per second above, memory below."""
    from lightning_cse.plots import blank_figure, plot_style, save_figures, series_look

    names = sorted({name for series in curves.values() for name in series})
    looks: dict[str, dict[str, Any]] = {}
    for number, name in enumerate(names):
        looks[name] = {"color": series_look(number)[0], "label": name}
        if name.startswith("theirs"):
            label = name.replace("theirs", "sentence-transformers")
            looks[name] = {"color": "0.45", "linestyle": "--", "label": label}

    lines = {}
    with plot_style():
        figure = blank_figure(2.3 * len(curves), 4.8)  # legible at 720 pixels
        panels = figure.subplots(2, len(curves), squeeze=False)
        for column, axis in enumerate(axis for axis in AXES if axis in curves):
            ticks = sorted({int(x) for series in curves[axis].values() for x in series})
            for panel, (key, label) in zip(panels[:, column], MEASURED.items(), strict=True):
                for name, points in curves[axis].items():
                    x = sorted(points, key=int)
                    y = [points[each][key] for each in x]
                    (lines[name],) = panel.plot(list(map(int, x)), y, marker="o", **looks[name])

                panel.set(xscale="log", xlabel=AXES[axis][0], ylabel="" if column else label)
                panel.set_ylim(bottom=0)
                panel.set_xticks(ticks, [f"{x:,}" for x in ticks])
                panel.minorticks_off()

        figure.legend(
            handles=[lines[name] for name in names], loc="outside lower center", ncols=len(names)
        )
        figure.suptitle(title)
        save_figures({path.name: figure}, path.parent)


def main() -> None:
    """Read the command line, measure, print, save and draw; see the top of this file."""
    if sys.argv[1:2] == ["--point"]:
        point(sys.argv[2], json.loads(sys.argv[3]))
        return
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for axis, (label, default) in AXES.items():
        parser.add_argument(
            f"--{axis}", nargs="*", type=int, default=default, help=f"{label} (none: no such curve)"
        )
    parser.add_argument(
        "--sides", nargs="+", choices=("ours", "theirs"), default=["ours", "theirs"]
    )
    parser.add_argument(
        "--chunk", type=int, metavar="K", help="sentences whose activations are in memory at once"
    )
    parser.add_argument("--precision", choices=("bf16", "float32"), default="bf16")
    parser.add_argument(
        "--steps",
        type=int,
        help="of a training point (default: at least 3, more for small batches)",
    )
    parser.add_argument(
        "--repetitions", type=int, default=1, help="medians of so many, in both orders"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", default=results_file())
    parser.add_argument(
        "--figure", type=Path, metavar="FILE", default=Path(__file__).with_suffix(".png")
    )
    args = parser.parse_args()
    about = machine()
    curves: dict[str, Any] = saved(args.json).get("growth", {}).get("curves", {})
    for axis, x in [point for name in AXES for point in product([name], getattr(args, name))]:
        cases: dict[str, list[dict[str, Any]]] = {}
        for _ in range(args.repetitions):
            with tempfile.TemporaryDirectory() as scratch:
                results = (reading if axis == "rows" else partial(training, axis))(x, args, scratch)

            for name, case in results.items():
                chunked = f", chunk {args.chunk}" if args.chunk and axis != "rows" else ""
                cases.setdefault(name + chunked, []).append(case)

            args.sides.reverse()

        for name, repetitions in sorted(cases.items()):
            middle = {key: statistics.median(case[key] for case in repetitions) for key in MEASURED}
            at = {"load": round(os.getloadavg()[0], 2), "precision": args.precision}
            curves.setdefault(axis, {}).setdefault(name, {})[str(x)] = rounded(middle, 4) | at
            speed, memory = (f"{value:,.0f} {MEASURED[key]}" for key, value in middle.items())
            sys.stdout.write(f"{axis} {x:,}, {name}: {speed}; {memory}; load {at['load']}\n")
            sys.stdout.flush()

        save(args.json, {"growth": {"machine": about, "curves": curves}})

    points = [
        point for axis in curves.values() for name in axis.values() for point in name.values()
    ]
    loads, precisions = ({point[key] for point in points} for key in ("load", "precision"))
    where = about.get("gpu") or f"{about['machine']['cpu']}, {about['threads']} threads"
    title = f"MiniLM, {' and '.join(sorted(precisions))}; {where}; "
    draw(curves, f"{title}load {min(loads)} to {max(loads)}", args.figure)


if __name__ == "__main__":
    main()
