"""Damaged files of every form: an error of ours, or what pandas reads."""

import contextlib
import io
import json

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lightning_cse.data.read import read_files
from lightning_cse.data.rows import names_of
from lightning_cse.errors import LightningCSEError

ROWS = [
    {"anchor": "A dog, old.", "positive": 'A "dog".', "negative": "Né\u2028e."},
    {"anchor": "A\ncat.", "positive": "Cats.", "negative": "No\tcat."},
    {"anchor": "NA", "positive": "1", "negative": "null"},
]
SCORED = [
    {"sentence1": f"A {score}.", "sentence2": "B.", "score": score} for score in (0.5, -1, 1e3, 4)
]


def text_of(frame, separator=","):
    return frame.to_csv(index=False, sep=separator).encode()


def json_lines(rows):
    return "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows).encode()


def parquet(rows):
    """Return a Parquet file without the metadata of pandas, which only pandas reads."""
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(rows), sink, compression="none")

    return sink.getvalue().to_pybytes()


FILES = {
    "x.csv": text_of(pd.DataFrame(ROWS)),
    "scored.csv": text_of(pd.DataFrame(SCORED)),
    "one.csv": b"text\nA.\n\nB.\r\nC.\r\n",
    "x.tsv": text_of(pd.DataFrame(ROWS), "\t"),
    "x.jsonl": json_lines(ROWS),
    "scored.ndjson": json_lines(SCORED),
    "x.json": json.dumps(ROWS, indent=1).encode(),
    "x.parquet": parquet(ROWS),
}
MARKS = [b'"', b",", b"\n", b"\r", b"\t", b"\\", b"{", b"]", b":", b" ", b"\0", b"\xff", b"\xef\xbb\xbf"]  # fmt: skip


@st.composite
def damage(draw, content):
    """Return a file with bytes changed, lines left out or repeated, and cells moved."""
    for _ in range(draw(st.integers(1, 3))):
        mutation = draw(st.sampled_from(["flip", "insert", "cut", "leave out", "repeat", "move"]))
        position = draw(st.integers(0, max(len(content) - 1, 0)))

        if mutation == "flip":
            changed = bytes([draw(st.integers(0, 255))])
            content = content[:position] + changed + content[position + 1 :]
        elif mutation == "insert":
            content = content[:position] + draw(st.sampled_from(MARKS)) + content[position:]
        elif mutation == "cut":
            content = content[:position]
        else:
            separator = b"," if mutation == "move" else b"\n"
            parts = content.split(separator)
            number = draw(st.integers(0, len(parts) - 1))
            part = parts.pop(number) if mutation != "repeat" else parts[number]
            if mutation != "leave out":
                parts.insert(draw(st.integers(0, len(parts))), part)

            content = separator.join(parts)

    return content


def read_by_pandas(name, content):
    file = io.BytesIO(content)
    if name.endswith(".parquet"):
        return pd.read_parquet(file)

    if name.endswith(("json", "jsonl")):
        is_list = name == "x.json" and content.decode("utf-8-sig").lstrip().startswith("[")
        text = io.StringIO(content.decode("utf-8-sig"))
        return pd.read_json(text, lines=not is_list, dtype=False)

    separator = "\t" if name.endswith(".tsv") else ","

    return pd.read_csv(file, sep=separator, dtype=str, keep_default_na=False)


def stripped(values):
    return [value.strip() or None if isinstance(value, str) else value for value in values]


def without_nan(values):
    return [None if isinstance(value, float) and value != value else value for value in values]


@pytest.mark.parametrize("name", FILES)
@settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(st.data())
def test_damaged_file_is_refused_or_read_as_by_pandas(tmp_path, name, data):
    content = data.draw(damage(FILES[name]))
    path = tmp_path / name
    path.write_bytes(content)

    with contextlib.suppress(LightningCSEError):
        rows = read_files(str(path), key="data.train")
        frame = read_by_pandas(name, content)
        columns = [without_nan(stripped(frame[column].tolist())) for column in frame]

        assert len(rows) == len(frame)

        for column in names_of(rows):
            values = rows[column][:]
            if column == "score":
                assert values in [scores(cells) for cells in columns]
            else:
                assert values in columns


def scores(cells):
    try:
        return [float(cell) for cell in cells]
    except (TypeError, ValueError):
        return None


@pytest.mark.parametrize("name", FILES)
def test_undamaged_file_is_read(tmp_path, name):
    if name == "one.csv":
        pytest.skip("has a blank line")

    path = tmp_path / name
    path.write_bytes(FILES[name])
    rows = read_files(str(path), key="data.train")

    assert len(rows) == len(SCORED if "score" in rows.column_names else ROWS)
