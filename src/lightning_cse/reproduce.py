"""Reproduces a paper's tables and figures: ``python -m lightning_cse.reproduce gausscse/table3 --profile small``."""

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

    from lightning_cse.papers.reproducing import Plan

REFRESH: Final = 5.0  # seconds between two updates of the status


@reported
def main(argv: Sequence[str] | None = None) -> int:
    """Return 0 if everything requested is finished, 1 if a run failed, 2 for a user error, 3 if runs are under way.

    With ``--status``, 3 also means that runs are missing.
    """
    given = _parser().parse_args(argv)
    from rich.console import Console
    from rich.live import Live

    from lightning_cse.config import experiments_dir
    from lightning_cse.config.compose import use_config_dir
    from lightning_cse.papers import reproducing
    from lightning_cse.papers.artefacts import Request, find_artefacts
    from lightning_cse.papers.records import RunsIndex

    console = Console(highlight=False)
    console.width = max(console.width, 100)
    if given.config_dir is not None:
        use_config_dir(given.config_dir)
    given.experiments = given.experiments or experiments_dir()
    artefacts = find_artefacts(given.experiments)
    kept = reproducing.kept_records(given.experiments)
    if not (keys := list(artefacts) if given.all else given.artefact):
        console.print(
            "Tables and figures; name one, a paper or --all (with --dry-run: their status):\n"
        )
        titles = (f"  {key:<18}  {artefact.title}" for key, artefact in artefacts.items())
        console.print(*titles, sep="\n", markup=False)
        return 0
    hydra = [one for one in given.set if one.lstrip("+").startswith(("hydra.", "hydra/"))]
    settings = tuple(one for one in given.set if one not in hydra)
    request = Request(given.profile, given.encoder, given.seeds, settings, tuple(given.only))
    index = RunsIndex(given.runs_dir, [*given.records, *(kept if given.kept else [])])
    chosen = reproducing.check_keys(keys, artefacts)
    plans = [
        reproducing.Plan(one, asked, index)
        for one in chosen
        if (asked := request.within(one, chosen))
    ]
    if given.status:
        with Live(reproducing.status_table(plans), console=console, refresh_per_second=1) as live:
            while console.is_terminal and reproducing.status(plans)["running"]:
                time.sleep(REFRESH)
                index.refresh()
                live.update(reproducing.status_table(plans))
        console.print(end="" if console.is_terminal else "\n")
        return _code(plans)
    folder, code = given.out or given.runs_dir / "reproduce", 0
    if given.dry_run or (not given.no_run and reproducing.missing(reproducing.status(plans))):
        console.print(reproducing.plans_table(plans), "")
        if given.dry_run:
            return 0
        hydra += [f"hydra/launcher={given.launcher}"] if given.launcher else []
        code = reproducing.run_missing(
            plans, folder / "points", hydra, retry_failed=given.retry_failed
        )
    index.refresh()
    unmade = [
        plan for plan in plans if not _make(console, plan, given, folder / plan.artefact.paper)
    ]
    if not given.no_run and _code(plans):
        console.print("", reproducing.status_table(plans))
        code = code or (1 if reproducing.missing(reproducing.status(plans)) else BUSY)
    return code or (2 if unmade else 0)


def _code(plans: Sequence[Plan]) -> int:
    from lightning_cse.papers import reproducing

    now = reproducing.status(plans)
    return 1 if now["failed"] else BUSY if reproducing.missing(now) or now["running"] else 0


def _make(console: Console, plan: Plan, given: argparse.Namespace, folder: Path) -> bool:
    """Make, print and write one artefact; return False, without raising, if it cannot be made."""
    from rich.markdown import Markdown

    from lightning_cse.papers.render import render
    from lightning_cse.papers.reproducing import keep, reproduce

    artefact = plan.artefact
    tests = [
        home / f"{plan.stem}.tests.csv"
        for home in (folder, given.experiments / artefact.paper / "results")
    ]
    try:
        made = reproduce(plan, kept_tests=next((file for file in tests if file.is_file()), None))
    except LightningCSEError as error:
        sys.stderr.write(f"error: {artefact.key}: {error}\n")
        return False
    shown = [] if made.table is None else [render(made.table, given.format)]
    if made.made is not None and made.made.text:
        text, alone = (
            made.made.text,
            f"**{artefact.source}: {artefact.title}**\n\n{made.made.text}\n\n{artefact.note}",
        )
        shown.append(
            text if given.format != "terminal" else Markdown(alone if made.table is None else text)
        )
    for part in shown:
        if isinstance(part, str):
            sys.stdout.write(f"{part.rstrip()}\n")
        else:
            console.print(part)
    for file in made.write(folder) + (keep(made, given.experiments) if given.keep else []):
        console.print(f"written: {file}", soft_wrap=True, style="dim")
    return True


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m lightning_cse.reproduce",
        description="Run what is missing for a paper's tables and figures, and print them beside the paper's numbers. "
        "Without an artefact, list them.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="Examples:\n"
        "  python -m lightning_cse.reproduce dualcse/table5 --profile small --seeds 0,1,2\n"
        "  python -m lightning_cse.reproduce gausscse/table3 --encoder minilm_l6 --only ent+con+rev --launcher joblib\n"
        "  python -m lightning_cse.reproduce --all --dry-run\n",
    )
    add = parser.add_argument
    add(
        "artefact",
        nargs="*",
        help="such as gausscse/table3; a paper's name stands for all of its artefacts",
    )
    add("--all", action="store_true", help="every artefact of every paper")
    what = parser.add_mutually_exclusive_group()
    what.add_argument(
        "--dry-run",
        action="store_true",
        help="show what is finished and what is missing; run nothing",
    )
    what.add_argument(
        "--status",
        action="store_true",
        help="show what is running, what failed and why, until the end",
    )
    what.add_argument(
        "--no-run",
        action="store_true",
        help="make the tables from the runs that exist; run nothing",
    )
    add(
        "--experiments",
        type=shared.path,
        metavar="DIR",
        help="folder of tables of your own, as DIR/<paper>/<table>.yaml, instead of experiments/",
    )
    add(
        "--config-dir",
        type=shared.path,
        metavar="DIR",
        help="folder of configs of your own, beside conf/",
    )
    shared.add_runs(parser)
    add(
        "--seeds", type=shared.seeds, metavar="0,1,2", help="seeds to use instead of the artefact's"
    )
    add(
        "--only",
        nargs="+",
        default=[],
        metavar="ROW",
        help="only the rows with these labels, in all artefacts that have them",
    )
    of_sweep = "an additional override for every run; with the prefix hydra. or hydra/, for the whole sweep"
    add("--set", action="append", default=[], metavar="KEY=VALUE", help=of_sweep)
    add(
        "--launcher",
        metavar="NAME",
        help="joblib, ray, submitit_slurm, ...; default: one run after another",
    )
    add("--retry-failed", action="store_true", help="also rerun what failed before")
    add(
        "--keep",
        action="store_true",
        help="also write tables, figures and records into experiments/<paper>/results",
    )
    add(
        "--out",
        type=shared.path,
        metavar="DIR",
        help="where tables and figures go; default: <runs>/reproduce",
    )
    add(
        "--format",
        choices=("terminal", "markdown", "csv", "latex"),
        default="terminal",
        help="for the printed table",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
