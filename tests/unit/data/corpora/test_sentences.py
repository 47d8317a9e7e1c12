"""Plain sentences: a sentence a line, paragraphs that are cut, split sentences; the sample and the real files."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lightning_cse.data.corpora import CORPORA
from lightning_cse.data.corpora.sentences import parse_sentences, split_sentences
from lightning_cse.data.readers import read_corpus, sample_dir
from lightning_cse.errors import DataError

SIZES = {
    "wiki1m": {"train": 410},
    "wiki1m_part": {"train": 30},
    "wiki_split": {"train": 20, "dev": 20, "test": 20},
    "wikitext2": {"valid": 22, "test": 20},
}


def put(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode())
    return path


# A sentence a line


def test_sentences_of_lines(tmp_path: Path) -> None:
    text = "\ufeffOne,\ttwo. \r\nNone\n\n \t\nHe said \u201cno\nHe said \u201cno\n"
    path = put(tmp_path, "simcse/wiki1m_for_simcse.txt", text)
    rows = read_corpus("wiki1m", "train", tmp_path)
    assert rows.column("sentence") == ["One,\ttwo.", "None", "He said \u201cno", "He said \u201cno"]
    assert rows.counts == {"read": 6, "dropped: blank line": 2}
    assert [rows.where(i) for i in range(4)] == [f"{path}:{line}" for line in (1, 2, 5, 6)]


@pytest.mark.parametrize("separator", ["\u2028", "\u2029", "\x85", "\x0b", "\x0c", "\x1c", "\r"])
def test_only_a_line_feed_ends_a_line(separator: str) -> None:
    table = parse_sentences(f"a{separator}b\nc", "own.txt")
    assert (table.columns, table.lines) == ({"sentence": [f"a{separator}b", "c"]}, [1, 2])


def test_the_end_of_the_last_line_is_no_blank_line() -> None:
    assert parse_sentences("a\nb\n", "own.txt").dropped == {}
    assert parse_sentences("a\nb", "own.txt") == parse_sentences("a\nb\n", "own.txt")
    assert parse_sentences("a\n\n\n", "own.txt").dropped == {"blank line": 2}


@pytest.mark.parametrize(("text", "told"), [("\n", "1 blank line"), ("\n \r\n\u2028\n", "3 blank lines")])
def test_no_sentence_is_a_fault(text: str, told: str) -> None:
    with pytest.raises(DataError, match=rf"^own.txt: no sentence, only {told}$"):
        parse_sentences(text, "own.txt")


# Paragraphs


def test_wikitext(tmp_path: Path) -> None:
    text = (
        " \n = Title = \n \n One @-@ two <unk> . Is it ? \n"
        " = = A = B = = \n = National record \n = \n = = \n q = \n Two , three\u2028four : \n"
    )
    path = put(tmp_path, "text/wikitext-2/valid.txt", text)
    rows = read_corpus("wikitext2", "valid", tmp_path)
    assert rows.column("sentence") == [
        "One @-@ two <unk> .",
        "Is it ?",
        "= National record",
        "=",
        "= =",
        "q =",
        "Two , three\u2028four :",
    ]
    assert [rows.where(i) for i in range(3)] == [f"{path}:{line}" for line in (4, 4, 6)]
    assert rows.counts == {"read": 11, "dropped: blank line": 2, "dropped: heading": 2}
    assert read_corpus("wikitext2", "dev", tmp_path).column("sentence") == rows.column("sentence")


@pytest.mark.parametrize(
    ("paragraph", "sentences"),
    [
        ("One .", ["One ."]),
        ("No end", ["No end"]),
        ("One . Two ? Three ! Four", ["One .", "Two ?", "Three !", "Four"]),
        ("In the U.S. , H. Ames paid 1 @.@ 5 . <unk> too .", ["In the U.S. , H. Ames paid 1 @.@ 5 .", "<unk> too ."]),
        ("What ? ! Oh . . . Well .", ["What ? !", "Oh . . .", "Well ."]),
        ("( One . ) Two .", ["( One . )", "Two ."]),
        ('He said " One . " She left .', ['He said " One . "', "She left ."]),
        ('One . " Two . " Three .', ["One .", '" Two . "', "Three ."]),
        ('" One . Two . " Three .', ['" One .', 'Two . "', "Three ."]),
        ("Yahoo ! is a name .", ["Yahoo ! is a name ."]),
        ("Inc . , Ltd . ; etc .", ["Inc . , Ltd . ; etc ."]),
        ("He said ' One . ' \"", ["He said ' One . ' \""]),
        ("' One . '' Two .", ["' One . ''", "Two ."]),
        (". . .", [". . ."]),
    ],
)
def test_where_a_paragraph_is_cut(paragraph: str, sentences: list[str]) -> None:
    assert list(split_sentences(paragraph)) == sentences


def test_headings_alone_are_a_fault(tmp_path: Path) -> None:
    path = put(tmp_path, "text/wikitext-2/test.txt", " \n = Title = \n \n")
    with pytest.raises(DataError, match=rf"^{re.escape(str(path))}: no sentence, only 2 blank lines and 1 heading$"):
        read_corpus("wikitext2", "test", tmp_path)


# Split sentences


def test_wiki_split(tmp_path: Path) -> None:
    path = put(
        tmp_path, "text/wiki-split/validation.tsv", "A \"b , c .\tA \"b . <::::> C .\r\n'' d '' .\td .<::::>None\n"
    )
    rows = read_corpus("wiki_split", "dev", tmp_path)
    assert list(rows) == [
        {"sentence": 'A "b , c .', "simple1": 'A "b .', "simple2": "C ."},
        {"sentence": "'' d '' .", "simple1": "d .", "simple2": "None"},
    ]
    assert rows.where(1) == f"{path}:2"


@pytest.mark.parametrize(
    ("row", "fault"),
    [
        ("", "1 cells between tabs, 2 are needed"),
        ("a b <::::> c", "1 cells between tabs, 2 are needed"),
        ("a\tb\tc <::::> d", "3 cells between tabs, 2 are needed"),
        ("a\tb c", "1 simple sentences with <::::> between, 2 are needed"),
        ("a\tb <::::> c <::::> d", "3 simple sentences with <::::> between, 2 are needed"),
        (" \tb <::::> c", "sentence is empty (white space only)"),
        ("a\t<::::> c", "simple1 is empty"),
        ("a\tb <::::> ", "simple2 is empty (white space only)"),
    ],
)
def test_wiki_split_faults(tmp_path: Path, row: str, fault: str) -> None:
    path = put(tmp_path, "text/wiki-split/tune.tsv", f"a\tb <::::> c\n{row}\nd\te <::::> f\n")
    with pytest.raises(DataError) as caught:
        read_corpus("wiki_split", "train", tmp_path)
    assert str(caught.value) == f"{path}:2: {fault}"


# The sample


@pytest.mark.parametrize("name", SIZES)
def test_sample(name: str) -> None:
    assert CORPORA[name].splits == tuple(SIZES[name])
    for split, size in SIZES[name].items():
        rows = read_corpus(name, split, sample_dir())
        assert len(rows) == size
        assert all(4 <= len(sentence.split()) <= 40 or split != "train" for sentence in rows.column("sentence"))
        assert Path(rows.files[0].path).read_bytes().isascii()


def test_no_sentence_of_the_sample_comes_twice() -> None:
    tables = [read_corpus(name, split, sample_dir()) for name, splits in SIZES.items() for split in splits]
    sentences = [sentence for rows in tables for column in rows.names for sentence in rows.column(column)]
    assert len(sentences) == 410 + 30 + 3 * 60 + 22 + 20
    assert len(set(sentences)) == len(sentences)


def test_sample_simple_sentences_are_shorter() -> None:
    for split in SIZES["wiki_split"]:
        for row in read_corpus("wiki_split", split, sample_dir()):
            lengths = [len(str(row[name]).split()) for name in ("sentence", "simple1", "simple2")]
            assert max(lengths[1:]) < lengths[0], row


def test_sample_wikitext_has_headings_blank_lines_and_rare_words() -> None:
    for split in SIZES["wikitext2"]:
        rows = read_corpus("wikitext2", split, sample_dir())
        assert rows.counts["dropped: heading"] == 5
        assert rows.counts["dropped: blank line"] == 11
        assert "<unk>" in " ".join(rows.column("sentence"))
        lines = Path(rows.files[0].path).read_text(encoding="utf-8").split("\n")
        assert len(lines) == 25 + 1
        assert all(line.startswith(" ") and line.endswith(" ") for line in lines[:-1])


# The real files


@pytest.mark.parametrize("name", sorted(set(SIZES) - {"wiki1m"}))
def test_real_files_are_the_official_ones(real_data: Path, name: str) -> None:
    for file in CORPORA[name].files:
        rows = read_corpus(name, file.split, real_data)
        assert (len(rows), rows.files[0].sha256) == (file.rows, file.sha256)


def test_real_sentences_are_the_published_number(real_data: Path) -> None:
    part = read_corpus("wiki1m_part", "train", real_data)
    assert (len(part), len(set(part.column("sentence"))), part.counts) == (11_914, 11_548, {"read": 11_914})
    splits = [read_corpus("wiki_split", split, real_data) for split in ("train", "dev", "test")]
    assert [len(rows) for rows in splits] == [5000] * 3
    assert len({sentence for rows in splits for sentence in rows.column("sentence")}) == 15_000


@pytest.mark.parametrize(("split", "lines"), [("valid", 3760), ("test", 4358)])
def test_every_line_of_real_wikitext_is_accounted_for(real_data: Path, split: str, lines: int) -> None:
    rows = read_corpus("wikitext2", split, real_data)
    paragraphs = {rows.where(i) for i in range(len(rows))}
    assert len(paragraphs) + rows.counts["dropped: blank line"] + rows.counts["dropped: heading"] == lines
    assert not [sentence for sentence in rows.column("sentence") if not any(map(str.isalnum, sentence))]


def test_sizes_are_the_published_ones() -> None:
    assert {name: [file.rows for file in CORPORA[name].files] for name in SIZES} == {
        "wiki1m": [1_000_000],
        "wiki1m_part": [11_914],
        "wiki_split": [5000, 5000, 5000],
        "wikitext2": [7989, 9313],
    }
