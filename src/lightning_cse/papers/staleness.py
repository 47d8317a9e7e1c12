"""Tells whether the method of a run has changed since the run."""

from lightning_cse.papers.records import Found
from lightning_cse.runs.code import code_digest


def change_of(training: Found | None) -> str:
    """Return ``stale`` if the code of a training's method has changed since its run, else
    ``fresh``.

    Without the training's record, or without ``code`` in it, the answer is ``unknown``; see
    `lightning_cse.runs.code.code_digest`.
    """
    if training is None:
        return "unknown"
    record = training.record
    method = record["decisive"]["config"].get("method")
    if method is None:
        return "fresh"
    if "code" not in record:
        return "unknown"
    return "fresh" if record["code"] == code_digest(method) else "stale"
