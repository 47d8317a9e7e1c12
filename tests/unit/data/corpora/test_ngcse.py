"""LLM rows: our layout and the authors', every fault with its line, and the sample."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lightning_cse.data.corpora import CORPORA
from lightning_cse.data.corpora.ngcse import NLI, STS, parse_rows
from lightning_cse.data.readers import read_corpus, sample_dir
from lightning_cse.errors import DataError

OURS = {"anchor": "A.", "positive": "P.", "intermediate": "I.", "negative": "N."}
OURS_NLI = {"anchor": "A.", "positive": "P.", "negative": "N."}
THEIRS = {"split": "aigen", "sentence": "A.", "5": "P.", "4": "I.", "3": "N.", "2": "", "1": ""}
PLAIN = {"split": "wiki", "sentence": "Plain.", "5": "", "4": "", "3": ""}
SPLITS = {"wiki_sts": STS, "wiki_nli": NLI, "nli_sts": STS, "nli_nli": NLI}


def lines(*rows: object) -> str:
    return "".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows)


def fault(*rows: object, pattern: tuple[str, ...] | None = None) -> str:
    with pytest.raises(DataError) as caught:
        parse_rows(lines(*rows), "x", pattern=pattern)
    return str(caught.value)


def test_rows_of_the_sts_pattern() -> None:
    table = parse_rows(lines(OURS | {"id": 3, "anchor": " A. "}, OURS), "x")
    assert table.columns == {"anchor": ["A."] * 2, "positive": ["P."] * 2, "intermediate": ["I."] * 2} | {
        "negative": ["N."] * 2
    }
    assert table.lines == [1, 2]
    assert table.dropped == {}
    assert list(table.columns) == list(STS)


def test_rows_of_the_nli_pattern() -> None:
    table = parse_rows(lines(OURS_NLI).replace("\n", "\r\n"), "x")
    assert table.columns == {"anchor": ["A."], "positive": ["P."], "negative": ["N."]}


def test_the_authors_layout_reads_as_ours() -> None:
    theirs = parse_rows(lines(PLAIN, THEIRS, PLAIN, PLAIN), "x", pattern=STS)
    assert theirs.columns == parse_rows(lines(OURS), "x").columns
    assert theirs.lines == [2]
    assert theirs.dropped == {"plain sentence": 3}
    two = parse_rows(lines(THEIRS | {"3": ""}), "x", pattern=NLI)
    assert two.columns == {"anchor": ["A."], "positive": ["P."], "negative": ["I."]}
    ten = parse_rows(lines({"split": "aigen", "sentence": "A.", "9": "N.", "10": "P."}), "x")
    assert ten.columns["positive"] == ["P."], "numbers, not words, give the order"


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ("{", "not valid JSON: Expecting property name enclosed in double quotes at column 2"),
        ("", "not valid JSON: Expecting value at column 1"),
        ([1], "a JSON object is needed, not list"),
        ({"positive": "P.", "negative": "N."}, "missing key 'anchor'; keys found: positive, negative"),
        (
            {"anchor": "A.", "postive": "P.", "negative": "N."},
            "missing key 'positive' - did you mean 'postive'?; keys found: anchor, postive, negative",
        ),
        ({"anchor": "A.", "positive": "P."}, "missing key 'negative'; keys found: anchor, positive"),
        ({}, "missing key 'anchor'; keys found: none"),
        (OURS | {"positive": ""}, "positive is empty"),
        (OURS | {"intermediate": "\t"}, "intermediate is empty (white space only)"),
        (OURS | {"intermediate": None}, "intermediate is no text but NoneType (None)"),
        (OURS | {"negative": 3}, "negative is no text but int (3)"),
        (OURS | {"anchor": ["A."]}, "anchor is no text but list (['A.'])"),
        (OURS_NLI, "no intermediate sentence, and every row of this file needs one (STS pattern)"),
        (THEIRS | {"3": ""}, "no intermediate sentence, and every row of this file needs one (STS pattern)"),
        ({"sentence": "A."}, "missing key 'anchor', or 'split' beside 'sentence'; keys found: sentence"),
        (
            {"split": "aigen", "sentence": "A.", "5": "P.", "4": ""},
            "1 sentences under numbers (5); an LLM row has 3 (STS pattern) or 2 (NLI pattern)",
        ),
        (
            THEIRS | {"2": "M."},
            "4 sentences under numbers (5, 4, 3, 2); an LLM row has 3 (STS pattern) or 2 (NLI pattern)",
        ),
        (THEIRS | {"4": " "}, "'4' is empty (white space only)"),
        (THEIRS | {"4": None}, "'4' is no text but NoneType (None)"),
        (THEIRS | {"sentence": ""}, "'sentence' is empty"),
    ],
)
def test_faults_are_told_with_their_line(row: object, told: str) -> None:
    assert fault(OURS, row, OURS) == f"x:2: {told}"


def test_the_pattern_is_that_of_the_first_row_or_of_the_file() -> None:
    told = "an intermediate sentence, and no row of this file may have one (NLI pattern)"
    assert fault(OURS_NLI, OURS) == f"x:2: {told}"
    assert fault(OURS, pattern=NLI) == f"x:1: {told}"
    assert fault(OURS_NLI, pattern=STS).startswith("x:1: no intermediate sentence")


def test_a_file_without_llm_rows() -> None:
    assert fault(PLAIN, PLAIN) == "x: no LLM row, only 2 plain sentences"


def test_the_files_of_the_corpus_know_their_pattern(tmp_path: Path) -> None:
    (tmp_path / "ngcse").mkdir()
    for split, pattern in SPLITS.items():
        path = tmp_path / f"ngcse/{split}.jsonl"
        right, wrong = (OURS, OURS_NLI) if pattern == STS else (OURS_NLI, OURS)
        path.write_text(lines(right), encoding="utf-8")
        assert read_corpus("ngcse", split, tmp_path).names == pattern
        path.write_text(lines(wrong), encoding="utf-8")
        with pytest.raises(DataError, match=rf"{split}\.jsonl:1: (an|no) intermediate sentence"):
            read_corpus("ngcse", split, tmp_path)
    assert tuple(SPLITS) == CORPORA["ngcse"].splits


@pytest.mark.parametrize("split", SPLITS)
def test_rows_of_the_sample_are_fit_for_training(split: str) -> None:
    rows = read_corpus("ngcse", split, sample_dir())
    assert rows.names == SPLITS[split]
    assert len(set(rows.column("anchor"))) == len(rows)
    for row in rows:
        assert len(set(row.values())) == len(row), row
        if "intermediate" in row:
            assert len(str(row["intermediate"]).split()) < len(str(row["positive"]).split()), row


def test_anchors_of_the_sample_are_sentences_of_the_corpus_they_replace() -> None:
    wiki = set(read_corpus("wiki1m", "train", sample_dir()).column("sentence"))
    for split in ("wiki_sts", "wiki_nli"):
        assert set(read_corpus("ngcse", split, sample_dir()).column("anchor")) <= wiki
    anchors = [set(read_corpus("ngcse", split, sample_dir()).column("anchor")) for split in ("wiki_sts", "wiki_nli")]
    assert anchors[0].isdisjoint(anchors[1])
