"""Exports a model for sentence-transformers: ``python -m lightning_cse.export --model RUN --to FOLDER``."""

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
    add(
        "--to",
        required=True,
        type=path,
        metavar="FOLDER",
        help="the folder to write; it must be new or empty",
    )
    add(
        "--view",
        metavar="NAME",
        help="implicit (DualCSE, DualGauss), semantic (ImpScore); default: the primary one",
    )
    add("--force", action="store_true", help="replace an existing sentence-transformers folder")
    add(
        "--push",
        metavar="USER/NAME",
        help="upload the folder to the Hugging Face hub (log in with `hf auth login`)",
    )
    add("--private", action="store_true", help="with --push: a repository that only you can read")
    add(
        "--dry-run",
        action="store_true",
        help="with --push: list what would be uploaded, without using the network",
    )
    options = parser.parse_args(argv)
    if options.push and options.push.count("/") != 1:
        parser.error(
            f"--push: must be USER/NAME, as in https://huggingface.co/user/name, got {options.push!r}"
        )
    if (options.private or options.dry_run) and not options.push:
        parser.error("--private and --dry-run need --push USER/NAME")
    check_model(options.model, pooling=options.pooling)

    from lightning_cse.analysis.exporting import export, listing, push

    model = load_model(options.model, pooling=options.pooling)
    done = export(model, options.to, view=options.view, force=options.force, repo=options.push)
    sys.stderr.write(f"{done}\n")
    if options.push:
        act = listing if options.dry_run else push
        sys.stdout.write(f"{act(options.to, options.push, private=options.private)}\n")
    sys.stdout.write(f"{options.to}\n")


if __name__ == "__main__":
    sys.exit(main())
