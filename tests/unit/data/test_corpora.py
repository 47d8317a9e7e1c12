"""Corpora: their declarations, where files are looked for, the hub, counts, and the splits that are kept in memory."""

import gzip
import hashlib
import logging
import os
import re
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lightning_cse.data import Rows, corpora
from lightning_cse.data.corpora import CORPORA, default_data_dir, read_corpus, sample_dir
from lightning_cse.errors import DataError

INLI = ",dataset,premise,implied_entailment,explicit_entailment,neutral,contradiction\n"
ROW = "0,circa,Tea? I had some.,No tea.,I had tea.,It was hot.,I want tea.\n"
PUBLISHED = {  # scored pairs a subset
    "sts12/train": {"MSRpar": 750, "MSRvid": 750, "SMTeuroparl": 734},
    "sts12/test": {"MSRpar": 750, "MSRvid": 750, "SMTeuroparl": 459, "OnWN": 750, "SMTnews": 399},
    "sts13/test": {"FNWN": 189, "headlines": 750, "OnWN": 561},
    "sts14/test": dict.fromkeys(["deft-forum", "deft-news", "headlines", "OnWN", "images", "tweet-news"], 750)
    | {"deft-forum": 450, "deft-news": 300},
    "sts15/test": {"answers-forums": 375, "answers-students": 750, "belief": 375, "headlines": 750, "images": 750},
    "sts16/test": dict(zip(["answer-answer", "headlines", "plagiarism", "postediting", "question-question"],
                           [254, 249, 230, 244, 209], strict=True)),
}  # fmt: skip
SIZES = {
    "inli": {"train": 8000, "val": 1000, "test": 1000, "dev": 1000},
    "snli": {"train": 550_152, "dev": 10_000, "test": 10_000},
    "snli_senteval": {"dev": 9842, "test": 9824},
    "mnli": {"train": 392_702, "dev_matched": 10_000, "dev_mismatched": 10_000},
    "mnli_glue": {"train": 392_702, "dev_matched": 9815, "dev_mismatched": 9832},
    "sick": {"train": 4439, "trial": 495, "test": 4906, "dev": 495},
    "sick_semeval": {"train": 4500, "trial": 500, "test": 4927},
    "stsb": {"train": 5749, "dev": 1500, "test": 1379},
    "mr": {"all": 10_662},
    "simcse_nli": {"train": 275_601},
    "wiki1m": {"train": 1_000_000},
    "wikitext2": {"valid": 7989, "test": 9313, "dev": 7989},
    "impscore": {"train": 50_661, "dev": 2_814, "test": 2_815},
}

Put = Callable[[str, str | bytes], Path]
Plain = Callable[[Rows], list[dict[str, Any]]]


def fault(name: str, split: str, folder: Path) -> str:
    with pytest.raises(DataError) as caught:
        read_corpus(name, split, folder)
    return str(caught.value)


# The declarations


def test_sizes_are_the_published_ones() -> None:
    assert {
        name: {split: CORPORA[name].rows(split) for split in sizes} for name, sizes in SIZES.items()
    } == SIZES
    for key, subsets in PUBLISHED.items():
        name, split = key.split("/")
        files = CORPORA[name].split_files(split)
        assert {file.part: file.rows for file in files} == subsets
        assert Counter(file.part for file in files) == dict.fromkeys(subsets, 2)
        assert CORPORA[name].rows(split) == sum(subsets.values())


def test_unknown_names_are_reported_with_the_nearest(tmp_path: Path) -> None:
    corpus, split = fault("inly", "train", tmp_path), fault("inli", "vla", tmp_path)
    assert (
        corpus == f"unknown corpus 'inly' - did you mean 'inli'?; choose from: {', '.join(CORPORA)}"
    )
    assert re.search(
        r"'inli' has no split 'vla' - did you mean 'val'\?.*train, val, test; 'dev'", split
    )
    assert re.search(
        r"'stsb' has no split 'val'.*train, dev, test$", fault("stsb", "val", tmp_path)
    )


# Files


def test_where_rows_come_from(put: Put, plain: Plain, tmp_path: Path) -> None:
    data = (INLI + ROW).encode()
    path = put("INLI/val.csv", data)
    rows = read_corpus("inli", "val", tmp_path)
    assert rows.names == ("dataset", "premise", *INLI.strip().split(",")[3:])
    assert rows.counts == {"read": 1}
    assert rows.where(0) == f"{path}:2"
    (file,) = rows.files
    assert (file.name, file.path, file.sha256) == (
        "INLI/val.csv",
        str(path),
        hashlib.sha256(data).hexdigest(),
    )
    assert read_corpus("inli", "dev", str(tmp_path)).files == rows.files, "dev means val"
    path.unlink()
    put("INLI/val.csv.gz", gzip.compress(data))
    packed = read_corpus("inli", "val", tmp_path)
    assert (plain(packed), packed.files[0].sha256) == (plain(rows), file.sha256)
    assert (packed.files[0].name, packed.where(0)) == ("INLI/val.csv", f"{path}.gz:2")
    put("INLI/val.csv", INLI + ROW * 2)
    assert len(read_corpus("inli", "val", tmp_path)) == 2, "plain goes before .gz"


def test_a_missing_file_is_reported_with_place_command_and_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    message = fault("inli", "dev", tmp_path)
    for part in (
        "corpus 'inli', split 'val' was not found",
        f"{tmp_path}/INLI/val.csv and val.csv.gz",
        f"python -m lightning_cse.prepare inli --data-dir {tmp_path}",
        "LIGHTNING_CSE_DATA",
        "no known copy",
    ):
        assert part in message
    message = fault("impscore", "dev", tmp_path)
    assert (
        "\n  the command that prepares corpora fetches nothing: put all_data.csv of the authors' repos"
        in message
    )
    assert "python -m" not in message
    monkeypatch.chdir(tmp_path)
    message = fault("stsb", "dev", Path("no where"))
    assert f"({tmp_path}/no where is not a folder)" in message
    assert f"--data-dir '{tmp_path}/no where'" in message
    assert (
        "sentence-transformers/stsb) was not queried: offline mode is on (HF_HUB_OFFLINE=1)"
        in message
    )


@pytest.mark.parametrize(("value", "folder"), [("/somewhere", "/somewhere"), ("", "data")])
def test_the_default_folder_is_the_variable_or_data(
    monkeypatch: pytest.MonkeyPatch, value: str, folder: str
) -> None:
    monkeypatch.setenv("LIGHTNING_CSE_DATA", value)
    assert default_data_dir() == Path(folder)


LATIN = (INLI + ROW + ROW.replace("hot", "caf\u00e9")).encode("latin-1")
WHOLE = gzip.compress((INLI + ROW * 50).encode(), compresslevel=0)


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("", b"", ": the file is empty (0 bytes)"),
        (".gz", b"", ": the file is empty (0 bytes)"),
        (
            "",
            LATIN,
            f":3: not UTF-8 text: byte 0xe9 at position {LATIN.index(0xE9)}; save the file as UTF-8",
        ),
        (
            "",
            b"\xef\xbb\xbf" + LATIN,
            f":3: not UTF-8 text: byte 0xe9 at position {LATIN.index(0xE9) + 3}; save",
        ),
        ("", (INLI + ROW).encode("utf-16-le"), ":1: a zero byte"),
        (".gz", b"no gzip", ": the compressed data is cut off or broken (Not a gzipped file"),
        (".gz", WHOLE[:-6] + b"\1" + WHOLE[-5:], ": the compressed data is cut off or broken (CRC"),
        (
            ".gz",
            WHOLE[: len(WHOLE) // 2],
            ": the compressed data is cut off or broken (Compressed file ended before",
        ),
    ],
)
def test_faults_of_bytes(put: Put, tmp_path: Path, name: str, data: bytes, message: str) -> None:
    path = put(f"INLI/train.csv{name}", data)
    assert fault("inli", "train", tmp_path).startswith(f"{path}{message}")


def test_latin_1_is_read_with_a_warning_where_it_is_known_to_circulate(
    put: Put, plain: Plain, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    text = "HUM:ind Who ?\nLOC:city Where is the caf\u00e9 ?\n"
    path = put("transfer/TREC/train_5500.label", text.encode("latin-1"))
    with caplog.at_level(logging.WARNING):
        latin = plain(read_corpus("trec", "train", tmp_path))
        put("transfer/TREC/train_5500.label", text)
        assert plain(read_corpus("trec", "train", tmp_path)) == latin
    place = f"byte 0xe9 at position {text.index(chr(0xE9))}"
    assert caplog.messages == [f"{path}:2: not UTF-8 text: {place}; the file is read as latin-1"]


# Counts


@pytest.fixture
def counting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpora, "SAMPLE", "SAMPLE")


def test_an_official_file_that_is_cut_off_at_the_end_of_a_row_is_an_error(
    put: Put, tmp_path: Path, counting: None
) -> None:
    path = put("INLI/val.csv", INLI + ROW * 999)
    message = fault("inli", "val", tmp_path)
    assert message.startswith(
        f"{path}: 999 rows of split 'val', but the official file has 1,000: is it cut off?\n"
    )
    assert f"python -m lightning_cse.prepare inli --force --data-dir {tmp_path}\n" in message
    assert (
        f"name it as a file of your own, or put an empty file named SAMPLE into {tmp_path}"
        in message
    )
    put("INLI/val.csv", INLI + ROW * 1000)
    assert len(read_corpus("inli", "val", tmp_path)) == 1000
    put("INLI/val.csv", INLI + ROW * 3)
    (tmp_path / "SAMPLE").touch()
    assert len(read_corpus("inli", "val", tmp_path)) == 3
    assert len(read_corpus("inli", "val", sample_dir())) == 120


def test_each_part_and_each_split_of_a_file_is_counted_and_rows_that_users_make_are_not(
    put: Put, tmp_path: Path, counting: None
) -> None:
    put("transfer/CR/custrev.pos", "good .\n" * 2405)
    put("transfer/CR/custrev.neg", "bad .\n" * 1365)
    assert "CR/custrev.neg: 1,365 rows of split 'all', but the official file has 1,366" in fault(
        "cr", "all", tmp_path
    )
    put(
        "ImpScore/all_data.csv",
        "pos_implicit,pos_explicit,neg_implicit,neg_explicit\n" + "a,b,a,c\n" * 100,
    )
    message = fault("impscore", "train", tmp_path)
    assert "all_data.csv: 90 rows of split 'train', but the official file has 50,661" in message
    put("ngcse/wiki_nli.jsonl", '{"anchor": "A.", "positive": "P.", "negative": "N."}\n')
    assert len(read_corpus("ngcse", "wiki_nli", tmp_path)) == 1


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


def test_stsb_from_the_hub(put: Put, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planes = {"sentence1": " A plane.", "sentence2": "Planes.", "score": 0.76}
    asked = give(monkeypatch, [planes, {"sentence1": "A\tcat.", "sentence2": "None", "score": 1.0}])
    rows = read_corpus("stsb", "dev", tmp_path)
    assert asked == [
        ("sentence-transformers/stsb", "validation", "ab7a5ac0e35aa22088bdcf23e7fd99b220e53308")
    ]
    assert rows.column("score") == [3.8, 5.0]
    assert rows.column("sentence1") == ["A plane.", "A\tcat."]
    assert rows.where(1) == "hf://datasets/sentence-transformers/stsb@ab7a5ac0e35a/validation:2"
    assert (rows.files[0].name, len(rows.files[0].sha256)) == ("STS/STSBenchmark/sts-dev.csv", 64)
    put(
        "STS/STSBenchmark/sts-dev.csv",
        "main-captions\tMSRvid\t2012test\t0000\t5.000\tA plane.\tAn air plane.\n",
    )
    asked.clear()
    assert len(read_corpus("stsb", "dev", tmp_path)) == 1
    assert asked == [], "not asked where a file is there"


def test_snli_from_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    give(
        monkeypatch,
        [{"premise": "Gr\u00fcn.\nNeu.", "hypothesis": str(n), "label": n} for n in (0, 1, 2, -1)],
    )
    rows = read_corpus("snli", "dev", tmp_path)
    assert rows.column("label") == ["entailment", "neutral", "contradiction", "-"]
    assert rows.column("hypothesis") == ["0", "1", "2", "-1"]
    assert set(rows.column("premise")) == {"Gr\u00fcn.\nNeu."}


def test_bad_hub_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    row = {"premise": "a", "hypothesis": "b", "label": 0}
    give(monkeypatch, [row, row | {"label": 3}])
    with pytest.raises(
        DataError, match=r"^hf://datasets/\S+/snli@\w+/test:2: label 3 is not one of 0, 1, 2, -1"
    ):
        read_corpus("snli", "test", tmp_path)


def test_a_hub_that_fails_is_reported_with_all_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    give(monkeypatch, ConnectionError("no route"))
    message = fault("stsb", "test", tmp_path)
    assert "stsb) could not load it: ConnectionError: no route" in message
    assert f"{tmp_path}/STS/STSBenchmark/sts-test.csv" in message


# Splits of parts, files side by side


def test_a_line_that_one_file_leaves_out_is_left_out_of_all(
    put: Put, plain: Plain, tmp_path: Path
) -> None:
    for subset, count in (("FNWN", 3), ("headlines", 1), ("OnWN", 2)):
        pairs = "".join(f"{subset} {i}.\tTwo {i}.\n" for i in range(count))
        put(f"STS/STS13-en-test/STS.input.{subset}.txt", pairs)
    put("STS/STS13-en-test/STS.gs.FNWN.txt", "1\n\n2.5\n")
    put("STS/STS13-en-test/STS.gs.headlines.txt", "0\n")
    onwn = put("STS/STS13-en-test/STS.gs.OnWN.txt", " \n5\n")
    rows = read_corpus("sts13", "test", tmp_path)
    assert rows.names == ("sentence1", "sentence2", "score", "subset")
    assert [tuple(row.values()) for row in plain(rows)] == [
        ("FNWN 0.", "Two 0.", 1.0, "FNWN"),
        ("FNWN 2.", "Two 2.", 2.5, "FNWN"),
        ("headlines 0.", "Two 0.", 0.0, "headlines"),
        ("OnWN 1.", "Two 1.", 5.0, "OnWN"),
    ]
    assert rows.counts == {"read": 6, "dropped: no gold score": 2}
    places = [
        rows.where(i).removeprefix(f"{tmp_path}/STS/STS13-en-test/STS.input.") for i in range(4)
    ]
    assert places == ["FNWN.txt:1", "FNWN.txt:3", "headlines.txt:1", "OnWN.txt:2"]
    kinds = [
        f"STS.{kind}.{subset}.txt"
        for subset in ("FNWN", "headlines", "OnWN")
        for kind in ("input", "gs")
    ]
    assert [file.name.rpartition("/")[2] for file in rows.files] == kinds
    onwn.write_bytes(b" \n5\n4\n")
    message = fault("sts13", "test", tmp_path)
    assert re.search(
        r"differ in length: .*input\.OnWN\.txt: 2 rows, .*gs\.OnWN\.txt: 3 rows", message
    )
    onwn.unlink()
    message = fault("sts13", "test", tmp_path)
    assert re.search(
        r"corpus 'sts13', split 'test' was not found\n  looked for: .*gs\.OnWN\.txt and", message
    )


def test_one_file_of_all_splits(put: Put, tmp_path: Path) -> None:
    header = "sentence_A\tsentence_B\tentailment_label\trelatedness_score\tentailment_AB\tentailment_BA\tSemEval_set\n"
    row = "A\tB {}\tNEUTRAL\t3\tA_neutral_B\tB_neutral_A\t{}\n"
    sets = ["TEST", "TRAIN", "TEST"]
    path = put(
        "SICK/SICK.txt", header + "".join(row.format(n, name) for n, name in enumerate(sets))
    )
    rows = read_corpus("sick", "test", tmp_path)
    assert rows.column("hypothesis") == ["B 0", "B 2"]
    assert [rows.where(i) for i in range(2)] == [f"{path}:2", f"{path}:4"]
    assert rows.counts == {"read": 2}
    assert (
        fault("sick", "dev", tmp_path)
        == f"{path}: no row of the split 'trial': none has semeval_set = TRIAL"
    )


# A split that was read before is not read again, as long as its files are as they were


def test_the_second_time_gives_the_same_without_opening_the_file(
    put: Put, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[Path] = []

    def noting(path: Path, real: Callable[[Path], bytes] = corpora.read_bytes) -> bytes:
        opened.append(path)
        return real(path)

    monkeypatch.setattr(corpora, "read_bytes", noting)
    path = put("INLI/train.csv", INLI + ROW * 2)
    first, second = (read_corpus("inli", "train", tmp_path) for _ in range(2))
    assert len(opened) == 1
    assert list(first) == list(second)
    assert (first.files, first.counts, first.where(1)) == (
        second.files,
        second.counts,
        second.where(1),
    )
    first.counts["read"] = 0
    assert read_corpus("inli", "train", tmp_path).counts["read"] == 2
    # Another content of the same size, with the same time of change.
    before = path.stat()
    path.write_bytes(path.read_bytes().replace(b"No tea.", b"My tea."))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert read_corpus("inli", "train", tmp_path).column("implied_entailment") == ["My tea."] * 2
    put("INLI/train.csv", "bad")
    assert "missing columns" in fault("inli", "train", tmp_path)
