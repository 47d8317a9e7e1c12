"""Builds a W&B workspace over the runs of a project: ``python -m lightning_cse.dashboard --project NAME``."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

from lightning_cse.analysis.dashboards import DEV_SCORES, TEST_SCORES, Layout, build
from lightning_cse.errors import reported

_WHAT = "Build a W&B workspace over the runs of a project, grouped by sweep."
_WITHOUT = "Without an account: logger=tensorboard shows the same curves; python -m lightning_cse.report writes a page."


@reported
def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m lightning_cse.dashboard", description=_WHAT, epilog=_WITHOUT)
    add = parser.add_argument
    add("--project", required=True, metavar="NAME", help="W&B project (logger.project, lightning_cse)")
    add("--entity", default="", metavar="NAME", help="W&B user or team; default: who is logged in")
    add("--title", default=Layout("").title, help="its title")
    add("--dev", action="append", metavar="KEY", help="a dev score, such as val/stsb/spearman; may be repeated")
    add("--test", action="append", metavar="KEY", help="a test score for the table of runs; may be repeated")
    add("--dry-run", action="store_true", help="print what would be built as JSON, and ask no server")
    args = parser.parse_args(argv)
    layout = Layout(args.project, args.entity, args.title, args.dev or DEV_SCORES, args.test or TEST_SCORES)
    built = build(layout, save=not args.dry_run)
    sys.stdout.write(f"{json.dumps(built, indent=2, ensure_ascii=False) if args.dry_run else built}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
