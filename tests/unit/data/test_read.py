"""The user's own files: the rows of every form and layout, and the message of each mistake."""

import functools
import gzip
import hashlib
import json
import re
from collections import Counter
from pathlib import Path

import datasets
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasets import ClassLabel, Dataset, DatasetDict, Features, Value

from lightning_cse.data import read
from lightning_cse.data.read import is_file, read_files
from lightning_cse.data.rows import SourceFile, files_of, names_of, where
from lightning_cse.errors import LightningCSEError

NAMES = ("anchor", "positive", "negative")
TRIPLETS = [
    dict(zip(NAMES, ("A.", "P, p.", "N."), strict=True)),
    dict(zip(NAMES, ("B.", "Q\nq.", "O."), strict=True)),
]
CSV = 'anchor,positive,negative\nA.,"P, p.",N.\nB.,"Q\nq.",O.\n'
PAIRS = "anchor,positive\nA.,P.\n"
CLASSES = ClassLabel(names=["entailment", "neutral", "contradiction"])
NLI = Features({"premise": Value("string"), "hypothesis": Value("string"), "label": CLASSES})
LABELLED = {"premise": ["A.", "A.", "B."], "hypothesis": ["P.", "Q.", "R."], "label": [0, 2, -1]}


@pytest.fixture(autouse=True)
def working_directory(tmp_path, monkeypatch):
    datasets.disable_progress_bars()
    monkeypatch.chdir(tmp_path)


def shown(value):
    """Return the start of a text, for the name of a test, and of bytes the type."""
    return value[:40] if isinstance(value, str) else type(value).__name__


def rows_of(source, counts=None, **columns):
    return read_files(source, columns=columns, key="data.train", account=counts)


def cells(rows):
    return {name: rows[name][:] for name in names_of(rows)}


def lines(*rows):
    return "".join(f"{json.dumps(row)}\n" for row in rows)


def fault(source, **columns):
    with pytest.raises(LightningCSEError) as caught:
        rows_of(source, **columns)

    return str(caught.value).replace(f"{Path.cwd()}/", "")


# Forms of files


FILES = {
    "t.csv": CSV.encode(),
    "bom.csv": b"\xef\xbb\xbf" + CSV.replace("\n", "\r\n").replace("Q\r\n", "Q\n").encode(),
    "t.tsv": CSV.replace('"P, p."', "P@ p.").replace(",", "\t").replace("@", ",").encode(),
    "t.jsonl": lines(*TRIPLETS).encode(),
    "t.ndjson": b"\xef\xbb\xbf" + lines(*TRIPLETS).encode() + b"\n\n",
    "lines.json": lines(*TRIPLETS).encode(),
    "list.json": json.dumps(TRIPLETS, indent=1).encode(),
    "UPPER.CSV": CSV.encode(),
    "excel.csv": b"\xef\xbb\xbfsep=,\r\n" + CSV.encode(),
    "utf16.csv": CSV.encode("utf-16"),
    "utf32.tsv": CSV.encode("utf-32"),
    "t.parquet": pd.DataFrame(TRIPLETS).to_parquet(),
}
FILES |= {f"{name}.gz": gzip.compress(content) for name, content in FILES.items()}
FILES["UPPER.JSONL.GZ"] = FILES["t.jsonl.gz"]
FIRST_LINES = {"list.json": [1, 2], "excel.csv": [3, 4], "t.jsonl": [1, 2]}
FIRST_LINES |= {name: [1, 2] for name in ("t.ndjson", "lines.json", "t.parquet", "UPPER.JSONL")}


@pytest.mark.parametrize("name", FILES)
def test_every_form_gives_the_same_rows(put, name):
    path = put(name, FILES[name])
    counts = Counter()
    rows = rows_of(name, counts=counts)
    unpacked = re.sub(r"\.gz$", "", name, flags=re.IGNORECASE)
    content = gzip.decompress(FILES[name]) if unpacked != name else FILES[name]
    digest = hashlib.sha256(content).hexdigest()

    assert [{key: row[key] for key in names_of(rows)} for row in rows] == TRIPLETS
    assert rows["line"][:] == FIRST_LINES.get(unpacked, [2, 3])
    assert rows["file"][:] == [str(path)] * 2
    assert files_of(rows) == [SourceFile(unpacked, str(path), digest)]
    assert counts == {"read": 2}


def test_a_text_file_has_a_sentence_a_line(put, monkeypatch, tmp_path):
    path = put("my/mine.txt", "One.\n\t\n Two.\r\n")
    monkeypatch.setenv("HOME", str(tmp_path))

    for name in ("my/mine.txt", "~/my/mine.txt", str(path)):
        counts = Counter()
        rows = rows_of(name, counts=counts)

        assert cells(rows) == {"anchor": ["One.", "Two."]}
        assert counts == {"read": 3, "dropped: blank line": 1}
        assert (where(rows, 1), files_of(rows)[0].name) == (f"{path}:3", name)


@pytest.mark.parametrize("name", ["saved/train", "saved.parquet", "hub:user/name/config:dev"])
def test_data_sets_with_named_classes(name, tmp_path, monkeypatch):
    dataset = Dataset.from_dict(LABELLED, features=NLI)
    sources = {("user/name", "config", "dev"): dataset}
    hub = lambda *names, split: sources[*names, split]  # noqa: E731
    monkeypatch.setattr(datasets, "load_dataset", hub)
    DatasetDict({"train": dataset}).save_to_disk(tmp_path / "saved")
    dataset.to_parquet(tmp_path / "saved.parquet")
    rows = rows_of(name)

    assert cells(rows) == LABELLED | {"label": ["entailment", "contradiction", "-"]}
    assert where(rows, 2).endswith(f"{name}:3")
    assert len(files_of(rows)[0].sha256) == 64
    assert "saved: has several splits; choose one of: saved/train" in fault("saved")


def test_lists_and_globs_are_one_table(put):
    put("a1.csv", PAIRS + "B.,Q.\n")
    put("a2.jsonl", lines({"query": "C.", "pos": "R."}))

    for source in (["a1.csv", "a2.jsonl"], "a*"):
        counts = Counter()
        rows = rows_of(source, counts=counts)

        assert cells(rows) == {"anchor": ["A.", "B.", "C."], "positive": ["P.", "Q.", "R."]}
        assert where(rows, 2).endswith("a2.jsonl:1")
        assert (counts, len(files_of(rows))) == ({"read": 3}, 2)

    put("a3.csv", CSV)
    assert "need the same columns: a1.csv has anchor, positive; " in fault("a*")


# Columns


@pytest.mark.parametrize(
    ("header", "names"),
    [
        ("premise,entailment,contradiction", "premise,entailment,contradiction"),
        ("sent0,sent1,hard_neg", "anchor,positive,negative"),
        ("sentence1,sentence2,score", "sentence1,sentence2,score"),
        ("sentence1,sentence2,gold_label", "label,premise,hypothesis"),
        ("Query,pos,neg", "anchor,positive,negative"),
        ("sentence,label", "anchor"),
        ("anchor,positive,premise,entailment", "premise,entailment"),
        ("premise,implied_entailment,neutral", "premise,implied_entailment,neutral"),
        ("anchor,positive,intermediate,negative", "anchor,positive,intermediate,negative"),
        ("id,anchor,positive,negative,hard_neg2", "anchor,positive,negative,negative_2"),
        ("anchor,positive,negative_999,neg_9", "anchor,positive,negative,negative_2"),
    ],
)
def test_recognised_columns(put, header, names):
    values = {"label": "entailment", "gold_label": "entailment", "score": "1.5"}
    row = [values.get(name, f"{name}.") for name in header.split(",")]
    put("x.csv", f"{header}\n{','.join(row)}\n")

    assert set(names_of(rows_of("x.csv"))) == set(names.split(","))


@pytest.mark.parametrize(
    ("columns", "want"),
    [
        ({"anchor": "question", "positive": "answer"}, {"anchor": ["Q"], "positive": ["A"]}),
        ({"positive": "question"}, {"positive": ["Q"], "anchor": ["T"]}),
    ],
)
def test_mapped_columns(put, columns, want):
    put("x.csv", "id,question,answer,text\n7,Q,A,T\n")
    assert cells(rows_of("x.csv", **columns)) == want


def test_a_column_that_is_nearly_a_role_is_named(put, caplog):
    put("x.csv", "id,anchor,positive,negatve,negative_99999\n7,A,P,N,M\n")
    assert names_of(rows_of("x.csv")) == ["anchor", "positive"]
    assert "the column 'negatve' is not read - did you mean 'negative'?" in caplog.text
    assert "the column 'negative_99999' is not read" in caplog.text
    assert "'id'" not in caplog.text


NUMBERED = {"negative_1": "N", "negative_2": "M"}


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("x.csv", "anchor,positive,negative_10,negative_2\nA,P,M,N\nB,Q,,\nC,R,O,\n"),
        ("x.jsonl", lines({"anchor": "A", "positive": "P"} | NUMBERED, {"anchor": "B", "positive": "Q"}, {"anchor": "C", "positive": "R", "negative_2": "O"})),
    ],
    ids=shown,
)  # fmt: skip
def test_rows_with_different_numbers_of_hard_negatives(put, name, content):
    put(name, content)

    assert cells(rows_of(name)) == {
        "anchor": ["A", "B", "C"],
        "positive": ["P", "Q", "R"],
        "negative": ["N", None, None],
        "negative_2": ["M", None, "O"],
    }


def test_columns_that_only_later_rows_have(put):
    row = {"premise": "A", "explicit_entailment": "P"}
    put("x.jsonl", lines(row, row | {"neutral": "N"}))
    assert rows_of("x.jsonl")["neutral"][:] == [None, "N"]


@pytest.mark.parametrize("name", ["x.jsonl", "x.json", "x.parquet", "saved"])
@pytest.mark.parametrize("columns", [{}, {"negative": "wrong"}])
def test_lists_of_hard_negatives(put, tmp_path, name, columns):
    column = columns.get("negative", "Negative")
    lists = [["N", " M "], [], ["O", None, "K"], None]
    rows = [
        {"anchor": f"A{number}", "positive": "P", column: texts, "unused": [0.5] * 2000}
        for number, texts in enumerate(lists)
    ]

    if name == "saved":
        Dataset.from_list(rows).save_to_disk(tmp_path / name)
    elif name == "x.json":
        put(name, json.dumps(rows))
    else:
        frame = pd.DataFrame(rows)
        put(name, lines(*rows) if name == "x.jsonl" else frame.to_parquet())

    assert cells(rows_of(name, **columns)) == {
        "anchor": ["A0", "A1", "A2", "A3"],
        "positive": ["P"] * 4,
        "negative": ["N", None, "O", None],
        "negative_2": ["M", None, None, None],
        "negative_3": [None, None, "K", None],
    }


def test_lists_of_hard_negatives_beside_texts(put):
    pair = {"anchor": "A", "positive": "P"}
    row = pair | {"neg1": ["N", "M"], "neg2": "L"}
    put("x.jsonl", lines(row, pair | {"neg1": "O"}))
    rows = cells(rows_of("x.jsonl"))

    assert rows["negative"] == ["N", "O"]
    assert rows["negative_2"] == ["M", None]
    assert rows["negative_3"] == ["L", None]

    put("empty.jsonl", lines(pair | {"negative": []}))
    assert cells(rows_of("empty.jsonl")) == {"anchor": ["A"], "positive": ["P"], "negative": [None]}

    put("x.csv", 'anchor,positive,negative\nA,P,"[""N"", ""M""]"\n')
    assert cells(rows_of("x.csv"))["negative"] == ['["N", "M"]']


def test_unused_columns_may_have_any_type(put, tmp_path):
    """Arrow types that `datasets` does not know, and JSON that is nested too deeply for Python."""
    unused = {
        "map": pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64())),
        "interval": pa.array([None], pa.duration("ns")),
        "nested": pa.array([[[{"a": [1]}]]]),
        "words.of": pa.array(["A"]).dictionary_encode(),
    }
    table = pa.table({"anchor": ["A"], **unused, "positive": pa.array(["P"]).dictionary_encode()})
    pq.write_table(table, tmp_path / "x.parquet")

    deep = "[" * 5000 + '"]"' + "]" * 5000
    row = '{"anchor": "A", "deep": DEEP,\n "positive": "P"}'.replace("DEEP", deep)
    put("x.jsonl", row.replace("\n", ""))
    put("x.json", f"[{row},\n\n{row}]")

    for name in ("x.parquet", "x.jsonl"):
        assert cells(rows_of(name)) == {"anchor": ["A"], "positive": ["P"]}

    assert rows_of("x.json")["line"][:] == [1, 2]


def test_rows_of_ngcses_authors(put):
    plain = {"split": "wiki", "sentence": "Plain.", "5": "", "4": ""}
    written = {"split": "aigen", "sentence": "A.", "5": "P.", "4": "N."}
    put("x.jsonl", lines(plain, written))
    counts = Counter()

    assert cells(rows_of("x.jsonl", counts=counts)) == {
        "anchor": ["A."],
        "positive": ["P."],
        "negative": ["N."],
    }
    assert counts == {"read": 2, "dropped: plain sentence": 1}

    put("x.jsonl", lines({"split": "train", "sentence": "A."}))
    assert cells(rows_of("x.jsonl")) == {"anchor": ["A."]}


# Large files


@pytest.fixture
def read_cached(tmp_path, monkeypatch):
    """Return a function that reads files of any size by the cache."""
    monkeypatch.setattr(read, "LARGE", 1)
    return functools.partial(read_files, key="data.train", cache_dir=tmp_path / "cache")


@pytest.mark.parametrize("name", ["t.csv", "t.jsonl", "t.parquet", "t.txt", "t.csv.gz", "saved"])
def test_rows_of_large_files_are_mapped_from_the_cache(
    put, name, tmp_path, monkeypatch, read_cached
):
    if name == "saved":
        Dataset.from_list(TRIPLETS).save_to_disk(tmp_path / name)
    else:
        put(name, (FILES | {"t.txt": b"A.\n\nB.\n"})[name])

    monkeypatch.setattr(read, "BATCH", 1)
    expected = Counter()
    want = rows_of(name, counts=expected)

    for attempt in range(3):
        counts = Counter()
        rows = read_cached(name, account=counts)

        assert rows.to_list() == want.to_list()
        assert rows.features == want.features
        assert rows.cache_files
        assert (files_of(rows), counts) == (files_of(want), expected)

        if attempt == 1:  # only the table in the cache is read from now on
            monkeypatch.setattr(read, "sha256_of", None)
            monkeypatch.setattr(read, "lines_of", None)
            monkeypatch.setattr(read, "pq", None)

    assert len(list(tmp_path.glob("cache/rows/*.arrow"))) == 1
    assert not list(tmp_path.rglob("*.tmp"))


@pytest.mark.parametrize("name", ["a.txt", "b.txt"])
def test_a_changed_file_and_a_copy_are_read_again(put, read_cached, name):
    put("a.txt", "A.\n")
    assert read_cached("a.txt")["anchor"][:] == ["A."]

    path = put(name, "B.\n")
    rows = read_cached(name)

    assert rows["anchor"][:] == ["B."]
    assert where(rows, 0) == f"{path}:1"


def test_faults_of_large_files_name_the_line_and_leave_nothing(put, read_cached, tmp_path):
    put("t.csv", "anchor,positive\nA,P\nB,\n")

    with pytest.raises(LightningCSEError, match=r"t\.csv:3: positive is empty"):
        read_cached("t.csv")

    assert list((tmp_path / "cache" / "rows").iterdir()) == []


def test_a_damaged_cache_is_named(put, read_cached, tmp_path):
    put("t.txt", "A.\n")
    read_cached("t.txt")
    (stored,) = (tmp_path / "cache" / "rows").glob("*.arrow")
    stored.write_bytes(b"damaged")

    with pytest.raises(LightningCSEError, match=r"the cache .*\.arrow cannot be used .*remove"):
        read_cached("t.txt")


# How files are read


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("t.csv", "anchor;positive\nA, a.;P.\n"),
        ("t.csv", "anchor\tpositive\nA, a.\tP.\n"),
        ("t.tsv", "anchor|positive\nA, a.|P.\n"),
        ("t.tsv", 'anchor,positive\n"A, a.",P.\n'),
        ("t.csv", 'sep=;\nanchor;positive\n"A, a.";P.\n'),
        ("t.csv", '"Sep=|"\r\nanchor|positive\r\nA, a.|P.\r\n'),
    ],
    ids=shown,
)
def test_the_delimiter_is_that_of_known_columns(put, name, content):
    put(name, content)
    assert cells(rows_of(name)) == {"anchor": ["A, a."], "positive": ["P."]}


def test_a_cell_may_be_long(put):
    text = "word " * 40_000
    put("t.csv", f"anchor,positive\n{text},P.\n")
    assert rows_of("t.csv")["anchor"][:] == [text.strip()]


# Mistakes


def broken_pages():
    """Return a Parquet file whose footer can be read, and whose rows cannot."""
    content = pd.DataFrame(TRIPLETS).to_parquet()
    return content[:4] + b"\xff" * 40 + content[44:]


def parquet(**columns):
    """Return a Parquet file; a name may end in underscores, which are not written."""
    table = pa.table(columns).rename_columns([name.rstrip("_") for name in columns])
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)

    return sink.getvalue().to_pybytes()


PAIR = {"anchor": "A", "positive": "P"}
DEEP = '{"anchor": "A", "positive": ' + "[" * 9999


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.csv", "question,my id\nQ,A\n", "fit no known layout: question, my id.*x.csv.*layouts: pos_implicit, .* anchor, positive, negative .* \"data.columns={"),
        ("x.csv", "", "x.csv: the file is empty"),
        ("x.csv", "anchor,positive\n", "x.csv: no rows"),
        ("x.jsonl", "\n", "x.jsonl:1: not valid JSON"),
        ("x.txt", " \n", "x.txt: no rows that can be used: blank line"),
        ("x.csv", "anchor,positive\nA,P\nB,\n", "x.csv:3: positive is empty"),
        ("x.csv", "premise,hypothesis,label\nA,P,entails\n", "x.csv:2: label 'entails' is not one of entailment"),
        ("x.jsonl", lines(PAIR, {"anchor": "B", "positive": 3}), "x.jsonl:2: positive is not text"),
        ("x.jsonl", lines(PAIR, {"anchor": "B"}), "x.jsonl:2: positive is empty"),
        ("x.jsonl", lines(PAIR, PAIR | {"positive": ["P"]}), r"x.jsonl:2: positive is not text \(\['P'\]"),
        ("x.jsonl", lines(PAIR, PAIR | {"negative": ["N", {"a": 1}]}), r"x.jsonl:2: negative is not text \(\{'a': 1\}\)"),
        ("x.jsonl", lines({"premise": "A", "hypothesis": "B", "label": True}), "x.jsonl:1: label True is not one of"),
        # Names
        ("x.csv", "anchor,positive,positive\nA,P,Q\n", "x.csv:1: the column 'positive' occurs twice"),
        ("x.csv", "sep=;\nid;anchor;id\n1;A;2\n", "x.csv:2: the column 'id' occurs twice"),
        ("x.jsonl", lines(PAIR) + '{"anchor": "A", "positive": "P", "positive": "Q"}\n', "x.jsonl:2: .*the key 'positive' occurs twice"),
        ("x.json", '[{"anchor": "A"},\n{"anchor": "A", "anchor": "B"}]', "x.json:1: .*the key 'anchor' occurs twice in {'anchor': 'B'}"),
        ("x.parquet", parquet(anchor=["A"], positive=["P"], positive_=["Q"]), "x.parquet: the column 'positive' occurs twice"),
        ("x.csv", "anchor,positive,negative,hard_neg\nA,P,N,M\n", 'x.csv:1: the columns .negative. and .hard_neg. are both read as negative; choose one: "data.columns={negative: negative}"'),
        ("x.csv", "text,anchor\nA,B\n", "x.csv:1: the columns 'anchor' and 'text' are both read as anchor"),
        ("x.csv", "Anchor,positive,anchor \nA,P,B\n", "x.csv:1: the columns 'Anchor' and 'anchor ' are both"),
        ("x.jsonl", lines(PAIR, {"query": "A", "positive": "P"}), "x.jsonl:2: the columns 'anchor' and 'query' are both"),
        ("x.parquet", parquet(anchor=["A"], positive=["P"], neg=["N"], hard_negative=["M"]), "x.parquet: the columns 'neg' and 'hard_negative' are both"),
        # Cells and lines
        ("x.csv", "text,id\nA,1\nB, but C.,2\n", "x.csv:3: 3 cells, but 2 columns"),
        ("x.tsv", "anchor\tpositive\nA\tP\nB\n", "x.tsv:3: 1 cells, but 2 columns"),
        ("x.csv", "text\nA\n\nB\n", "x.csv:3: blank line"),
        ("x.csv", "anchor,positive\nA,P\n\n\nB,Q\n", "x.csv:3: blank line"),
        ("x.jsonl", lines(PAIR) + "\n" + lines(PAIR), "x.jsonl:2: not valid JSON"),
        ("x.csv", CSV.replace("\n", "\r").encode(), r"x.csv:1: lines end in CR alone.*: tr '\\r' '\\n' < x.csv > converted.csv"),
        ("x.txt", "A.\rB.\r", "x.txt:1: lines end in CR alone"),
        ("x.jsonl", lines(PAIR, PAIR).replace("\n", "\r"), "x.jsonl:1: lines end in CR alone"),
        ("x.csv", "anchor,positive\nA,P\rB,Q\nC,R\n", "x.csv:2: not a valid row: a line ends in CR alone"),
        ("x.txt", "A.\nB.\rC.\n", "x.txt:2: a CR within the line"),
        ("x.csv", 'anchor,positive\nA,"P\n', "x.csv:2: not a valid row"),
        ("x.csv", 'anchor,positive\nA,"P"Q\n', "x.csv:2: not a valid row"),
        ("x.json", "[1]", "x.json:1: expected a JSON object, got int"),
        ("x.json", "[\n]", "x.json: no rows"),
        ("x.json", '[{"anchor": "A"}\n{"anchor": "B"}]', "x.json:2: not valid JSON"),
        ("x.json", '[{"anchor": "A"}]\n[]', "x.json:2: not valid JSON"),
        ("x.json", '{"data": [\n{"anchor": "A"}]}', "x.json:1: not valid JSON"),
        ("x.jsonl", lines(PAIR) + '{"anchor": "a \\ud83d b", "positive": "c"}\n', "x.jsonl:2: anchor 'utf-8' codec can't encode"),
        ("x.jsonl", lines(PAIR) + DEEP + "]" * 9999 + "}", r"x.jsonl:2: positive is not text \(\[\["),
        ("x.jsonl", lines(PAIR) + DEEP, "x.jsonl:2: not valid JSON: brackets that are never closed"),
        ("x.json", f"[{DEEP}", "x.json:1: not valid JSON: .*never closed"),
        ("x.csv", b"anchor,positive\nA,\0P\n", "x.csv:2: not text: a NUL character; save the file as UTF-8"),
        ("x.txt", "A.\n".encode("utf-16-le"), "x.txt:1: not text: a NUL character"),
        ("x.txt", b"A.\nB.\n\xff\n", "x.txt:3: not UTF-8 text: byte 0xff; save the file as UTF-8"),
        ("x.csv", b"anchor\n" + b"A" * 70_000 + b"\nB\xe9.\n", "x.csv:3: not UTF-8 text: byte 0xe9"),
        ("x.txt", b"\xff\xfeA", "x.txt:1: not UTF-16 text"),
        ("x.csv.gz", gzip.compress(CSV.encode())[:-9], "x.csv.gz: the compressed data is cut off or broken"),
        # Data sets
        ("x.parquet", b"anchor,positive\n", "x.parquet: cannot be loaded: ArrowInvalid: "),
        ("x.parquet", broken_pages(), "x.parquet: cannot be loaded: "),
        ("x.parquet", parquet(anchor=["A"], positive=pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64()))), "x.parquet:1: positive is not text"),
        ("x.parquet", parquet(anchor=[b"A"], positive=["P"]), "x.parquet:1: anchor is not text"),
        ("folder/x", "", "folder: cannot be loaded: "),
    ],
    ids=shown,
)  # fmt: skip
def test_faulty_files(put, name, content, message):
    put(name, content)
    message_of_error = fault(name.partition("/")[0])

    assert message_of_error.startswith("data.train: ")
    assert re.search(message, message_of_error, re.DOTALL), message_of_error
    assert len(message_of_error) < 1500


@pytest.mark.parametrize(
    "score",
    ["high", "1_0", "true", "\u0663.5", "", "nan", "inf", "1e999", "0x1", "1,5", True, None, [1], 10**400],
    ids=repr,
)  # fmt: skip
def test_what_is_no_score(put, score):
    row = {"sentence1": "A", "sentence2": "B", "score": score}
    put("x.jsonl", lines(row | {"score": 1}, row))
    assert "x.jsonl:2: score " in fault("x.jsonl")

    if isinstance(score, str):
        put("x.csv", pd.DataFrame([row | {"score": "1"}, row]).to_csv(index=False))
        assert "x.csv:3: score " in fault("x.csv")


def test_scores(put):
    texts = ["1", " +2.5 ", "-.5", "3.", "1e-2", "007"]
    row = {"sentence1": "A", "sentence2": "B"}
    put("x.csv", pd.DataFrame([row | {"score": text} for text in texts]).to_csv(index=False))
    put("x.jsonl", lines(*(row | {"score": float(text)} for text in texts)))

    for name in ("x.csv", "x.jsonl"):
        assert rows_of(name)["score"][:] == [1, 2.5, -0.5, 3, 0.01, 7]


@pytest.mark.parametrize(
    ("name", "columns", "message"),
    [
        ("qa.csv", {"anchor": "qestion"}, "data.columns.anchor: no column 'qestion' - did you mean 'question'?"),
        ("qa.csv", {"ancor": "question"}, "data.columns: no role 'ancor'; choose from: "),
        ("aq.csv", {}, "aq.csv: there is no such file"),
        ("*.none", {}, "*.none: there is no such file"),
        ("~nosuchuser/x.csv", {}, "~nosuchuser/x.csv: there is no home folder of this user"),
    ],
)  # fmt: skip
def test_faulty_overrides(put, name, columns, message):
    put("qa.csv", "question,answer\nQ,A\n")
    assert message in fault(name, **columns)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("snli/train", False),
        ("snli", False),
        ("mine/train", False),
        ("mine.CSV.GZ", True),
        ("snli/train.ndjson", True),
        ("hub:user/name", True),
        ("folder", True),
        ("parts/*", True),
        ("~nosuchuser", True),
    ],
)
def test_names_of_files(name, expected):
    Path("folder").mkdir()
    assert is_file(name) is expected
