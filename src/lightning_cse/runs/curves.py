"""Every logged value of a run, in one CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final

from lightning_cse.errors import LightningCSEError
from lightning_cse.runs.files import disk_errors, write_atomic

Row = tuple[int, str, float]


class Curves:
    """Every logged value of a run: a CSV with the columns ``step, key, value``, read back to the last bit.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     curves = Curves(Path(folder) / "curves.csv")
        ...     curves.append(100, {"train/loss": 0.5})
        ...     curves.read()
        {'train/loss': [(100, 0.5)]}
    """

    _HEADER: Final = "step,key,value"

    def __init__(self, path: Path) -> None:
        self.path = Path(path)

    def append(self, step: int, values: Mapping[str, float]) -> None:
        """Write the values of one step."""
        text = self._format((int(step), key, float(value)) for key, value in values.items())
        with disk_errors(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a", encoding="utf-8", newline="") as file:
                file.write(text if file.tell() else f"{self._HEADER}\n{text}")

    def keep(self, wanted: Callable[[int, str], bool]) -> None:
        """Keep the rows whose step and key are wanted, and drop a last line that was written only in part."""
        if self.path.is_file():
            rows = [row for row in self._rows() if wanted(row[0], row[1])]
            write_atomic(self.path, f"{self._HEADER}\n{self._format(rows)}")

    def read(self) -> dict[str, list[tuple[int, float]]]:
        """Return the points ``(step, value)`` of each key, in the order in which they were logged."""
        curves: dict[str, list[tuple[int, float]]] = {}
        for step, key, value in self._rows():
            curves.setdefault(key, []).append((step, value))
        return curves

    def _rows(self) -> list[Row]:
        lines = self.path.read_text(encoding="utf-8", errors="replace").split("\n") if self.path.is_file() else []
        rows = []
        for number, line in enumerate(lines[1:-1], start=2):  # the last is empty, or was written only in part
            try:
                step, key, value = next(csv.reader([line], strict=True))
                rows.append((int(step), key, float(value)))
            except (ValueError, csv.Error, StopIteration):
                if number == len(lines) - 1:
                    break  # after a power failure
                raise LightningCSEError(f"{self.path}, line {number}: {line!r} is not {self._HEADER}") from None
        return rows

    @staticmethod
    def _format(rows: Iterable[Row]) -> str:
        sink = io.StringIO()
        writer = csv.writer(sink, lineterminator="\n")
        writer.writerows((step, key, repr(value)) for step, key, value in rows)
        return sink.getvalue()
