"""Exports a model for sentence-transformers: ``python -m lightning_cse.export --model RUN --to
FOLDER``.
"""

import argparse
import sys
from collections.abc import Sequence

from lightning_cse.arguments import path
from lightning_cse.engine.load import load
from lightning_cse.errors import reported


@reported
def main(argv: Sequence[str] | None = None) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(
        prog="python -m lightning_cse.export",
        description=__doc__,
        epilog="SentenceTransformer(FOLDER) needs neither this package nor trust_remote_code.",
    )
    add = parser.add_argument
    add(
        "--model",
        required=True,
        metavar="MODEL",
        help="folder of a run, or an encoder: its name, folder or hub name",
    )
    add("--pooling", default="auto", metavar="NAME", help="pooling of an encoder; default: its own")
    add(
        "--to",
        required=True,
        type=path,
        metavar="FOLDER",
        help="the folder to write; it must be new or empty",
    )
    add("--view", metavar="NAME", help="implicit (DualCSE), ...; default: the primary one")
    add(
        "--adapter",
        action="store_true",
        help="write the adapter of a run alone, for peft and sentence-transformers; default: merge it",
    )
    add("--force", action="store_true", help="replace an existing sentence-transformers folder")
    add("--push", metavar="USER/NAME", help="upload to the Hugging Face hub (`hf auth login`)")
    add("--private", action="store_true", help="with --push: a repository only you can read")
    options = parser.parse_args(argv)
    if options.push and options.push.count("/") != 1:
        parser.error(f"--push: must be USER/NAME, got {options.push!r}")

    model = load(options.model, "cpu", pooling=options.pooling)

    from lightning_cse.analysis.exporting import export, push

    summary = export(
        model,
        options.to,
        view=options.view,
        force=options.force,
        repo=options.push,
        adapter=options.adapter,
    )
    sys.stderr.write(f"{summary}\n")
    if options.push:
        sys.stdout.write(f"{push(options.to, options.push, private=options.private)}\n")

    sys.stdout.write(f"{options.to}\n")


if __name__ == "__main__":
    sys.exit(main())
