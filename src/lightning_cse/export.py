"""Exports a model for sentence-transformers: ``python -m lightning_cse.export --model RUN --to FOLDER``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from lightning_cse.arguments import add_model, path
from lightning_cse.engine.load import check_model, load_model
from lightning_cse.errors import reported


@reported
def main(argv: Sequence[str] | None = None) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m lightning_cse.export", description=__doc__)
    parser.epilog = "SentenceTransformer(FOLDER) needs neither this package nor trust_remote_code."
    add_model(parser, device=False)
    add = parser.add_argument
    add("--to", required=True, type=path, metavar="FOLDER", help="the folder to write; it must be new or empty")
    add("--view", metavar="NAME", help="implicit (DualCSE, DualGauss), semantic (ImpScore); default: the primary one")
    add("--force", action="store_true", help="replace a folder of sentence-transformers")
    options = parser.parse_args(argv)
    check_model(options.model, pooling=options.pooling)

    from lightning_cse.analysis.exporting import export

    model = load_model(options.model, pooling=options.pooling)
    sys.stderr.write(f"{export(model, options.to, view=options.view, force=options.force)}\n")
    sys.stdout.write(f"{options.to}\n")


if __name__ == "__main__":
    sys.exit(main())
