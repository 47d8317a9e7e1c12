"""Long columns and arrays outside the memory: in memory-mapped files, gathered in blocks, hashed.

A list or a set with a Python object per row would take more memory than the text.
"""

import contextlib
import itertools
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from lightning_cse.data.cells import AT_ONCE
from lightning_cse.errors import DataError

LONG = 2**18  # an array of fewer rows stays in memory
BLOCK = 2**17  # rows that are gathered at once
PASSES = 16  # over the hashes: each sorts a part of their values


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
    starts = np.cumsum([0, *map(len, column.chunks)])
    parts = []

    for start in range(0, len(numbers), BLOCK):
        block = np.asarray(numbers[start : start + BLOCK], dtype=np.int64)
        order = np.argsort(block, kind="stable")
        ordered = block[order]
        limits = np.asarray(np.searchsorted(ordered, starts))
        taken = []

        for place in np.flatnonzero(np.diff(limits)).tolist():
            within = ordered[limits[place] : limits[place + 1]] - starts[place]
            taken.append(column.chunk(place).take(pa.array(within)))

        parts.append(pa.concat_arrays(taken).take(pa.array(np.argsort(order))))

    return pa.chunked_array(parts, column.type)


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
            length = pc.fill_null(pc.binary_length(chunk), -1).to_numpy()
            lengths.update(length.astype(np.int64).tobytes())

    return f"{content.hexdigest()}{lengths.hexdigest()}"


def hashes_of(column: pa.ChunkedArray, cache_dir: Path | None = None) -> np.ndarray:
    """Return a 64-bit hash of each text of a column, 0 for null: (rows,)."""

    def name() -> str:
        return f"hashes/{digest_of(column)}.u64"

    return kept_array(cache_dir, name, np.uint64, len(column), _hashes(column))


def kept_array(
    cache_dir: Path | None,
    name: Callable[[], str],
    dtype: type[np.generic],
    length: int,
    parts: Iterator[np.ndarray],
) -> np.ndarray:
    """Return an array that is made of its parts; a long one is computed once, into a file of the
    cache, from which it is memory-mapped.
    """
    if cache_dir is None or length < LONG:
        return np.concatenate([np.empty(0, dtype), *parts])

    file = cache_dir / name()

    with usable(file):
        if not file.exists():
            with replacing(file) as part, part.open("wb") as out:
                for some in parts:
                    some.tofile(out)

        return np.memmap(file, dtype, "r", shape=(length,))


def _hashes(column: pa.ChunkedArray) -> Iterator[np.ndarray]:
    for chunk in column.chunks:
        for start in range(0, len(chunk), AT_ONCE):
            part = chunk.slice(start, AT_ONCE)
            ends, data = texts_of(part)
            bounds = itertools.pairwise(ends.tolist())
            hashes = np.array([hashed(data[first:last]) for first, last in bounds], np.uint64)
            hashes[part.is_null().to_numpy(zero_copy_only=False)] = 0
            yield hashes


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
    part_of = np.ascontiguousarray(hashes).view(np.uint8)[::8] % PASSES

    for number in range(PASSES):
        rows = np.flatnonzero((part_of == number) & (hashes != 0))
        rows = rows[np.argsort(hashes[rows], kind="stable")]
        ordered = hashes[rows]
        starts = np.flatnonzero(np.diff(ordered, prepend=~ordered[:1]) != 0)
        group = np.repeat(starts, np.diff(starts, append=len(rows)))
        is_again = group != np.arange(len(rows))
        again.append(rows[is_again])
        first.append(rows[group[is_again]])

    return np.concatenate(again), np.concatenate(first)
