"""Writes the vectors of sentences to a NumPy file: ``python -m lightning_cse.encode MODEL FILE --to vectors.npy``."""

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from typing import Final

from lightning_cse.arguments import add_model, count, path
from lightning_cse.engine.load import check_device, check_model
from lightning_cse.errors import DataError, reported

ROWS: Final = 8192  # in memory at a time
DTYPES: Final = {"32-true": "float32", "bf16-mixed": "bfloat16"}


@reported
def main(argv: Sequence[str] | None = None) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m lightning_cse.encode", description=__doc__)
    parser.epilog = (
        "Row i of the file is the vector of sentence i, in float32: np.load(FILE, mmap_mode='r')."
    )
    add_model(parser, "model")
    add = parser.add_argument
    add(
        "file", metavar="FILE", help="one sentence per line, or .csv, .tsv, .jsonl; each may be .gz"
    )
    add(
        "--to",
        required=True,
        type=path,
        metavar="NPY",
        help="file to write; replaced after encoding",
    )
    add("--column", metavar="NAME", help="the column that holds the sentences")
    add(
        "--view",
        metavar="NAME",
        help="implicit (DualCSE), variance (GaussCSE), ...; default: the primary one",
    )
    add("--normalize", action="store_true", help="scale each vector to length 1")
    add(
        "--batch-size",
        type=count,
        default=1024,
        metavar="N",
        help="sentences encoded together; default: 1024",
    )
    options = parser.parse_args(argv)
    if options.file == "-":
        parser.error("FILE is read twice, so it cannot be standard input")
    check_model(options.model, pooling=options.pooling)
    check_device(options.device)
    _encode(options)


def _encode(options: argparse.Namespace) -> None:
    import numpy as np

    from lightning_cse.analysis.inputs import read_sentences
    from lightning_cse.inference import load
    from lightning_cse.progress import progress
    from lightning_cse.runs import atomic_file

    rows, cut, read = 0, 0, partial(read_sentences, options.file, options.column, at_once=ROWS)
    for sentences in read():
        if (empty := sentences.index[sentences == ""]).size:
            raise DataError(
                f"{options.file}:{empty[0]}: no sentence, but each row becomes a vector: remove this row"
            )
        rows += len(sentences)
    if not rows:
        raise DataError(f"{options.file}: contains no sentence")
    model = load(options.model, options.device, DTYPES[options.precision], pooling=options.pooling)
    width = model.encode([], options.view).shape[1]
    with atomic_file(options.to) as file, progress() as bar:
        np.lib.format.write_array_header_1_0(
            file, {"descr": "<f4", "fortran_order": False, "shape": (rows, width)}
        )
        task = bar.add_task("sentences", total=rows)
        for sentences in read():
            texts = sentences.tolist()
            given = {
                "batch_size": options.batch_size,
                "normalize": options.normalize,
                "show_progress": False,
            }
            file.write(model.encode(texts, options.view, **given).astype("<f4").tobytes())
            cut += sum(len(ids) > model.max_length for ids in model.loaded.encoder.tokenizer(texts))
            bar.update(task, advance=len(texts))
    view = options.view or model.views[0]
    said = f"{rows:,} vectors of {width} numbers, view {view} of {model.name}; {cut:,} sentences cut to the maximum"
    sys.stderr.write(f"{said} length\n")
    sys.stdout.write(f"{options.to}\n")


if __name__ == "__main__":
    sys.exit(main())
