"""Exports a model for sentence-transformers: ``python -m lightning_cse.export --model RUN --to FOLDER``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from lightning_cse.arguments import path
from lightning_cse.errors import reported


@reported
def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    given = vars(_parser().parse_args(argv))
    from lightning_cse.analysis.exporting import Request, run

    run(Request(**given))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m lightning_cse.export",
        description="Write a model as a folder that sentence_transformers.SentenceTransformer(FOLDER) loads, without\n"
        "this package and without trust_remote_code: safetensors, JSON and a model card. The folder is loaded, and\n"
        "gets its name only if its vectors are the model's. A model that cannot be said in modules of\n"
        "sentence-transformers exactly is refused.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="A folder has one vector a sentence. Of a Gaussian that is its mean; of DualCSE and DualGauss the\n"
        "explicit view, or the implicit one with --view. What needs more than one vector (implicitness, a direction\n"
        "of entailment) is asked of the run itself: lightning_cse.score, lightning_cse.search.\n\n"
        "Examples:\n"
        "  python -m lightning_cse.export --model runs/simcse_inli/<identity>-s0 --to simcse\n"
        "  python -m lightning_cse.export --model runs/dualcse_cross/<identity>-s0 --view implicit --to implied\n",
    )
    add = parser.add_argument
    add("--model", required=True, metavar="RUN|ENCODER", help="a run's folder, or an encoder: name, folder, hub name")
    add("--to", required=True, type=path, metavar="FOLDER", help="the folder to write; it must be new or empty")
    add(
        "--view",
        metavar="NAME",
        help="explicit or implicit (DualCSE, DualGauss), pragmatic or semantic (ImpScore); default: the first of these",
    )
    add("--pooling", default="auto", metavar="NAME", help="of an encoder, instead of its own")
    add("--force", action="store_true", help="replace a folder of sentence-transformers that is there, and no more")
    return parser


if __name__ == "__main__":
    sys.exit(main())
