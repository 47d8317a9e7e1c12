"""Measure the speed and memory of ``encode``, compared with that of sentence-transformers on the
same folder.

    make bench-encode                             # or: python benchmarks/encode.py
    make bench-encode ARGS="--sentences 12000 --repetitions 5"
    make bench-encode ARGS="--lengths equal --precision float32"

Both sides make normalised vectors of all-MiniLM-L6-v2, exported once: ``load(folder).encode`` and
``SentenceTransformer(folder).encode`` with their own defaults. In bfloat16, ours is loaded with
``dtype="bfloat16"`` and theirs with bfloat16 weights, which is the faster of its two ways. Each
measurement is a process of its own, and the sides alternate, so that a busy machine slows both.
Loading and 64 sentences are not counted in the time; memory is the peak of the process, with
imports and the model. The three distributions of lengths are sentences of INLI (from
``LIGHTNING_CSE_DATA`` if set, else from the sample corpus), 32 tokens each, and long-tailed ones,
with a median of 26 tokens and at most 256.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable
from itertools import cycle, islice
from pathlib import Path
from string import ascii_lowercase
from typing import Any

from measuring import (
    MIB,
    Measured,
    console,
    highest_resident,
    in_process,
    machine,
    print_measurement,
    results_file,
    rounded,
    save,
    seconds_of,
    silence,
    table_of,
)

PRECISIONS = ("float32", "bfloat16")
SIDES = ("ours", "theirs")


# In the process of a measurement ------------------------------------------------------------------


def encoder(side: str, folder: str, precision: str) -> Callable[[list[str]], Any]:
    """Return the public call of one side; only this side's packages are imported."""
    if side == "ours":
        import lightning_cse

        model = lightning_cse.load(folder, dtype=precision)
        return lambda texts: model.encode(texts, normalize_embeddings=True, show_progress_bar=False)

    from sentence_transformers import SentenceTransformer

    baseline = SentenceTransformer(folder, model_kwargs={"dtype": precision})
    return lambda texts: baseline.encode(texts, normalize_embeddings=True, show_progress_bar=False)


def measure(side: str, folder: str, precision: str, file: str) -> None:
    """Measure one side once, and print it."""
    silence()
    texts = json.loads(Path(file).read_text(encoding="utf-8"))
    encode = encoder(side, folder, precision)
    encode(texts[:64])
    speed = len(texts) / seconds_of(lambda: encode(texts))
    print_measurement(sentences_per_second=speed, peak_mib=highest_resident() / MIB)


# In the process of the command --------------------------------------------------------------------


def sentences(lengths: str, count: int) -> list[str]:
    """Return sentences of one of the `LENGTHS`; each letter of those that are made up is a token.

    [CLS] and [SEP] are included in the numbers of tokens.
    """
    draw = random.Random(0)  # noqa: S311 - no secret
    if lengths == "inli":
        return _of_inli(count, draw)

    sizes = [32] * count
    if lengths == "long":
        sizes = [round(draw.lognormvariate(3.26, 0.9)) for _ in range(count)]

    return [" ".join(draw.choices(ascii_lowercase, k=min(max(size, 4), 256) - 2)) for size in sizes]


def _of_inli(count: int, draw: random.Random) -> list[str]:
    from lightning_cse.data import read_corpus, sample_dir
    from lightning_cse.data.columns import INLI_HYPOTHESES

    rows = read_corpus("inli", "train", os.environ.get("LIGHTNING_CSE_DATA") or sample_dir())
    columns = [rows[name] for name in ("premise", *INLI_HYPOTHESES)]
    texts = list(dict.fromkeys(text for column in columns for text in column if text))
    draw.shuffle(texts)

    return list(islice(cycle(texts), count))


LENGTHS = {"inli": "INLI", "equal": "32 tokens", "long": "long-tailed"}


def compare(folder: str, precision: str, file: str, repetitions: int) -> dict[str, Measured]:
    """Return the repetitions of both sides, and the ratios of those next to each other."""
    result: dict[str, Measured] = {}
    for repetition in range(repetitions):
        by_side = {
            side: in_process(__file__, "--measure", side, folder, precision, file)
            for side in SIDES[:: (-1) ** repetition]
        }
        for key in ("sentences_per_second", "peak_mib"):
            for side in SIDES:
                result.setdefault(f"{key} {side}", Measured()).values.append(by_side[side][key])

            ratio = by_side["ours"][key] / by_side["theirs"][key]
            result.setdefault(f"{key} ratio", Measured()).values.append(ratio)

    return result


def main() -> None:
    """Read the command line, measure, print and save; see the top of this file."""
    if sys.argv[1:2] == ["--measure"]:
        measure(*sys.argv[2:])
        return

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--sentences", type=int, default=3000)
    add("--repetitions", type=int, default=3)
    add("--lengths", nargs="+", choices=LENGTHS, default=list(LENGTHS))
    add("--precision", nargs="+", choices=PRECISIONS, default=list(PRECISIONS))
    add("--json", type=Path, metavar="FILE", default=results_file())
    args = parser.parse_args()
    about = machine()
    title = f"sentences a second, median (range) of {args.repetitions}"
    rows = []
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as scratch:
        folder = f"{scratch}/exported"
        export = ("-m", "lightning_cse.export", "--model", "minilm_l6", "--to", folder)
        subprocess.run([sys.executable, *export], check=True, capture_output=True)
        for lengths in args.lengths:
            file = Path(scratch, f"{lengths}.json")
            file.write_text(json.dumps(sentences(lengths, args.sentences)), encoding="utf-8")
            for precision in args.precision:
                measurements = compare(folder, precision, str(file), args.repetitions)
                row = {"lengths": LENGTHS[lengths], "precision": precision}
                for column in (*SIDES, "ratio"):
                    row[column] = str(measurements[f"sentences_per_second {column}"])
                for side in SIDES:
                    row[f"MiB, {side}"] = str(measurements[f"peak_mib {side}"])

                rows.append(row)
                values = {name: measured.values for name, measured in measurements.items()}
                results.setdefault(lengths, {})[precision] = values

    console().print(table_of(rows, title))
    about |= {"sentences": args.sentences}
    save(args.json, {"encode": rounded({"machine": about, "results": results})})


if __name__ == "__main__":
    main()
