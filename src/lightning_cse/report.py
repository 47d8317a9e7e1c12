"""Reports a paper or a sweep as one HTML file: ``python -m lightning_cse.report dualcse --to
report.html``.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lightning_cse import arguments as shared
from lightning_cse.errors import LightningCSEError, reported

if TYPE_CHECKING:
    from lightning_cse.papers.plan import Plan
    from lightning_cse.papers.records import FinishedRun


@reported
def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    from lightning_cse.runs import write_atomic

    arguments = _parser().parse_args(argv)
    page = _page(arguments)
    write_atomic(arguments.to, page)
    sys.stdout.write(f"written: {arguments.to} ({len(page.encode()) / 2**20:.1f} MiB)\n")

    return 0


def _page(arguments: argparse.Namespace) -> str:
    from lightning_cse.papers.records import read_runs
    from lightning_cse.papers.report import build_report, run_facts, run_sections, slug

    papers, known = _papers(arguments)
    sections = []
    shown = []
    for paper, plans in papers.items():
        sections += [_artefact(plan, paper) for plan in plans]
        runs = _trainings(plans)
        sections += run_sections(runs, name=f"{slug(paper)}-sweep", part=paper)
        shown += runs

    if paths := [Path(word) for word in arguments.what if word not in known]:
        runs = [
            run
            for run in read_runs(paths)
            if arguments.seeds is None or run.record["seed"] in arguments.seeds
        ]
        sections += run_sections(runs, part="Runs")
        shown += runs

    title = ", ".join(papers) or "Runs"

    return build_report(title, sections, facts=run_facts(shown))


def _papers(arguments: argparse.Namespace) -> tuple[dict[str, list[Plan]], set[str]]:
    """Return the plans of the named artefacts by paper, and the names that are of artefacts."""
    from lightning_cse.config import experiments_dir
    from lightning_cse.papers.artefacts import Request
    from lightning_cse.papers.files import find_artefacts
    from lightning_cse.papers.kept import runs_table
    from lightning_cse.papers.plan import Plan

    experiments = experiments_dir()
    table = runs_table(arguments, experiments)
    request = Request(arguments.profile, arguments.encoder, arguments.seeds)
    known: set[str] = set()
    papers: dict[str, list[Plan]] = {}

    for artefact in find_artefacts(experiments).values():
        if named := set(arguments.what) & {"all", artefact.key, artefact.paper}:
            known |= named
            paper = artefact.source.partition(",")[0]
            papers.setdefault(paper, []).append(Plan(artefact, request, table))

    return papers, known


def _trainings(plans: Sequence[Plan]) -> list[FinishedRun]:
    """Return the finished training runs of artefacts, each once; an evaluation has no curves."""
    found = [run for plan in plans for line in plan.lines for run in plan.finished(line)]
    return list({run.source: run for run in found if "steps" in run.record}.values())


def _artefact(plan: Plan, paper: str) -> dict[str, Any]:
    """Return the section of an artefact; if it cannot be made, the section gives the reason."""
    from lightning_cse.papers.figures import Result
    from lightning_cse.papers.report import artefact_section
    from lightning_cse.papers.reproducing import Reproduction, reproduce

    try:
        done = reproduce(plan)
    except LightningCSEError as error:
        sys.stderr.write(f"warning: {plan.artefact.key} is left empty: {error}\n")
        done = Reproduction(plan, None, Result(text=f"Not made: {error}\n"))

    return artefact_section(plan.artefact, done.table, done.result, part=paper)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m lightning_cse.report",
        description="Write tables, charts and curves as one HTML file that opens from disk without a network.",
        epilog="Example: python -m lightning_cse.report runs/dualcse_* --seeds 0,1 --to sweep.html",
    )
    add = parser.add_argument
    add(
        "what",
        nargs="+",
        metavar="WHAT",
        help="papers, artefacts such as dualcse/table5, or all; folders of runs or of a sweep; "
        "records kept as files",
    )
    add(
        "--to",
        type=shared.path,
        default=Path("report.html"),
        metavar="FILE",
        help="default: report.html",
    )
    add("--seeds", type=shared.seeds, metavar="0,1,2", help="only these seeds")
    shared.add_runs(parser)

    return parser


if __name__ == "__main__":
    sys.exit(main())
