"""Compares finished runs by McNemar's test: ``python -m lightning_cse.compare
runs/dualcse_*/*``.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from lightning_cse import arguments as shared
from lightning_cse.errors import reported

if TYPE_CHECKING:
    import pandas as pd

_LEGEND = """\
Accuracy: mean over the seeds, in percent; difference: upper minus lower line, in points. Seeds are merged by majority
vote; ties count as wrong, so an odd number of seeds compares more fairly; right only: examples that this vote gets
right and the other does not. p: McNemar's exact test of the two votes; Holm: adjusted for the {tests} tests of this
table, * below {alpha:g}. The other formats also give the asymptotic test."""


@reported
def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    arguments = _parser().parse_args(argv)
    from lightning_cse.papers.significance import baseline_points, compare, points, read_run

    compared = points(map(read_run, arguments.run))
    runs = [run for point in compared for run in point.runs]
    for name in dict.fromkeys(arguments.baseline):
        compared += baseline_points(name, runs)
    found = compare(compared, arguments.task)
    for task, labels in found.attrs["left_out"].items():
        why = "no predictions; a symmetric score has none for a direction"
        sys.stderr.write(f"{task}: left out: {', '.join(labels)} ({why})\n")
    found["significant"] = found["p_holm"] < arguments.alpha
    for key in ("seeds_a", "seeds_b"):
        found[key] = [" ".join(map(str, seeds)) for seeds in found[key]]
    if arguments.format == "table":
        _print(
            found,
            _LEGEND.format(
                tests=len(found),
                alpha=arguments.alpha,
            ),
        )
    else:
        sys.stdout.write(_TEXTS[arguments.format](found))
    return 0


def _json(found: pd.DataFrame) -> str:
    return json.dumps(found.to_dict("records"), indent=2) + "\n"


def _csv(found: pd.DataFrame) -> str:
    return str(
        found.map(_no_formula).to_csv(
            index=False,
            lineterminator="\n",
        )
    )


def _no_formula(value: Any) -> Any:
    """Quote a text that a spreadsheet would read as a formula."""
    is_formula = isinstance(value, str) and value.startswith(("=", "+", "-", "@"))
    return f"'{value}" if is_formula else value


def _markdown(found: pd.DataFrame) -> str:
    texts = found.map(_shown).map(lambda text: text.replace("|", r"\|"))
    rows = [
        found.columns,
        ["---"] * found.shape[1],
        *texts.to_numpy(),
    ]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


_TEXTS: Final = {
    "csv": _csv,
    "markdown": _markdown,
    "json": _json,
}


def _shown(value: Any) -> str:
    if not isinstance(value, float):
        return str(value)
    return f"{value:.4f}" if value == 0 or abs(value) >= 0.0001 else f"{value:.0e}"


def _print(found: pd.DataFrame, legend: str) -> None:
    """Print a table as wide as the terminal, with two lines per comparison."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
        show_edge=False,
    )
    table.add_column(
        "\ntask",
        overflow="fold",
        max_width=16,
    )
    table.add_column("\npoint", overflow="fold")
    for title in (
        "\nseeds",
        "accu-\nracy",
        "right\nonly",
        "differ-\nence",
        "\np",
        "p  \nHolm  ",
    ):
        table.add_column(
            title,
            justify="right",
            no_wrap=True,
        )
    for row in found.itertuples():
        star = "*" if row.significant else " "
        table.add_row(
            row.task,
            Text(row.a),
            row.seeds_a or "-",
            f"{100 * row.accuracy_a:.2f}",
            str(row.only_a),
            f"{row.difference:+.2f}",
            _shown(row.p_exact),
            f"{_shown(row.p_holm)} {star}",
        )
        table.add_row(
            "",
            Text(row.b),
            row.seeds_b or "-",
            f"{100 * row.accuracy_b:.2f}",
            str(row.only_b),
        )
    console = Console(highlight=False, soft_wrap=False)
    console.print(table)
    console.print(Text("\n" + legend.replace("\n", " ")))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m lightning_cse.compare",
        description=__doc__,
    )
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
    beside = "baselines that were evaluated beside the runs and are to be compared too, such as untrained"
    add(
        "--baseline",
        nargs="+",
        action="extend",
        default=[],
        help=beside,
    )
    add(
        "--alpha",
        type=float,
        default=0.05,
        help="level of the mark, after Holm (default: 0.05)",
    )
    add(
        "--format",
        choices=("table", "csv", "markdown", "json"),
        default="table",
        help="(default: table)",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
