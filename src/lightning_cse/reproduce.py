"""Reproduces a paper's tables and figures: ``python -m lightning_cse.reproduce gausscse/table3
--profile small``.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from lightning_cse import arguments as shared
from lightning_cse.errors import BUSY, ConfigError, LightningCSEError, did_you_mean, reported

if TYPE_CHECKING:
    from lightning_cse.tables.keep import Identity
    from lightning_cse.tables.kept import KeptRuns
    from lightning_cse.tables.plan import Plan
    from lightning_cse.tables.records import FinishedRun
    from lightning_cse.tables.spec import Spec


@reported
def main(argv: Sequence[str] | None = None) -> int:
    """Return 0 if everything requested is finished, 1 if a run failed, 2 for a user error, 3 if
    runs are under way.

    With ``--status``, 3 also means that runs are missing.
    """
    given = _parser().parse_args(argv)
    from lightning_cse.config.compose import use_config_dir
    from lightning_cse.paths import experiments_dir
    from lightning_cse.tables.files import find_specs
    from lightning_cse.tables.keep import kept_folders
    from lightning_cse.tables.listing import overview

    if given.config_dir is not None:
        given.config_dir = given.config_dir.absolute()
        use_config_dir(given.config_dir)

    given.experiments = given.experiments or experiments_dir()
    specs = find_specs(given.experiments)
    if given.all or (given.list and not given.table):
        given.table = list(specs)

    if not given.table:
        _show("Tables and figures; name one, a paper or --all (--list: what is finished):\n")
        _show("\n".join(f"  {key:<18}  {spec.title}" for key, spec in specs.items()))
        return 0

    kept = kept_folders(given.experiments)
    plans = _plans(given, specs, kept)
    if given.status or given.dry_run or given.list:
        _show(overview(plans))
        return _exit_code(plans) if given.status else 0

    return _reproduce(plans, given, kept)


def _plans(
    given: argparse.Namespace, specs: Mapping[str, Spec], kept: Sequence[KeptRuns]
) -> list[Plan]:
    """Return the plans of the tables that the command line names and that have the rows of
    ``--only``.
    """
    from lightning_cse.tables.keep import runs_table
    from lightning_cse.tables.plan import Plan
    from lightning_cse.tables.spec import Request

    keys = {*specs, *(spec.paper for spec in specs.values())}
    _check("table or figure", given.table, keys)
    named = set(given.table)
    chosen = [one for one in specs.values() if {one.key, one.paper} & named]
    _check("row", given.only, {row.label for spec in chosen for row in spec.rows})
    settings = tuple(one for one in given.set if not _is_of_hydra(one))
    if any(one.startswith("seed=") for one in settings):
        raise ConfigError(["--set seed=...: use --seeds"])

    folder = given.config_dir and str(given.config_dir)
    only = tuple(given.only)
    request = Request(given.profile, given.encoder, given.seeds, settings, only, folder)
    table = runs_table(given, given.experiments, kept)
    plans = [Plan(spec, request, table) for spec in chosen]

    return [plan for plan in plans if plan.lines or not given.only]


def _check(what: str, names: Sequence[str], known: Collection[str]) -> None:
    for name in names:
        if name not in known:
            raise ConfigError([f"there is no {what} {name!r}{did_you_mean(name, known)}"])


def _is_of_hydra(setting: str) -> bool:
    return setting.lstrip("+").startswith(("hydra.", "hydra/"))


def _reproduce(plans: Sequence[Plan], given: argparse.Namespace, kept: Sequence[KeptRuns]) -> int:
    """Run what is missing, and make the tables."""
    from lightning_cse.tables.figures import maker
    from lightning_cse.tables.keep import kept_runs
    from lightning_cse.tables.listing import overview
    from lightning_cse.tables.plan import missing, status
    from lightning_cse.tables.reproduce import run_missing

    for plan in plans:
        if plan.spec.make:  # a wrong name is an error before anything is run
            maker(plan.spec)

    code = 0
    folder = given.runs_dir / "reproduce"
    if not given.no_run and missing(status(plans)):
        _show(overview(plans) + "\n")
        options = [setting for setting in given.set if _is_of_hydra(setting)]
        if given.config_dir is not None:
            options.append(f"--config-dir={given.config_dir}")

        code = run_missing(plans, folder / "points", options, retry_failed=given.retry_failed)

    plans[0].table.refresh()
    before = kept_runs(kept)  # read before --keep replaces them
    made = [_make(plan, given, folder / plan.spec.paper, before) for plan in plans]
    if not given.no_run and _exit_code(plans):
        _show("\n" + overview(plans))
        code = code or (1 if missing(status(plans)) else BUSY)

    return code or (0 if all(made) else 2)


def _exit_code(plans: Sequence[Plan]) -> int:
    from lightning_cse.tables.plan import missing, status

    now = status(plans)
    if now["failed"]:
        return 1

    return BUSY if missing(now) or now["running"] else 0


def _make(
    plan: Plan, given: argparse.Namespace, folder: Path, kept: Mapping[Identity, FinishedRun]
) -> bool:
    """Make, print and write one table; return False, without raising, if it cannot be made."""
    from lightning_cse.tables.keep import comparison, keep, repetitions
    from lightning_cse.tables.render import render
    from lightning_cse.tables.reproduce import reproduce

    spec = plan.spec
    try:
        done = reproduce(plan)
    except LightningCSEError as error:
        sys.stderr.write(f"error: {spec.key}: {error}\n")
        return False

    if done.table is not None:
        _show(render(done.table, given.format))

    if done.result.text:
        if done.table is None:
            _show(f"**{spec.source}: {spec.title}**\n")

        _show(done.result.text)

    if repeated := repetitions(plan, kept):
        _show(comparison(repeated))

    files = done.write(folder)
    if given.keep:
        files += keep(done, given.experiments)

    for file in files:
        _show(f"written: {file}")

    return True


def _show(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()  # before the output of a command that runs in between


_EXAMPLES = """Examples:
  python -m lightning_cse.reproduce dualcse/table5 --profile small --seeds 0,1,2
  python -m lightning_cse.reproduce gausscse/table3 --encoder minilm_l6 --only ent+con+rev --set hydra/launcher=joblib
  python -m lightning_cse.reproduce mine/table1 --experiments tables --config-dir configs
  python -m lightning_cse.reproduce --all --dry-run
"""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m lightning_cse.reproduce",
        description="Run what is missing for a paper's tables and figures, and print them beside the paper's numbers. "
        "Without a name, list them.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=_EXAMPLES,
    )
    add = parser.add_argument
    add(
        "table",
        nargs="*",
        help="such as gausscse/table3; a paper's name stands for all of its tables and figures",
    )
    add("--all", action="store_true", help="every table and figure of every paper")
    what = parser.add_mutually_exclusive_group()
    for name, purpose in {
        "--dry-run": "show what is finished and what is missing; run nothing",
        "--list": "the same for all tables, unless some are named",
        "--status": "the same; the exit code says whether all is finished",
        "--no-run": "make the tables from the runs that exist; run nothing",
    }.items():
        what.add_argument(name, action="store_true", help=purpose)

    for name, purpose in {
        "--experiments": "folder of tables of your own, DIR/<paper>/<table>.yaml, instead of experiments/",
        "--config-dir": "folder of configs of your own, beside conf/",
    }.items():
        add(name, type=shared.path, metavar="DIR", help=purpose)

    shared.add_runs(parser)
    add("--seeds", type=shared.seeds, metavar="0,1,2", help="seeds to use instead of the file's")
    add(
        "--only",
        nargs="+",
        default=[],
        metavar="ROW",
        help="only the rows with these labels, in all tables that have them",
    )
    add(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="an additional override for every run; with hydra. or hydra/, for the whole sweep",
    )
    add("--retry-failed", action="store_true", help="also rerun what failed before")
    add(
        "--keep",
        action="store_true",
        help="also write tables, figures and records into <experiments>/<paper>/results",
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
