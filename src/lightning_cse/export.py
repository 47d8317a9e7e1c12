"""Exports a model for sentence-transformers: ``python -m lightning_cse.export --model RUN --to FOLDER``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from lightning_cse.arguments import path
from lightning_cse.engine.load import check_model, load_model
from lightning_cse.errors import reported


@reported
def main(argv: Sequence[str] | None = None) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(
        prog="python -m lightning_cse.export",
        description="Write a model as a folder that SentenceTransformer(FOLDER) loads without this package and without "
        "trust_remote_code. Its vectors are compared with the model's; a model that it cannot give exactly is refused.",
    )
    add = parser.add_argument
    add("--model", required=True, metavar="MODEL", help="a run's folder, or an encoder: name, folder, hub name")
    add("--pooling", default="auto", metavar="NAME", help="of an encoder, instead of its own")
    add("--to", required=True, type=path, metavar="FOLDER", help="the folder to write; it must be new or empty")
    add("--view", metavar="NAME", help="implicit (DualCSE, DualGauss), semantic (ImpScore); default: the primary one")
    add("--force", action="store_true", help="replace a folder of sentence-transformers")
    options = parser.parse_args(argv)
    check_model(options.model, pooling=options.pooling)

    from lightning_cse.analysis.exporting import export

    checked = export(
        load_model(options.model, pooling=options.pooling), options.to, view=options.view, force=options.force
    )
    sys.stderr.write(f"{checked}\n")
    sys.stdout.write(f"{options.to}\n")


if __name__ == "__main__":
    sys.exit(main())
