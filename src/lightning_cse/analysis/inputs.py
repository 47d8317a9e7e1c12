"""Sentences from files and pipes, in chunks: one sentence per line, or columns of CSV, TSV or JSON lines."""

from __future__ import annotations

import gzip
import sys
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from lightning_cse.errors import DataError, did_you_mean

if TYPE_CHECKING:
    import pandas as pd

SEPARATORS: Final = {"csv": ",", "tsv": "\t", "text": "\x1f"}  # the last one occurs in no text


def layout_of(path: str, default: str) -> str:
    """Return the layout for the extension of a path, with or without ``.gz``, or else the default."""
    ending = Path(path.removesuffix(".gz")).suffix[1:]
    return ending if ending in {"csv", "tsv", "jsonl"} else default


def read_sentences(path: str, column: str | None, *, at_once: int) -> Iterator[pd.Series[str]]:
    """Yield the sentences of a file, indexed by line, as `read_frames` does; raise DataError for several columns."""
    columns = [] if column is None else [column]
    for frame in read_frames(
        path, layout_of(path, "text"), columns=columns, most=2, at_once=at_once
    ):
        if len(frame.columns) > 1:
            raise DataError(
                f"{path}: has several columns: name the one of the sentences with --column"
            )
        yield frame.iloc[:, 0]


def read_frames(
    path: str, layout: str, *, columns: Sequence[str] = (), most: int = 1, at_once: int = 1024
) -> Iterator[pd.DataFrame]:
    """Yield the texts of some columns, indexed by line and stripped; cells that are not text become empty.

    Without ``columns``, at most the first ``most`` are read. A TSV file has a header only if columns are named. ``-``
    is standard input. A record of several lines counts as one. Raises DataError for input that cannot be read.
    """
    import pandas as pd

    name = "standard input" if path == "-" else path
    source = sys.stdin.buffer if path == "-" else Path(path).expanduser()
    header = layout == "csv" or (layout == "tsv" and bool(columns))
    chosen: list[str] = []
    how: dict[str, Any] = {"chunksize": at_once, "encoding": "utf-8-sig"}
    try:
        if layout == "jsonl":
            frames = pd.read_json(source, lines=True, dtype=False, **how)
        else:
            how |= {"sep": SEPARATORS[layout], "header": 0 if header else None}
            how |= {} if layout == "csv" else {"quoting": 3, "lineterminator": "\n"}
            how |= {"names": [0]} if layout == "text" else {}  # its first line may be empty
            frames = pd.read_csv(source, dtype=str, na_filter=False, skip_blank_lines=False, **how)
        for frame in frames:
            if not pd.api.types.is_integer_dtype(frame.index):
                raise DataError(
                    f"{name}: the first row has more cells than the header; put texts that contain commas in quotes"
                )
            if layout != "jsonl":
                frame.columns = [
                    cell.strip() if header else f"column {cell + 1}" for cell in frame.columns
                ]
            if not chosen:
                chosen = list(columns) or list(frame.columns[:most])
                for column in chosen:
                    if column not in frame.columns:
                        near = f"{did_you_mean(column, frame.columns)} (found: {', '.join(map(str, frame.columns))})"
                        raise DataError(f"{name}: no column {column!r}{near}")
            texts = frame.reindex(columns=chosen).map(
                lambda cell: cell.strip() if isinstance(cell, str) else ""
            )
            yield texts.set_axis(frame.index + (2 if header else 1))
        if not chosen:
            raise DataError(f"{name}: the file is empty")
    except (
        ValueError,
        EOFError,
        gzip.BadGzipFile,
        zlib.error,
    ) as error:  # from pandas, its parsers and decoders
        raise DataError(
            f"{name}: cannot be read as {layout}: {' '.join(str(error).split())}"
        ) from None
