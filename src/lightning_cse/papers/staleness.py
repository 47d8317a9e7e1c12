"""Whether the method of a run has changed since the run, by the history of its files."""

from __future__ import annotations

import functools
import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from lightning_cse.papers.nested import leaves, value_at

if TYPE_CHECKING:
    from lightning_cse.papers.records import Found

_PACKAGE: Final = Path(__file__).parents[1]


def change_of(found: Found) -> str:
    """Return whether ``git diff`` finds a difference between the record's commit and the files of its method today.

    These are ``similarity.py`` and the modules of ``losses/`` and ``methods/`` that define a ``_target_`` below
    ``method`` in the config; of an evaluated run, in that of its training. Without git or the commit it is unknown.
    """
    if found.training is None:
        return "unknown"
    record: Any = found.training.record
    values = leaves(record["decisive"]["config"].get("method") or {})
    targets = {str(value) for key, value in values if key.endswith("_target_")}
    names = sorted(target.rpartition(".")[2] for target in targets if target.startswith("lightning_cse."))
    commit = str(value_at(record, "environment.commit") or "").partition("-")[0]
    return _changed(commit, tuple(names)) if names else "fresh"


@functools.cache
def _changed(commit: str, classes: tuple[str, ...]) -> str:
    defines = re.compile(rf"^class ({'|'.join(classes)})\b", re.MULTILINE)
    modules = [path for room in ("losses", "methods") for path in _PACKAGE.glob(f"{room}/*.py")]
    files = [str(path) for path in modules if defines.search(path.read_text(encoding="utf-8"))]
    command = ["git", "-C", str(_PACKAGE), "diff", "--quiet", commit, "--", "similarity.py", *files]
    try:
        code = subprocess.run(command, capture_output=True, check=False).returncode if commit else -1
    except OSError:  # there is no git
        code = -1
    return {0: "fresh", 1: "stale"}.get(code, "unknown")
