"""The last lines of a run on files of one's own: is the trained model better than its encoder?"""

from collections.abc import Iterator, Mapping
from typing import Any

UNTRAINED = "untrained"
"""The baseline: the encoder before training."""

_NO_SCORE = ("threshold", "ties")  # higher is not better


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
