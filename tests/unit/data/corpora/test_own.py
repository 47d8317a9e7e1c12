"""Comma-separated files of a user's own: two layouts, told by the header, and every fault with its line."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from lightning_cse.data.corpora.own import LAYOUTS, parse_own
from lightning_cse.data.readers import is_own, read_corpus, read_own, sample_dir
from lightning_cse.errors import DataError

QUADRUPLES = "premise,implied_entailment,explicit_entailment,neutral,contradiction"
PAIRS = "pos_implicit,pos_explicit,neg_implicit,neg_explicit"


def fault(text: str) -> str:
    with pytest.raises(DataError) as caught:
        parse_own(text, "x.csv")
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_file_of_inli_reads_as_the_corpus_does() -> None:
    text = (sample_dir() / "INLI/val.csv").read_text(encoding="utf-8")
    official = read_corpus("inli", "val", sample_dir())
    table = parse_own(text, "x.csv")
    assert set(table.columns) == {*official.names} - {"dataset"}
    assert all(table.columns[name] == official.column(name) for name in table.columns)


def test_what_a_row_lacks_is_none() -> None:
    table = parse_own("note,contradiction,premise,explicit_entailment\nn, C ,P,\n,  ,Q,E\n", "x.csv")
    assert table.columns == {
        "premise": ["P", "Q"],
        "implied_entailment": [None, None],
        "explicit_entailment": [None, "E"],
        "neutral": [None, None],
        "contradiction": ["C", None],
    }
    assert table.lines == [2, 3]


def test_words_that_look_like_missing_values_are_sentences() -> None:
    assert parse_own("premise,neutral\nNone,NA\n", "x.csv").columns["neutral"] == ["NA"]


def test_pairs() -> None:
    table = parse_own("id,neg_explicit,neg_implicit,pos_explicit,pos_implicit\n1,d,c,b, a\n", "x.csv")
    assert table.columns == {"pos_implicit": ["a"], "pos_explicit": ["b"], "neg_implicit": ["c"], "neg_explicit": ["d"]}


@pytest.mark.parametrize("ending", ["csv", "csv.gz"])
def test_mark_line_ends_and_quoted_line_breaks(tmp_path: Path, ending: str) -> None:
    data = b'\xef\xbb\xbfpremise,neutral\r\n"One,\r\ntwo.",N\r\nP,M\r\n'
    path = tmp_path / f"mine.{ending}"
    path.write_bytes(gzip.compress(data) if ending.endswith("gz") else data)
    assert is_own(str(path))
    rows = read_own(str(path))
    assert rows.column("premise") == ["One,\r\ntwo.", "P"]
    assert [rows.where(i) for i in range(2)] == [f"{path}:2", f"{path}:4"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            f"{QUADRUPLES}\nP,,,,\n",
            ":2: no hypothesis: implied_entailment, explicit_entailment, neutral, contradiction are",
        ),
        ("premise,neutral\nP,N\nQ, \n", ":3: no hypothesis: neutral is empty"),
        ("premise,neutral\nP,N\n ,N\n", ":3: premise is empty (white space only)"),
        ("premise,neutral\nP\n", ":2: 1 cells, the header has 2 columns"),
        ("premise,neutral\nP,N\n\nQ,N\n", ":3: blank line"),
        ('premise,neutral\nP,"N\n', ":2: the row that starts here is not valid CSV"),
        ("premise,neutral,premise\nP,N,P\n", ":1: column 'premise' is there twice (columns 1 and 3)"),
        ("premise,neutral\n", ": a header but no rows"),
        ("\n\n", ": no header and no rows"),
        ("\npremise,neutral\nP,N\n", ":1: blank line"),
        ('"premise\n', ":1: the row that starts here is not valid CSV"),
        (f"{PAIRS}\na,b,c,\n", ":2: neg_explicit is empty"),
        (f"{PAIRS}\n", ": a header but no rows"),
        (
            "pos_implicit,pos_explicit\na,b\n",
            ":1: missing columns 'neg_implicit', 'neg_explicit'; columns found: pos_impl",
        ),
        (
            "pos_implicit,pos_explicit,neg_implicit,neg_explict\na,b,c,d\n",
            ":1: missing column 'neg_explicit'; found 'neg_explict' - did you mean 'neg_explicit'?",
        ),
        ("premise,label\nP,N\n", f":1: no column of hypotheses; {LAYOUTS}; columns found: premise, label"),
        (
            "sent0,hard_neg,\nP,N,\n",
            f":1: neither 'premise' nor 'pos_implicit' is there; {LAYOUTS}; columns found: sent0, hard_neg, (unnamed)",
        ),
        (
            "premiss,neutral\nP,N\n",
            ":1: neither 'premise' nor 'pos_implicit' is there; found 'premiss' - did you mean 'prem",
        ),
        (
            "premise,neutral,contradicton\nP,N,C\n",
            ":1: a column that is not known; found 'contradicton' - did you mean 'contradiction'? Or give",
        ),
        (
            f"{PAIRS},premise\na,b,c,d,e\n",
            ":1: both 'premise' and 'pos_implicit' are there; a file of your own has either",
        ),
    ],
)
def test_faults(text: str, told: str) -> None:
    assert fault(text).startswith(f"x.csv{told}")
