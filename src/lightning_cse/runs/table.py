"""The final table of one run, made from its record."""

import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from lightning_cse.runs.curves import mean_of_text

UNTRAINED = "untrained"
"""The baseline: the encoder before training."""

_NO_SCORE = ("threshold", "ties")  # higher is not better

_MODELS = {UNTRAINED: "untrained", "length": "LENGTH"}

_QUESTIONS = {
    "rte/accuracy_explicit": "explicit entailments recognised, %",
    "rte/accuracy_implied": "implied entailments recognised, %",
    "rte/accuracy_neutral": "neutral hypotheses rejected, %",
    "rte/accuracy_contradiction": "contradictions rejected, %",
    "rte/accuracy_all": "mean of these four, %",
    "eis/accuracy": "the more implicit sentence recognised, %",
}
"""What a task measures, in words."""

_METRICS = {
    "spearman": "Spearman's correlation x 100",
    "spearman_all": "Spearman's correlation x 100",
    "accuracy": "accuracy, %",
    "accuracy_two_fold": "accuracy, %",
    "auprc": "area under the precision-recall curve, %",
    "mrr_10": "mean reciprocal rank among the first ten, %",
    "recall_1": "answer is the nearest sentence, %",
    "recall_10": "answer is among the ten nearest, %",
}
"""The main metrics of the other tasks, in words."""

_DETAIL = re.compile(
    r"_se$|/(threshold|ties|auc.*|auprc_\d+|spearman_w?mean|accuracy_determinant)$"
)
"""What the record alone has."""


def run_table(record: Mapping[str, Any]) -> str:
    """Return a few facts of a run and its final table: one row per main test metric, one column for
    the method and for each baseline.
    """
    import pandas as pd

    models = {str(record.get("name", "this run")): record.get("metrics") or {}}
    for name, metrics in (record.get("baselines") or {}).items():
        models[_MODELS.get(name, name)] = metrics

    keys = dict.fromkeys(key for metrics in models.values() for key in metrics)
    main = [key for key in keys if not _DETAIL.search(key)]
    cells = {name: [_cell(metrics.get(key)) for key in main] for name, metrics in models.items()}
    table = pd.DataFrame(cells, list(map(_words, main))).rename_axis("test", axis=1)
    lines = [*_facts(record), "", table.to_string()]
    if len(main) < len(keys):
        lines.append(f"{len(keys) - len(main)} more metrics are in the record")

    return "\n".join([*lines, *comparison(record)])


def _words(key: str) -> str:
    """Return what a metric's key means."""
    task, _, metric = key.removeprefix("test/").rpartition("/")
    question = _QUESTIONS.get(f"{task}/{metric}")

    return question or f"{task}: {_METRICS.get(metric, f'{metric}, %')}"


def _cell(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.2f}"


def print_run(record: Mapping[str, Any], path: Path) -> None:
    """Print the final table of a record and, as the last line, the record's path."""
    sys.stdout.write(f"{run_table(record)}\nrecord: {path}\n")


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
        spent = ", ".join(f"{phase} {value:.1f} s" for phase, value in record["seconds"].items())
        where = ", ".join(str(record[key]) for key in ("device", "precision") if record.get(key))
        yield f"time: {spent} ({where})" if where else f"time: {spent}"


# A run on files of one's own: is the trained model better than its encoder? -------------------


def comparison(record: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line for each split that compares the scores of the best checkpoint with those of the
    untrained encoder, and a line of advice if some are lower; none if the record has no dev scores
    of both.
    """
    dev = record.get("dev") or {}
    if not dev.get(UNTRAINED):
        return

    worse = []
    tested = {"trained": record["metrics"], UNTRAINED: record["baselines"][UNTRAINED]}
    for split, scores in (("dev", dev), ("test", tested)):
        before, after = scores[UNTRAINED], scores["trained"]
        shared = [key for key in after if key in before and not key.endswith(_NO_SCORE)]
        cells = []
        for key in shared:
            change = 100 * (after[key] - before[key])
            cells.append(f"{key.partition('/')[2]} {100 * after[key]:.2f} ({change:+.2f})")
            if change < 0:
                worse.append(f"{key} {change:.2f}")

        if cells:
            yield f"{split}, and the difference from the untrained encoder: {', '.join(cells)}"

    if worse:
        yield f"worse than the untrained encoder: {', '.join(worse)}; try {_advice(record)}"


def _advice(record: Mapping[str, Any]) -> str:
    """Return overrides that change the encoder less."""
    config = record["decisive"]["config"]
    rate = config["method"]["optimizer"].get("lr")
    overrides = [] if rate is None else [f"method.optimizer.lr={rate / 4:g}"]
    if (config["trainer"].get("max_epochs") or 1) > 1:
        overrides.append("trainer.max_epochs=1")

    return f"{' and '.join(overrides)}, or more rows" if overrides else "more rows"
