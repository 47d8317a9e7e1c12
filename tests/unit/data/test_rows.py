"""Rows of datasets: where they come from, columns under other names, hashes; in memory and in
memory-mapped files, whole and selected.
"""

import numpy as np
import pyarrow as pa
import pytest
from datasets import Dataset

from lightning_cse.data.rows import (
    SourceFile,
    concatenate,
    count_corpus_rows,
    dataset_of,
    digests_of,
    distinct,
    files_of,
    first_appearance,
    flattened,
    has,
    hash_of,
    hashes,
    made_of,
    names_of,
    origin_of,
    renamed,
    values,
    where,
    with_columns,
    with_constant,
    with_files,
)
from lightning_cse.errors import DataError

WORDS = ["b", None, "", "a", "b", "ä", None, "c", "a", "ccc"]
FILE = SourceFile("INLI/train.csv", "/data/INLI/train.csv", "1" * 64)
OTHER = SourceFile("INLI/val.csv", "/data/INLI/val.csv", "2" * 64)
CHOICES = {"whole": None, "selected": [9, 3, 3, 1, 0], "none": []}


def in_file(rows, path):
    """Return the same rows in a memory-mapped file, with a chunk for each three rows."""
    with pa.OSFile(str(path), "wb") as out, pa.ipc.new_stream(out, rows.data.schema) as writer:
        for batch in rows.data.table.to_batches(max_chunksize=3):
            writer.write_batch(batch)

    return with_files(Dataset.from_file(str(path)), files_of(rows))


@pytest.fixture(params=["memory", "file"])
def stored(request, tmp_path):
    """Ten rows with the columns ``anchor`` and ``number``, which are lines 2, 4, ... of a file."""
    columns = {"anchor": WORDS, "number": range(10)}
    rows = dataset_of(columns, files=[FILE], lines=range(2, 22, 2))

    return rows if request.param == "memory" else in_file(rows, tmp_path / "rows.arrow")


@pytest.fixture(params=CHOICES)
def chosen(request, stored):
    """A choice of the stored rows, and their numbers."""
    numbers = CHOICES[request.param]
    return (stored, [*range(10)]) if numbers is None else (stored.select(numbers), numbers)


def words(numbers):
    return [WORDS[number] for number in numbers]


# Origin


def test_files_and_lines_travel_with_the_rows(chosen):
    rows, numbers = chosen
    more = with_constant(with_columns(rows, other=numbers), "language", "en")

    for variant in (rows, more, renamed(more, text="anchor"), flattened(rows), concatenate([rows])):
        assert variant["line"][:] == [2 * number + 2 for number in numbers]
        assert variant["file"][:] == [FILE.path] * len(numbers)
        assert files_of(variant) == [FILE]

    for row, number in enumerate(numbers):
        assert where(more, row) == f"/data/INLI/train.csv:{2 * number + 2}"


def test_files_of_several_parts_are_listed_once_each():
    parts = [dataset_of({"anchor": ["a"]}, files=[file]) for file in (FILE, OTHER, FILE)]
    rows = concatenate(parts)

    assert files_of(rows) == files_of(*parts) == [FILE, OTHER]
    assert digests_of(parts) == {FILE.name: FILE.sha256, OTHER.name: OTHER.sha256}
    assert rows["file"][:] == [FILE.path, OTHER.path, FILE.path]
    assert origin_of(rows) == "INLI/train.csv, INLI/val.csv"
    assert files_of(parts[0]) == [FILE], "the parts stay as they are"


# Columns


@pytest.mark.parametrize("value", ["en", 3, None])
def test_constant_columns(chosen, value):
    rows, numbers = chosen

    for name in ("language", "anchor"):
        constant = with_constant(rows, name, value)

        assert constant[name][:] == [value] * len(numbers)
        assert constant["number"][:] == numbers
        assert sorted(constant.column_names) == sorted({*rows.column_names, name})


def test_renamed_columns(chosen):
    rows, numbers = chosen
    rows = with_columns(rows, made_of=made_of(np.array(numbers, int)[:, None]))
    twice = renamed(rows, text="anchor", anchor="number", again="anchor")

    assert names_of(twice) == ["text", "anchor", "again"]
    assert twice["text"][:] == twice["again"][:] == words(numbers)
    assert twice["anchor"][:] == numbers
    assert twice["made_of"][:] == [[number] for number in numbers]

    with pytest.raises(DataError, match=r"INLI/train.csv: no column 'x'; found: anchor, number"):
        renamed(rows, text="x")


def test_nothing_of_a_memory_mapped_table_is_copied(stored):
    rows = renamed(with_constant(stored.select([3, 9]), "language", "en"), text="anchor")
    rows = concatenate([rows, renamed(stored, text="anchor")])
    first, repeated = (
        table.data.column(name).chunk(0) for table, name in ((stored, "anchor"), (rows, "text"))
    )

    assert rows["text"][:] == [*words([3, 9]), *WORDS]
    assert {file["filename"] for file in rows.cache_files} == {
        file["filename"] for file in stored.cache_files
    }
    assert first.buffers()[2].address == repeated.buffers()[2].address


def test_flattened_rows_of_a_file_are_in_a_file(tmp_path):
    stored = in_file(dataset_of({"anchor": WORDS}), tmp_path / "rows.arrow")
    rows = flattened(stored.select([9, 0]))

    assert rows["anchor"][:] == words([9, 0])
    assert rows.data.num_rows == 2
    assert all(file["filename"].startswith(str(tmp_path)) for file in rows.cache_files)
    assert flattened(stored) is stored


def test_concatenated_rows(stored):
    odd = stored.select([9, 1])
    second = dataset_of({"positive": ["p"], "anchor": ["q"]}, files=[OTHER])
    rows = concatenate([odd, second, stored])

    assert rows["anchor"][:] == [*words([9, 1]), "q", *WORDS]
    assert rows["line"][:] == [20, 4, 1, *range(2, 22, 2)]
    assert sorted(names_of(rows)) == ["anchor"]

    filled = concatenate([odd, second], fill=True)

    assert filled["anchor"][:] == [*words([9, 1]), "q"]
    assert filled["positive"][:] == [None, None, "p"]
    assert filled["number"][:] == [9, 1, None]

    nothing = second.select([])
    for parts in ([odd, nothing], [nothing, odd]):
        filled = concatenate(parts, fill=True)
        assert filled["anchor"][:] == words([9, 1])
        assert filled["positive"][:] == [None, None]


# Arrays


def test_arrays_are_those_of_the_chosen_rows(chosen):
    rows, numbers = chosen
    expected = words(numbers)

    assert values(rows, "anchor").to_pylist() == expected
    assert has(rows, "anchor").tolist() == [word is not None for word in expected]
    assert has(rows, "number", "line").tolist() == [True] * len(expected)
    assert hashes(rows, "anchor").tolist() == list(map(hash_of, expected))
    assert distinct(rows, "anchor").tolist() == [
        row for row, word in enumerate(expected) if word is not None and word not in expected[:row]
    ]

    for array in (values, has, hashes, distinct):
        with pytest.raises(DataError, match="no column 'x'; found: anchor, number"):
            array(rows, "x")


def test_hashes_differ_for_different_texts():
    texts = [*{*WORDS} - {None}, *map(str, range(25_000))]  # of several batches
    actual = hashes(dataset_of({"text": texts}), "text")

    assert len(set(actual.tolist())) == len(texts)
    assert actual.all()
    assert actual[-1] == hash_of("24999")


@pytest.mark.parametrize("count", [0, 1, 300])
def test_values_are_numbered_by_first_appearance(count):
    random = np.random.default_rng(0)
    hashed = random.integers(0, 2**64, 60, dtype=np.uint64)[random.integers(60, size=count)]
    hashed[random.random(count) < 0.1] = 0
    numbers = {0: -1}
    expected = [numbers.setdefault(value, len(numbers) - 1) for value in hashed.tolist()]

    assert first_appearance(hashed).tolist() == expected


def test_corpus_rows_of_training_rows_are_counted_once():
    numbers = np.array([[0, 1], [11, 10], [0, 3], [11, 10]])
    rows = dataset_of({"made_of": made_of(numbers)})

    assert rows["made_of"][:] == numbers.tolist()
    assert count_corpus_rows(rows) == 5
    assert count_corpus_rows(rows.select([1, 3])) == 2
    assert count_corpus_rows(rows.select([])) == 0
