"""Reproduces a paper's tables and figures: ``python -m lightning_cse.reproduce gausscse/table3
--profile small``.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from lightning_cse import arguments as shared
from lightning_cse.errors import BUSY, LightningCSEError, reported

if TYPE_CHECKING:
    from rich.console import Console

    from lightning_cse.papers.plan import Plan

REFRESH: Final = 5.0  # seconds between two updates of the status


@reported
def main(argv: Sequence[str] | None = None) -> int:
    """Return 0 if everything requested is finished, 1 if a run failed, 2 for a user error, 3 if
    runs are under way.

    With ``--status``, 3 also means that runs are missing.
    """
    given = _parser().parse_args(argv)
    from rich.console import Console

    from lightning_cse.config import experiments_dir
    from lightning_cse.config.compose import use_config_dir
    from lightning_cse.papers.files import find_artefacts

    if given.config_dir is not None:
        use_config_dir(given.config_dir)
    given.experiments = given.experiments or experiments_dir()
    console = Console(highlight=False)
    console.width = max(console.width, 100)
    artefacts = find_artefacts(given.experiments)
    if given.all:
        given.artefact = list(artefacts)
    if not given.artefact:
        console.print("Tables and figures; name one, a paper or --all (with --dry-run: status):\n")
        titles = (f"  {key:<18}  {artefact.title}" for key, artefact in artefacts.items())
        console.print(*titles, sep="\n", markup=False)
        return 0
    plans = _plans(given, artefacts)
    if given.status:
        return _show_status(console, plans)
    return _reproduce(console, plans, given)


def _plans(given: argparse.Namespace, artefacts: Any) -> list[Plan]:
    """Return the plans of the artefacts that the command line names."""
    from lightning_cse.papers.artefacts import Request
    from lightning_cse.papers.plan import Plan
    from lightning_cse.papers.records import RunsTable
    from lightning_cse.papers.reproducing import check_keys, kept_records

    chosen = check_keys(given.artefact, artefacts)
    settings = tuple(one for one in given.set if not _is_of_hydra(one))
    request = Request(
        given.profile,
        given.encoder,
        given.seeds,
        settings,
        tuple(given.only),
    )
    kept = kept_records(given.experiments) if given.kept else []
    table = RunsTable(given.runs_dir, [*given.records, *kept])
    requests = [(artefact, request.within(artefact, chosen)) for artefact in chosen]
    return [Plan(artefact, own, table) for artefact, own in requests if own is not None]


def _is_of_hydra(setting: str) -> bool:
    return setting.lstrip("+").startswith(("hydra.", "hydra/"))


def _show_status(console: Console, plans: Sequence[Plan]) -> int:
    """Show the status of the runs; on a terminal, until none is running."""
    from rich.live import Live

    from lightning_cse.papers.listing import status_table
    from lightning_cse.papers.plan import status

    with Live(
        status_table(plans),
        console=console,
        refresh_per_second=1,
    ) as live:
        while console.is_terminal and status(plans)["running"]:
            time.sleep(REFRESH)
            plans[0].table.refresh()
            live.update(status_table(plans))
    console.print(end="" if console.is_terminal else "\n")
    return _exit_code(plans)


def _reproduce(
    console: Console,
    plans: Sequence[Plan],
    given: argparse.Namespace,
) -> int:
    """Run what is missing, and make the artefacts."""
    from lightning_cse.papers.listing import plans_table, status_table
    from lightning_cse.papers.plan import missing, status
    from lightning_cse.papers.reproducing import run_missing

    code = 0
    folder = given.out or given.runs_dir / "reproduce"
    if given.dry_run:
        console.print(plans_table(plans), "")
        return 0
    if not given.no_run and missing(status(plans)):
        console.print(plans_table(plans), "")
        options = [one for one in given.set if _is_of_hydra(one)]
        if given.launcher:
            options.append(f"hydra/launcher={given.launcher}")
        points = folder / "points"
        code = run_missing(
            plans,
            points,
            options,
            retry_failed=given.retry_failed,
        )
    plans[0].table.refresh()
    made = [
        _make(
            console,
            plan,
            given,
            folder / plan.artefact.paper,
        )
        for plan in plans
    ]
    if not given.no_run and _exit_code(plans):
        console.print("", status_table(plans))
        code = code or (1 if missing(status(plans)) else BUSY)
    return code or (0 if all(made) else 2)


def _exit_code(plans: Sequence[Plan]) -> int:
    from lightning_cse.papers.plan import missing, status

    now = status(plans)
    if now["failed"]:
        return 1
    return BUSY if missing(now) or now["running"] else 0


def _make(
    console: Console,
    plan: Plan,
    given: argparse.Namespace,
    folder: Path,
) -> bool:
    """Make, print and write one artefact; return False, without raising, if it cannot be made."""
    from lightning_cse.papers.render import render
    from lightning_cse.papers.reproducing import keep, reproduce

    artefact = plan.artefact
    results = given.experiments / artefact.paper / "results"
    tests = [home / f"{plan.stem}.tests.csv" for home in (folder, results)]
    kept_tests = next((file for file in tests if file.is_file()), None)
    try:
        done = reproduce(plan, kept_tests=kept_tests)
    except LightningCSEError as error:
        sys.stderr.write(f"error: {artefact.key}: {error}\n")
        return False
    if done.table is not None:
        _show(console, render(done.table, given.format))
    if done.made is not None and done.made.text:
        text = done.made.text
        if given.format == "terminal" and done.table is None:
            text = f"**{artefact.source}: {artefact.title}**\n\n{text}\n\n{artefact.note}"
        _show(
            console,
            text,
            markdown=given.format == "terminal",
        )
    files = done.write(folder)
    if given.keep:
        files += keep(done, given.experiments)
    for file in files:
        console.print(
            f"written: {file}",
            soft_wrap=True,
            style="dim",
        )
    return True


def _show(
    console: Console,
    part: Any,
    *,
    markdown: bool = False,
) -> None:
    from rich.markdown import Markdown

    if markdown:
        console.print(Markdown(part))
    elif isinstance(part, str):
        sys.stdout.write(f"{part.rstrip()}\n")
    else:
        console.print(part)


_EXAMPLES: Final = """Examples:
  python -m lightning_cse.reproduce dualcse/table5 --profile small --seeds 0,1,2
  python -m lightning_cse.reproduce gausscse/table3 --encoder minilm_l6 --only ent+con+rev --launcher joblib
  python -m lightning_cse.reproduce mine/table1 --experiments tables --config-dir configs
  python -m lightning_cse.reproduce --all --dry-run
"""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m lightning_cse.reproduce",
        description="Run what is missing for a paper's tables and figures, and print them beside the paper's numbers. "
        "Without an artefact, list them.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=_EXAMPLES,
    )
    add = parser.add_argument
    named = "such as gausscse/table3; a paper's name stands for all of its artefacts"
    add("artefact", nargs="*", help=named)
    add(
        "--all",
        action="store_true",
        help="every artefact of every paper",
    )
    what = parser.add_mutually_exclusive_group()
    for name, purpose in {
        "--dry-run": "show what is finished and what is missing; run nothing",
        "--status": "show what is running, what failed and why, until the end",
        "--no-run": "make the tables from the runs that exist; run nothing",
    }.items():
        what.add_argument(
            name,
            action="store_true",
            help=purpose,
        )
    tables = "folder of tables of your own, DIR/<paper>/<table>.yaml, instead of experiments/"
    add(
        "--experiments",
        type=shared.path,
        metavar="DIR",
        help=tables,
    )
    configs = "folder of configs of your own, beside conf/"
    add(
        "--config-dir",
        type=shared.path,
        metavar="DIR",
        help=configs,
    )
    shared.add_runs(parser)
    seeds = "seeds to use instead of the artefact's"
    add(
        "--seeds",
        type=shared.seeds,
        metavar="0,1,2",
        help=seeds,
    )
    rows = "only the rows with these labels, in all artefacts that have them"
    add(
        "--only",
        nargs="+",
        default=[],
        metavar="ROW",
        help=rows,
    )
    setting = "an additional override for every run; with hydra. or hydra/, for the whole sweep"
    add(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help=setting,
    )
    launcher = "joblib, ray, submitit_slurm, ...; default: one run after another"
    add("--launcher", metavar="NAME", help=launcher)
    add(
        "--retry-failed",
        action="store_true",
        help="also rerun what failed before",
    )
    kept = "also write tables, figures and records into <experiments>/<paper>/results"
    add("--keep", action="store_true", help=kept)
    out = "where tables and figures go; default: <runs>/reproduce"
    add(
        "--out",
        type=shared.path,
        metavar="DIR",
        help=out,
    )
    forms = ("terminal", "markdown", "csv", "latex")
    add(
        "--format",
        choices=forms,
        default="terminal",
        help="for the printed table",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
