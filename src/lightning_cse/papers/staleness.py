"""Whether the method of a run has changed since the run, by the history of its files."""

from __future__ import annotations

import functools
import json
import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from lightning_cse.papers.nested import leaves

if TYPE_CHECKING:
    from lightning_cse.papers.records import Found

Change = Literal["fresh", "stale", "unknown"]
_PACKAGE: Final = Path(__file__).parents[1]


def change_of(found: Found) -> Change:
    """Return whether the method of a run has changed since; of an evaluated run, since its training.

    It has if ``git diff`` finds any difference between the record's commit and the files today: ``similarity.py``, and
    the modules of ``losses/`` and ``methods/`` that define a class that is a ``_target_`` below ``method`` in the
    config. What these modules import is not looked at. Without git or the commit it is unknown.
    """
    record: Any = found.record
    if (record.get("model") or {}).get("run"):
        path = found.source.parents[3] / "record.json"  # <run>/evaluate/<suite>/<evaluation>/record.json
        if found.folder is None or not path.is_file():
            return "unknown"
        record = json.loads(path.read_text(encoding="utf-8"))
    values = leaves(record["decisive"]["config"].get("method") or {})
    targets = {str(value) for key, value in values if key.endswith("_target_")}
    names = sorted(target.rpartition(".")[2] for target in targets if target.startswith("lightning_cse."))
    commit = str((record.get("environment") or {}).get("commit") or "").partition("-")[0]
    if not names or not commit:
        return "unknown" if names else "fresh"
    return _changed(commit, tuple(names))


@functools.cache
def _changed(commit: str, classes: tuple[str, ...]) -> Change:
    defines = re.compile(rf"^class ({'|'.join(classes)})\b", re.MULTILINE)
    modules = [path for room in ("losses", "methods") for path in _PACKAGE.glob(f"{room}/*.py")]
    files = [str(path) for path in modules if defines.search(path.read_text(encoding="utf-8"))]
    command = ["git", "-C", str(_PACKAGE), "diff", "--quiet", commit, "--", "similarity.py", *files]
    try:
        code = subprocess.run(command, capture_output=True, timeout=20, check=False).returncode
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return "fresh" if code == 0 else "stale" if code == 1 else "unknown"
