"""Whether the method of a run has changed since the run, by the history of its files."""

from __future__ import annotations

import functools
import json
import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

if TYPE_CHECKING:
    from lightning_cse.papers.records import Found

Change = Literal["fresh", "stale", "unknown"]
_PACKAGE: Final = Path(__file__).parents[1]


def change_of(found: Found) -> Change:
    """Return whether the method of a run has changed since; of an evaluated run, since its training.

    It has if ``git diff`` finds a difference, of whatever kind, between the record's commit and the files today in: the
    modules of ``losses/`` and ``methods/`` that define the classes below ``method`` in the config, by their names, and
    ``similarity.py``. What these modules import is not looked at. It is unknown without git or the commit.
    """
    record: Any = found.record
    if (record.get("model") or {}).get("run"):  # <run>/evaluate/<suite>/<evaluation>
        path = found.source.parents[3] / "record.json"
        record = json.loads(path.read_text(encoding="utf-8")) if found.folder and path.is_file() else {"decisive": None}
    if record["decisive"] is None:
        return "unknown"
    names = tuple(sorted(set(_classes(record["decisive"]["config"].get("method")))))
    commit = str((record.get("environment") or {}).get("commit") or "").partition("-")[0]
    return _changed(commit, names) if names else "fresh"


@functools.cache
def _changed(commit: str, classes: tuple[str, ...]) -> Change:
    defines = re.compile(rf"^class ({'|'.join(classes)})\b", re.MULTILINE)
    modules = [*_PACKAGE.glob("losses/*.py"), *_PACKAGE.glob("methods/*.py")]
    files = [path for path in modules if defines.search(path.read_text(encoding="utf-8"))]
    command = ["git", "-C", str(_PACKAGE), "diff", "--quiet", commit, "--", *map(str, files), "similarity.py"]
    try:
        code = subprocess.run(command, capture_output=True, timeout=20, check=False).returncode if commit else -1
    except (OSError, subprocess.SubprocessError):
        code = -1
    return {0: "fresh", 1: "stale"}.get(code, "unknown")  # type: ignore[return-value]


def _classes(node: Any) -> Iterator[str]:
    """Yield the last names of this package's classes in a config."""
    if isinstance(node, Mapping):
        if str(node.get("_target_")).startswith("lightning_cse."):
            yield str(node["_target_"]).rpartition(".")[2]
        node = list(node.values())
    for child in node if isinstance(node, list) else ():
        yield from _classes(child)
