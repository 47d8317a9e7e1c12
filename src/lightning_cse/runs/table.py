"""The final table of one run, made from its record."""

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from lightning_cse.runs.curves import mean_of_text

Headings = dict[str, str]
"""The headings of a table's columns by metric."""
Metrics = Mapping[str, float]

_NLI: Final = {
    "snli": "SNLI",
    "mnli": "MNLI",
    "mnli_matched": "MNLI-m",
    "sick": "SICK",
}
_TRANSFER: Final = {
    "mr": "MR",
    "cr": "CR",
    "subj": "SUBJ",
    "mpqa": "MPQA",
    "sst2": "SST2",
    "trec": "TREC",
    "mrpc": "MRPC",
    "transfer_avg": "Avg",
}
_STS: Final = {
    "test/sts12/spearman_all": "STS12",
    "test/sts13/spearman_all": "STS13",
    "test/sts14/spearman_all": "STS14",
    "test/sts15/spearman_all": "STS15",
    "test/sts16/spearman_all": "STS16",
    "test/stsb/spearman": "STS-B",
    "test/sickr/spearman": "SICK-R",
    "test/sts_avg/spearman_all": "Avg",
}
_INLI: Final = {
    "test/rte/accuracy_explicit": "RTE\nexplicit",
    "test/rte/accuracy_implied": "RTE\nimplied",
    "test/rte/accuracy_neutral": "RTE\nneutral",
    "test/rte/accuracy_contradiction": "RTE\ncontradiction",
    "test/rte/accuracy_all": "RTE\nAll",
    "test/eis/accuracy": "\nEIS",
    "test/eis_wang/accuracy": "EIS\nWang",
}
_OWN: Final = {
    "test/own_sts/spearman": "own STS\nSpearman",
    "test/own_nli/accuracy": "own NLI\naccuracy",
    "test/own_nli/accuracy_two_fold": "own NLI\ntwo-fold",
    "test/own_nli/auprc": "own NLI\nAUPRC",
    "test/own_nli/auc": "own NLI\nAUC",
    "test/own_direction/accuracy": "own\ndirection",
}
_OWN_RETRIEVAL: Final = {
    "test/own_retrieval/ndcg@10": "own retrieval\nnDCG@10",
    "test/own_retrieval/recall@10": "own retrieval\nrecall@10",
    "test/own_retrieval/recall@100": "own retrieval\nrecall@100",
    "test/own_retrieval/accuracy@1": "own retrieval\naccuracy@1",
}


def _nli() -> Headings:
    headings = {}
    for key, title in _NLI.items():
        headings[f"test/{key}/accuracy"] = f"{title}\naccuracy"
        headings[f"test/{key}/auprc"] = f"{title}\nAUPRC"
    return headings


def _direction() -> Headings:
    titles = {"inli": "INLI", **_NLI}
    return {
        f"test/{key}_direction/accuracy": f"{title}\ndirection" for key, title in titles.items()
    }


def _transfer(protocol: str) -> Headings:
    return {
        f"test/{key}/accuracy_{protocol}": f"{title}\n{protocol}"
        for key, title in _TRANSFER.items()
    }


_TABLES: Final[tuple[Headings, ...]] = (
    _STS,
    _INLI,
    _nli(),
    _direction(),
    _transfer("lbfgs"),
    _transfer("senteval"),
    _OWN,
    _OWN_RETRIEVAL,
)
"""One table each, with the headings of the papers' tables; values are shown in percent."""
_BASELINES: Final = {"untrained": "untrained encoder", "length": "LENGTH"}


def run_table(record: Mapping[str, Any]) -> RenderableType:
    """Return the final table of a run: the method and its baselines by metric, then a few facts."""
    rows = {str(record.get("name", "this run")): _finite(record.get("metrics"))}
    for name, metrics in (record.get("baselines") or {}).items():
        rows[_BASELINES.get(name, name)] = _finite(metrics)

    keys = {key for metrics in rows.values() for key in metrics if key.startswith("test/")}
    # A symmetric score has no direction: shown, so that it does not look like a forgotten task.
    for name in record.get("left_out") or ():
        if name.endswith("direction"):
            keys.add(f"test/{name}/accuracy")

    parts: list[RenderableType] = []
    for headings in _TABLES:
        shown = {key: title for key, title in headings.items() if key in keys}
        if shown:
            parts += [_percent(rows, shown), ""]
            keys -= shown.keys()
    if keys:
        parts += [_others(rows, sorted(keys)), ""]
    return Group(*parts, *map(Text, _facts(record)))


def print_run(record: Mapping[str, Any], path: Path) -> None:
    """Print the final table of a record and, as the last line, the record's path."""
    console = Console(highlight=False)
    console.width = max(console.width, 100)
    console.print(run_table(record))
    console.print(Text(f"record: {path}"), soft_wrap=True)


def _finite(metrics: Mapping[str, Any] | None) -> dict[str, float]:
    numbers = {}
    for key, value in (metrics or {}).items():
        if isinstance(value, int | float) and math.isfinite(value):
            numbers[key] = float(value)
    return numbers


def _having(rows: Mapping[str, Metrics], keys: set[str]) -> dict[str, Metrics]:
    """Return the first row, and the baselines that have one of the metrics."""
    first = next(iter(rows))
    return {name: row for name, row in rows.items() if name == first or row.keys() & keys}


def _percent(rows: Mapping[str, Metrics], headings: Headings) -> Table:
    """Return one row per model, accuracies and correlations in percent."""
    table = Table(
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        show_edge=False,
    )
    two_lines = any("\n" in title for title in headings.values())
    table.add_column("\ntest, %" if two_lines else "test, %", overflow="fold")
    for title in headings.values():
        table.add_column(
            title,
            justify="right",
            no_wrap=True,
        )
    for name, metrics in _having(rows, set(headings)).items():
        cells = [f"{100 * metrics[key]:.2f}" if key in metrics else "-" for key in headings]
        table.add_row(Text(name), *cells)
    return table


def _others(rows: Mapping[str, Metrics], keys: list[str]) -> Table:
    """Return one row per metric."""
    table = Table(
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        show_edge=False,
    )
    table.add_column("other test values", overflow="fold")
    shown = _having(rows, set(keys))
    for name in shown:
        table.add_column(
            Text(name),
            justify="right",
            overflow="fold",
        )
    for key in keys:
        cells = [f"{row[key]:.4f}" if key in row else "-" for row in shown.values()]
        table.add_row(Text(key), *cells)
    return table


def _facts(record: Mapping[str, Any]) -> Iterator[str]:
    if record.get("encoder"):
        yield f"encoder: {record['encoder']['name']}"
    best = record.get("best") or {}
    if best.get("score") is not None:
        steps = f"step {best.get('step')} of {record.get('steps')}"
        yield f"best checkpoint: {steps}, {best.get('monitor')} {best['score']:.4f}"
    if record.get("stopped_early"):
        yield f"stopped early: {record['stopped_early']}"
    summary = record.get("summary") or {}
    final = summary.get("final_score")
    if final not in (None, summary.get("best_score")):  # after one evaluation it is the best score
        yield f"final score ({mean_of_text(summary.get('evaluations'))}): {final:.4f}"
    if record.get("seconds"):
        spent = ", ".join(f"{what} {value:.1f} s" for what, value in record["seconds"].items())
        where = ", ".join(str(record[key]) for key in ("device", "precision") if record.get(key))
        yield f"time: {spent} ({where})" if where else f"time: {spent}"
    share = record.get("evaluation_share")
    if share is not None:
        yield f"evaluation's share of the training: {share:.0%}"
