"""Builds a W&B workspace or report over the runs of a project: ``python -m lightning_cse.dashboard --project NAME``."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

from lightning_cse.errors import reported


@reported
def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    arguments = _parser().parse_args(argv)
    from lightning_cse.analysis import dashboards

    layout = dashboards.Layout(
        project=arguments.project,
        entity=arguments.entity,
        title=arguments.title,
        dev=arguments.dev or dashboards.DEV_SCORES,
        test=arguments.test or dashboards.TEST_SCORES,
    )
    if arguments.dry_run:
        build = dashboards.workspace if arguments.kind == "workspace" else dashboards.report
        shown = json.dumps(dashboards.as_json(build(layout)), indent=2, ensure_ascii=False)
    else:
        shown = dashboards.save(layout, arguments.kind)
    sys.stdout.write(f"{shown}\n")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m lightning_cse.dashboard",
        description="Build a W&B workspace or report over the runs of a project: relative fitting difficulty, dev "
        "scores, alignment and uniformity, loss, and the table of runs, grouped by sweep.",
        epilog="Without an account: logger=tensorboard shows the same curves, and python -m lightning_cse.report "
        "writes a page.",
    )
    parser.add_argument("--project", required=True, metavar="NAME", help="W&B project (logger.project, lightning_cse)")
    parser.add_argument("--entity", default="", metavar="NAME", help="W&B user or team; default: who is logged in")
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument(
        "--workspace", dest="kind", action="store_const", const="workspace", help="a view of the project (default)"
    )
    kind.add_argument("--report", dest="kind", action="store_const", const="report", help="a page with text and charts")
    parser.set_defaults(kind="workspace")
    parser.add_argument("--title", default="Contrastive sentence embeddings", help="what it is called")
    parser.add_argument(
        "--dev", action="append", metavar="KEY", help="a dev score, such as val/stsb/spearman; may be given again"
    )
    parser.add_argument(
        "--test", action="append", metavar="KEY", help="a test score for the table of runs; may be given again"
    )
    parser.add_argument("--dry-run", action="store_true", help="print what would be built as JSON, and ask no server")
    return parser


if __name__ == "__main__":
    sys.exit(main())
