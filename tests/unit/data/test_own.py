"""The user's own files: the rows of every form and layout, and the message of each mistake."""

import gzip
import hashlib
import json
import os
import re
from pathlib import Path

import datasets
import pandas as pd
import pytest
from datasets import ClassLabel, Dataset, DatasetDict, Features, Value

from lightning_cse.data import own, tables
from lightning_cse.data.own import OwnFormat, read_table
from lightning_cse.data.rows import SourceFile
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


def rows_of(source, form=None, **columns):
    return read_table(source, form=form or OwnFormat(columns), key="data.train")


def cells(rows):
    return {name: rows.column(name) for name in rows.names}


def lines(*rows):
    return "".join(f"{json.dumps(row)}\n" for row in rows)


def fault(source, form=None, **columns):
    with pytest.raises(LightningCSEError) as caught:
        rows_of(source, form, **columns)

    return str(caught.value).replace(f"{Path.cwd()}/", "")


# Forms of files


FILES = {
    "t.csv": CSV.encode(),
    "bom.csv": b"\xef\xbb\xbf" + CSV.replace("\n", "\r\n").replace("Q\r\n", "Q\n").encode(),
    "t.tsv": CSV.replace('"P, p."', "P@ p.").replace(",", "\t").replace("@", ",").encode(),
    "t.jsonl": lines(*TRIPLETS).encode(),
    "t.parquet": pd.DataFrame(TRIPLETS).to_parquet(),
}
FILES |= {f"{name}.gz": gzip.compress(content) for name, content in FILES.items()}


@pytest.mark.parametrize("name", FILES)
def test_every_form_gives_the_same_rows(put, name):
    path = put(name, FILES[name])
    rows = rows_of(name)
    unpacked = name.removesuffix(".gz")
    digest = hashlib.sha256(FILES[unpacked]).hexdigest()

    assert [{key: row[key] for key in rows.names} for row in rows] == TRIPLETS
    assert rows.column("line") == ([2, 3] if unpacked.endswith((".csv", ".tsv")) else [1, 2])
    assert rows.files == (SourceFile(unpacked, str(path), digest),)
    assert rows.counts == {"read": 2}


def test_a_text_file_has_a_sentence_a_line(put, monkeypatch, tmp_path):
    path = put("my/mine.txt", "One.\n\t\n Two.\r\n")
    monkeypatch.setenv("HOME", str(tmp_path))

    for name in ("my/mine.txt", "~/my/mine.txt", str(path)):
        rows = rows_of(name)

        assert cells(rows) == {"anchor": ["One.", "Two."]}
        assert rows.counts == {"read": 3, "dropped: blank line": 1}
        assert (rows.where(1), rows.files[0].name) == (f"{path}:3", name)


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
    assert rows.where(2).endswith(f"{name}:3")
    assert len(rows.files[0].sha256) == 64
    assert "saved: has several splits; choose one of: saved/train" in fault("saved")


def test_lists_and_globs_are_one_table(put):
    put("a1.csv", PAIRS + "B.,Q.\n")
    put("a2.jsonl", lines({"query": "C.", "pos": "R."}))

    for source in (["a1.csv", "a2.jsonl"], "a*"):
        rows = rows_of(source)

        assert cells(rows) == {"anchor": ["A.", "B.", "C."], "positive": ["P.", "Q.", "R."]}
        assert rows.where(2).endswith("a2.jsonl:1")
        assert (rows.counts, len(rows.files)) == ({"read": 3}, 2)

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
        ("text,anchor,positive", "anchor,positive"),
        ("anchor,positive,premise,entailment", "premise,entailment"),
        ("premise,implied_entailment,neutral", "premise,implied_entailment,neutral"),
        ("anchor,positive,intermediate,negative", "anchor,positive,intermediate,negative"),
        ("id,anchor,positive,negative,hard_neg2", "anchor,positive,negative,negative_2"),
    ],
)
def test_recognised_columns(put, header, names):
    values = {"label": "entailment", "gold_label": "entailment", "score": "1.5"}
    row = [values.get(name, f"{name}.") for name in header.split(",")]
    put("x.csv", f"{header}\n{','.join(row)}\n")

    assert set(rows_of("x.csv").names) == set(names.split(","))


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
    put("x.csv", "id,anchor,positive,negatve\n7,A,P,N\n")
    rows_of("x.csv")
    assert "the column 'negatve' is not read - did you mean 'negative'?" in caplog.text
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
    found = cells(rows_of(name))

    assert found == {
        "anchor": ["A", "B", "C"],
        "positive": ["P", "Q", "R"],
        "negative": ["N", None, None],
        "negative_2": ["M", None, "O"],
    }


def test_columns_that_only_later_rows_have(put):
    row = {"premise": "A", "explicit_entailment": "P"}
    put("x.jsonl", lines(row, row | {"neutral": "N"}))
    assert rows_of("x.jsonl").column("neutral") == [None, "N"]


# Large files


@pytest.mark.parametrize("name", ["t.csv", "t.jsonl", "t.parquet", "t.txt", "t.csv.gz", "saved"])
def test_rows_of_large_files_are_mapped_from_the_cache(put, name, tmp_path, monkeypatch):
    if name == "saved":
        Dataset.from_list(TRIPLETS).save_to_disk(tmp_path / name)
    else:
        put(name, (FILES | {"t.txt": b"A.\n\nB.\n"})[name])
        os.utime(tmp_path / name, (1e9, 1e9))

    cache = tmp_path / "cache"
    monkeypatch.setattr(tables, "LARGE", 1)
    monkeypatch.setattr(tables, "_SETTLED", -1)
    monkeypatch.setattr(tables, "AT_ONCE", 1)
    want = rows_of(name)

    for again in range(3):
        found = read_table(name, key="data.train", cache_dir=cache)

        assert found.to_list() == want.to_list()
        assert (found.files, found.counts) == (want.files, want.counts)

        if again == 1:  # only the table in the cache is read from now on
            monkeypatch.setattr(own, "examined", None)
            monkeypatch.setattr(tables, "converted", None)
            monkeypatch.setattr(own, "_binary", None)

    assert len(list((cache / "rows").glob("*.arrow"))) == 1
    assert not list(cache.rglob("*.part"))


def test_a_changed_file_is_read_again(put, tmp_path, monkeypatch):
    cache = tmp_path / "cache"
    monkeypatch.setattr(tables, "LARGE", 1)
    put("t.txt", "A.\n")
    assert read_table("t.txt", key="data.train", cache_dir=cache).column("anchor") == ["A."]
    put("t.txt", "B.\n")
    assert read_table("t.txt", key="data.train", cache_dir=cache).column("anchor") == ["B."]


def test_faults_of_large_files_name_the_line_and_leave_nothing(put, tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "LARGE", 1)
    put("t.csv", "anchor,positive\nA,P\nB,\n")

    with pytest.raises(LightningCSEError, match=r"t\.csv:3: positive is empty"):
        read_table("t.csv", key="data.train", cache_dir=tmp_path / "cache")

    assert list((tmp_path / "cache" / "rows").iterdir()) == []


# How files are read


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("t.csv", "anchor;positive\nA, a.;P.\n"),
        ("t.csv", "anchor\tpositive\nA, a.\tP.\n"),
        ("t.tsv", "anchor|positive\nA, a.|P.\n"),
        ("t.tsv", 'anchor,positive\n"A, a.",P.\n'),
    ],
    ids=shown,
)
def test_the_delimiter_is_that_of_known_columns(put, name, content):
    put(name, content)
    assert cells(rows_of(name)) == {"anchor": ["A, a."], "positive": ["P."]}


def test_a_delimiter_and_mapped_columns(put):
    put("t.csv", "question:answer\nQ;Q:A\n")
    put("mapped.csv", "question;answer\nQ:A,B;A\n")
    columns = {"anchor": "question", "positive": "answer"}
    form = OwnFormat(columns, delimiter=":")

    assert cells(rows_of("t.csv", form)) == {"anchor": ["Q;Q"], "positive": ["A"]}
    assert cells(rows_of("mapped.csv", **columns)) == {"anchor": ["Q:A,B"], "positive": ["A"]}


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16"])
def test_an_encoding_is_read(put, encoding):
    text = "anchor,positive\nÉté.,Août.\n"
    put("t.csv", text.encode(encoding))
    rows = rows_of("t.csv", OwnFormat(encoding=encoding))

    assert cells(rows) == {"anchor": ["Été."], "positive": ["Août."]}
    assert rows.files[0].sha256 == hashlib.sha256(text.encode(encoding)).hexdigest()
    assert "set data.encoding, as in latin-1" in fault("t.csv")


def test_a_cell_may_be_long(put):
    text = "word " * 40_000
    put("t.csv", f"anchor,positive\n{text},P.\n")
    assert rows_of("t.csv").column("anchor") == [text.strip()]


BAD = {
    "t.csv": "anchor,positive\nA,P\nB,\nC\nD,Q\n",
    "t.jsonl": '{"anchor": "A", "positive": "P"}\n{"anchor": "B"}\n{]\n{"anchor": "D", "positive": "Q"}\n',
}


@pytest.mark.parametrize("name", BAD)
def test_bad_rows_are_left_out_if_asked(put, name, tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "LARGE", 1)
    put(name, BAD[name])
    at = 1 if name == "t.jsonl" else 2
    assert fault(name).endswith("; data.bad_rows=skip leaves such rows out")

    for _ in range(2):  # the second time from the cache
        rows = read_table(
            name, form=OwnFormat(bad_rows="skip"), key="data.train", cache_dir=tmp_path / "cache"
        )
        (reason,) = rows.counts.keys() - {"read"}

        assert cells(rows) == {"anchor": ["A", "D"], "positive": ["P", "Q"]}
        assert rows.counts == {"read": 4, reason: 2}
        places = f"(line {at + 1}: positive is empty; line {at + 2}: "
        assert reason.startswith(f"dropped: bad rows of {name} {places}")


def test_an_account_names_the_first_bad_rows(put):
    put("t.csv", "anchor,positive\n" + "A,\n" * 7 + "B,Q\n")
    rows = rows_of("t.csv", OwnFormat(bad_rows="skip"))
    places = "; ".join(f"line {line}: positive is empty" for line in range(2, 7))

    assert rows.counts == {"read": 8, f"dropped: bad rows of t.csv ({places}; ...)": 7}

    put("t.csv", "anchor,positive\nA,\n")
    message = "no rows that can be used: bad rows of t.csv (line 2: positive is empty)"
    assert message in fault("t.csv", OwnFormat(bad_rows="skip"))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"delimiter": ";;"}, "data.delimiter: must be one character, got ';;'"),
        ({"encoding": "latn"}, "data.encoding: no encoding 'latn' is known"),
        ({"bad_rows": "keep"}, "data.bad_rows: must be error or skip, got 'keep'"),
    ],
)
def test_faulty_formats(settings, message):
    with pytest.raises(LightningCSEError, match=re.escape(message)):
        OwnFormat(**settings)


def test_settings_that_do_not_apply_are_named(put):
    put("t.txt", "A.\n")
    put("t.parquet", pd.DataFrame(TRIPLETS).to_parquet())

    assert "data.delimiter is for .csv and .tsv" in fault("t.txt", OwnFormat(delimiter=";"))
    assert "data.encoding is for files of text" in fault("t.parquet", OwnFormat(encoding="ascii"))


# Mistakes


def broken_pages():
    """Return a Parquet file whose footer can be read, and whose rows cannot."""
    whole = pd.DataFrame(TRIPLETS).to_parquet()
    return whole[:4] + b"\xff" * 40 + whole[44:]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.csv", "question,my id\nQ,A\n", "fit no known layout: question, my id.*x.csv.*layouts: pos_implicit, .* \"data.columns={"),
        ("x.csv", "", "x.csv: the file is empty"),
        ("x.csv", "anchor,positive\nA,P\nB,\n", "x.csv:3: positive is empty"),
        ("x.csv", "premise,hypothesis,label\nA,P,entails\n", "x.csv:2: label 'entails' is not one of entailment"),
        ("x.csv", "sentence1,sentence2,score\nA,P,high\n", "x.csv:2: score 'high' is not a number"),
        ("x.jsonl", lines({"anchor": "A", "positive": "P"}, {"anchor": "B", "positive": 3}), "x.jsonl:2: positive is not text"),
        ("x.jsonl", lines({"anchor": "A", "positive": "P"}, {"anchor": "B"}), "x.jsonl:2: positive is empty"),
        ("x.parquet", b"anchor,positive\n", "x.parquet: cannot be loaded: ArrowInvalid: "),
        ("x.parquet", broken_pages(), "x.parquet: cannot be loaded: "),
        ("folder/x", "", "folder: cannot be loaded: "),
    ],
    ids=shown,
)  # fmt: skip
def test_faulty_files(put, name, content, message):
    put(name, content)
    found = fault(name.partition("/")[0])

    assert found.startswith("data.train: ")
    assert re.search(message, found, re.DOTALL), found
    assert len(found) < 1000


@pytest.mark.parametrize(
    ("name", "columns", "message"),
    [
        ("qa.csv", {"anchor": "qestion"}, "data.columns.anchor: no column 'qestion' - did you mean 'question'?"),
        ("qa.csv", {"ancor": "question"}, "data.columns: no role 'ancor'; choose from: "),
        ("aq.csv", {}, "aq.csv: there is no such file"),
        ("*.none", {}, "*.none: there is no such file"),
    ],
)  # fmt: skip
def test_faulty_overrides(put, name, columns, message):
    put("qa.csv", "question,answer\nQ,A\n")
    assert message in fault(name, **columns)
