"""Compares finished runs by McNemar's test: ``python -m lightning_cse.compare runs/dualcse_*/*``."""

from __future__ import annotations

import argparse
import csv
import io
import json
import math
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from lightning_cse.errors import reported

if TYPE_CHECKING:
    from lightning_cse.papers.significance import Comparison, Point

_ROOMY: Final = 100  # columns from which there is space between the columns of the table
_HEADINGS: Final = (
    "task",
    "A",
    "B",
    "seeds A",
    "seeds B",
    "accuracy A",
    "accuracy B",
    "difference",
    "only A",
    "only B",
    "p exact",
    "p asymptotic",
    "p Holm",
    "significant",
    "p median",
)


@reported
def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    arguments = _parser().parse_args(argv)
    from lightning_cse.papers.significance import baseline_points, compare, points, read_run

    given = points([read_run(path.expanduser()) for path in arguments.run])
    unique = [run for point in given for run in point.runs]
    for baseline in dict.fromkeys(arguments.baseline):
        given += baseline_points(baseline, unique)
    sys.stdout.write(FORMATS[arguments.format](given, compare(given, arguments.task), arguments.alpha))
    return 0


def as_table(given: Sequence[Point], comparisons: Sequence[Comparison], alpha: float) -> str:
    """Return a table for the eye, two lines a comparison, as wide as the terminal."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False, file=sys.stdout)
    roomy = console.width >= _ROOMY
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1 if roomy else 0), pad_edge=False, show_edge=False)
    table.add_column("\ntask", no_wrap=True)
    table.add_column("\npoint", overflow="fold", min_width=10)
    titles = ("\nseeds", "accu-\nracy", "right\nonly", "differ-\nence", "p\nexact", "p asym-\nptotic")
    for title in (*titles, "p  \nHolm  ", "p me-\ndian"):
        table.add_column(title, justify="right", no_wrap=True)
    for comparison in comparisons:
        mark = "*" if comparison.pvalue_holm < alpha else " "
        table.add_row(
            comparison.task,
            Text(comparison.a.label),
            _count(comparison.a),
            f"{100 * comparison.accuracy_a:.2f}",
            str(comparison.test.only_a),
            f"{comparison.difference:+.2f}",
            _p(comparison.test.pvalue),
            _p(comparison.test.pvalue_asymptotic),
            f"{_p(comparison.pvalue_holm)} {mark}",
            _p(comparison.pvalue_median),
        )
        other = f"{100 * comparison.accuracy_b:.2f}"
        table.add_row(
            "", Text(comparison.b.label), _count(comparison.b), other, str(comparison.test.only_b), end_section=roomy
        )
    with console.capture() as capture:
        console.print(table)
        for line in ("", *_legend(given, comparisons, alpha, minus="upper minus lower line")):
            console.print(Text(line))
    return capture.get()


def as_csv(given: Sequence[Point], comparisons: Sequence[Comparison], alpha: float) -> str:
    """Return a line a comparison, unrounded; accuracies and p-values are fractions, the difference is in points."""
    sink = io.StringIO()
    writer = csv.writer(sink, lineterminator="\n")
    writer.writerow(heading.replace(" ", "_").lower() for heading in _HEADINGS)
    for comparison in comparisons:
        cells = _flat(comparison, alpha)
        writer.writerow([*cells[:3], *(" ".join(map(str, seeds)) for seeds in cells[3:5]), *cells[5:]])
    return sink.getvalue()


def as_markdown(given: Sequence[Point], comparisons: Sequence[Comparison], alpha: float) -> str:
    """Return a Markdown table, rounded as for the eye, and the legend below it."""
    headings = [heading for heading in _HEADINGS if heading != "significant"]
    lines = [
        "| " + " | ".join(headings) + " |",
        "|---|---|---|" + "---:|" * (len(headings) - 3),
    ]
    for c in comparisons:
        mark = " *" if c.pvalue_holm < alpha else ""
        cells = (
            *(c.task, c.a.label, c.b.label, _count(c.a), _count(c.b)),
            *(f"{100 * c.accuracy_a:.2f}", f"{100 * c.accuracy_b:.2f}", f"{c.difference:+.2f}"),
            *(str(c.test.only_a), str(c.test.only_b), _p(c.test.pvalue), _p(c.test.pvalue_asymptotic)),
            *(f"{_p(c.pvalue_holm)}{mark}", _p(c.pvalue_median)),
        )
        lines.append("| " + " | ".join(cell.replace("|", "\\|").replace("*", "\\*") for cell in cells) + " |")
    legend = (line.replace("*", "\\*").replace("<", "&lt;") for line in _legend(given, comparisons, alpha))
    return "\n".join([*lines, "", "\n\n".join(legend), ""])


def as_json(given: Sequence[Point], comparisons: Sequence[Comparison], alpha: float) -> str:
    """Return everything, the p-values of single seeds included, unrounded."""
    document = {
        "alpha": alpha,
        "tests": len(comparisons),
        "legend": _legend(given, comparisons, alpha),
        "points": [
            {
                "label": point.label,
                "baseline": point.baseline,
                "name": point.runs[0].name,
                "config_hash": point.runs[0].config_hash,
                "seeds": list(point.seeds),
                "folders": [str(run.path) for run in point.runs],
            }
            for point in given
        ],
        "comparisons": [
            dict(zip((heading.replace(" ", "_").lower() for heading in _HEADINGS), _flat(c, alpha), strict=True))
            | {
                "examples": c.test.examples,
                "voted_accuracy_a": c.voted_a,
                "voted_accuracy_b": c.voted_b,
                "statistic": c.test.statistic,
                "p_by_seed": {str(seed): p for seed, p in c.by_seed.items()},
            }
            for c in comparisons
        ],
    }
    return json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


FORMATS: Final[dict[str, Callable[[Sequence[Point], Sequence[Comparison], float], str]]] = {
    "table": as_table,
    "csv": as_csv,
    "markdown": as_markdown,
    "json": as_json,
}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m lightning_cse.compare", description=__doc__)
    parser.add_argument("run", nargs="+", type=Path, metavar="RUN", help="folders of finished runs, all seeds of them")
    parser.add_argument(
        "--task", nargs="+", action="extend", default=[], help="the tasks to compare on (default: all in common)"
    )
    parser.add_argument(
        "--baseline",
        nargs="+",
        action="extend",
        default=[],
        help="baselines that were evaluated beside the runs and are to be compared too, such as untrained",
    )
    parser.add_argument("--alpha", type=_level, default=0.05, help="level of the mark, after Holm (default: 0.05)")
    parser.add_argument("--format", choices=FORMATS, default="table", help="what to print (default: table)")
    return parser


def _level(text: str) -> float:
    level = float(text)
    if not (math.isfinite(level) and 0 < level < 1):
        raise argparse.ArgumentTypeError(f"needs a number between 0 and 1, got {text}")
    return level


def _flat(comparison: Comparison, alpha: float) -> list[Any]:
    """Return the cells of `_HEADINGS`."""
    test = comparison.test
    return [
        comparison.task,
        comparison.a.label,
        comparison.b.label,
        list(comparison.a.seeds),
        list(comparison.b.seeds),
        comparison.accuracy_a,
        comparison.accuracy_b,
        comparison.difference,
        test.only_a,
        test.only_b,
        test.pvalue,
        test.pvalue_asymptotic,
        comparison.pvalue_holm,
        comparison.pvalue_holm < alpha,
        comparison.pvalue_median,
    ]


def _count(point: Point) -> str:
    return "-" if point.baseline else str(len(point.seeds))


def _p(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.4f}" if value >= 0.0001 else f"{value:.0e}"


def _legend(
    given: Sequence[Point], comparisons: Sequence[Comparison], alpha: float, minus: str = "A minus B"
) -> list[str]:
    tests = f"{len(comparisons)} test{'' if len(comparisons) == 1 else 's'}"
    lines = [
        f"Accuracy: mean over the seeds in percent; difference: {minus}, in points. Seeds are merged by majority vote: "
        "an example counts as right if more than half of a point's seeds get it right. Right only: "
        "examples that this point's vote gets right and the other's does not.",
        "p: McNemar's test of the two votes, exact (binomial) and asymptotic (chi-squared with continuity correction); "
        f"Holm: the exact one adjusted for the {tests} of this table, * where it is below {alpha:g}; median: of the "
        "exact tests of single seeds that both have.",
    ]
    even = [point.label for point in given if len(point.seeds) % 2 == 0 and not point.baseline]
    if even:
        lines.append(
            f"An even number of seeds: {', '.join(even)}. What only half of them get right counts as wrong, so an odd "
            "number compares more fairly."
        )
    names = Counter(point.runs[0].name for point in given if not point.baseline)
    for point in given:
        if not point.baseline and names[point.runs[0].name] > 1:
            given_here = [o for o in point.runs[0].record.get("overrides", []) if not o.lstrip("+").startswith("seed=")]
            lines.append(f"{point.label}: {' '.join(given_here) or 'no overrides'}")
    return lines


if __name__ == "__main__":
    sys.exit(main())
