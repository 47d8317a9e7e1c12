"""Long columns: gathered, hashed and numbered as short ones are, whatever their chunks are."""

import numpy as np
import pyarrow as pa
import pytest

from lightning_cse.data import Rows
from lightning_cse.data.mapped import (
    digest_of,
    first_appearance,
    gather,
    hashes_of,
    in_file,
    is_first,
    joined,
    marked,
    masked,
    taken,
    true_rows,
)

WORDS = ["b", None, "", "a", "b", "ä", None, "c", "a", "ccc"]


def column(*sizes):
    """Return the words in chunks of these sizes, the second half of each cut off another array."""
    chunks = []
    start = 0

    for size in sizes:
        more = pa.array(["x", *WORDS[start : start + size], "y"], pa.string())
        chunks.append(more.slice(1, size))
        start += size

    return pa.chunked_array(chunks, pa.string())


CHUNKS = [column(10), column(3, 7), column(1, 0, 4, 5)]


@pytest.mark.parametrize("words", CHUNKS)
@pytest.mark.parametrize("numbers", [[0, 1, 9], [9, 9, 0, 4, 5, 1, 7, 2, 2, 8, 0], []])
def test_gathered_values_are_those_of_the_rows(words, numbers, long, tmp_path):
    for folder in (None, tmp_path):
        found = gather(words, np.array(numbers, dtype=np.uint32), folder)

        assert found.to_pylist() == [WORDS[number] for number in numbers]
        assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("words", CHUNKS)
def test_hashes_and_digest_depend_on_the_values_alone(words, long, tmp_path):
    want = hashes_of(pa.chunked_array([WORDS]))

    for _ in range(2):  # computed, and then from the file
        assert hashes_of(words, tmp_path).tolist() == want.tolist()

    assert (want == 0).tolist() == [word is None for word in WORDS]
    assert len(set(want.tolist())) == len(set(WORDS))
    assert digest_of(words) == digest_of(CHUNKS[0])

    for other in (["bb", None, *WORDS[2:]], ["b", "", *WORDS[2:]], WORDS[::-1], WORDS[:-1]):
        assert digest_of(pa.chunked_array([other])) != digest_of(words)


def test_values_are_numbered_by_first_appearance():
    random = np.random.default_rng(0)

    for count in (0, 1, 300):
        hashes = random.integers(0, 2**64, 60, dtype=np.uint64)[random.integers(60, size=count)]
        hashes[random.random(count) < 0.1] = 0
        seen = dict.fromkeys(value for value in hashes.tolist() if value)
        number = {value: place for place, value in enumerate(seen)} | {0: -1}

        assert first_appearance(hashes).tolist() == [number[value] for value in hashes.tolist()]


def test_long_arrays_are_mapped_from_a_file_that_leaves_nothing(long, tmp_path):
    array = np.arange(5)
    found = in_file(array, np.int64, tmp_path)

    assert isinstance(found, np.memmap)
    assert found.tolist() == array.tolist()
    assert list(tmp_path.iterdir()) == []
    assert in_file(array, np.int64, None) is array
    assert in_file(found, np.int64, tmp_path) is found
    assert in_file(array[:2], np.int64, tmp_path).tolist() == [0, 1]
    assert in_file(range(1, 12, 2), np.int32, tmp_path).tolist() == [1, 3, 5, 7, 9, 11]


# A choice of rows is a mapping of indices; it behaves like the rows themselves.


def rows():
    return Rows.of({"anchor": WORDS, "positive": [str(number) for number in range(10)]})


def test_choices_of_rows_share_the_table(long, tmp_path):
    whole = rows()
    whole.cache_dir = tmp_path
    chosen = whole.select([9, 8, 3, 1, 0]).select([3, 0, 1, 2], reason="none")

    texts = [one.data.column("anchor").chunk(0).buffers()[2].address for one in (chosen, whole)]

    assert texts[0] == texts[1]
    assert isinstance(chosen.numbers, np.memmap)
    assert chosen.column("anchor") == [None, "ccc", "a", "a"]
    assert chosen.counts == {"read": 10, "dropped: none": 1}
    assert chosen.has("anchor", "positive").tolist() == [False, True, True, True]
    assert chosen.distinct("anchor").tolist() == [0, 1, 2]
    assert chosen.where(1) == "row 10"
    assert chosen[2]["positive"] == "8"
    assert chosen.table.column("line").to_pylist() == [2, 10, 9, 4]

    renamed = chosen.renamed(sentence="anchor", anchor="positive")

    assert renamed.names == ("sentence", "anchor")
    assert renamed.column("anchor") == ["1", "9", "8", "3"]
    assert [part.column("anchor") for part in renamed.parts(3)] == [["1", "9", "8"], ["3"]]

    added = renamed.with_column("number", [10, 11, 12, 13])

    assert added.data.num_rows == 10
    assert added.select([3, 0]).column("number") == [13, 10]
    assert added.with_constant("number", "x").column("number") == ["x"] * 4

    twice = renamed.select([1, 1, 0]).with_column("number", [1, 2, 3])

    assert twice.column("number") == [1, 2, 3]
    assert twice.column("anchor") == ["9", "9", "1"]

    both = Rows.cat([whole.select([2, 1]), whole, chosen])

    assert both.column("anchor") == ["", None, *WORDS, None, "ccc", "a", "a"]
    assert both.column("line") == [3, 2, *range(1, 11), 2, 10, 9, 4]


@pytest.mark.parametrize("cache", [True, False])
def test_blocks_give_what_whole_arrays_give(cache, long, tmp_path):
    folder = tmp_path if cache else None
    random = np.random.default_rng(1)
    values = random.integers(0, 99, 23)
    numbers = random.integers(0, 23, 17).astype(np.uint32)
    mask = random.random(23) < 0.6
    codes = first_appearance(values.astype(np.uint64), folder)

    assert taken(values, numbers, folder).tolist() == values[numbers].tolist()
    assert marked(numbers, 30).tolist() == [number in numbers for number in range(30)]
    assert masked(values, mask, folder).tolist() == np.where(mask, values, 0).tolist()
    assert true_rows(mask, folder).tolist() == np.flatnonzero(mask).tolist()
    assert is_first(codes).tolist() == [code not in codes[:row] for row, code in enumerate(codes)]
    assert joined([(3, range(5)), (8, numbers)], np.int64, folder).tolist() == [
        *range(3, 8),
        *(numbers + 8),
    ]
