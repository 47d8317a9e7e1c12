"""Compares finished runs by McNemar's test: ``python -m lightning_cse.compare
runs/dualcse_*/*``.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from lightning_cse import arguments as shared
from lightning_cse.errors import reported

if TYPE_CHECKING:
    import pandas as pd

_COLUMNS = [
    *("task", "a", "b", "seeds_a", "seeds_b", "accuracy_a", "accuracy_b", "difference"),
    *("low", "high", "only_a", "only_b", "p_exact", "p_holm", "significant"),
]
_LEGEND = """
Accuracy: mean over the seeds; difference: a minus b, in percentage points, over the seeds that both
have; low and high: its 95 % interval over seeds and examples. Seeds are merged by majority vote;
ties count as wrong, so an odd number of seeds compares more fairly; only: examples that this vote
gets right and the other does not. p: McNemar's exact test of the two votes; Holm: adjusted for all
tests of this table. CSV also gives the asymptotic test.
"""


@reported
def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    arguments = _parser().parse_args(argv)
    from lightning_cse.papers.records import read_runs
    from lightning_cse.papers.significance import compare, settings

    found = compare(settings(read_runs(arguments.run)), arguments.task)
    for task, labels in found.attrs["left_out"].items():
        why = "no predictions; a symmetric score has none for a direction"
        sys.stderr.write(f"{task}: left out: {', '.join(labels)} ({why})\n")

    found["significant"] = found["p_holm"] < arguments.alpha
    sys.stdout.write(_text(found, arguments.format))

    return 0


def _text(found: pd.DataFrame, form: str) -> str:
    if form == "csv":
        return str(found.to_csv(index=False, lineterminator="\n"))

    return str(found[_COLUMNS].map(_shown).to_string(index=False)) + "\n" + _LEGEND


def _shown(value: Any) -> str:
    if not isinstance(value, float):
        return str(value)

    return f"{value:.4f}" if value == 0 or abs(value) >= 0.0001 else f"{value:.0e}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m lightning_cse.compare", description=__doc__)
    add = parser.add_argument
    add(
        "run",
        nargs="+",
        type=shared.path,
        metavar="RUN",
        help="folders of finished runs, with all their seeds",
    )
    add(
        "--task",
        nargs="+",
        action="extend",
        default=[],
        help="the tasks to compare on (default: all in common)",
    )
    add(
        "--alpha",
        type=float,
        default=0.05,
        help="level of significance, after Holm (default: 0.05)",
    )
    add("--format", choices=("table", "csv"), default="table", help="(default: table)")

    return parser


if __name__ == "__main__":
    sys.exit(main())
