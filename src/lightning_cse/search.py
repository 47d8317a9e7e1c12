"""Searches sentences: ``python -m lightning_cse.search --model RUN --corpus sentences.txt --query "Are you here?"``."""

import argparse
import sys
from collections.abc import Sequence

from lightning_cse.arguments import add_model, count
from lightning_cse.engine.load import check_device, check_model
from lightning_cse.errors import reported


@reported
def main(argv: Sequence[str] | None = None) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m lightning_cse.search", description=__doc__)
    parser.epilog = (
        "Embeddings are kept under LIGHTNING_CSE_CACHE (else ~/.cache/lightning_cse) and reused."
    )
    add_model(parser)
    add = parser.add_argument
    add(
        "--corpus",
        required=True,
        metavar="FILE",
        help="one sentence per line, or .csv, .tsv, .jsonl; each may be .gz",
    )
    add("--column", metavar="NAME", help="the column that holds the sentences")
    asked = parser.add_mutually_exclusive_group(required=True)
    asked.add_argument(
        "--query", action="append", metavar="TEXT", help="sentence to search for; may be repeated"
    )
    asked.add_argument(
        "--queries",
        metavar="FILE",
        help="one query per line; -: standard input, answers in JSON lines",
    )
    add("-k", type=count, default=10, metavar="N", help="sentences to find per query; default: 10")
    relation = "find sentences similar to the query (default), that it entails, or that entail it (GaussCSE, Dual...)"
    add(
        "--relation",
        choices=("similar", "entails", "entailed_by"),
        default="similar",
        help=relation,
    )
    add(
        "--view",
        metavar="NAME",
        help="of the query: explicit, implicit (DualCSE), pragmatic, semantic (ImpScore)",
    )
    add(
        "--against",
        metavar="NAME",
        help="of the sentences that it is compared with; default: the primary view",
    )
    add(
        "--index",
        metavar="FACTORY",
        help="for large corpora: a faiss factory string, such as IVF1024,Flat",
    )
    add(
        "--format",
        choices=("table", "json"),
        default="table",
        help="default: table; json: one line per query",
    )
    options = parser.parse_args(argv)
    check_model(options.model, pooling=options.pooling)
    check_device(options.device)

    from lightning_cse.analysis.searching import run

    run(options)


if __name__ == "__main__":
    sys.exit(main())
