"""Long columns and arrays outside the memory: in memory-mapped files, gathered in blocks, hashed.

A list or a set with a Python object per row would take more memory than the text.
"""

import contextlib
import itertools
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import xxhash

from lightning_cse.data.cells import AT_ONCE
from lightning_cse.errors import DataError

LONG = 2**18  # an array of fewer rows stays in memory
BLOCK = 2**17  # rows that are gathered at once
PASSES = 16  # over the hashes: each sorts the values of one range


@contextlib.contextmanager
def usable(file: Path | None) -> Iterator[None]:
    """Replace the errors of a file of the cache that cannot be read or written by a DataError."""
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        why = " ".join(str(error).split())[:200]
        do = "remove the file, or set paths.cache_dir to another folder, or to null"
        raise DataError(f"the cache {file} cannot be used ({why}): {do}") from error


@contextlib.contextmanager
def replacing(file: Path) -> Iterator[Path]:
    """Give the name of a file to write, which replaces the other one at the end."""
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_name(f"{file.name}.{os.getpid()}.part")

    try:
        yield part
        part.replace(file)
    finally:
        part.unlink(missing_ok=True)


def in_file(array: np.ndarray, cache_dir: Path | None) -> np.ndarray:
    """Return a long array from a memory-mapped file without a name, which ends with the array."""
    if cache_dir is None or len(array) < LONG or isinstance(array, np.memmap):
        return array

    with usable(cache_dir):
        cache_dir.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=cache_dir) as file:
            array.tofile(file)
            file.flush()

            return np.memmap(file, array.dtype, "r", shape=array.shape)


def gather(column: pa.ChunkedArray, numbers: np.ndarray) -> pa.ChunkedArray:
    """Return the rows of a column with these numbers; `pyarrow` itself would first copy the column
    if it has several chunks.
    """
    ends = np.cumsum([len(chunk) for chunk in column.chunks], dtype=np.int64)
    parts = []

    for start in range(0, len(numbers), BLOCK):
        block = np.asarray(numbers[start : start + BLOCK], dtype=np.int64)
        order = None

        if len(column.chunks) > 1 and (np.diff(block) < 0).any():
            order = np.argsort(block, kind="stable")
            block = block[order]

        taken = _from_chunks(column, ends, block)
        if order is not None:
            place = np.empty_like(order)
            place[order] = np.arange(len(order))
            taken = [pa.concat_arrays(taken).take(pa.array(place))]

        parts += taken

    return pa.chunked_array(parts, column.type)


def _from_chunks(
    column: pa.ChunkedArray,
    ends: np.ndarray,
    numbers: np.ndarray,
) -> list[pa.Array]:
    """Return the rows with these numbers, which rise if the column has several chunks."""
    if len(column.chunks) == 1:
        return [column.chunk(0).take(pa.array(numbers))]

    limits = np.searchsorted(numbers, ends)
    taken = []

    for place in np.flatnonzero(np.diff(limits, prepend=0)):
        chunk = column.chunk(int(place))
        first = limits[place - 1] if place else 0
        within = numbers[first : limits[place]] - (ends[place] - len(chunk))
        taken.append(chunk.take(pa.array(within)))

    return taken


# Text -------------------------------------------------------------------------------------------


def texts_of(chunk: pa.StringArray) -> tuple[np.ndarray, memoryview]:
    """Return where the texts of an array start and end in its bytes, (rows + 1,), and the bytes."""
    _, places, data = chunk.buffers()
    width = np.int64 if pa.types.is_large_string(chunk.type) else np.int32
    ends = np.frombuffer(places, width)[chunk.offset : chunk.offset + len(chunk) + 1]

    return ends, memoryview(data if data is not None else b"")


def digest_of(column: pa.ChunkedArray) -> str:
    """Return a digest of a column of text, whatever its chunks."""
    content = xxhash.xxh3_128()
    lengths = xxhash.xxh3_128()

    for chunk in column.chunks:
        if len(chunk):
            ends, data = texts_of(chunk)
            content.update(data[ends[0] : ends[-1]])
            length = np.diff(ends).astype(np.int64)
            if chunk.null_count:
                length[~chunk.is_valid().to_numpy(zero_copy_only=False)] = -1

            lengths.update(length.tobytes())

    return f"{content.hexdigest()}{lengths.hexdigest()}"


def hashes_of(column: pa.ChunkedArray, cache_dir: Path | None = None) -> np.ndarray:
    """Return a 64-bit hash of each text of a column, 0 for null: (rows,); those of a long column
    are computed once, into a file.
    """
    if cache_dir is None or len(column) < LONG:
        return np.fromiter(_hashes(column), np.uint64, len(column))

    def parts() -> Iterator[np.ndarray]:
        for chunk in column.chunks:
            yield np.fromiter(_hashes(pa.chunked_array([chunk])), np.uint64, len(chunk))

    file = cache_dir / "hashes" / f"{digest_of(column)}.u64"

    return cached_array(file, np.dtype(np.uint64), len(column), parts())


def cached_array(
    file: Path,
    dtype: np.dtype[Any],
    length: int,
    parts: Iterator[np.ndarray],
) -> np.ndarray:
    """Return an array from a file of the cache, memory-mapped; if the file is not there, it is
    first written from the parts of the array.
    """
    with usable(file):
        if not file.exists():
            with replacing(file) as part, part.open("wb") as out:
                for some in parts:
                    some.astype(dtype, copy=False).tofile(out)

        return np.memmap(file, dtype, "r", shape=(length,))


def _hashes(column: pa.ChunkedArray) -> Iterator[int]:
    for chunk in column.chunks:
        for start in range(0, len(chunk), AT_ONCE):
            part = chunk.slice(start, AT_ONCE)
            ends, data = texts_of(part)
            valid = part.is_valid().to_pylist()

            for (first, last), there in zip(itertools.pairwise(ends.tolist()), valid, strict=True):
                yield hashed(data[first:last]) if there else 0


def hashed(text: bytes | memoryview) -> int:
    """Return a 64-bit hash of a text that is never 0."""
    return xxhash.xxh3_64_intdigest(text) or 1


def first_appearance(hashes: np.ndarray) -> np.ndarray:
    """Number distinct hashes in the order in which they first appear; -1 for 0: (rows,)."""
    again, first = _repeated(hashes)
    is_first = hashes != 0
    is_first[again] = False
    codes: np.ndarray = np.cumsum(is_first, dtype=np.int32 if len(hashes) < 2**31 else np.int64)
    np.subtract(codes, 1, out=codes)
    codes[hashes == 0] = -1
    codes[again] = codes[first]

    return codes


def is_first(codes: np.ndarray) -> np.ndarray:
    """Return whether each code of `first_appearance` appears there first; never for -1: (rows,)."""
    return np.asarray(np.diff(np.maximum.accumulate(codes), prepend=-1) > 0)


def _repeated(hashes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows whose hash an earlier row has, and the first row of each of these hashes."""
    again: list[np.ndarray] = []
    first: list[np.ndarray] = []
    passes = PASSES if len(hashes) >= LONG else 1

    for number in range(passes):
        rows = np.flatnonzero(_in_range(hashes, number, passes))
        order = np.argsort(hashes[rows], kind="stable")
        rows = rows[order]
        ordered = hashes[rows]
        starts = np.flatnonzero(np.diff(ordered, prepend=~ordered[:1]) != 0)
        group = np.repeat(starts, np.diff(starts, append=len(rows)))
        is_again = group != np.arange(len(rows))
        again.append(rows[is_again])
        first.append(rows[group[is_again]])

    return np.concatenate(again), np.concatenate(first)


def _in_range(hashes: np.ndarray, number: int, passes: int) -> np.ndarray:
    """Return whether each hash is that of a value, and in one of several ranges of equal size."""
    width = 2**64 // passes
    chosen = hashes != 0

    if passes > 1:
        chosen &= hashes >= np.uint64(number * width)
        chosen &= hashes <= np.uint64((number + 1) * width - 1)

    return np.asarray(chosen)
