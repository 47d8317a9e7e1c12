"""Scores sentences or pairs with a model: ``python -m lightning_cse.score --model RUN --input sentences.txt``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from lightning_cse.arguments import count
from lightning_cse.errors import reported


@reported
def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    given = vars(_parser().parse_args(argv))
    from lightning_cse.analysis.scoring import Request, run

    run(Request(**given))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m lightning_cse.score",
        description="Score sentences (implicitness) or pairs (similarity, entailment both ways, which of the two\n"
        "entails the other, implicitness of each), as far as the model answers; the columns it has no answer for\n"
        "are left out and named. Input of any length is read, scored and written in chunks, in its own order.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="Input: a sentence a line; or columns divided by tabs (.tsv; or a tab in the first line), .csv with a\n"
        "header, .jsonl with keys; each may end in .gz. Two columns are premise and hypothesis, one is sentences.\n"
        "A row that is empty, has an empty column or a wrong number of them, or cannot be read as CSV or JSON ends\n"
        "the command, with file and line, after all rows before it are written; --skip-bad counts them instead.\n"
        "The rows of an --output FILE that ends early are left in FILE.partial; FILE itself is as it was.\n\n"
        "Output: line (of the input), sentence, implicitness; or line, premise, hypothesis, similarity,\n"
        "entailment (the score of premise -> hypothesis), entailment_reversed, lead (their difference), direction\n"
        "(its sign: forward, backward, tie), implicitness_premise, implicitness_hypothesis; six significant digits.\n"
        "A score that is the same both ways has no entailment_reversed, lead and direction.\n\n"
        "Examples:\n"
        "  python -m lightning_cse.score --model runs/dualcse_cross/<identity>-s0 --input sentences.txt\n"
        "  cat pairs.tsv | python -m lightning_cse.score --model minilm_l6 --input - --format jsonl | head\n",
    )
    add = parser.add_argument
    add("--model", required=True, metavar="MODEL", help="a run's folder, an encoder as in evaluate, or length")
    add("--input", required=True, metavar="FILE", help="what to score; - for standard input")
    add(
        "--output",
        default="-",
        metavar="FILE",
        help="default: standard output; a file is replaced when all rows are scored",
    )
    add(
        "--input-format",
        choices=("auto", "text", "tsv", "csv", "jsonl"),
        default="auto",
        help="default: by the ending, else tsv or text by the first line",
    )
    add("--format", choices=("csv", "jsonl"), default="csv", help="of the output; default: csv")
    add(
        "--columns",
        type=_names,
        default=(),
        metavar="NAME[,NAME]",
        help="premise and hypothesis, or the sentence; the first line of a .tsv is then its header; default: the "
        "first two",
    )
    add("--skip-bad", action="store_true", help="leave bad rows out, and count them")
    add("--precision", choices=("32-true", "bf16-mixed"), default="32-true", help="default: 32-true")
    add(
        "--batch-size",
        type=count,
        default=1024,
        metavar="N",
        help="rows of a chunk, which is scored at once; 1 answers a pipe line by line; default: 1024",
    )
    add("--device", choices=("auto", "cpu", "gpu", "cuda", "mps"), default="auto", help="default: auto")
    return parser


def _names(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(","))
    if not 1 <= len(names) <= 2 or not all(names):
        raise argparse.ArgumentTypeError(f"takes one name, or two divided by a comma, got {text!r}")
    return names


if __name__ == "__main__":
    sys.exit(main())
