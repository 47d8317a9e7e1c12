"""Compares finished runs on their test metrics: ``python -m lightning_cse.compare
runs/dualcse_*/*``.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lightning_cse import arguments as shared
from lightning_cse.errors import DataError, did_you_mean, reported

if TYPE_CHECKING:
    import pandas as pd

    from lightning_cse.tables.records import FinishedRun

_PREFERRED = ("accuracy_all", "accuracy", "auc", "spearman_all", "spearman", "auprc")
"""The metrics of a task by which runs are compared, the first that there is."""
_PERCENT = 100.0
_LEGEND = """
value: mean over the seeds, times 100; difference: a minus b over the seeds that both have; low and
high: its 95 % interval over seeds and examples. p: McNemar's exact test of the answers, merged over
the seeds by majority vote, or DeLong's test of AUCs; other metrics have the interval alone. Holm:
adjusted for all tests of this table. significant: the interval does not have 0, and the adjusted p,
if there is one, is below the level.
"""


@reported
def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    arguments = _parser().parse_args(argv)
    from lightning_cse.tables.frame import values_of_runs
    from lightning_cse.tables.labels import by_setting
    from lightning_cse.tables.records import read_runs

    values = values_of_runs(by_setting(read_runs(arguments.run)))
    values, weights = _chosen(values, arguments.task, arguments.metric)
    frame = _compared(values, weights, arguments.alpha)
    if arguments.format == "csv":
        sys.stdout.write(frame.to_csv(index=False, lineterminator="\n"))
    else:
        sys.stdout.write(frame.map(_text).to_string(index=False) + "\n" + _LEGEND)

    return 0


def _chosen(
    values: pd.DataFrame, tasks: Sequence[str], metrics: Sequence[str]
) -> tuple[pd.DataFrame, dict[str, dict[str, float]]]:
    """Return the values whose runs have predictions, and the metrics to compare, each with the
    weights of the metrics that it is computed from; report what is left out.
    """
    values = values.assign(
        task=values["metric"].str.split("/").str[1],
        parts=[
            _parts(metric, run) for metric, run in zip(values["metric"], values["run"], strict=True)
        ],
    )
    values["has_predictions"] = [
        all(_has_predictions(run, part) for part in parts)
        for run, parts in zip(values["run"], values["parts"], strict=True)
    ]
    # A setting is compared if all of its runs have predictions.
    is_whole = values.groupby(["line", "metric"])["has_predictions"].transform("all")
    usable = values[is_whole]
    counts = usable.groupby("metric")["line"].nunique()
    comparable = [metric for metric in counts.index if counts[metric] > 1]
    _check("task", tasks, {metric.split("/")[1] for metric in comparable})
    _check("metric", metrics, comparable)
    chosen = list(metrics) or _one_per_task(comparable, tasks)
    if not chosen:
        lines = [
            f"\n  {row}: {', '.join(sorted({*of_row['task']})) or 'no predictions'}"
            for row, of_row in usable.groupby("row", sort=False)
        ]
        raise DataError(
            "a comparison needs two settings with predictions of a task in common" + "".join(lines)
        )

    for metric in chosen:
        rows = values.loc[values["metric"] == metric, "row"]
        if missing := [
            *dict.fromkeys(rows[~rows.isin(usable.loc[usable["metric"] == metric, "row"])])
        ]:
            sys.stderr.write(f"{metric}: left out: {', '.join(missing)} (no predictions)\n")

    unused = sorted({*values["metric"]} - {*chosen})
    if unused and not metrics:
        sys.stderr.write(f"not compared: {', '.join(unused)}\n")

    parts = usable.drop_duplicates("metric").set_index("metric")["parts"]
    weights = {
        metric: dict.fromkeys(parts[metric], _PERCENT / len(parts[metric])) for metric in chosen
    }

    return usable, weights


def _parts(metric: str, run: FinishedRun) -> list[str]:
    """Return the metrics that an average over tasks is of, or the metric itself."""
    from lightning_cse.tables.nested import value_at

    task = metric.split("/")[1]
    average = value_at(run.record, f"decisive.config.suite.{task}.of")

    return [f"test/{part}" for part in average] if average else [metric]


def _has_predictions(run: FinishedRun, metric: str) -> bool:
    """Return whether a run has the predictions that a metric is computed from."""
    from lightning_cse.tables.outcomes import measure_of
    from lightning_cse.tables.predictions import read_task

    return measure_of(metric) != "" and read_task(run, metric.split("/")[1]) is not None


def _check(category: str, names: Sequence[str], available: Collection[str]) -> None:
    for name in names:
        if name not in available:
            near = did_you_mean(name, available)
            raise DataError(f"no two settings have predictions of the {category} {name!r}{near}")


def _one_per_task(metrics: Sequence[str], tasks: Sequence[str]) -> list[str]:
    by_task: dict[str, list[str]] = {}
    for metric in metrics:
        _, task, name = metric.split("/")
        if not tasks or task in tasks:
            by_task.setdefault(task, []).append(name)

    chosen = []
    for task, names in by_task.items():
        in_order = [name for name in _PREFERRED if name in names] + names
        chosen.append(f"test/{task}/{in_order[0]}")

    return chosen


def _compared(
    values: pd.DataFrame, weights: Mapping[str, Mapping[str, float]], alpha: float
) -> pd.DataFrame:
    from lightning_cse.tables.comparisons import compare

    pairs = [
        (*pair, metric)
        for metric in weights
        for pair in itertools.combinations(
            values.loc[values["metric"] == metric, "line"].drop_duplicates(), 2
        )
    ]
    comparisons = compare(values, pairs, weights)
    seeds = values.groupby(["line", "metric"])["seed"].agg(lambda of: " ".join(map(str, of)))
    for side in ("line", "line_reference"):
        comparisons[f"seeds_of_{side}"] = [
            seeds[line, metric]
            for line, metric in zip(comparisons[side], comparisons["column"], strict=True)
        ]

    comparisons["is_significant"] = ~((comparisons["low"] <= 0) & (comparisons["high"] >= 0)) & (
        comparisons["p_holm"].isna() | (comparisons["p_holm"] < alpha)
    )
    columns = {
        "column": "metric",
        "row": "a",
        "reference": "b",
        "seeds_of_line": "seeds_a",
        "seeds_of_line_reference": "seeds_b",
        "mean": "value_a",
        "mean_reference": "value_b",
        "difference": "difference",
        "low": "low",
        "high": "high",
        "test": "test",
        "p": "p",
        "p_holm": "p_holm",
        "is_significant": "significant",
    }

    return comparisons[list(columns)].rename(columns=columns)


def _text(value: Any) -> str:
    if not isinstance(value, float):
        return str(value)
    if value != value:
        return "-"

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
        help="the tasks to compare on (default: all in common), one metric each",
    )
    add(
        "--metric",
        nargs="+",
        action="extend",
        default=[],
        metavar="KEY",
        help="the metrics to compare, such as test/snli/auprc",
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
