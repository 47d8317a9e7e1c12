"""Settled sources on disk, a JSON line each in the order of coming, from which the rows are written in the end."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator
from dataclasses import asdict, fields
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from lightning_cse.errors import DataError
from lightning_cse.generation.lines import Lines
from lightning_cse.generation.settled import Rejected, Settled
from lightning_cse.runs import atomic_file

log = logging.getLogger(__name__)

_SYNCED: Final = 1.0
"""Seconds between two syncs to the disk while lines come; what a machine without power loses, the cache has."""

_FIELDS: Final = {field.name for field in fields(Settled)}


class Journal:
    """An append-only file of settled sources, of which none is asked for again.

    A line that a crash left half-written, or a machine without power damaged, is left out: its source is asked for
    again, and its replies are in the cache. Of two lines for one source the first counts. A context manager, which
    closes the file.

    Args:
        path: The file; made by the first line.
    """

    def __init__(self, path: Path) -> None:
        self.path = Path(path)
        self._lines = Lines(self.path)
        self._synced = 0.0

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def append(self, settled: Settled) -> None:
        """Write a line, all of it or nothing.

        Raises:
            LightningCSEError: If the disk is full.
        """
        self._lines.append(json.dumps(asdict(settled), ensure_ascii=False, separators=(",", ":")) + "\n")
        now = time.monotonic()
        if now - self._synced > _SYNCED:
            self._lines.sync()
            self._synced = now

    def close(self) -> None:
        """Bring all lines to the disk, and close the file."""
        self._lines.sync()
        self._lines.close()

    def read(self) -> Iterator[Settled]:
        """Yield the settled sources in the order of coming, without damaged lines; nothing is changed.

        Raises:
            DataError: If a line is of another version.
        """
        seen: set[int] = set()
        for _, line in self._raw():
            settled = _parsed(line, self.path)
            if settled is not None and settled.position not in seen:
                seen.add(settled.position)
                yield settled

    def repair(self) -> None:
        """Move damaged lines into a file of their own beside this one, and tell; for whoever alone writes.

        Raises:
            DataError: If a line is of another version.
            LightningCSEError: If the disk is full.
        """
        damaged = [line for _, line in self._raw() if _parsed(line, self.path) is None]
        if not damaged:
            return
        aside = self.path.with_suffix(".damaged.jsonl")
        log.warning(
            "%s: %d damaged line%s, left by a crash, moved to %s; what they held is asked for again, and comes from "
            "the cache of replies",
            self.path,
            len(damaged),
            "" if len(damaged) == 1 else "s",
            aside.name,
        )
        self._lines.close()
        with aside.open("ab") as file:
            file.writelines(line if line.endswith(b"\n") else line + b"\n" for line in damaged)
        with atomic_file(self.path) as file:
            file.writelines(line for _, line in self._raw() if _parsed(line, self.path) is not None)

    def in_order(self) -> Iterator[Settled]:
        """Yield the settled sources in the order of drawing; one at a time is held."""
        places: dict[int, int] = {}
        for place, line in self._raw():
            if (settled := _parsed(line, self.path)) is not None:
                places.setdefault(settled.position, place)
        if not places:
            return
        with self.path.open("rb") as file:
            for _, place in sorted(places.items()):
                file.seek(place)
                if (settled := _parsed(file.readline(), self.path)) is not None:
                    yield settled

    def _raw(self) -> Iterator[tuple[int, bytes]]:
        """Yield where each line starts, and the line."""
        place = 0
        try:
            with self.path.open("rb") as file:
                for line in file:
                    yield place, line
                    place += len(line)
        except FileNotFoundError:
            return


def _parsed(line: bytes, path: Path) -> Settled | None:
    """Return what a line holds; None if it is damaged."""
    if not line.endswith(b"\n"):
        return None
    try:
        cells: Any = json.loads(line)
    except ValueError:
        return None
    if not isinstance(cells, dict):
        return None
    if set(cells) != _FIELDS:
        raise DataError(
            f"{path}: was written by another version of lightning_cse: go on with that one, or move the folder away "
            "and begin anew, which takes replies from the cache as far as they are there"
        )
    return Settled(**cells | {"rejected": tuple(Rejected(**each) for each in cells["rejected"])})
