"""Long columns and arrays outside the memory: in memory-mapped files, gathered in blocks, hashed.

A list or a set with a Python object per row would take more memory than the text.
"""

import contextlib
import itertools
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from lightning_cse.data.cells import AT_ONCE
from lightning_cse.errors import DataError
from lightning_cse.runs import atomic_file

LONG = 2**18  # an array of fewer rows stays in memory
BLOCK = 2**15  # rows that are gathered at once
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


def scratch(length: int, dtype: Any, cache_dir: Path | None) -> np.ndarray:
    """Return an array to fill: a long one in a memory-mapped file without a name, which ends with
    the array.
    """
    if cache_dir is None or length < LONG:
        return np.empty(length, dtype)

    with usable(cache_dir):
        cache_dir.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=cache_dir) as file:
            # Written, not only made longer: a full disk is an error here, and not a crash later.
            for block in blocks(length):
                np.zeros(block.stop - block.start, dtype).tofile(file)

            file.flush()

            return np.memmap(file, dtype, "r+", shape=(length,))


def blocks(length: int) -> Iterator[slice]:
    """Yield the blocks of a long array, which have no copy of it in memory."""
    for start in range(0, length, BLOCK):
        yield slice(start, min(start + BLOCK, length))


def row_type(length: int) -> type[np.unsignedinteger[Any]]:
    """Return the smallest type of the numbers of so many rows."""
    return np.uint32 if length < 2**32 else np.uint64


def in_file(numbers: np.ndarray | range, dtype: Any, cache_dir: Path | None) -> np.ndarray:
    """Return a vector of numbers; a long one is in a file without a name."""
    is_ready = cache_dir is None or len(numbers) < LONG or isinstance(numbers, np.memmap)
    if isinstance(numbers, np.ndarray) and numbers.dtype == dtype and is_ready:
        return numbers

    return joined([(0, numbers)], dtype, cache_dir)


def joined(
    parts: Sequence[tuple[int, np.ndarray | range]], dtype: Any, cache_dir: Path | None
) -> np.ndarray:
    """Return the numbers of all parts, each part's above its start; a long vector is in a file
    without a name.
    """
    found = scratch(sum(len(numbers) for _, numbers in parts), dtype, cache_dir)
    end = 0
    for start, numbers in parts:
        for block in blocks(len(numbers)):
            some = numbers[block]
            if isinstance(some, range):
                some = np.arange(some.start, some.stop, some.step)

            place = found[end : end + len(some)]
            np.add(some, start, out=place, dtype=found.dtype, casting="unsafe")
            end += len(some)

    return found


def taken(values: np.ndarray, numbers: np.ndarray, cache_dir: Path | None) -> np.ndarray:
    """Return ``values[numbers]``; a long result is in a file without a name."""
    found = scratch(len(numbers), values.dtype, cache_dir)
    for block in blocks(len(numbers)):
        found[block] = values[numbers[block]]

    return found


def masked(values: np.ndarray, mask: np.ndarray, cache_dir: Path | None) -> np.ndarray:
    """Return the values where the mask is true, else 0; a long result is in a file without a
    name.
    """
    found = scratch(len(values), values.dtype, cache_dir)
    for block in blocks(len(values)):
        np.multiply(values[block], mask[block], out=found[block], dtype=found.dtype)

    return found


def marked(numbers: np.ndarray, length: int) -> np.ndarray:
    """Return which of the numbers below ``length`` there are: (length,)."""
    found = np.zeros(length, dtype=bool)
    for block in blocks(len(numbers)):
        found[numbers[block]] = True

    return found


def true_rows(mask: np.ndarray, cache_dir: Path | None) -> np.ndarray:
    """Return the numbers of the rows where a mask is true; many of them are in a file without a
    name.
    """
    found = scratch(int(np.count_nonzero(mask)), row_type(len(mask)), cache_dir)
    end = 0
    for block in blocks(len(mask)):
        rows = np.flatnonzero(mask[block])
        found[end : end + len(rows)] = rows + block.start
        end += len(rows)

    return found


def gather(
    column: pa.ChunkedArray, numbers: np.ndarray, cache_dir: Path | None = None
) -> pa.ChunkedArray:
    """Return the rows of a column with these numbers; many of them are in a file without a name.

    `pyarrow` itself would first copy the column if it has several chunks.
    """
    parts = _gathered(column, numbers)

    if cache_dir is None or len(numbers) < LONG:
        return pa.chunked_array(parts, column.type)

    schema = pa.schema({"values": column.type})

    with usable(cache_dir):
        cache_dir.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=cache_dir) as file:
            with pa.ipc.new_stream(file, schema) as writer:
                for part in parts:
                    writer.write_batch(pa.record_batch([part], schema=schema))

            file.flush()
            pa.default_memory_pool().release_unused()
            content = pa.py_buffer(np.memmap(file, np.uint8, "r"))

        return pa.ipc.open_stream(content).read_all().column("values")


def _gathered(column: pa.ChunkedArray, numbers: np.ndarray) -> Iterator[pa.Array]:
    """Yield the rows of a column with these numbers, block by block."""
    starts = np.cumsum([0, *map(len, column.chunks)])

    for block in blocks(len(numbers)):
        wanted = np.asarray(numbers[block], dtype=np.int64)
        order = np.argsort(wanted, kind="stable")
        ordered = wanted[order]
        limits = np.asarray(np.searchsorted(ordered, starts))
        taken = []

        for place in np.flatnonzero(np.diff(limits)).tolist():
            within = ordered[limits[place] : limits[place + 1]] - starts[place]
            taken.append(column.chunk(place).take(pa.array(within)))

        yield pa.concat_arrays(taken).take(pa.array(np.argsort(order)))


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

    for part in _parts(column):
        ends, data = texts_of(part)
        content.update(data[ends[0] : ends[-1]])
        length = pc.fill_null(pc.binary_length(part), -1).to_numpy()
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
            with atomic_file(file) as out:
                for some in parts:
                    some.tofile(out)

        return np.memmap(file, dtype, "r", shape=(length,))


def _hashes(column: pa.ChunkedArray) -> Iterator[np.ndarray]:
    for part in _parts(column):
        ends, data = texts_of(part)
        bounds = itertools.pairwise(ends.tolist())
        hashes = np.array([hashed(data[first:last]) for first, last in bounds], np.uint64)
        hashes[part.is_null().to_numpy(zero_copy_only=False)] = 0
        yield hashes


def _parts(column: pa.ChunkedArray) -> Iterator[pa.StringArray]:
    for chunk in column.chunks:
        for start in range(0, len(chunk), AT_ONCE):
            yield chunk.slice(start, AT_ONCE)


def hashed(text: bytes | memoryview) -> int:
    """Return a 64-bit hash of a text that is never 0."""
    return xxhash.xxh3_64_intdigest(text) or 1


def first_appearance(hashes: np.ndarray, cache_dir: Path | None = None) -> np.ndarray:
    """Number distinct hashes in the order in which they first appear; -1 for 0: (rows,)."""
    repeated = list(_repeated(hashes))
    is_first = hashes != 0
    for again, _ in repeated:
        is_first[again] = False

    codes = scratch(len(hashes), np.int32 if len(hashes) < 2**31 else np.int64, cache_dir)
    np.cumsum(is_first, dtype=codes.dtype, out=codes)
    np.subtract(codes, 1, out=codes)
    codes[hashes == 0] = -1
    for again, first in repeated:
        codes[again] = codes[first]

    return codes


def is_first(codes: np.ndarray) -> np.ndarray:
    """Return whether each code of `first_appearance` appears there first; never for -1: (rows,)."""
    found = np.empty(len(codes), dtype=bool)
    highest = np.full(1, -1)
    for block in blocks(len(codes)):
        highest = np.maximum.accumulate(np.concatenate([highest[-1:], codes[block]]))
        found[block] = np.diff(highest) > 0

    return found


def _repeated(hashes: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the rows whose hash an earlier row has, and the first row of each of these hashes, some
    after the others.
    """
    kind = row_type(len(hashes))
    part_of = np.ascontiguousarray(hashes).view(np.uint8)[::8] % PASSES

    for number in range(PASSES):
        rows = np.flatnonzero((part_of == number) & (hashes != 0))
        rows = rows[np.argsort(hashes[rows], kind="stable")]
        ordered = hashes[rows]
        starts = np.flatnonzero(np.diff(ordered, prepend=~ordered[:1]) != 0)
        group = np.repeat(starts, np.diff(starts, append=len(rows)))
        is_again = group != np.arange(len(rows))
        yield rows[is_again].astype(kind), rows[group[is_again]].astype(kind)
