"""Settled sources on disk, a JSON line each in the order of coming, from which the rows are written in the end."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator
from dataclasses import asdict, fields
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Final

from lightning_cse.generation.settled import Rejected, Settled
from lightning_cse.records import Lines, atomic_file

log = logging.getLogger(__name__)

_SYNCED: Final = 1.0
"""Seconds within which a line is on the disk; what a machine without power loses, the cache of replies has."""

_FIELDS: Final = {field.name for field in fields(Settled)}


class Journal:
    """An append-only file of settled sources, of which none is asked for again.

    A line that a crash left half-written, or a machine without power damaged, is dropped and told: its source is asked
    for again, and its replies are in the cache. Of two lines for one source the first counts. A context manager, which
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
        """Yield the settled sources in the order of coming; damaged lines are told, and taken out of the file.

        Raises:
            LightningCSEError: If the disk is full.
        """
        damaged = 0
        seen: set[int] = set()
        for _, line in self._raw():
            settled = _parsed(line)
            if settled is None:
                damaged += 1
            elif settled.position not in seen:
                seen.add(settled.position)
                yield settled
        if damaged:
            log.warning(
                "%s: %d damaged line%s, left by a crash, dropped; what they held is asked for again",
                self.path,
                damaged,
                "" if damaged == 1 else "s",
            )
            self._lines.close()
            with atomic_file(self.path) as file:
                file.writelines(line for _, line in self._raw() if _parsed(line) is not None)

    def in_order(self) -> Iterator[Settled]:
        """Yield the settled sources in the order of drawing; one at a time is held."""
        places: dict[int, int] = {}
        for place, line in self._raw():
            if (settled := _parsed(line)) is not None:
                places.setdefault(settled.position, place)
        if not places:
            return
        with self.path.open("rb") as file:
            for _, place in sorted(places.items()):
                yield _at(file, place)

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


def _at(file: BinaryIO, place: int) -> Settled:
    file.seek(place)
    settled = _parsed(file.readline())
    if settled is None:
        raise ValueError(f"line at byte {place} was whole a moment ago")
    return settled


def _parsed(line: bytes) -> Settled | None:
    """Return what a line holds; None if it is damaged."""
    if not line.endswith(b"\n"):
        return None
    try:
        cells: Any = json.loads(line)
        if set(cells) != _FIELDS:
            return None
        return Settled(**cells | {"rejected": tuple(Rejected(**each) for each in cells["rejected"])})
    except (ValueError, TypeError):
        return None
