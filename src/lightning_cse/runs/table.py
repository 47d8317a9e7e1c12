"""The final table of one run, made from its record."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from lightning_cse.runs.curves import mean_of_text

_TRANSFER_TASKS: Final = ("mr", "cr", "subj", "mpqa", "sst2", "trec", "mrpc")
_TRANSFER: Final = {key: key.upper() for key in _TRANSFER_TASKS} | {"transfer_avg": "Avg"}
_NLI: Final = {"snli": "SNLI", "mnli": "MNLI", "mnli_matched": "MNLI-m", "sick": "SICK"}
_OWN_NLI: Final = {
    "accuracy": "accuracy",
    "accuracy_two_fold": "two-fold",
    "auprc": "AUPRC",
    "auc": "AUC",
}
_OWN_RETRIEVAL: Final = {"ndcg@10": "nDCG@10"} | {
    key: key for key in ("recall@10", "recall@100", "accuracy@1")
}

# One table each, with the headings of the papers' tables by metric; values are shown in percent.
_TABLES: Final[tuple[dict[str, str], ...]] = (
    {f"test/sts{year}/spearman_all": f"STS{year}" for year in range(12, 17)}
    | {
        "test/stsb/spearman": "STS-B",
        "test/sickr/spearman": "SICK-R",
        "test/sts_avg/spearman_all": "Avg",
    },
    {
        f"test/rte/accuracy_{label}": f"RTE\n{label}"
        for label in ("explicit", "implied", "neutral", "contradiction")
    }
    | {
        "test/rte/accuracy_all": "RTE\nAll",
        "test/eis/accuracy": "\nEIS",
        "test/eis_wang/accuracy": "EIS\nWang",
    },
    {
        f"test/{key}/{metric}": f"{title}\n{heading}"
        for key, title in _NLI.items()
        for metric, heading in (("accuracy", "accuracy"), ("auprc", "AUPRC"))
    },
    {
        f"test/{key}_direction/accuracy": f"{title}\ndirection"
        for key, title in ({"inli": "INLI"} | _NLI).items()
    },
    *(
        {
            f"test/{key}/accuracy_{protocol}": f"{title}\n{protocol}"
            for key, title in _TRANSFER.items()
        }
        for protocol in ("lbfgs", "senteval")
    ),
    {"test/own_sts/spearman": "own STS\nSpearman"}
    | {f"test/own_nli/{key}": f"own NLI\n{title}" for key, title in _OWN_NLI.items()}
    | {"test/own_direction/accuracy": "own\ndirection"},
    {
        f"test/own_retrieval/{key}": f"own retrieval\n{title}"
        for key, title in _OWN_RETRIEVAL.items()
    },
)
_BASELINES: Final = {"untrained": "untrained encoder", "length": "LENGTH"}


def run_table(record: Mapping[str, Any]) -> RenderableType:
    """Return the final table of a run: the method and its baselines, then every other test metric, then a few facts."""
    rows = {str(record.get("name", "this run")): _numbers(record.get("metrics"))}
    for name, metrics in (record.get("baselines") or {}).items():
        rows[_BASELINES.get(name, name)] = _numbers(metrics)
    rest = {key for metrics in rows.values() for key in metrics if key.startswith("test/")}
    # Left out for a symmetric score: shown, so that it does not look like a forgotten task.
    rest |= {
        f"test/{name}/accuracy"
        for name in record.get("left_out") or ()
        if name.endswith("direction")
    }
    parts: list[RenderableType] = []
    for headings in _TABLES:
        if shown := {key: title for key, title in headings.items() if key in rest}:
            parts += [_percent(rows, shown), ""]
            rest -= shown.keys()
    if rest:
        parts += [_others(rows, sorted(rest)), ""]
    return Group(*parts, *map(Text, _facts(record)))


def print_run(record: Mapping[str, Any], path: Path) -> None:
    """Print the final table of a record and, as the last line, the record's path."""
    console = Console(highlight=False)
    console.width = max(console.width, 100)
    console.print(run_table(record))
    console.print(Text(f"record: {path}"), soft_wrap=True)


def _numbers(metrics: Mapping[str, Any] | None) -> dict[str, float]:
    found = (metrics or {}).items()
    return {key: float(v) for key, v in found if isinstance(v, int | float) and math.isfinite(v)}


def _percent(rows: Mapping[str, Mapping[str, float]], headings: Mapping[str, str]) -> Table:
    """Return one row per model, accuracies and correlations in percent; baselines without any value are left out."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    deep = any("\n" in title for title in headings.values())
    table.add_column("\ntest, %" if deep else "test, %", overflow="fold")
    for title in headings.values():
        table.add_column(title, justify="right", no_wrap=True)
    for place, (name, metrics) in enumerate(rows.items()):
        if place == 0 or headings.keys() & metrics.keys():
            table.add_row(
                Text(name),
                *(f"{100 * metrics[key]:.2f}" if key in metrics else "-" for key in headings),
            )
    return table


def _others(rows: Mapping[str, Mapping[str, float]], keys: list[str]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.add_column("other test values", overflow="fold")
    shown = [
        (name, row)
        for place, (name, row) in enumerate(rows.items())
        if place == 0 or row.keys() & set(keys)
    ]
    for name, _ in shown:
        table.add_column(Text(name), justify="right", overflow="fold")
    for key in keys:
        table.add_row(Text(key), *(f"{row[key]:.4f}" if key in row else "-" for _, row in shown))
    return table


def _facts(record: Mapping[str, Any]) -> list[str]:
    lines = [f"encoder: {record['encoder']['name']}"] if record.get("encoder") else []
    best, summary, seconds = (record.get(key) or {} for key in ("best", "summary", "seconds"))
    if best.get("score") is not None:
        steps = f"step {best.get('step')} of {record.get('steps')}"
        lines.append(f"best checkpoint: {steps}, {best.get('monitor')} {best['score']:.4f}")
    if record.get("stopped_early"):
        lines.append(f"stopped early: {record['stopped_early']}")
    if summary.get("final_score") not in (
        None,
        summary.get("best_score"),
    ):  # after one evaluation it is the best score
        lines.append(
            f"final score ({mean_of_text(summary.get('evaluations'))}): {summary['final_score']:.4f}"
        )
    if seconds:
        where = ", ".join(str(record[key]) for key in ("device", "precision") if record.get(key))
        spent = ", ".join(f"{what} {value:.1f} s" for what, value in seconds.items())
        lines.append(f"time: {spent}" + (f" ({where})" if where else ""))
    if record.get("evaluation_share") is not None:
        lines.append(f"evaluation's share of the training: {record['evaluation_share']:.0%}")
    return lines
