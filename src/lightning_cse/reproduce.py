"""Makes a paper's tables and figures again: ``python -m lightning_cse.reproduce gausscse/table3 --profile small``."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, get_args

from lightning_cse import arguments as shared
from lightning_cse.errors import LightningCSEError, reported

if TYPE_CHECKING:
    from rich.console import Console

    from lightning_cse.papers.artefacts import Artefact, Request
    from lightning_cse.papers.points import RunsIndex
    from lightning_cse.papers.reproducing import Plan, Reproduction

Form = Literal["terminal", "markdown", "csv", "latex"]

FORMS: Final = get_args(Form)
REFRESH: Final = 5.0  # seconds between two looks at the runs, while their status is shown
_NARROWEST: Final = 100


@reported
def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code.

    0: all that was asked for is there; 2: a user error; 1: a run failed; 3: another process is
    still running what is missing (with --status: something is still missing); 130: interrupted.
    """
    arguments = _parser().parse_args(argv)
    from rich.console import Console

    from lightning_cse.config import experiments_dir
    from lightning_cse.papers.artefacts import find_artefacts
    from lightning_cse.papers.points import RunsIndex
    from lightning_cse.papers.reproducing import Plan, check_keys, kept_records

    console = Console(highlight=False)
    if console.width < _NARROWEST:
        console = Console(highlight=False, width=_NARROWEST)
    experiments = experiments_dir()
    artefacts = find_artefacts(experiments)
    keys = list(artefacts) if arguments.all else arguments.artefact
    if not keys:
        _list(console, artefacts)
        return 0
    chosen = check_keys(keys, artefacts)
    request = _request(arguments)
    runs_dir: Path = arguments.runs_dir
    kept = [*arguments.records, *(kept_records(experiments) if arguments.kept else [])]
    index = RunsIndex(runs_dir, kept)
    plans = [Plan(artefact, request, index) for artefact in chosen]
    likely = RunsIndex(runs_dir, [*kept, *([] if arguments.kept else kept_records(experiments))])
    if arguments.status:
        return _status(console, plans, likely)
    if arguments.dry_run:
        _dry_run(console, plans, likely, request)
        return 0
    return _reproduce(console, plans, likely, arguments, experiments)


def _request(arguments: argparse.Namespace) -> Request:
    from lightning_cse.papers.artefacts import Request

    settings = tuple(setting for setting in arguments.set if not _is_hydra(setting))
    return Request(arguments.profile, arguments.encoder, arguments.seeds, settings, tuple(arguments.only))


def _is_hydra(setting: str) -> bool:
    """Tell whether an override is for the command as a whole, and not for each of its points."""
    return setting.lstrip("+").startswith(("hydra.", "hydra/"))


def _list(console: Console, artefacts: dict[str, Artefact]) -> None:
    from rich.text import Text

    console.print("Tables and figures; name one, or a paper, or --all (with --dry-run: what there is of them):\n")
    width = max(map(len, artefacts), default=0)
    for key, artefact in artefacts.items():
        console.print(Text(f"  {key:<{width}}  {artefact.title}"))


def _dry_run(console: Console, plans: Sequence[Plan], likely: RunsIndex, request: Request) -> None:
    from lightning_cse.papers.standing import map_of, plan_of

    if len(plans) > 1:
        console.print(map_of(plans, likely, request))
        return
    console.print(plan_of(plans[0], likely), soft_wrap=False)


def _status(console: Console, plans: Sequence[Plan], likely: RunsIndex) -> int:
    """Show how far the runs are; in a terminal until all are done, else once."""
    from rich.live import Live

    from lightning_cse.papers.reproducing import BUSY, standing
    from lightning_cse.papers.standing import status_of

    if not console.is_terminal:
        console.print(status_of(plans, likely))
    else:
        with Live(status_of(plans, likely), console=console, refresh_per_second=1) as live:
            while standing(plans).of("running"):
                time.sleep(REFRESH)
                plans[0].index.refresh()
                live.update(status_of(plans, likely))
    now = standing(plans)
    if len(now.of("finished")) == now.total:
        return 0
    return 1 if now.of("failed") else BUSY


def _reproduce(
    console: Console, plans: Sequence[Plan], likely: RunsIndex, arguments: argparse.Namespace, experiments: Path
) -> int:
    """Run what is missing, then make everything of what is there; return the exit code."""
    from lightning_cse.papers.reproducing import BUSY, Launch, run_missing, standing
    from lightning_cse.papers.standing import map_of, plan_of, status_of

    folder: Path = arguments.out or arguments.runs_dir / "reproduce"
    code = 0
    if not arguments.no_run and standing(plans).of("missing", "interrupted", "failed"):
        console.print(plan_of(plans[0], likely) if len(plans) == 1 else map_of(plans, likely, plans[0].request))
        console.print()
        hydra = tuple(setting for setting in arguments.set if _is_hydra(setting))
        launch = Launch(arguments.runs_dir, arguments.launcher, arguments.retry_failed, hydra)
        code = run_missing(plans, launch, folder / "points")
    plans[0].index.refresh()
    keep_in = experiments if arguments.keep else None
    unmade = [not _make(console, plan, arguments, folder, experiments, keep_in) for plan in plans]
    now = standing(plans)
    if not arguments.no_run and len(now.of("finished")) < now.total:
        console.print()
        console.print(status_of(plans, likely))
        others_alone = now.of("running") and not now.of("missing", "interrupted", "failed")
        code = code or (BUSY if others_alone else 1)
    return code or (2 if any(unmade) else 0)


def _make(
    console: Console, plan: Plan, arguments: argparse.Namespace, folder: Path, experiments: Path, keep_in: Path | None
) -> bool:
    """Make, print and write one artefact; tell whether it could be made, since the others need not suffer for it."""
    from lightning_cse.papers.reproducing import keep, reproduce

    try:
        made = reproduce(plan, kept_tests=_kept_tests(plan, folder, experiments))
    except LightningCSEError as error:
        sys.stderr.write(f"error: {plan.artefact.key}: {error}\n")
        return False
    _show(console, made, arguments.format)
    files = made.write(folder / plan.artefact.paper)
    if keep_in is not None:
        files += keep(made, keep_in)
    for file in files:
        console.print(f"written: {file}", soft_wrap=True, style="dim")
    return True


def _kept_tests(plan: Plan, folder: Path, experiments: Path) -> Path | None:
    """Return the file of an earlier table's tests: of the user's own, or else of the one beside the artefact."""
    homes = (folder / plan.artefact.paper, experiments / plan.artefact.paper / "results")
    return next((file for home in homes if (file := home / f"{plan.stem}.tests.csv").is_file()), None)


def _show(console: Console, made: Reproduction, form: Form) -> None:
    """Print a table in the form asked for, and the text of what is made otherwise, with title and note of its own."""
    from rich.markdown import Markdown
    from rich.text import Text

    from lightning_cse.papers.render import render

    if made.table is not None:
        shown = render(made.table, form)
        if isinstance(shown, str):
            sys.stdout.write(f"{shown.rstrip()}\n")
        else:
            console.print(shown)
    if made.made is None or not made.made.text:
        return
    if form != "terminal":
        sys.stdout.write(f"{made.made.text.rstrip()}\n")
        return
    artefact = made.plan.artefact
    if made.table is None:
        console.print(Text(f"{artefact.source}: {artefact.title}", style="bold"))
    console.print(Markdown(made.made.text))
    if made.table is None and artefact.note.strip():
        console.print(Text(" ".join(artefact.note.split())))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m lightning_cse.reproduce",
        description="Make tables and figures of the papers again: say what is there, run what is missing, and print "
        "each table beside the paper's numbers. Without an artefact, list them.",
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
    what.add_argument("--dry-run", action="store_true", help="say what is there and what is missing, run nothing")
    what.add_argument("--status", action="store_true", help="done, running, failed, and the time that remains")
    what.add_argument("--no-run", action="store_true", help="make the tables of what is there, run nothing")
    shared.add_runs(parser)
    add("--seeds", type=_seeds, metavar="0,1,2", help="instead of the artefact's")
    add("--only", nargs="+", default=[], metavar="ROW", help="these rows, by their labels")
    add(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a further override for every run; one that "
        "begins with hydra (hydra.launcher.n_jobs=2) is for the sweep as a whole",
    )
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
        raise argparse.ArgumentTypeError(f"{text!r} is no list of seeds such as 0,1,2") from None
    if any(seed < 0 for seed in seeds):
        raise argparse.ArgumentTypeError(f"{text!r}: a seed is 0 or more")
    return seeds


if __name__ == "__main__":
    sys.exit(main())
