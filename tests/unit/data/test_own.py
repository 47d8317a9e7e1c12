"""People's own files: what every form and every layout gives, and the one message of each mistake."""

import gzip
import hashlib
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import pandas as pd
import pytest
from datasets import ClassLabel, Dataset, DatasetDict, Features, Value

from lightning_cse.data import own
from lightning_cse.data.columns import ALIASES, LAYOUTS, canonical, layout_of
from lightning_cse.data.own import is_own, read_table
from lightning_cse.data.rows import Rows
from lightning_cse.errors import ConfigError, DataError, LightningCSEError

Put = Callable[[str, str | bytes], Path]

TRIPLETS = [
    {"anchor": "A.", "positive": "P, p.", "negative": "N."},
    {"anchor": "B.", "positive": "Q\nq.", "negative": "O."},
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
LABELLED = {"premise": ["A.", "A.", "B."], "hypothesis": ["P.", "Q.", "R."], "label": [0, 2, -1]}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    datasets.disable_progress_bars()
    monkeypatch.chdir(tmp_path)


def shown(value: object) -> str:
    """The start of a text, for the name of a test; of bytes nothing, which may differ between processes."""
    return value[:40] if isinstance(value, str) else type(value).__name__


def rows_of(source: str | list[str], **columns: str) -> Rows:
    return read_table(source, columns=columns or None, key="data.train")


def cells(rows: Rows) -> dict[str, list[Any]]:
    return {name: rows.column(name) for name in rows.names}


def lines(*rows: object) -> str:
    return "".join(f"{json.dumps(row)}\n" for row in rows)


def fault(source: str | list[str], **columns: str) -> str:
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
def test_every_form_gives_the_same_rows(
    put: Put, name: str, content: str | bytes, at: list[int], packed: bool
) -> None:
    data = content if isinstance(content, bytes) else content.encode()
    path = put(name + ".gz" * packed, gzip.compress(data) if packed else data)
    rows = rows_of(path.name)
    assert cells(rows) == {key: [row[key] for row in TRIPLETS] for key in TRIPLETS[0]}
    assert [rows.where(i) for i in range(2)] == [f"{path}:{line}" for line in at]
    (file,) = rows.files
    assert (file.name, file.path, file.sha256) == (
        name,
        str(path),
        hashlib.sha256(data).hexdigest(),
    )
    assert rows.counts == {"read": 2}


def test_a_text_file_has_a_sentence_a_line(
    put: Put, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = put("my/mine.txt", "One.\n\u3164\n Two.\r\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("my/mine.txt", "~/my/mine.txt", str(path)):
        rows = rows_of(name)
        assert cells(rows) == {"anchor": ["One.", "Two."]}
        assert rows.counts == {"read": 3, "dropped: blank line": 1}
        assert (rows.where(1), rows.files[0].name) == (f"{path}:3", name)


@pytest.mark.parametrize("form", ["folder", "parquet", "hub"])
def test_data_sets_with_named_classes(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, name = Dataset.from_dict(LABELLED, features=NLI), "hub:user/name/config:dev"
    asked: list[Any] = []
    if form == "folder":
        DatasetDict({"train": made}).save_to_disk(tmp_path / "saved")
        name = "saved/train"
        assert (
            fault("saved")
            == "data.train: saved: has several splits; choose one of: "
            + f"{tmp_path}/saved/train".replace(f"{tmp_path}/", "")
        )
    elif form == "parquet":
        made.to_parquet(tmp_path / "saved.parquet")
        name = "saved.parquet"
    else:
        monkeypatch.setattr(
            datasets, "load_dataset", lambda *args, **options: asked.append((args, options)) or made
        )
    rows = rows_of(name)
    assert cells(rows) == LABELLED | {"label": ["entailment", "contradiction", "-"]}
    assert rows.where(2).endswith(f"{name}:3")
    assert is_own(name)
    if form == "hub":
        assert asked == [(("user/name", "config"), {"split": "dev"})]
        rows_of("hub:user/name")
        assert asked[1] == (("user/name",), {"split": "train"})


def test_the_hub_when_offline(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(*_: Any, **__: Any) -> None:
        raise ConnectionError("Couldn't reach\nthe hub")

    monkeypatch.setattr(datasets, "load_dataset", unreachable)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    loading = "data.train: hub:user/name: cannot be loaded: ConnectionError: Couldn't reach the hub"
    assert fault("hub:user/name") == f"{loading}; offline mode is on (HF_HUB_OFFLINE=1)"


def test_the_digest_of_a_data_set_is_that_of_its_content(tmp_path: Path) -> None:
    def digest(name: str, labels: list[int]) -> str:
        Dataset.from_dict(LABELLED | {"label": labels}, features=NLI).save_to_disk(tmp_path / name)
        return rows_of(name).files[0].sha256

    assert digest("one", [0, 2, 1]) == digest("two", [0, 2, 1]) != digest("three", [0, 2, 2])


def test_lists_and_globs_are_one_table(put: Put) -> None:
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


def test_what_is_a_source_of_ones_own(put: Put) -> None:
    put("my/folder/x", "")
    put("snli/train/x", "")
    own_ones = (
        "x.csv",
        "x.tsv.gz",
        "x.parquet",
        "hub:a/b",
        "my/folder",
        "shards/*.jsonl",
        "shards/part-?",
    )
    assert all(map(is_own, own_ones))
    assert not any(
        map(is_own, ("snli/train", "my/other", "mine.gz", "txt", "mine.txt.zip", "mine.json"))
    )


# Columns


@pytest.mark.parametrize(
    ("header", "names"),
    [
        ("anchor,positive,negative", "anchor,positive,negative"),
        ("premise,entailment,contradiction", "premise,entailment,contradiction"),
        ("premise,entailment", "premise,entailment"),
        ("premise,hypothesis,label", "premise,hypothesis,label"),
        ("sent0,sent1,hard_neg", "anchor,positive,negative"),
        ("sentence1,sentence2", "sentence1,sentence2"),
        ("sentence1,sentence2,score", "sentence1,sentence2,score"),
        ("sentence1,sentence2,gold_label", "label,premise,hypothesis"),
        ("query,pos,neg", "anchor,positive,negative"),
        ("Query , POS,Hard_Negatives", None),
        ("Query , POS,Hard_Negative", "anchor,positive,negative"),
        ("text", "anchor"),
        ("sentence,label", "anchor"),
        ("text,positive", "anchor,positive"),
        ("text,anchor,positive", "anchor,positive"),
        ("premise,hypothesis,label,sentence,score", "premise,hypothesis,label"),
        ("premise,implied_entailment,explicit_entailment,neutral,contradiction", "premise,implied_entailment,explicit_entailment,neutral,contradiction"),
        ("premise,neutral", "premise,neutral"),
        ("anchor,positive,intermediate,negative", "anchor,positive,intermediate,negative"),
        ("pos_implicit,pos_explicit,neg_implicit,neg_explicit", "pos_implicit,pos_explicit,neg_implicit,neg_explicit"),
        ("anchor,positive,negative_10,negative_1,negative_2", "anchor,positive,negative,negative_2,negative_3"),
        ("anchor,positive,negative,hard_neg2", "anchor,positive,negative,negative_2"),
        ("id,anchor,positive,note", "anchor,positive"),
    ],
)  # fmt: skip
def test_names_in_use(put: Put, header: str, names: str | None) -> None:
    columns = header.split(",")
    row = [
        "entailment" if "label" in name else "1.5" if name == "score" else f"{name.strip()}."
        for name in columns
    ]
    put("x.csv", f"{header}\n{','.join(row)}\n")
    if names is None:
        assert "unknown column 'Hard_Negatives' - did you mean 'negative'?" in fault("x.csv")
        return
    rows = rows_of("x.csv")
    assert set(rows.names) == set(names.split(","))
    assert layout_of(rows.names) is not None


def test_the_order_of_hard_negatives_is_that_of_their_numbers(put: Put) -> None:
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
        ({"anchor": "question", "positive": "answer", "negative": "wrong one"}, {"anchor": ["Q"], "positive": ["A"], "negative": ["W"]}),
        ({"premise": "question", "entailment": "answer"}, {"premise": ["Q"], "entailment": ["A"]}),
        ({"positive": "question"}, {"positive": ["Q"], "anchor": ["T"]}),
        ({"anchor": "answer"}, {"anchor": ["A"]}),
        ({"sentence1": "question", "sentence2": "answer", "score": "wrong one"}, None),
    ],
)  # fmt: skip
@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_a_mapping(
    tmp_path: Path, form: str, columns: dict[str, str], want: dict[str, list[Any]] | None
) -> None:
    frame = pd.DataFrame(
        [{"id": "7", "question": "Q", "answer": "A", "wrong one": "W", "text": "T"}]
    )
    frame.to_csv("x.csv", index=False) if form == "csv" else frame.to_parquet(
        tmp_path / "x.parquet"
    )
    if want is None:
        assert (
            fault(f"x.{form}", **columns)
            == f"data.train: x.{form}:{1 + (form == 'csv')}: wrong one 'W' is not a number"
        )
    else:
        assert cells(rows_of(f"x.{form}", **columns)) == want


def test_each_alias_is_a_column_of_a_layout() -> None:
    known = {name for needed, optional in LAYOUTS.values() for name in (*needed, *optional)}
    assert set(ALIASES.values()) == known
    assert {name: canonical(name) for name in known} == {name: name for name in known}


# Several hard negatives, and lists


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("x.csv", "anchor,positive,negative_1,negative_2\nA,P,N,M\nB,Q,,\nC,R,,O\n"),
        ("x.csv", 'anchor,positive,neg\nA,P,"[""N"", ""M""]"\nB,Q,[]\nC,R,"["""", ""O""]"\n'),
        ("x.jsonl", lines({"query": "A", "pos": ["P"], "neg": ["N", "M"]}, {"query": "B", "pos": ["Q"], "neg": []}, {"query": "C", "pos": "R", "neg": [None, "O"]})),
        ("x.jsonl", lines({"anchor": "A", "positive": "P", "negative_1": "N", "negative_2": "M"}, {"anchor": "B", "positive": "Q"}, {"anchor": "C", "positive": "R", "negative_2": "O"})),
        ("x.parquet", pd.DataFrame({"anchor": ["A", "B", "C"], "positive": ["P", "Q", "R"], "negative": [["N", "M"], [], [None, "O"]]}).to_parquet()),
    ],
    ids=shown,
)  # fmt: skip
def test_rows_with_different_numbers_of_hard_negatives(
    put: Put, name: str, content: str | bytes
) -> None:
    put(name, content)
    want = {
        "anchor": ["A", "B", "C"],
        "positive": ["P", "Q", "R"],
        "negative": ["N", None, None],
        "negative_2": ["M", None, "O"],
    }
    assert cells(rows_of(name)) == want


@pytest.mark.parametrize("cell", ["['90s music]?", '["Hi" he said'])
def test_a_bracket_alone_is_text(put: Put, cell: str) -> None:
    assert cells(rows_of(str(put("x.jsonl", lines({"anchor": "a", "positive": cell})))))[
        "positive"
    ] == [cell]


def test_a_column_named_split_is_one_of_the_others(put: Put) -> None:
    row = {"anchor": "a", "positive": "b", "negative": "c", "negative_2": "d", "split": "train"}
    assert rows_of(str(put("x.jsonl", lines(row)))).names == (
        "anchor",
        "positive",
        "negative",
        "negative_2",
    )


def test_each_of_several_positives_makes_a_row(put: Put) -> None:
    put(
        "x.jsonl",
        lines(
            {"query": "A", "pos": ["P", "Q"], "neg": ["N"]},
            {"query": "B", "pos": ["R"], "neg": ["M", "O"]},
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


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.csv", "question,answer,my id\nQ,A,1\n", 'x.csv: the columns fit no known layout; columns found: question, answer, my id\n  layouts: pos_implicit, .* | anchor\n  map roles to columns, as in "data.columns={anchor: question, positive: answer}"'),
        ("x.csv", "premise,label\nA,neutral\n", "x.csv: the columns fit no known layout; columns found: premise, label\n"),
        ("x.csv", "anchor,postive\nA,P\n", "x.csv: unknown column 'postive' - did you mean 'positive'? map roles to columns, as in \"data.columns={positive: postive}\""),
        ("x.csv", "anchr,postive\nA,P\n", "x.csv: the columns fit no known layout; columns found: anchr, postive\n.* as in \"data.columns={anchor: anchr, positive: postive}\""),
        ("x.csv", "premise,neutral,contradicton\nA,P,Q\n", "x.csv: unknown column 'contradicton' - did you mean 'contradiction'?"),
        ("x.csv", "anchor,query,positive\nA,Q,P\n", "x.csv: two columns for anchor: 'anchor' and 'query'; map roles to columns, as in \"data.columns={anchor: query}\""),
        ("x.csv", "anchor,positive,premise,entailment\nA,P,A,P\n", "x.csv: columns of several layouts (anchor, positive); columns found"),
        ("x.csv", "", "x.csv: the file is empty (0 bytes)"),
        ("x.csv", "anchor,positive\nA,P\nB,\n", "x.csv:3: positive is empty"),
        ("x.csv", "anchor,positive,negative\nA,P,N\nB,Q,\n", "x.csv:3: negative is empty"),
        ("x.csv", "anchor,positive\nA,\xe9\n".encode("latin-1"), "x.csv:2: not UTF-8 text: byte 0xe9 at position 18; save the file as UTF-8"),
        ("x.csv", "premise,hypothesis,label\nA,P,entails\n", "x.csv:2: label 'entails' is not one of entailment, neutral, contradiction, -, not_entailment"),
        ("x.csv", "sentence1,sentence2,score\nA,P,high\n", "x.csv:2: score 'high' is not a number"),
        ("x.csv", "premise,explicit_entailment,neutral\nA,P,\nB,,\n", "x.csv:3: no hypothesis: explicit_entailment, neutral empty"),
        ("x.csv", "anchor,positive,neg\nA,P,\"['N', 'M']\"\n", "x.csv:2: \"['N', 'M']\" is not a JSON list, such as [\"one\", \"two\"]"),
        ("x.jsonl", lines({"anchor": "A", "positive": "P"}, {"anchor": "B", "positive": 3}), "x.jsonl:2: positive is not text but int (3)"),
        ("x.jsonl", lines({"anchor": "A", "positive": "P"}, {"anchor": "B"}), "x.jsonl:2: missing key 'positive'; keys found: anchor"),
        ("x.jsonl", lines({"anchor": "A", "positive": ["P"], "neg": [1]}), "x.jsonl:1: negative is not text but int (1)"),
        ("x.jsonl", lines({"anchor": "A", "positive": []}), "x.jsonl:1: positive is empty (null)"),
        ("x.parquet", b"anchor,positive\n", "x.parquet: cannot be loaded: ArrowInvalid: "),
        ("x.parquet", pd.DataFrame({"anchor": ["A", None], "positive": ["P", "Q"]}).to_parquet(), "x.parquet:2: anchor is empty (null)"),
        ("x.parquet", pd.DataFrame({"anchor": [], "positive": []}).to_parquet(), "x.parquet: no rows"),
        ("x.parquet", pd.DataFrame({"q": ["a"], "r": ["b"]}).to_parquet(), "x.parquet: the columns fit no known layout"),
        ("x.csv.gz", gzip.compress(PAIRS.encode())[:-9], "x.csv.gz: the compressed data is cut off or broken"),
        ("x.txt", "\n \n", "x.txt: no rows, only 2 blank lines"),
        ("folder/x", "", "folder: cannot be loaded: FileNotFoundError: "),
    ],
    ids=shown,
)  # fmt: skip
def test_mistakes(put: Put, name: str, content: str | bytes, message: str) -> None:
    put(name, content)
    found = fault(name.partition("/")[0])
    start, _, end = message.partition(".* ")
    assert found.startswith(f"data.train: {start}"), found
    assert end in found


@pytest.mark.parametrize(
    ("name", "columns", "message"),
    [
        ("qa.csv", {"anchor": "qestion"}, "qa.csv: data.columns.anchor: no column 'qestion' - did you mean 'question'?; found: question, answer"),
        ("qa.csv", {"ancor": "question"}, "data.columns: no role 'ancor' - did you mean 'anchor'? (choose from: "),
        ("qa.csv", {"text": "question"}, "data.columns: no role 'text'"),
        ("aq.csv", {}, "aq.csv: there is no such file - did you mean 'qa.csv'?; relative paths start at the working directory, "),
        ("*.none", {}, "*.none: there is no such file"),
    ],
)  # fmt: skip
def test_mistakes_of_the_command_line(
    put: Put, name: str, columns: dict[str, str], message: str
) -> None:
    put("qa.csv", "question,answer\nQ,A\n")
    assert fault(name, **columns).removeprefix("data.train: ").startswith(message)


def test_the_message_names_its_keys_and_what_the_method_takes(put: Put) -> None:
    put("x.csv", "a,b c\nA,B\n")
    with pytest.raises(DataError) as caught:
        read_table("x.csv", key="own.sts", takes="the task takes sentence1, sentence2")
    _, takes, override = str(caught.value).splitlines()
    assert str(caught.value).startswith("own.sts: ")
    assert takes == "  the task takes sentence1, sentence2"
    assert override.endswith("\"own.columns={sentence1: a, sentence2: 'b c'}\"")
    with pytest.raises(DataError, match=r"^pattern\.from: .*\n.*\n  rename the columns$"):
        read_table("x.csv", key="pattern.from")
    with pytest.raises(
        ConfigError,
        match=r"own\.columns: must map roles to columns, as \{anchor: question\}, got 3",
    ):
        read_table("x.csv", columns=3, key="own.sts")  # type: ignore[arg-type]


def test_an_error_shows_at_most_the_start_of_a_name(put: Put) -> None:
    put("x.csv", f"anchor,{'x' * 100_000}\n" + "A,B\n")
    assert cells(rows_of("x.csv")) == {"anchor": ["A"]}
    put("x.csv", f"anchr,{'x' * 100_000}\nA,B\n")
    assert len(fault("x.csv")) < 100_000 + 2000


# Large files


def test_chunks_do_not_show(put: Put, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = random.Random(0)
    rows = [
        {
            "query": f"A {n}",
            "pos": f"P {n}",
            "neg": [f"N {n} {k}" for k in range(draw.randrange(4))],
        }
        for n in range(50)
    ]
    put("x.jsonl", lines(*rows))
    whole = rows_of("x.jsonl")
    monkeypatch.setattr(own, "AT_ONCE", 7)
    some = rows_of("x.jsonl")
    assert cells(some) == cells(whole)
    assert [some.where(i) for i in range(50)] == [whole.where(i) for i in range(50)]
    put(
        "x.jsonl",
        lines(
            *rows[:20], {"query": "A", "pos": "P", "neg": []}, {"query": "A", "pos": " ", "neg": []}
        ),
    )
    assert fault("x.jsonl") == "data.train: x.jsonl:22: positive is empty (white space only)"


def test_a_column_that_only_later_rows_have(put: Put, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own, "AT_ONCE", 2)
    row = {"premise": "A", "explicit_entailment": "P"}
    put("x.jsonl", lines(row, row, row, row | {"neutral": "N"}))
    assert rows_of("x.jsonl").column("neutral") == [None, None, None, "N"]
    put(
        "x.jsonl",
        lines(
            *[{"premise": "A", "entailment": "P"}] * 3,
            {"premise": "A", "entailment": "P", "contradiction": "C"},
        ),
    )
    assert fault("x.jsonl").startswith("data.train: x.jsonl:3: missing key 'contradiction'")
    put(
        "x.jsonl",
        lines(
            *[{"premise": "A", "entailment": "P"}] * 2,
            *[{"premise": "A", "entailment": "P", "contradiction": "C"}] * 2,
        ),
    )
    assert fault("x.jsonl") == "data.train: x.jsonl:1: no contradiction, which other rows have"
