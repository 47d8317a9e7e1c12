"""Readers: the official layout, where files are looked for, and one clear message for every fault."""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import os
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lightning_cse.data import readers
from lightning_cse.data.corpora import CORPORA
from lightning_cse.data.readers import default_data_dir, find_file, is_own, read_corpus, read_own
from lightning_cse.errors import DataError

COLUMNS = ["", "dataset", "premise", "implied_entailment", "explicit_entailment", "neutral", "contradiction"]
ROW = ["0", "circa", "Tea? I had some.", "No tea.", "I had tea.", "It was hot.", "I want tea."]
STSB_LINES = [
    "main-captions\tMSRvid\t2012test\t0000\t5.000\tA plane takes off.\tAn air plane takes off.",
    'main-news\tx\t2015\t0001\t0.25\tHe said "no.\tNone\tlicence\tsource',
]


@pytest.fixture(autouse=True)
def _offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


def as_csv(rows: list[list[str]], header: list[str] = COLUMNS) -> bytes:
    stream = io.StringIO(newline="")
    csv.writer(stream, lineterminator="\n").writerows([header, *rows])
    return stream.getvalue().encode()


def put(folder: Path, name: str, data: bytes) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def inli_fault(folder: Path, data: bytes, name: str = "INLI/train.csv") -> str:
    """Read bad INLI data and return the message, which must be one line that starts with the file."""
    path = put(folder, name, data)
    with pytest.raises(DataError) as caught:
        read_corpus("inli", "train", folder)
    message = str(caught.value)
    assert message.startswith(f"{path}:")
    assert "\n" not in message
    return message.removeprefix(str(path))


def stsb_fault(folder: Path, *lines: str) -> str:
    path = put(folder, "STS/STSBenchmark/sts-dev.csv", "".join(f"{line}\n" for line in lines).encode())
    with pytest.raises(DataError) as caught:
        read_corpus("stsb", "dev", folder)
    assert str(caught.value).startswith(f"{path}:")
    return str(caught.value).removeprefix(str(path))


# The official layout


def test_inli_row(tmp_path: Path) -> None:
    data = as_csv([ROW])
    path = put(tmp_path, "INLI/train.csv", data)
    rows = read_corpus("inli", "train", tmp_path)
    assert list(rows) == [dict(zip(COLUMNS[1:], ROW[1:], strict=True))]
    assert rows.counts == {"read": 1}
    assert rows.where(0) == f"{path}:2"
    assert [(file.name, file.path, file.sha256) for file in rows.files] == [
        ("INLI/train.csv", str(path), hashlib.sha256(data).hexdigest())
    ]


def test_plain_and_gz_are_the_same_corpus(tmp_path: Path) -> None:
    data = as_csv([ROW])
    put(tmp_path / "plain", "INLI/test.csv", data)
    put(tmp_path / "packed", "INLI/test.csv.gz", gzip.compress(data))
    plain = read_corpus("inli", "test", tmp_path / "plain")
    packed = read_corpus("inli", "test", str(tmp_path / "packed"))
    assert list(plain) == list(packed)
    assert plain.files[0].sha256 == packed.files[0].sha256
    assert plain.files[0].name == packed.files[0].name == "INLI/test.csv"
    assert packed.where(0).endswith("INLI/test.csv.gz:2")


def test_plain_goes_before_gz(tmp_path: Path) -> None:
    put(tmp_path, "INLI/test.csv", as_csv([ROW]))
    put(tmp_path, "INLI/test.csv.gz", b"broken")
    assert len(read_corpus("inli", "test", tmp_path)) == 1


def test_dev_means_val_in_inli(tmp_path: Path) -> None:
    put(tmp_path, "INLI/val.csv", as_csv([ROW]))
    assert read_corpus("inli", "dev", tmp_path).files == read_corpus("inli", "val", tmp_path).files


@pytest.mark.parametrize("word", ["None", "n/a", "NA", "nan", "null", "0"])
def test_words_that_look_like_missing_values_are_sentences(tmp_path: Path, word: str) -> None:
    put(tmp_path, "INLI/train.csv", as_csv([[*ROW[:-1], word]]))
    assert read_corpus("inli", "train", tmp_path)[0]["contradiction"] == word


def test_quoted_line_breaks_keep_line_numbers_right(tmp_path: Path) -> None:
    broken = [*ROW[:2], 'Two\nlines, "quoted"\nand three', *ROW[3:]]
    put(tmp_path, "INLI/train.csv", as_csv([broken, ROW, broken, ROW]))
    rows = read_corpus("inli", "train", tmp_path)
    assert [rows.where(i).rpartition(":")[2] for i in range(4)] == ["2", "5", "6", "9"]
    assert rows[0]["premise"] == 'Two\nlines, "quoted"\nand three'
    assert inli_fault(tmp_path, as_csv([broken, [*ROW[:-1], " "]])).startswith(":5: contradiction is empty")


def test_line_ends_mark_blank_tail_and_outer_space_do_not_matter(tmp_path: Path) -> None:
    data = as_csv([[*ROW[:2], f" {ROW[2]}\t", *ROW[3:]]]).replace(b"\n", b"\r\n")
    put(tmp_path, "INLI/train.csv", b"\xef\xbb\xbf" + data + b"\r\n\r\n")
    rows = read_corpus("inli", "train", tmp_path)
    assert list(rows) == [dict(zip(COLUMNS[1:], ROW[1:], strict=True))]


def test_other_columns_and_their_order_do_not_matter(tmp_path: Path) -> None:
    put(tmp_path, "INLI/train.csv", as_csv([[*ROW[::-1], "x"]], [*COLUMNS[::-1], "note"]))
    assert read_corpus("inli", "train", tmp_path)[0] == dict(zip(COLUMNS[1:], ROW[1:], strict=True))


def test_stsb_rows(tmp_path: Path) -> None:
    path = put(tmp_path, "STS/STSBenchmark/sts-dev.csv", "\n".join(STSB_LINES).encode())
    rows = read_corpus("stsb", "dev", tmp_path)
    assert list(rows) == [
        {"sentence1": "A plane takes off.", "sentence2": "An air plane takes off.", "score": 5.0},
        {"sentence1": 'He said "no.', "sentence2": "None", "score": 0.25},
    ]
    assert rows.where(1) == f"{path}:2"


# What is not there


def test_unknown_names_are_told_with_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"unknown corpus 'inly' - did you mean 'inli'\?") as caught:
        read_corpus("inly", "train", tmp_path)
    assert str(caught.value).endswith(f"; known: {', '.join(CORPORA)}")
    with pytest.raises(DataError, match=r"'inli' has no split 'vla' - did you mean 'val'\?.*train, val, test; 'dev'"):
        read_corpus("inli", "vla", tmp_path)
    with pytest.raises(DataError, match=r"'stsb' has no split 'val'.*train, dev, test$"):
        read_corpus("stsb", "val", tmp_path)


def test_a_missing_file_is_told_with_place_command_and_variable(tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        read_corpus("inli", "dev", tmp_path)
    message = str(caught.value)
    assert "corpus 'inli', split 'val' is not there" in message
    assert f"{tmp_path}/INLI/val.csv and val.csv.gz" in message
    assert f"python -m lightning_cse.prepare inli --data-dir {tmp_path}" in message
    assert "LIGHTNING_CSE_DATA" in message
    assert "no copy that we know of" in message


def test_a_corpus_that_is_fetched_nowhere_is_told_with_what_to_put_there(tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        read_corpus("impscore", "dev", tmp_path)
    message = str(caught.value)
    assert "\n  the command that prepares corpora fetches nothing: put all_data.csv of the authors' repos" in message
    assert "python -m" not in message


def test_a_missing_folder_is_told_as_an_absolute_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match=re.escape(f"({tmp_path}/no where is no folder)")) as caught:
        read_corpus("stsb", "dev", "no where")
    assert f"--data-dir '{tmp_path}/no where'" in str(caught.value)
    assert "sentence-transformers/stsb) was not asked: it is switched off (HF_HUB_OFFLINE=1)" in str(caught.value)


def test_the_default_folder_is_the_variable_or_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LIGHTNING_CSE_DATA", "/somewhere")
    assert default_data_dir() == Path("/somewhere")
    monkeypatch.setenv("LIGHTNING_CSE_DATA", "")
    assert default_data_dir() == Path("data")


# Faults of INLI files


def test_wrong_encoding(tmp_path: Path) -> None:
    data = as_csv([ROW, [*ROW[:2], "Le caf\u00e9 est ferm\u00e9.", *ROW[3:]]]).decode().encode("latin-1")
    position = data.index(b"\xe9")
    fault = f":3: not UTF-8 text: byte 0xe9 at position {position}"
    assert inli_fault(tmp_path, data).startswith(fault)
    marked = b"\xef\xbb\xbf" + data
    assert inli_fault(tmp_path, marked).startswith(f":3: not UTF-8 text: byte 0xe9 at position {position + 3}")
    assert inli_fault(tmp_path, as_csv([ROW]).decode().encode("utf-16")).startswith(":1: not UTF-8 text: byte 0xff")
    assert inli_fault(tmp_path, as_csv([ROW]).decode().encode("utf-16-le")).startswith(":1: a zero byte")


def test_misspelt_column(tmp_path: Path) -> None:
    header = [name.replace("premise", "premiss") for name in COLUMNS]
    assert inli_fault(tmp_path, as_csv([ROW], header)) == (
        ":1: missing column 'premise'; found 'premiss' - did you mean 'premise'?; columns found: (unnamed), dataset, "
        "premiss, implied_entailment, explicit_entailment, neutral, contradiction"
    )


def test_missing_columns(tmp_path: Path) -> None:
    fault = inli_fault(tmp_path, as_csv([ROW[:5]], COLUMNS[:5]))
    assert fault.startswith(":1: missing columns 'neutral', 'contradiction'; columns found: (unnamed), dataset,")


def test_duplicate_header(tmp_path: Path) -> None:
    header = [*COLUMNS[:-1], "premise"]
    assert inli_fault(tmp_path, as_csv([ROW], header)) == ":1: column 'premise' is there twice (columns 3 and 7)"


@pytest.mark.parametrize(("cells", "count"), [(ROW[:-1], 6), ([*ROW, "more"], 8), (["lonely"], 1)])
def test_too_few_or_too_many_cells(tmp_path: Path, cells: list[str], count: int) -> None:
    assert inli_fault(tmp_path, as_csv([ROW, cells])) == f":3: {count} cells, the header has 7 columns"


@pytest.mark.parametrize("column", range(2, 7))
def test_empty_sentence(tmp_path: Path, column: int) -> None:
    def blank(cell: str) -> bytes:
        return as_csv([ROW, ROW, [*ROW[:column], cell, *ROW[column + 1 :]]])

    assert inli_fault(tmp_path, blank("")) == f":4: {COLUMNS[column]} is empty"
    assert inli_fault(tmp_path, blank(" \t\u00a0")) == f":4: {COLUMNS[column]} is empty (white space only)"


def test_blank_line_between_rows(tmp_path: Path) -> None:
    assert inli_fault(tmp_path, as_csv([ROW]) + b"\n" + as_csv([ROW])) == ":3: blank line"


def test_quotes_that_do_not_match(tmp_path: Path) -> None:
    fault = inli_fault(tmp_path, as_csv([ROW]) + b'1,circa,"never closed,a,b,c,d\n2,circa,a,b,c,d,e\n')
    assert fault.startswith(":3: the row that starts here is not valid CSV: unexpected end of data")
    fault = inli_fault(tmp_path, as_csv([ROW]) + b'1,circa,"closed" early,a,b,c,d\n')
    assert fault.startswith(":3: the row that starts here is not valid CSV: ',' expected after")


def test_empty_files(tmp_path: Path) -> None:
    assert inli_fault(tmp_path, b"") == ": the file is empty (0 bytes)"
    assert inli_fault(tmp_path, b"\n\n") == ": no header and no rows"
    assert inli_fault(tmp_path, as_csv([])) == ": a header but no rows"


def test_cut_off_gzip(tmp_path: Path) -> None:
    whole = gzip.compress(as_csv([ROW] * 50_000), compresslevel=0)
    fault = inli_fault(tmp_path, whole[: len(whole) // 2], "INLI/train.csv.gz")
    line = int(fault.split(":")[1])
    assert 24_000 < line < 26_000
    assert fault == f":{line}: the compressed file ends here, it is cut off; fetch it again"


def test_broken_gzip(tmp_path: Path) -> None:
    assert inli_fault(tmp_path, as_csv([ROW]), "INLI/train.csv.gz").startswith(":1: the compressed data is broken")
    whole = bytearray(gzip.compress(as_csv([ROW])))
    whole[-6] ^= 1  # the checksum
    assert "the compressed data is broken from here on: CRC check failed" in inli_fault(
        tmp_path, bytes(whole), "INLI/train.csv.gz"
    )
    assert inli_fault(tmp_path, b"", "INLI/train.csv.gz") == ": the file is empty (0 bytes)"


def test_a_folder_in_place_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "INLI/train.csv").mkdir(parents=True)
    with pytest.raises(DataError, match=r"INLI/train\.csv: is a folder, a file is needed$"):
        read_corpus("inli", "train", tmp_path)


def test_no_permission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = put(tmp_path, "INLI/train.csv", as_csv([ROW]))
    path.chmod(0)
    if os.geteuid() == 0:  # root may read everything: let the system call refuse
        real = io.open

        def refuse(file: Any, *args: Any, **kwargs: Any) -> Any:
            if str(file) == str(path):
                raise PermissionError(13, "Permission denied", str(file))
            return real(file, *args, **kwargs)

        monkeypatch.setattr(io, "open", refuse)
    with pytest.raises(DataError, match=r"INLI/train\.csv: cannot be read: Permission denied$"):
        read_corpus("inli", "train", tmp_path)


def test_a_link_to_itself(tmp_path: Path) -> None:
    (tmp_path / "INLI").mkdir()
    (tmp_path / "INLI/train.csv").symlink_to("train.csv")
    with pytest.raises(DataError, match=r"INLI/train\.csv: cannot be read: Too many levels"):
        read_corpus("inli", "train", tmp_path)


# Faults of STS-B files


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("a\tb\tc\td\t5.0\tOne.", ":2: 6 cells between tabs, 7 to 9 are needed"),
        ("a\tb\tc\td\t5.0\tOne.\tTwo.\tx\ty\tz", ":2: 10 cells between tabs, 7 to 9 are needed"),
        ("", ":2: 1 cells between tabs, 7 to 9 are needed"),
        ("a\tb\tc\td\tfive\tOne.\tTwo.", ":2: score 'five' is not a number"),
        ("a\tb\tc\td\t\tOne.\tTwo.", ":2: score '' is not a number"),
        ("a\tb\tc\td\t5.01\tOne.\tTwo.", ":2: score '5.01' is not between 0 and 5"),
        ("a\tb\tc\td\t-0.1\tOne.\tTwo.", ":2: score '-0.1' is not between 0 and 5"),
        ("a\tb\tc\td\tnan\tOne.\tTwo.", ":2: score 'nan' is not between 0 and 5"),
        ("a\tb\tc\td\t1\t\tTwo.", ":2: sentence1 is empty"),
        ("a\tb\tc\td\t1\tOne.\t ", ":2: sentence2 is empty (white space only)"),
    ],
)
def test_stsb_faults(tmp_path: Path, line: str, fault: str) -> None:
    assert stsb_fault(tmp_path, STSB_LINES[0], line, STSB_LINES[1]) == fault


def test_empty_stsb_file(tmp_path: Path) -> None:
    assert stsb_fault(tmp_path) == ": the file is empty (0 bytes)"


# The hub


def give(monkeypatch: pytest.MonkeyPatch, answer: Any) -> list[tuple[Any, ...]]:
    """Put a hub client in place that gives these rows, or raises."""
    asked: list[tuple[Any, ...]] = []

    def load_dataset(name: str, *, split: str, revision: str) -> Any:
        asked.append((name, split, revision))
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.delenv("HF_HUB_OFFLINE")
    monkeypatch.delenv("HF_DATASETS_OFFLINE", raising=False)
    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load_dataset))
    return asked


def test_stsb_from_the_hub_is_as_from_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub_rows = [
        {"sentence1": "A plane.", "sentence2": "Planes.", "score": 0.76},
        {"sentence1": "A\tcat.", "sentence2": "None", "score": 1.0},
    ]
    asked = give(monkeypatch, hub_rows)
    rows = read_corpus("stsb", "dev", tmp_path)
    hub = CORPORA["stsb"].hub
    assert hub is not None
    assert asked == [("sentence-transformers/stsb", "validation", hub.revision)]
    assert rows.column("score") == [3.8, 5.0]
    assert rows.column("sentence1") == ["A plane.", "A cat."]
    assert rows.where(1) == f"hf://datasets/sentence-transformers/stsb@{hub.revision[:12]}/validation:2"
    assert rows.files[0].name == "STS/STSBenchmark/sts-dev.csv"
    put(tmp_path, "STS/STSBenchmark/sts-dev.csv", hub.to_official(hub_rows, ""))
    assert read_corpus("stsb", "dev", tmp_path).files[0].sha256 == rows.files[0].sha256


@pytest.mark.parametrize(
    ("row", "fault"),
    [
        ({"sentence1": None, "sentence2": "b", "score": 1.0}, "sentence1 is no text but NoneType (None)"),
        ({"sentence1": "a", "sentence2": 3, "score": 1.0}, "sentence2 is no text but int (3)"),
        ({"sentence1": "a", "sentence2": " ", "score": 1.0}, "sentence2 is empty (white space only)"),
        ({"sentence1": "a", "sentence2": "b", "score": 5.0}, "score 5.0 is not between 0 and 1"),
        ({"sentence1": "a", "sentence2": "b", "score": None}, "score None is not a number"),
        (
            {"sentence1": "a", "sentence_2": "b", "score": 1.0},
            "missing column 'sentence2'; columns found: sentence1, se",
        ),
    ],
)
def test_bad_hub_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, row: dict[str, object], fault: str) -> None:
    give(monkeypatch, [{"sentence1": "a", "sentence2": "b", "score": 1.0}, row])
    with pytest.raises(DataError, match=r"hf://datasets/sentence-transformers/stsb@\w+/test:2: " + re.escape(fault)):
        read_corpus("stsb", "test", tmp_path)


def test_a_hub_that_fails_is_told_with_all_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    give(monkeypatch, ConnectionError("no route"))
    with pytest.raises(DataError, match=r"stsb\) gave nothing: ConnectionError: no route") as caught:
        read_corpus("stsb", "test", tmp_path)
    assert f"{tmp_path}/STS/STSBenchmark/sts-test.csv" in str(caught.value)


def test_the_hub_is_not_asked_where_a_file_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = give(monkeypatch, ConnectionError())
    put(tmp_path, "STS/STSBenchmark/sts-dev.csv", "\n".join(STSB_LINES).encode())
    assert len(read_corpus("stsb", "dev", tmp_path)) == 2
    assert asked == []


# Splits of parts, files side by side


def test_a_line_that_one_file_leaves_out_is_left_out_of_all(tmp_path: Path) -> None:
    for subset, count in (("FNWN", 3), ("headlines", 1), ("OnWN", 2)):
        put(
            tmp_path,
            f"STS/STS13-en-test/STS.input.{subset}.txt",
            "".join(f"{subset} {i}.\tTwo {i}.\n" for i in range(count)).encode(),
        )
    put(tmp_path, "STS/STS13-en-test/STS.gs.FNWN.txt", b"1\n\n2.5\n")
    put(tmp_path, "STS/STS13-en-test/STS.gs.headlines.txt", b"0\n")
    onwn = put(tmp_path, "STS/STS13-en-test/STS.gs.OnWN.txt", b" \n5\n")
    rows = read_corpus("sts13", "test", tmp_path)
    assert rows.names == ("sentence1", "sentence2", "score", "subset")
    assert [tuple(row.values()) for row in rows] == [
        ("FNWN 0.", "Two 0.", 1.0, "FNWN"),
        ("FNWN 2.", "Two 2.", 2.5, "FNWN"),
        ("headlines 0.", "Two 0.", 0.0, "headlines"),
        ("OnWN 1.", "Two 1.", 5.0, "OnWN"),
    ]
    assert rows.counts == {"read": 6, "dropped: no gold score": 2}
    folder = f"{tmp_path}/STS/STS13-en-test"
    assert [rows.where(i) for i in range(4)] == [
        f"{folder}/STS.input.{place}" for place in ("FNWN.txt:1", "FNWN.txt:3", "headlines.txt:1", "OnWN.txt:2")
    ]
    assert [file.name.rpartition("/")[2] for file in rows.files] == [
        f"STS.{kind}.{subset}.txt" for subset in ("FNWN", "headlines", "OnWN") for kind in ("input", "gs")
    ]
    onwn.write_bytes(b" \n5\n4\n")
    with pytest.raises(DataError, match=r"differ in length: .*input\.OnWN\.txt: 2 rows, .*gs\.OnWN\.txt: 3 rows"):
        read_corpus("sts13", "test", tmp_path)
    onwn.unlink()
    with pytest.raises(
        DataError, match=r"corpus 'sts13', split 'test' is not there\n  looked for: .*gs\.OnWN\.txt and"
    ):
        read_corpus("sts13", "test", tmp_path)


def test_the_rows_of_a_split_are_those_of_its_parts() -> None:
    assert CORPORA["sts12"].rows("train") == 750 + 750 + 734
    assert CORPORA["mr"].rows("all") == 2 * 5331
    assert CORPORA["snli_senteval"].rows("dev") == 9842
    assert CORPORA["sick"].rows("dev") == 495
    assert CORPORA["impscore"].rows("test") == 2815


# A user's own files


@pytest.mark.parametrize("name", ["mine.txt", "mine.txt.gz"])
def test_own_sentences(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    data = b"One.\n\nTwo.\n"
    path = put(tmp_path, f"my/{name}", gzip.compress(data) if name.endswith(".gz") else data)
    monkeypatch.chdir(tmp_path)
    for given in (f"my/{name}", str(path)):
        assert is_own(given)
        rows = read_own(given)
        assert rows.column("sentence") == ["One.", "Two."]
        assert rows.counts == {"read": 3, "dropped: blank line": 1}
        assert rows.where(1) == f"{path}:3"
        assert [(file.name, file.path, file.sha256) for file in rows.files] == [
            (given.removesuffix(".gz"), str(path), hashlib.sha256(data).hexdigest())
        ]


def test_own_llm_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    put(tmp_path, "rows.jsonl", b'{"anchor": "A.", "positive": "B.", "negative": "C."}\n')
    assert list(read_own("~/rows.jsonl")) == [{"anchor": "A.", "positive": "B.", "negative": "C."}]


def test_what_is_no_own_file() -> None:
    for name in ("snli/train", "mine.tsv", "mine.gz", "txt", "mine.txt.zip"):
        assert not is_own(name), name


def test_faults_of_own_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    told = f"{tmp_path}/my/no.txt: there is no such file; relative paths start at the working directory, {tmp_path}"
    with pytest.raises(DataError, match=f"^{re.escape(told)}$"):
        read_own("my/no.txt")
    put(tmp_path, "latin.txt", "Caf\u00e9.\n".encode("latin-1"))
    with pytest.raises(
        DataError, match=r"latin\.txt:1: not UTF-8 text: byte 0xe9 at position 3; save the file as UTF-8$"
    ):
        read_own("latin.txt")
    put(tmp_path, "rows.jsonl", b"One.\n")
    with pytest.raises(DataError, match=r"rows\.jsonl:1: not valid JSON: Expecting value at column 1$"):
        read_own("rows.jsonl")
    (tmp_path / "folder.txt").mkdir()
    with pytest.raises(DataError, match=r"folder\.txt: is a folder, a file is needed$"):
        read_own("folder.txt")


# The real corpora


@pytest.mark.parametrize(("name", "split"), [(name, split) for name, c in CORPORA.items() for split in c.splits])
def test_real_files_are_the_official_ones(real_data: Path, name: str, split: str) -> None:
    files = CORPORA[name].split_files(split)
    absent = [file.path for file in files if find_file(real_data, file) is None]
    if absent:
        pytest.skip(f"not in the folder: {', '.join(absent)}")
    rows = read_corpus(name, split, real_data)
    assert [file.name for file in rows.files] == [file.path for file in files]
    assert len(rows) == CORPORA[name].rows(split)
    for found, file in zip(rows.files, files, strict=True):
        assert file.sha256 in (None, found.sha256), file.path


def test_sizes_are_the_published_ones() -> None:
    sizes = {name: [file.rows for file in CORPORA[name].files] for name in ("inli", "stsb")}
    assert sizes == {"inli": [8000, 1000, 1000], "stsb": [5749, 1500, 1379]}


def test_real_stsb_dev_has_the_published_score_counts(real_data: Path) -> None:
    scores = read_corpus("stsb", "dev", real_data).column("score")
    assert sum(score >= 4 for score in scores) == 264
    assert sum(score > 4 for score in scores) == 208
    assert sum(score <= 1 for score in scores) == 389
    assert sum(score < 1 for score in scores) == 344


class TestReadOnce:
    """A split that was read before is not read again, as long as its files are as they were."""

    @pytest.fixture(autouse=True)
    def reads(self, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
        """Start with nothing kept, and note each file that is opened."""
        opened: list[Path] = []

        def noting(path: Path, real: Any = readers.read_bytes) -> bytes:
            opened.append(path)
            data: bytes = real(path)
            return data

        monkeypatch.setattr(readers, "read_bytes", noting)
        monkeypatch.setattr(readers, "_KEPT", readers._Kept(most=1_000_000))
        return opened

    def test_the_second_time_gives_the_same_without_opening_the_file(self, tmp_path: Path, reads: list[Path]) -> None:
        put(tmp_path, "INLI/train.csv", as_csv([ROW, ROW]))
        first, second = (read_corpus("inli", "train", tmp_path) for _ in range(2))
        assert len(reads) == 1
        assert list(first) == list(second)
        assert (first.files, first.counts, first.where(1)) == (second.files, second.counts, second.where(1))

    def test_whoever_gets_rows_cannot_change_those_of_others(self, tmp_path: Path) -> None:
        put(tmp_path, "INLI/train.csv", as_csv([ROW, ROW]))
        first = read_corpus("inli", "train", tmp_path)
        first.counts["read"] = 0
        first.column("premise").clear()
        first[0]["premise"] = "another"
        second = read_corpus("inli", "train", tmp_path)
        assert second.counts["read"] == 2
        assert second.column("premise") == [ROW[2], ROW[2]]

    def test_a_file_that_changed_is_read_again_though_size_and_time_are_the_same(
        self, tmp_path: Path, reads: list[Path]
    ) -> None:
        path = put(tmp_path, "INLI/train.csv", as_csv([ROW]))
        read_corpus("inli", "train", tmp_path)
        before = path.stat()
        path.write_bytes(path.read_bytes().replace(b"No tea.", b"My tea."))
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        assert read_corpus("inli", "train", tmp_path).column("implied_entailment") == ["My tea."]
        assert len(reads) == 2

    def test_a_file_that_comes_later_is_seen(self, tmp_path: Path) -> None:
        put(tmp_path, "INLI/train.csv.gz", gzip.compress(as_csv([ROW])))
        assert len(read_corpus("inli", "train", tmp_path)) == 1
        put(tmp_path, "INLI/train.csv", as_csv([ROW, ROW]))  # plain goes before .gz
        assert len(read_corpus("inli", "train", tmp_path)) == 2

    def test_a_bad_file_is_told_every_time(self, tmp_path: Path) -> None:
        for _ in range(2):
            assert inli_fault(tmp_path, b"")

    def test_only_so_much_is_kept_and_what_was_asked_for_last(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reads: list[Path]
    ) -> None:
        for folder in "abc":
            put(tmp_path, f"{folder}/INLI/train.csv", as_csv([ROW]))
        columns = len(read_corpus("inli", "train", tmp_path / "a").names)
        monkeypatch.setattr(readers, "_KEPT", readers._Kept(most=2 * columns))
        reads.clear()
        for folder in "abacab":  # c takes the place of b, since a was asked for in between
            read_corpus("inli", "train", tmp_path / folder)
        assert [path.parent.parent.name for path in reads] == ["a", "b", "c", "b"]
        assert sum(map(len, readers._KEPT.tables.values())) == 2

    def test_what_is_too_large_alone_is_not_kept(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reads: list[Path]
    ) -> None:
        monkeypatch.setattr(readers, "_KEPT", readers._Kept(most=1))
        put(tmp_path, "INLI/train.csv", as_csv([ROW]))
        for _ in range(2):
            read_corpus("inli", "train", tmp_path)
        assert len(reads) == 2
        assert not readers._KEPT.tables
