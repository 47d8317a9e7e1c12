"""The user's own files: the rows of every form and layout, and the message of each mistake."""

import gzip
import hashlib
import json
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import pandas as pd
import pytest
from datasets import ClassLabel, Dataset, DatasetDict, Features, Value

from lightning_cse.data import own
from lightning_cse.data.columns import layout_of
from lightning_cse.data.own import is_own, read_table
from lightning_cse.data.rows import SourceFile
from lightning_cse.errors import LightningCSEError

Put = Callable[[str, str | bytes], Path]

TRIPLETS = [
    {
        "anchor": "A.",
        "positive": "P, p.",
        "negative": "N.",
    },
    {
        "anchor": "B.",
        "positive": "Q\nq.",
        "negative": "O.",
    },
]
CSV = 'anchor,positive,negative\nA.,"P, p.",N.\nB.,"Q\nq.",O.\n'
PAIRS = "anchor,positive\nA.,P.\n"
NLI = Features(
    {
        "premise": Value("string"),
        "hypothesis": Value("string"),
        "label": ClassLabel(names=["entailment", "neutral", "contradiction"]),
    }
)
LABELLED = {
    "premise": ["A.", "A.", "B."],
    "hypothesis": ["P.", "Q.", "R."],
    "label": [0, 2, -1],
}


@pytest.fixture(autouse=True)
def working_directory(tmp_path, monkeypatch):
    datasets.disable_progress_bars()
    monkeypatch.chdir(tmp_path)


def shown(value):
    """Return the start of a text, for the name of a test, and of bytes the type."""
    return value[:40] if isinstance(value, str) else type(value).__name__


def rows_of(source, **columns):
    return read_table(
        source,
        columns=columns or None,
        key="data.train",
    )


def cells(rows):
    return {name: rows.column(name) for name in rows.names}


def lines(*rows):
    return "".join(f"{json.dumps(row)}\n" for row in rows)


def fault(source, **columns):
    with pytest.raises(LightningCSEError) as caught:
        rows_of(source, **columns)
    return str(caught.value).replace(f"{Path.cwd()}/", "")


# Forms of files


@pytest.mark.parametrize(
    ("name", "content", "at"),
    [
        ("t.csv", CSV, [2, 3]),
        ("t.csv", CSV.replace("\n", "\r\n").replace("Q\r\n", "Q\n"), [2, 3]),
        ("t.csv", b"\xef\xbb\xbf" + CSV.encode(), [2, 3]),
        ("t.tsv", CSV.replace('"P, p."', "P@ p.").replace(",", "\t").replace("@", ","), [2, 3]),
        ("t.jsonl", lines(*TRIPLETS), [1, 2]),
        ("t.parquet", pd.DataFrame(TRIPLETS).to_parquet(), [1, 2]),
    ],
    ids=shown,
)  # fmt: skip
@pytest.mark.parametrize("packed", [False, True])
def test_every_form_gives_the_same_rows(put, name, content, at, packed):
    data = content if isinstance(content, bytes) else content.encode()
    path = put(f"{name}.gz", gzip.compress(data)) if packed else put(name, data)
    rows = rows_of(path.name)

    assert [{key: row[key] for key in rows.names} for row in rows] == TRIPLETS
    assert rows.column("line") == at
    assert rows.files == (
        SourceFile(
            name,
            str(path),
            hashlib.sha256(data).hexdigest(),
        ),
    )
    assert rows.counts == {"read": 2}


def test_a_text_file_has_a_sentence_a_line(put, monkeypatch, tmp_path):
    path = put("my/mine.txt", "One.\n\u3164\n Two.\r\n")
    monkeypatch.setenv("HOME", str(tmp_path))

    for name in ("my/mine.txt", "~/my/mine.txt", str(path)):
        rows = rows_of(name)

        assert cells(rows) == {"anchor": ["One.", "Two."]}
        assert rows.counts == {"read": 3, "dropped: blank line": 1}
        assert (rows.where(1), rows.files[0].name) == (f"{path}:3", name)


@pytest.mark.parametrize("form", ["folder", "parquet", "hub"])
def test_data_sets_with_named_classes(form, tmp_path, monkeypatch):
    dataset = Dataset.from_dict(LABELLED, features=NLI)
    calls: list[Any] = []

    def load_dataset(*names, split):
        calls.append((*names, split))
        return dataset

    if form == "folder":
        name = "saved/train"
        DatasetDict({"train": dataset}).save_to_disk(tmp_path / "saved")

        assert "saved: has several splits; choose one of: saved/train" in fault("saved")
    elif form == "parquet":
        name = "saved.parquet"
        dataset.to_parquet(tmp_path / name)
    else:
        name = "hub:user/name/config:dev"
        monkeypatch.setattr(
            datasets,
            "load_dataset",
            load_dataset,
        )

    rows = rows_of(name)

    assert cells(rows) == LABELLED | {"label": ["entailment", "contradiction", "-"]}
    assert rows.where(2).endswith(f"{name}:3")
    assert is_own(name)

    if form == "hub":
        rows_of("hub:user/name")
        assert calls == [("user/name", "config", "dev"), ("user/name", "train")]


def test_an_unreachable_hub(monkeypatch):
    def unreachable(*_, **__):
        raise ConnectionError("Couldn't reach\nthe hub")

    monkeypatch.setattr(
        datasets,
        "load_dataset",
        unreachable,
    )
    loading = "data.train: hub:user/name: cannot be loaded: ConnectionError: Couldn't reach the hub"

    assert fault("hub:user/name") == loading


def test_the_digest_of_a_data_set_is_that_of_its_content(tmp_path):
    digests = []
    for name, last in (("one", 1), ("two", 1), ("three", 2)):
        dataset = Dataset.from_dict(
            LABELLED
            | {
                "label": [
                    0,
                    2,
                    last,
                ]
            },
            features=NLI,
        )
        dataset.save_to_disk(tmp_path / name)
        digests.append(rows_of(name).files[0].sha256)

    assert digests[0] == digests[1] != digests[2]


def test_lists_and_globs_are_one_table(put):
    put("a1.csv", PAIRS + "B.,Q.\n")
    put("a2.jsonl", lines({"query": "C.", "pos": "R."}))

    for source in (["a1.csv", "a2.jsonl"], "a*"):
        rows = rows_of(source)

        assert cells(rows) == {"anchor": ["A.", "B.", "C."], "positive": ["P.", "Q.", "R."]}
        assert rows.where(2).endswith("a2.jsonl:1")
        assert (rows.counts, len(rows.files)) == ({"read": 3}, 2)

    put("a3.csv", CSV)

    assert fault("a*") == (
        "data.train: files that are read together need the same columns: "
        f"{Path('a1.csv')} has anchor, positive; a3.csv has anchor, positive, negative"
    )


@pytest.mark.parametrize(
    ("name", "own"),
    [
        ("x.csv", True),
        ("hub:a/b", True),
        ("my/folder", True),
        ("shards/part-?", True),
        ("snli/train", False),
        ("mine.json", False),
    ],
)
def test_is_own(put, name, own):
    put("my/folder/x", "")
    put("snli/train/x", "")

    assert is_own(name) == own


# Columns


@pytest.mark.parametrize(
    ("header", "names"),
    [
        ("anchor,positive,negative", "anchor,positive,negative"),
        ("premise,entailment,contradiction", "premise,entailment,contradiction"),
        ("sent0,sent1,hard_neg", "anchor,positive,negative"),
        ("sentence1,sentence2,score", "sentence1,sentence2,score"),
        ("sentence1,sentence2,gold_label", "label,premise,hypothesis"),
        ("query,pos,neg", "anchor,positive,negative"),
        ("sentence,label", "anchor"),
        ("text,anchor,positive", "anchor,positive"),
        ("anchor,positive,premise,entailment", "premise,entailment"),
        ("premise,implied_entailment,explicit_entailment,neutral,contradiction", "premise,implied_entailment,explicit_entailment,neutral,contradiction"),
        ("anchor,positive,intermediate,negative", "anchor,positive,intermediate,negative"),
        ("pos_implicit,pos_explicit,neg_implicit,neg_explicit", "pos_implicit,pos_explicit,neg_implicit,neg_explicit"),
        ("anchor,positive,negative,hard_neg2", "anchor,positive,negative,negative_2"),
        ("id,anchor,positive,split", "anchor,positive"),
    ],
)  # fmt: skip
def test_recognised_columns(put, header, names):
    values = {
        "label": "entailment",
        "gold_label": "entailment",
        "score": "1.5",
    }
    row = [values.get(name, f"{name.strip()}.") for name in header.split(",")]
    put("x.csv", f"{header}\n{','.join(row)}\n")
    rows = rows_of("x.csv")

    assert set(rows.names) == set(names.split(","))
    assert layout_of(rows.names) is not None


def test_the_order_of_hard_negatives_is_that_of_their_numbers(put):
    put("x.csv", "anchor,positive,negative_10,negative_1,negative_2\nA,P,N10,N1,N2\n")
    found = cells(rows_of("x.csv"))

    assert [found[name] for name in ("negative", "negative_2", "negative_3")] == [
        ["N1"],
        ["N2"],
        ["N10"],
    ]


@pytest.mark.parametrize(
    ("columns", "want"),
    [
        ({"anchor": "question", "positive": "answer"}, {"anchor": ["Q"], "positive": ["A"]}),
        ({"anchor": "question", "positive": "answer", "negative": "wrong one",}, {"anchor": ["Q"], "positive": ["A"], "negative": ["W"],}),
        ({"positive": "question"}, {"positive": ["Q"], "anchor": ["T"]}),
    ],
)  # fmt: skip
def test_mapped_columns(put, columns, want):
    put("x.csv", "id,question,answer,wrong one,text\n7,Q,A,W,T\n")
    assert cells(rows_of("x.csv", **columns)) == want


# Several hard negatives, and lists


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("x.csv", "anchor,positive,negative_1,negative_2\nA,P,N,M\nB,Q,,\nC,R,,O\n"),
        ("x.jsonl", lines({"query": "A", "pos": ["P"], "neg": ["N", "M"],}, {"query": "B", "pos": ["Q"], "neg": [],}, {"query": "C", "pos": "R", "neg": [None, "O"],},)),
        ("x.jsonl", lines({"anchor": "A", "positive": "P", "negative_1": "N", "negative_2": "M",}, {"anchor": "B", "positive": "Q"}, {"anchor": "C", "positive": "R", "negative_2": "O",},)),
        ("x.parquet", pd.DataFrame({"anchor": ["A", "B", "C"], "positive": ["P", "Q", "R"], "negative": [["N", "M"], [], [None, "O"],],}).to_parquet()),
    ],
    ids=shown,
)  # fmt: skip
def test_rows_with_different_numbers_of_hard_negatives(put, name, content):
    put(name, content)
    want = {
        "anchor": ["A", "B", "C"],
        "positive": ["P", "Q", "R"],
        "negative": ["N", None, None],
        "negative_2": ["M", None, "O"],
    }

    assert cells(rows_of(name)) == want


def test_each_of_several_positives_makes_a_row(put):
    put(
        "x.jsonl",
        lines(
            {
                "query": "A",
                "pos": ["P", "Q"],
                "neg": ["N"],
            },
            {
                "query": "B",
                "pos": ["R"],
                "neg": ["M", "O"],
            },
        ),
    )
    rows = rows_of("x.jsonl")
    want = {
        "anchor": ["A", "A", "B"],
        "positive": ["P", "Q", "R"],
        "negative": ["N", "N", "M"],
        "negative_2": [None, None, "O"],
    }

    assert cells(rows) == want
    assert [rows.where(i).rpartition(":")[2] for i in range(3)] == ["1", "1", "2"]


# Mistakes

UNKNOWN = "the columns fit no known layout"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.csv", "question,answer,my id\nQ,A,1\n", UNKNOWN + ".*found: question, answer, my id.*layouts: pos_implicit, .* \"data.columns={anchor: question, positive: answer}\""),
        ("x.csv", "anchor,postive\nA,P\n", UNKNOWN + ": 'postive' - did you mean 'positive'.* \"data.columns={positive: postive}\""),
        ("x.csv", "", "x.csv: the file is empty"),
        ("x.csv", "anchor,positive\nA,P\nB,\n", "x.csv:3: positive is empty"),
        ("x.csv", "anchor,positive\nA,\xe9\n".encode("latin-1"), "x.csv:2: not UTF-8 text"),
        ("x.csv", "premise,hypothesis,label\nA,P,entails\n", "x.csv:2: label 'entails' is not one of entailment"),
        ("x.csv", "sentence1,sentence2,score\nA,P,high\n", "x.csv:2: score 'high' is not a number"),
        ("x.jsonl", lines({"anchor": "A", "positive": "P"}, {"anchor": "B", "positive": 3}), "x.jsonl:2: positive is not text but int"),
        ("x.jsonl", lines({"anchor": "A", "positive": "P"}, {"anchor": "B"}), "x.jsonl:2: no column 'positive'; found: anchor"),
        ("x.parquet", b"anchor,positive\n", "x.parquet: cannot be loaded: ArrowInvalid: "),
        ("x.parquet", pd.DataFrame({"anchor": ["A", None], "positive": ["P", "Q"]}).to_parquet(), "x.parquet:2: anchor is empty"),
        ("x.csv.gz", gzip.compress(PAIRS.encode())[:-9], "x.csv.gz: the compressed data is cut off"),
        ("folder/x", "", "folder: cannot be loaded: FileNotFoundError: "),
    ],
    ids=shown,
)  # fmt: skip
def test_faulty_files(put, name, content, message):
    put(name, content)
    found = fault(name.partition("/")[0])

    assert found.startswith("data.train: ")
    assert re.search(
        message,
        found,
        re.DOTALL,
    ), found
    assert len(found) < 1000


@pytest.mark.parametrize(
    ("name", "columns", "message"),
    [
        ("qa.csv", {"anchor": "qestion"}, "qa.csv: data.columns.anchor: no column 'qestion' - did you mean 'question'?"),
        ("qa.csv", {"ancor": "question"}, "data.columns: no role 'ancor' - did you mean 'anchor'?"),
        ("aq.csv", {}, "aq.csv: there is no such file - did you mean 'qa.csv'?"),
        ("*.none", {}, "*.none: there is no such file"),
    ],
)  # fmt: skip
def test_faulty_overrides(put, name, columns, message):
    put("qa.csv", "question,answer\nQ,A\n")
    assert fault(name, **columns).removeprefix("data.train: ").startswith(message)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (None, "own.sts: .*\n  the task takes sentence1, sentence2\n.* \"own.columns={sentence1: a, sentence2: 'b c'}\""),
        (3, "own.columns: must be a mapping such as {anchor: question}, got 3"),
    ],
)  # fmt: skip
def test_the_message_names_the_config_key(put, columns, message):
    put("x.csv", "a,b c\nA,B\n")
    with pytest.raises(LightningCSEError) as caught:
        read_table(
            "x.csv",
            columns=columns,
            key="own.sts",
            takes="the task takes sentence1, sentence2",
        )

    assert re.search(
        message,
        str(caught.value),
        re.DOTALL,
    )


# Large files


def test_reading_in_chunks_changes_nothing(put, monkeypatch):
    draw = random.Random(0)
    rows = []

    for number in range(50):
        negatives = [f"N {number} {k}" for k in range(draw.randrange(4))]
        rows.append(
            {
                "query": f"A {number}",
                "pos": f"P {number}",
                "neg": negatives,
            }
        )

    put("x.jsonl", lines(*rows))
    whole = rows_of("x.jsonl")
    monkeypatch.setattr(
        own,
        "AT_ONCE",
        7,
    )

    assert list(rows_of("x.jsonl")) == list(whole)

    put(
        "x.jsonl",
        lines(
            *rows,
            {
                "query": "A",
                "pos": " ",
                "neg": [],
            },
        ),
    )

    assert fault("x.jsonl").startswith("data.train: x.jsonl:51: positive is empty")


def test_a_column_that_only_later_rows_have(put, monkeypatch):
    monkeypatch.setattr(
        own,
        "AT_ONCE",
        2,
    )
    row = {"premise": "A", "explicit_entailment": "P"}
    put(
        "x.jsonl",
        lines(
            row,
            row,
            row,
            row | {"neutral": "N"},
        ),
    )

    assert rows_of("x.jsonl").column("neutral") == [None, None, None, "N"]

    row = {"premise": "A", "entailment": "P"}
    put(
        "x.jsonl",
        lines(
            row,
            row,
            row,
            row | {"contradiction": "C"},
        ),
    )

    assert fault("x.jsonl").startswith("data.train: x.jsonl:1: no column 'contradiction'")
