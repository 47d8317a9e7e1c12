"""Every logged value of a run, in one CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final

from lightning_cse.errors import LightningCSEError
from lightning_cse.runs.lines import Lines
from lightning_cse.runs.writing import write_atomic


class Curves:
    """Every logged value of a run: a CSV with the columns ``step, key, value``, one row a value.

    Values are written so that they are read back to the last bit. Rows reach the file as they are logged; the file is
    made by the first of them.

    Args:
        path: The CSV, see `Run.curves`.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder, Curves(Path(folder) / "curves.csv") as curves:
        ...     curves.append(100, {"train/loss": 0.5})
        ...     curves.read()
        {'train/loss': [(100, 0.5)]}
    """

    _HEADER: Final = "step,key,value"

    def __init__(self, path: Path) -> None:
        self.path = Path(path)
        self._lines = Lines(self.path, self._HEADER)

    def __enter__(self) -> Curves:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def append(self, step: int, values: Mapping[str, float]) -> None:
        """Write the values of one step, all of them or, on a full disk, none.

        Raises:
            ValueError: if a key is empty or has a line break.
            LightningCSEError: if the disk is full.
        """
        rows = [(int(step), key, repr(float(value))) for key, value in values.items()]
        if not rows:
            return
        self._lines.append(self._format(rows))

    def cut(self, step: int) -> None:
        """Keep the rows up to and with ``step``: what a resumed run logs again must not be there twice.

        A last line that was only half written is dropped.

        Raises:
            LightningCSEError: if a line other than the last is damaged, or the disk is full.
        """
        if not self.path.is_file():
            return
        self.close()
        rows = [(at, key, repr(value)) for at, key, value in self._rows() if at <= step]
        write_atomic(self.path, f"{self._HEADER}\n{self._format(rows)}")

    def read(self) -> dict[str, list[tuple[int, float]]]:
        """Return the points ``(step, value)`` of each key, in the order in which they were logged.

        Raises:
            LightningCSEError: if a line other than the last is damaged.
        """
        curves: dict[str, list[tuple[int, float]]] = {}
        for step, key, value in self._rows():
            curves.setdefault(key, []).append((step, value))
        return curves

    def close(self) -> None:
        """Close the file; a later `append` opens it again."""
        self._lines.close()

    def _rows(self) -> list[tuple[int, str, float]]:
        try:
            lines = self.path.read_bytes().split(b"\n")
        except FileNotFoundError:
            return []
        lines.pop()  # empty after the last line break, else a half-written line
        if lines and lines[0].decode("utf-8", "replace").rstrip("\r") != self._HEADER:
            raise LightningCSEError(f"{self.path}, line 1: expected the header {self._HEADER!r}, found {lines[0]!r}")
        rows = []
        for number, line in enumerate(lines[1:], start=2):
            try:
                (fields,) = csv.reader([line.decode("utf-8")], strict=True)
                step, key, value = fields
                rows.append((int(step), key, float(value)))
            except (ValueError, csv.Error):
                if number == len(lines):
                    break  # the last line of a machine that lost its power
                raise LightningCSEError(
                    f"{self.path}, line {number}: expected {self._HEADER!r}, found {line!r}"
                ) from None
        return rows

    @staticmethod
    def _format(rows: Sequence[tuple[int, str, str]]) -> str:
        sink = io.StringIO()
        writer = csv.writer(sink, lineterminator="\n")
        for row in rows:
            if not row[1] or "\n" in row[1] or "\r" in row[1]:
                raise ValueError(f"{row[1]!r} cannot be the key of a curve: it is empty or has a line break")
            writer.writerow(row)
        return sink.getvalue()
