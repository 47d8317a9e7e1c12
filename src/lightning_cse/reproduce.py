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
    from lightning_cse.tables.records import FinishedRun
    from lightning_cse.tables.spec import Spec
    from lightning_cse.tables.table import Table


@reported
def main(argv: Sequence[str] | None = None) -> int:
    """Return 0 if everything requested is finished, 1 if a run failed, 2 for a user error, 3 if
    runs are under way.

    With ``--status``, 3 also means that runs are missing.
    """
    arguments = _parser().parse_args(argv)
    from lightning_cse.config.compose import use_config_dir
    from lightning_cse.paths import experiments_dir
    from lightning_cse.tables.files import find_specs
    from lightning_cse.tables.keep import kept_folders
    from lightning_cse.tables.listing import overview

    if arguments.config_dir is not None:
        arguments.config_dir = arguments.config_dir.absolute()
        use_config_dir(arguments.config_dir)

    arguments.experiments = arguments.experiments or experiments_dir()
    specs = find_specs(arguments.experiments)
    if arguments.all or (arguments.list and not arguments.table):
        arguments.table = list(specs)

    if not arguments.table:
        _show("Tables and figures; name one, a paper or --all (--list: what is finished):\n")
        _show("\n".join(f"  {key:<18}  {spec.title}" for key, spec in specs.items()))
        return 0

    folders = kept_folders(arguments.experiments)
    tables = _tables(arguments, specs, folders)
    if arguments.status or arguments.dry_run or arguments.list:
        _show(overview(tables))
        return _exit_code(tables) if arguments.status else 0

    return _reproduce(tables, arguments, folders)


def _tables(
    arguments: argparse.Namespace, specs: Mapping[str, Spec], folders: Sequence[KeptRuns]
) -> list[Table]:
    """Return the tables that the command line names and that have the rows of ``--only``."""
    from lightning_cse.tables.keep import runs_table
    from lightning_cse.tables.spec import Request
    from lightning_cse.tables.table import Table

    keys = {*specs, *(spec.paper for spec in specs.values())}
    _check("table or figure", arguments.table, keys)
    named = set(arguments.table)
    chosen = [spec for spec in specs.values() if {spec.key, spec.paper} & named]
    _check("row", arguments.only, {row.label for spec in chosen for row in spec.rows})
    settings = tuple(setting for setting in arguments.set if not _is_of_hydra(setting))
    if any(setting.startswith("seed=") for setting in settings):
        raise ConfigError(["--set seed=...: use --seeds"])

    folder = arguments.config_dir and str(arguments.config_dir)
    only = tuple(arguments.only)
    request = Request(arguments.profile, arguments.encoder, arguments.seeds, settings, only, folder)
    runs = runs_table(arguments, arguments.experiments, folders)
    tables = [Table(spec, request, runs) for spec in chosen]

    return [table for table in tables if len(table.lines) or not arguments.only]


def _check(category: str, names: Sequence[str], valid: Collection[str]) -> None:
    for name in names:
        if name not in valid:
            raise ConfigError([f"there is no {category} {name!r}{did_you_mean(name, valid)}"])


def _is_of_hydra(setting: str) -> bool:
    return setting.lstrip("+").startswith(("hydra.", "hydra/"))


def _reproduce(
    tables: Sequence[Table], arguments: argparse.Namespace, folders: Sequence[KeptRuns]
) -> int:
    """Run what is missing, and make the tables."""
    from lightning_cse.tables.figures import maker
    from lightning_cse.tables.keep import kept_runs
    from lightning_cse.tables.listing import overview
    from lightning_cse.tables.reproduce import run_missing
    from lightning_cse.tables.table import missing, status

    for table in tables:
        if table.spec.make:  # a wrong name is an error before anything is run
            maker(table.spec)

    code = 0
    folder = arguments.runs_dir / "reproduce"
    if not arguments.no_run and len(missing(status(tables))):
        _show(overview(tables) + "\n")
        options = [setting for setting in arguments.set if _is_of_hydra(setting)]
        if arguments.config_dir is not None:
            options.append(f"--config-dir={arguments.config_dir}")

        code = run_missing(tables, folder / "points", options, retry_failed=arguments.retry_failed)

    tables[0].runs.refresh()
    kept_by_identity = kept_runs(folders)  # read before --keep replaces them
    successes = [
        _make(table, arguments, folder / table.spec.paper, kept_by_identity) for table in tables
    ]
    if not arguments.no_run and _exit_code(tables):
        _show("\n" + overview(tables))
        code = code or (1 if len(missing(status(tables))) else BUSY)

    return code or (0 if all(successes) else 2)


def _exit_code(tables: Sequence[Table]) -> int:
    from lightning_cse.tables.table import missing, status

    jobs = status(tables)
    if (jobs["state"] == "failed").any():
        return 1

    return BUSY if len(missing(jobs)) or (jobs["state"] == "running").any() else 0


def _make(
    table: Table,
    arguments: argparse.Namespace,
    folder: Path,
    kept_by_identity: Mapping[Identity, FinishedRun],
) -> bool:
    """Make, print and write one table; return False, without raising, if it cannot be made."""
    from lightning_cse.tables.figures import make
    from lightning_cse.tables.keep import keep, repetitions
    from lightning_cse.tables.render import render, title_of
    from lightning_cse.tables.reproduce import write

    try:
        text = render(table, arguments.format) if table.is_shown else f"**{title_of(table)}**\n"
        result = make(table)
    except LightningCSEError as error:
        sys.stderr.write(f"error: {table.spec.key}: {error}\n")
        return False

    parts = [text] if table.is_shown or result.text else []
    parts += [result.text, repetitions(table, kept_by_identity)]
    for part in filter(None, parts):
        _show(part)

    files = write(table, result, folder)
    if arguments.keep:
        files += keep(table, result, arguments.experiments)

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
    modes = parser.add_mutually_exclusive_group()
    for name, purpose in {
        "--dry-run": "show what is finished and what is missing; run nothing",
        "--list": "the same for all tables, unless some are named",
        "--status": "the same; the exit code says whether all is finished",
        "--no-run": "make the tables from the runs that exist; run nothing",
    }.items():
        modes.add_argument(name, action="store_true", help=purpose)

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
