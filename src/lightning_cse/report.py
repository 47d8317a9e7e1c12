"""Writes a paper or a sweep as one HTML file: ``python -m lightning_cse.report dualcse --to report.html``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from lightning_cse import arguments as shared
from lightning_cse.errors import ConfigError, LightningCSEError, did_you_mean, reported

if TYPE_CHECKING:
    from lightning_cse.papers.artefacts import Artefact
    from lightning_cse.papers.report import Section
    from lightning_cse.papers.reproducing import Plan, Reproduction
    from lightning_cse.papers.run_report import ShownRun

EVERYTHING: Final = "all"


@reported
def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    arguments = _parser().parse_args(argv)
    page = make_report(arguments)
    _write(page, arguments.to)
    sys.stdout.write(f"written: {arguments.to} ({len(page.encode()) / 2**20:.1f} MiB)\n")
    return 0


def make_report(arguments: argparse.Namespace) -> str:
    """Return the page that a command line asks for.

    Raises:
        ConfigError: if something named is neither an artefact, nor a paper, nor a path.
        LightningCSEError: as reading runs and making artefacts do.
    """
    from lightning_cse.config import experiments_dir
    from lightning_cse.papers.artefacts import find_artefacts
    from lightning_cse.papers.report import build_report
    from lightning_cse.papers.run_report import read_runs, run_facts, run_sections

    experiments = experiments_dir()
    artefacts = find_artefacts(experiments)
    chosen, paths = _sorted_out(arguments.what, artefacts)
    sections: list[Section] = []
    shown: list[ShownRun] = []
    for paper, group in _by_paper(chosen).items():
        more, runs = _paper(paper, group, arguments, experiments)
        sections += more
        shown += runs
    if paths:
        runs = read_runs(paths)
        sections += run_sections(runs, part="Runs" if chosen else "")
        shown += runs
    papers = list(_by_paper(chosen))
    title = arguments.title or (", ".join(papers) + " made again" if papers else f"Runs: {_called(shown)}")
    profile = {"profile": arguments.profile} if arguments.profile and chosen else {}
    return build_report(title, sections, facts={**profile, **run_facts(shown)})


def _sorted_out(what: Sequence[str], artefacts: Mapping[str, Artefact]) -> tuple[list[Artefact], list[Path]]:
    """Return the artefacts and the paths that are named; an artefact or a paper wins over a path."""
    from lightning_cse.papers.reproducing import check_keys

    papers = dict.fromkeys(artefact.paper for artefact in artefacts.values())
    keys = list(papers) if EVERYTHING in what else [one for one in what if one in artefacts or one in papers]
    rest = [one for one in what if one not in (*keys, *papers, EVERYTHING)]
    paths = [Path(one).expanduser() for one in rest]
    faults = [
        f"{one}: neither a path nor an artefact{did_you_mean(one, [*artefacts, *papers])} "
        f"(papers: {', '.join(papers)}, {EVERYTHING})"
        for one, path in zip(rest, paths, strict=True)
        if not path.exists()
    ]
    if faults:
        raise ConfigError(faults)
    return check_keys(keys, artefacts), paths


def _write(page: str, target: Path) -> None:
    from lightning_cse.runs import write_atomic

    try:
        write_atomic(target, page)
    except OSError as error:
        raise LightningCSEError(f"{target}: {error.strerror}; give another place with --to") from error


def _by_paper(artefacts: Iterable[Artefact]) -> dict[str, list[Artefact]]:
    """Return artefacts by the name that their sources give the paper."""
    papers: dict[str, list[Artefact]] = {}
    for artefact in artefacts:
        papers.setdefault(artefact.source.partition(",")[0], []).append(artefact)
    return papers


def _paper(
    paper: str, artefacts: Sequence[Artefact], arguments: argparse.Namespace, experiments: Path
) -> tuple[list[Section], list[ShownRun]]:
    """Return the sections of a paper's artefacts and of the runs that they are made of, and these runs."""
    from lightning_cse.papers.artefacts import Request
    from lightning_cse.papers.records import RunsIndex
    from lightning_cse.papers.report import artefact_section, slug
    from lightning_cse.papers.reproducing import Plan, kept_records
    from lightning_cse.papers.run_report import found_runs, run_sections

    kept = [*arguments.records, *(kept_records(experiments) if arguments.kept else [])]
    index = RunsIndex(arguments.runs_dir, kept)
    request = Request(profile=arguments.profile, encoder=arguments.encoder)
    sections, found = [], []
    for artefact in artefacts:
        plan = Plan(artefact, request, index)
        tests = experiments / artefact.paper / "results" / f"{plan.stem}.tests.csv"
        made = _made(plan, tests if tests.is_file() else None)
        parts = made.made
        sections.append(
            artefact_section(
                artefact,
                made.table,
                figures=parts.figures if parts else None,
                text=parts.text if parts else "",
                rows=parts.tables if parts else None,
                part=paper,
            )
        )
        found += [run for line in plan.lines for run in plan.found(line)]
    runs = [run for run in found_runs(found) if "steps" in run.record]  # trainings; an evaluation has no curves
    return [*sections, *run_sections(runs, name=f"{slug(paper)}-sweep", part=paper)], runs


def _made(plan: Plan, kept_tests: Path | None) -> Reproduction:
    """Make one artefact; one that cannot be made says why in its place, since the others need not suffer for it."""
    from lightning_cse.papers.figures import Made
    from lightning_cse.papers.reproducing import Reproduction, reproduce

    try:
        return reproduce(plan, kept_tests=kept_tests)
    except LightningCSEError as error:
        sys.stderr.write(f"warning: {plan.artefact.key} is left empty: {error}\n")
        return Reproduction(plan, None, Made(text=f"Not made: {error}\n"))


def _called(runs: Iterable[ShownRun]) -> str:
    """Return the names of runs, the first three of them."""
    names = list(dict.fromkeys(str(run.record["name"]) for run in runs))
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m lightning_cse.report",
        description="Write tables, charts and curves as one HTML file that opens from disk and needs no network. "
        "Nothing is trained; what is missing stays visibly empty. It quotes a corpus where an artefact does.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="Examples:\n"
        "  python -m lightning_cse.report dualcse --profile small --to dualcse.html\n"
        "  python -m lightning_cse.report runs/dualcse_* --to sweep.html\n",
    )
    add = parser.add_argument
    add(
        "what",
        nargs="+",
        metavar="WHAT",
        help="papers, artefacts such as dualcse/table5, or all; folders of runs; records kept as files",
    )
    add("--to", type=shared.path, default=Path("report.html"), metavar="FILE", help="default: report.html")
    add("--title", help="the heading of the page")
    shared.add_runs(parser)
    return parser


if __name__ == "__main__":
    sys.exit(main())
