"""Lists the runs on disk, or removes some: ``lightning-cse runs dualcse --sort score``,
``lightning-cse runs rm dualcse``.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from lightning_cse import arguments as shared
from lightning_cse.errors import ConfigError, LightningCSEError, did_you_mean, reported

if TYPE_CHECKING:
    import pandas as pd

    from lightning_cse.runs import Run

NUMBERS = {"score": "{:.4f}", "minutes": "{:.1f}"}
"""The columns of numbers, and how they are shown."""

WIDTH = 200
"""The width of the table in characters where there is no terminal."""


@reported
def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    words = sys.argv[1:] if argv is None else list(argv)
    removes = words[:1] == ["rm"]
    arguments = _parser(removes=removes).parse_args(words[removes:])
    from lightning_cse.tables.inventory import lines_of, matching

    lines = matching(lines_of(arguments.runs_dir), arguments.filter)
    if lines.empty:
        which = f" with {' and '.join(arguments.filter)}" if arguments.filter else ""
        raise LightningCSEError(f"{arguments.runs_dir.absolute()} has no runs{which}")

    runs = lines.pop("runs")
    if removes:
        sys.stdout.write(_terminal(lines))
        return _remove(list(itertools.chain.from_iterable(runs)), yes=arguments.yes)

    frame = _sorted(lines, arguments.sort)
    is_csv = arguments.format == "csv"
    text = frame.to_csv(index=False, lineterminator="\n") if is_csv else _terminal(frame)
    sys.stdout.write(text)

    return 0


def _sorted(frame: pd.DataFrame, key: str) -> pd.DataFrame:
    """Return the table sorted: texts from a to z, numbers and dates from the highest."""
    if key not in frame.columns:
        near = did_you_mean(key, frame.columns)
        raise ConfigError([f"--sort: no column {key!r}{near} (choose: {', '.join(frame.columns)})"])

    is_text = key != "date" and key not in NUMBERS

    return frame.sort_values(key, ascending=is_text, kind="stable")


def _terminal(frame: pd.DataFrame) -> str:
    """Return the table for a terminal, whose long cells take several lines."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for name in frame.columns:
        table.add_column(name, justify="right" if name in NUMBERS else "left", overflow="fold")

    texts = frame.copy()
    for name, form in NUMBERS.items():
        texts[name] = frame[name].map(form.format, na_action="ignore")

    for row in texts.astype(object).fillna("-").itertuples(index=False):
        table.add_row(*map(escape, row))

    console = Console(width=None if sys.stdout.isatty() else WIDTH, highlight=False)
    with console.capture() as capture:
        console.print(table)

    return capture.get()


def _remove(runs: Sequence[Run], *, yes: bool) -> int:
    """Remove the folders of runs after a question; runs that are under way stay."""
    folders = {run.path for run in runs}
    # An evaluation in the folder of a training goes with it.
    runs = [run for run in runs if folders.isdisjoint(run.path.parents)]
    size = sum(
        file.stat().st_size for run in runs for file in run.path.rglob("*") if file.is_file()
    )
    question = f"remove {len(runs)} runs, {size / 2**20:,.0f} MiB, with all their files? [y/N] "
    if not yes:
        if not sys.stdin.isatty():
            raise LightningCSEError("nothing was removed: answer in a terminal, or give --yes")

        sys.stdout.write(question)
        sys.stdout.flush()
        if sys.stdin.readline().strip().casefold() not in ("y", "yes"):
            sys.stdout.write("nothing was removed\n")
            return 0

    for run in runs:
        with run.lock():  # an error if another process trains it
            run.clear()

        run.path.rmdir()
        sys.stdout.write(f"removed: {run.path}\n")

    return 0


def _parser(*, removes: bool) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="lightning-cse runs rm" if removes else "lightning-cse runs",
        description="Remove runs with all their files, after a question."
        if removes
        else "List the runs on disk, a line for the seeds of one setting.",
        epilog="Example: lightning-cse runs rm simcse_sup encoder=tiny"
        if removes
        else "Examples: lightning-cse runs dualcse --sort score; lightning-cse runs rm dualcse",
    )
    add = parser.add_argument
    add(
        "filter",
        nargs="+" if removes else "*",
        metavar="FILTER",
        help="texts that the name, an override, the status or the folder must contain, "
        "such as encoder=minilm_l4",
    )
    shared.add_runs_dir(parser)
    if removes:
        add("--yes", action="store_true", help="do not ask")
        return parser

    add("--sort", default="experiment", metavar="COLUMN", help="default: experiment")
    add("--format", choices=("table", "csv"), default="table", help="default: table")

    return parser


if __name__ == "__main__":
    sys.exit(main())
