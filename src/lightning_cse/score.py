"""Scores sentences or pairs with a model: ``python -m lightning_cse.score --model RUN --input sentences.txt``."""

import argparse
import sys
from collections.abc import Sequence

from lightning_cse.arguments import add_model, count
from lightning_cse.engine.load import LENGTH, check_device, check_model
from lightning_cse.errors import reported


@reported
def main(argv: Sequence[str] | None = None) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m lightning_cse.score", description=__doc__)
    parser.epilog = "Columns of a sentence: line, sentence, implicitness; of a pair: line, premise, hypothesis, "
    parser.epilog += "similarity, entailment, entailment_reversed, lead (their difference), direction (its sign: "
    parser.epilog += (
        "forward, backward, tie), implicitness of both; as far as the model gives them."
    )
    add_model(parser)
    add = parser.add_argument
    add(
        "--input",
        required=True,
        metavar="FILE",
        help="one column: sentences, two: pairs; also .gz; -: standard input",
    )
    add(
        "--input-format",
        choices=("text", "tsv", "csv", "jsonl"),
        help="default: from the file name, else tsv",
    )
    columns = "the sentence, or premise and hypothesis; default: the first two; a .tsv file then needs a header"
    add(
        "--columns",
        type=lambda text: text.split(","),
        default=(),
        metavar="NAME[,NAME]",
        help=columns,
    )
    add(
        "--output",
        default="-",
        metavar="FILE",
        help="file to write, replaced at the end; default: standard output",
    )
    add("--format", choices=("csv", "jsonl"), default="csv", help="output format; default: csv")
    add(
        "--batch-size",
        type=count,
        default=1024,
        metavar="N",
        help="rows that are scored together; default: 1024",
    )
    options = parser.parse_args(argv)
    if len(options.columns) > 2:
        parser.error("--columns takes one name, or two separated by a comma")
    if options.model != LENGTH:
        check_model(options.model, pooling=options.pooling)
    check_device(options.device)

    from lightning_cse.analysis.scoring import run

    run(options)


if __name__ == "__main__":
    sys.exit(main())
