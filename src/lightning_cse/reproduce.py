"""Makes a paper's tables and figures again: ``python -m lightning_cse.reproduce gausscse/table3 --profile small``."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from lightning_cse import arguments as shared
from lightning_cse.errors import BUSY, LightningCSEError, reported

if TYPE_CHECKING:
    from rich.console import Console

    from lightning_cse.papers.records import RunsIndex
    from lightning_cse.papers.reproducing import Plan

FORMS: Final = ("terminal", "markdown", "csv", "latex")
REFRESH: Final = 5.0  # seconds between two looks at the runs, while their status is shown


@reported
def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code.

    0: all that was asked for is there; 2: a user error; 1: a run failed; 3: another process is still running what is
    missing (with --status: something is still missing); 130: interrupted.
    """
    arguments = _parser().parse_args(argv)
    from rich.console import Console
    from rich.text import Text

    from lightning_cse.config import experiments_dir
    from lightning_cse.papers.artefacts import Request, find_artefacts
    from lightning_cse.papers.records import RunsIndex
    from lightning_cse.papers.reproducing import Plan, check_keys, kept_records
    from lightning_cse.papers.status import overview_table, plan_table

    console = Console(highlight=False)
    console.width = max(console.width, 100)
    artefacts = find_artefacts(experiments_dir())
    keys = list(artefacts) if arguments.all else arguments.artefact
    if not keys:
        console.print("Tables and figures; name one, or a paper, or --all (with --dry-run: their status):\n")
        for key, artefact in artefacts.items():
            console.print(Text(f"  {key:<{max(map(len, artefacts))}}  {artefact.title}"))
        return 0
    settings = tuple(one for one in arguments.set if not _is_hydra(one))
    request = Request(arguments.profile, arguments.encoder, arguments.seeds, settings, tuple(arguments.only))
    kept = kept_records(experiments_dir())
    index = RunsIndex(arguments.runs_dir, [*arguments.records, *(kept if arguments.kept else [])])
    plans = [Plan(artefact, request, index) for artefact in check_keys(keys, artefacts)]
    times = RunsIndex(arguments.runs_dir, [*arguments.records, *kept])
    if arguments.status:
        return _status(console, plans, times)
    if arguments.dry_run:
        console.print(plan_table(plans[0], times) if len(plans) == 1 else overview_table(plans, times))
        return 0
    return _reproduce(console, plans, times, arguments)


def _is_hydra(setting: str) -> bool:
    return setting.lstrip("+").startswith(("hydra.", "hydra/"))


def _status(console: Console, plans: Sequence[Plan], times: RunsIndex) -> int:
    """Show how far the runs are; in a terminal until none is running, else once."""
    from rich.live import Live

    from lightning_cse.papers.reproducing import status
    from lightning_cse.papers.status import status_table

    with Live(status_table(plans, times), console=console, refresh_per_second=1) as live:
        while console.is_terminal and status(plans).of("running"):
            time.sleep(REFRESH)
            plans[0].index.refresh()
            live.update(status_table(plans, times))
    now = status(plans)
    return 0 if len(now.of("finished")) == now.total else 1 if now.of("failed") else BUSY


def _reproduce(console: Console, plans: Sequence[Plan], times: RunsIndex, arguments: argparse.Namespace) -> int:
    """Run what is missing, then make everything of what is there; return the exit code."""
    from lightning_cse.papers.reproducing import MISSING, run_missing, status
    from lightning_cse.papers.status import overview_table, plan_table, status_table

    folder: Path = arguments.out or arguments.runs_dir / "reproduce"
    code = 0
    if not arguments.no_run and status(plans).of(*MISSING):
        console.print(plan_table(plans[0], times) if len(plans) == 1 else overview_table(plans, times), "")
        options = [f"hydra/launcher={arguments.launcher}"] if arguments.launcher else []
        options += [one for one in arguments.set if _is_hydra(one)]
        code = run_missing(plans, folder / "points", options, retry_failed=arguments.retry_failed)
    plans[0].index.refresh()
    unmade = [plan for plan in plans if not _make(console, plan, arguments, folder)]
    now = status(plans)
    if not arguments.no_run and len(now.of("finished")) < now.total:
        console.print("", status_table(plans, times))
        code = code or (1 if now.of(*MISSING) else BUSY)
    return code or (2 if unmade else 0)


def _make(console: Console, plan: Plan, arguments: argparse.Namespace, folder: Path) -> bool:
    """Make, print and write one artefact; return whether it could be made, since the others may be."""
    from rich.markdown import Markdown
    from rich.text import Text

    from lightning_cse.config import experiments_dir
    from lightning_cse.papers.render import render
    from lightning_cse.papers.reproducing import keep, reproduce

    artefact, out = plan.artefact, folder / plan.artefact.paper
    homes = (out, experiments_dir() / artefact.paper / "results")
    tests = (file for home in homes if (file := home / f"{plan.stem}.tests.csv").is_file())
    try:
        made = reproduce(plan, kept_tests=next(tests, None))
    except LightningCSEError as error:
        sys.stderr.write(f"error: {artefact.key}: {error}\n")
        return False
    shown = [] if made.table is None else [render(made.table, arguments.format)]
    text = made.made.text if made.made is not None else ""
    if text and arguments.format != "terminal":
        shown.append(text)
    elif text:
        heading = [Text(f"{artefact.source}: {artefact.title}", style="bold")] if made.table is None else []
        note = [Text(" ".join(artefact.note.split()))] if made.table is None else []
        shown += [*heading, Markdown(text), *note]
    for part in shown:
        if isinstance(part, str):
            sys.stdout.write(f"{part.rstrip()}\n")
        else:
            console.print(part)
    files = made.write(out) + (keep(made, experiments_dir()) if arguments.keep else [])
    for file in files:
        console.print(f"written: {file}", soft_wrap=True, style="dim")
    return True


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m lightning_cse.reproduce",
        description="Make tables and figures of the papers again: run what is missing, and print each table beside the "
        "paper's numbers. Without an artefact, list them.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="Examples:\n"
        "  python -m lightning_cse.reproduce dualcse/table5 --profile small --seeds 0,1,2\n"
        "  python -m lightning_cse.reproduce gausscse/table3 --encoder minilm_l6 --only ent+con+rev --launcher joblib\n"
        "  python -m lightning_cse.reproduce --all --dry-run\n",
    )
    add = parser.add_argument
    add("artefact", nargs="*", help="such as gausscse/table3; a paper's name stands for all of its artefacts")
    add("--all", action="store_true", help="every artefact of every paper")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--dry-run", action="store_true", help="say what is finished and what is missing, run nothing")
    what.add_argument("--status", action="store_true", help="finished, running, failed, and the time that remains")
    what.add_argument("--no-run", action="store_true", help="make the tables of what is there, run nothing")
    shared.add_runs(parser)
    add("--seeds", type=_seeds, metavar="0,1,2", help="instead of the artefact's")
    add("--only", nargs="+", default=[], metavar="ROW", help="these rows, by their labels")
    of_sweep = "a further override for every run; with hydra. or hydra/ in front, for the sweep as a whole"
    add("--set", action="append", default=[], metavar="KEY=VALUE", help=of_sweep)
    add("--launcher", metavar="NAME", help="joblib, ray, submitit_slurm, ...; default: one run after another")
    add("--retry-failed", action="store_true", help="also run again what failed before")
    add("--keep", action="store_true", help="also write tables, figures and records into experiments/<paper>/results")
    add("--out", type=shared.path, metavar="DIR", help="where tables and figures go; default: <runs>/reproduce")
    add("--format", choices=FORMS, default="terminal", help="of the printed table")
    return parser


def _seeds(text: str) -> tuple[int, ...]:
    try:
        seeds = tuple(dict.fromkeys(int(part) for part in text.split(",")))
    except ValueError:
        seeds = (-1,)
    if min(seeds) < 0:
        raise argparse.ArgumentTypeError(f"must be a list of seeds >= 0, such as 0,1,2, got {text!r}")
    return seeds


if __name__ == "__main__":
    sys.exit(main())
