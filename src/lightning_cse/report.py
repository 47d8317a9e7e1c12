"""Reports a paper or a sweep as one HTML file: ``python -m lightning_cse.report dualcse --to
report.html``.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lightning_cse import arguments as shared
from lightning_cse.errors import LightningCSEError, did_you_mean, reported

if TYPE_CHECKING:
    from lightning_cse.papers.artefacts import Artefact, Request
    from lightning_cse.papers.plan import Plan
    from lightning_cse.papers.records import Found, RunsTable


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
    from lightning_cse.config import experiments_dir
    from lightning_cse.papers.artefacts import Request
    from lightning_cse.papers.files import find_artefacts
    from lightning_cse.papers.reading import read_runs
    from lightning_cse.papers.records import RunsTable
    from lightning_cse.papers.report import build_report, run_facts, run_sections, slug
    from lightning_cse.papers.reproducing import kept_records

    experiments = experiments_dir()
    artefacts = find_artefacts(experiments)
    names = {
        "all",
        *artefacts,
        *(artefact.paper for artefact in artefacts.values()),
    }
    paths = _paths(arguments.what, names)
    kept = kept_records(experiments) if arguments.kept else []
    table = RunsTable(arguments.runs_dir, [*arguments.records, *kept])
    request = Request(
        profile=arguments.profile,
        encoder=arguments.encoder,
        seeds=arguments.seeds,
    )
    papers = _plans_by_paper(_chosen(artefacts.values(), arguments.what), request, table)
    sections: list[dict[str, Any]] = []
    shown = []
    for paper, plans in papers.items():
        sections += [_artefact(plan, experiments, paper) for plan in plans]
        runs = _trainings(plans)
        sections += run_sections(
            runs,
            name=f"{slug(paper)}-sweep",
            part=paper,
        )
        shown += runs
    if paths:
        runs = read_runs(paths, arguments.seeds)
        sections += run_sections(runs, part="Runs" if papers else "")
        shown += runs
    title = arguments.title or ", ".join(papers) or _title_of_runs(shown)
    facts = run_facts(shown)
    if arguments.profile and papers:
        facts = {"profile": arguments.profile, **facts}
    return build_report(title, sections, facts=facts)


def _plans_by_paper(
    artefacts: Iterable[Artefact],
    request: Request,
    table: RunsTable,
) -> dict[str, list[Plan]]:
    """Return the plans of artefacts by the name of their paper."""
    from lightning_cse.papers.plan import Plan

    papers: dict[str, list[Plan]] = {}
    for artefact in artefacts:
        paper = artefact.source.partition(",")[0]
        papers.setdefault(paper, []).append(Plan(artefact, request, table))
    return papers


def _chosen(artefacts: Iterable[Artefact], what: Sequence[str]) -> list[Artefact]:
    """Return the artefacts that the words of the command line name, alone or by their paper."""
    return [
        one
        for one in artefacts
        if {
            "all",
            one.key,
            one.paper,
        }
        & set(what)
    ]


def _title_of_runs(runs: Sequence[Found]) -> str:
    names = list(dict.fromkeys(run.record["name"] for run in runs))
    return f"Runs: {', '.join(names[:3])}"


def _paths(what: Sequence[str], names: Iterable[str]) -> list[Path]:
    """Return the paths among the words of the command line; the other words are names of artefacts
    and papers.
    """
    paths = [Path(word).expanduser() for word in what if word not in names]
    for path in paths:
        if not path.exists():
            near = did_you_mean(str(path), names)
            raise LightningCSEError(f"{path}: neither an artefact nor a path{near}")
    return paths


def _trainings(plans: Sequence[Plan]) -> list[Found]:
    """Return the finished training runs of artefacts, each once; an evaluation has no curves."""
    runs = [run for plan in plans for line in plan.lines for run in plan.found(line)]
    by_source = {run.source: run for run in runs}
    return [run for run in by_source.values() if "steps" in run.record]


def _artefact(
    plan: Plan,
    experiments: Path,
    paper: str,
) -> dict[str, Any]:
    """Return the section of an artefact; if it cannot be made, the section gives the reason."""
    from lightning_cse.papers.report import artefact_section
    from lightning_cse.papers.reproducing import reproduce

    results = experiments / plan.artefact.paper / "results"
    try:
        done = reproduce(plan, kept_tests=results / f"{plan.stem}.tests.csv")
    except LightningCSEError as error:
        sys.stderr.write(f"warning: {plan.artefact.key} is left empty: {error}\n")
        section = artefact_section(plan.artefact, None, part=paper)
        return {**section, "text": f"Not made: {error}\n"}
    return artefact_section(
        plan.artefact,
        done.table,
        done.made,
        part=paper,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m lightning_cse.report",
        description="Write tables, charts and curves as one HTML file that opens from disk without a network.",
        epilog="Example: python -m lightning_cse.report runs/dualcse_* --seeds 0,1 --to sweep.html",
    )
    what = "papers, artefacts such as dualcse/table5, or all; folders of runs or of a sweep; records kept as files"
    add = parser.add_argument
    add(
        "what",
        nargs="+",
        metavar="WHAT",
        help=what,
    )
    add(
        "--to",
        type=shared.path,
        default=Path("report.html"),
        metavar="FILE",
        help="default: report.html",
    )
    add("--title", help="the heading of the page")
    add(
        "--seeds",
        type=shared.seeds,
        metavar="0,1,2",
        help="only these seeds",
    )
    shared.add_runs(parser)
    return parser


if __name__ == "__main__":
    sys.exit(main())
