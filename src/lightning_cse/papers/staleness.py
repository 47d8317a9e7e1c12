"""Tells whether the method of a run has changed since the run."""

from lightning_cse import runs
from lightning_cse.papers.records import Found


def change_of(found: Found) -> str:
    """Return ``stale`` if the code of a run's method has changed since the run, else ``fresh``.

    For an evaluation, the code is that of its training. Without the training's record, or without ``method_code`` in
    it, the answer is ``unknown``. See `runs.method_code`.
    """
    if found.training is None:
        return "unknown"
    record = found.training.record
    method = record["decisive"]["config"].get("method")
    if method is None:
        return "fresh"
    if "method_code" not in record:
        return "unknown"
    return "fresh" if record["method_code"] == runs.method_code(method) else "stale"
