"""Sentences of a file: which they are, where they stand, and what is said of files that are none."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from lightning_cse.errors import DataError
from lightning_cse.index import SentenceFile


def test_a_sentence_a_line(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes('\ufeffOne.\r\n\n  Two , "three" \nÖne.\nOne.\nlast'.encode())
    file = SentenceFile(path)
    assert list(file) == [(1, "One."), (2, ""), (3, 'Two , "three"'), (4, "Öne."), (5, "One."), (6, "last")]
    survey = file.survey()
    assert (survey.lines, survey.empty) == (6, 1)
    assert survey.first.tolist() == [0, 2, 3, 5]
    assert survey.times.tolist() == [2, 1, 1, 1]
    with gzip.open(tmp_path / "a.txt.gz", "wb") as packed:
        packed.write(path.read_bytes())
    assert list(SentenceFile(tmp_path / "a.txt.gz")) == list(file)


def test_a_column_of_a_table(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text('id,text\n1,"one, and\ntwo"\n2,\n3, three \n')
    assert list(SentenceFile(path, "text")) == [(2, "one, and\ntwo"), (4, ""), (5, "three")]
    with pytest.raises(DataError, match=r"--column which column holds the sentences \(its columns: id, text\)"):
        list(SentenceFile(path))
    with pytest.raises(DataError, match=r"no column 'txt' - did you mean 'text'\?"):
        list(SentenceFile(path, "txt"))
    path.write_text("text\tid\na\t1\nb\n")
    path = path.rename(tmp_path / "a.tsv")
    with pytest.raises(DataError, match=r"a\.tsv:3: 1 cells, but the header has 2 columns"):
        list(SentenceFile(path, "text"))


def test_a_key_of_json_lines(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "one"}\n\n{"text": null}\n{"text": " two\\n"}\n')
    assert list(SentenceFile(path)) == [(1, "one"), (2, ""), (3, ""), (4, "two")]
    assert list(SentenceFile(path, "text")) == list(SentenceFile(path))
    for bad, told in (("{", "no JSON"), ("[1]", "need a JSON object"), ('{"text": 1}', "need a text, got int")):
        path.write_text('{"text": "one"}\n' + bad)
        with pytest.raises(DataError, match=rf"a\.jsonl:2: {told}"):
            list(SentenceFile(path, "text"))
    with pytest.raises(DataError, match="no column 'tex'"):
        list(SentenceFile(path, "tex"))


def test_what_is_no_file_of_sentences(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    with pytest.raises(DataError, match=r"a\.txt: cannot be read: No such file"):
        SentenceFile(path).survey()
    path.write_bytes(b"")
    with pytest.raises(DataError, match="the file is empty"):
        SentenceFile(path).survey()
    path.write_bytes(b"\n \n")
    with pytest.raises(DataError, match="no line holds a sentence"):
        SentenceFile(path).survey()
    path.write_bytes(b"one\ntw\xf6\n")
    with pytest.raises(DataError, match=r"a\.txt:2: not UTF-8 \(byte 3 is 0xf6\)"):
        SentenceFile(path).survey()
    with pytest.raises(DataError, match="a text file has no columns"):
        list(SentenceFile(path, "text"))
    packed = tmp_path / "a.txt.gz"
    packed.write_bytes(gzip.compress(b"one\n" * 1000)[:-12])
    with pytest.raises(DataError, match="not a whole gzip file"):
        SentenceFile(packed).survey()
    packed.write_bytes(b"one\n")
    with pytest.raises(DataError, match="not a whole gzip file"):
        SentenceFile(packed).survey()
