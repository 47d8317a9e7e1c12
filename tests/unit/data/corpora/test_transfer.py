"""The transfer tasks: layouts, every fault with its line, the sample, and the counts of the real files."""

from __future__ import annotations

import logging
from collections import Counter
from pathlib import Path

import pytest

from lightning_cse.data.corpora import CORPORA
from lightning_cse.data.readers import read_corpus, sample_dir
from lightning_cse.errors import DataError

LABELS = {
    "mr": {"positive", "negative"},
    "cr": {"positive", "negative"},
    "subj": {"subjective", "objective"},
    "mpqa": {"positive", "negative"},
    "sst2": {"positive", "negative"},
    "trec": {"ABBR", "DESC", "ENTY", "HUM", "LOC", "NUM"},
    "mrpc": {"paraphrase", "other"},
}
# Rows by label, and the blank lines that SentEval counts as rows.
REAL = {
    "mr/all": ({"positive": 5331, "negative": 5331}, 0),
    "cr/all": ({"positive": 2405, "negative": 1366}, 4),
    "subj/all": ({"subjective": 5000, "objective": 5000}, 0),
    "mpqa/all": ({"positive": 3311, "negative": 7292}, 3),
    "trec/train": ({"ABBR": 86, "DESC": 1162, "ENTY": 1250, "HUM": 1223, "LOC": 835, "NUM": 896}, 0),
    "trec/test": ({"ABBR": 9, "DESC": 138, "ENTY": 94, "HUM": 65, "LOC": 81, "NUM": 113}, 0),
    "mrpc/train": ({"paraphrase": 2753, "other": 1323}, 0),
    "mrpc/test": ({"paraphrase": 1147, "other": 578}, 0),
    "sst2/dev": ({"positive": 444, "negative": 428}, 0),
    "sst2/test": ({"positive": 909, "negative": 912}, 0),
}
SENTEVAL = {"mr/all": 10662, "cr/all": 3775, "subj/all": 10000, "mpqa/all": 10606}
SPLITS = [(name, split) for name in LABELS for split in CORPORA[name].splits]
HEADER = "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n"


def put(folder: Path, name: str, data: str | bytes) -> Path:
    path = folder / "transfer" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path


def fault(folder: Path, name: str, split: str) -> str:
    with pytest.raises(DataError) as caught:
        read_corpus(name, split, folder)
    return str(caught.value).rpartition("/")[2]


def test_a_file_a_class(tmp_path: Path) -> None:
    put(tmp_path, "CR/custrev.pos", 'good . \n \ngreat , "yes . \n\n')
    path = put(tmp_path, "CR/custrev.neg", "\nbad . \n")
    rows = read_corpus("cr", "all", tmp_path)
    assert list(rows) == [
        {"sentence": "good .", "label": "positive"},
        {"sentence": 'great , "yes .', "label": "positive"},
        {"sentence": "bad .", "label": "negative"},
    ]
    assert rows.counts == {"read": 6, "dropped: blank line": 3}
    assert rows.where(2) == f"{path}:2"
    put(tmp_path, "CR/custrev.neg", "\n\n")
    assert fault(tmp_path, "cr", "all") == "custrev.neg: no sentence, only 2 blank lines"


def test_sst2(tmp_path: Path) -> None:
    put(tmp_path, "SST/binary/sentiment-dev", "a fine film \t1\r\n`` dull '' \t0\n")
    assert list(read_corpus("sst2", "dev", tmp_path)) == [
        {"sentence": "a fine film", "label": "positive"},
        {"sentence": "`` dull ''", "label": "negative"},
    ]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("no label", ":2: 1 cell between tabs, 2 are needed"),
        ("a\tb\t1", ":2: 3 cells between tabs, 2 are needed"),
        ("good\t2", ":2: label '2' is not one of 0, 1"),
        (" \t1", ":2: sentence is empty (white space only)"),
        ("", ":2: 1 cell between tabs, 2 are needed"),
    ],
)
def test_faults_of_sst2(tmp_path: Path, line: str, told: str) -> None:
    put(tmp_path, "SST/binary/sentiment-test", f"fine\t1\n{line}\nbad\t0\n")
    assert fault(tmp_path, "sst2", "test") == f"sentiment-test{told}"


def test_trec(tmp_path: Path) -> None:
    put(tmp_path, "TREC/TREC_10.label", "NUM:date When was it : May ?\nHUM:ind Who ?\n")
    assert list(read_corpus("trec", "test", tmp_path)) == [
        {"sentence": "When was it : May ?", "label": "NUM"},
        {"sentence": "Who ?", "label": "HUM"},
    ]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("NUM When ?", ":2: 'NUM' is not of the form COARSE:fine, such as NUM:date"),
        ("NUM: When ?", ":2: 'NUM:' is not of the form COARSE:fine, such as NUM:date"),
        ("NUN:date When ?", ":2: label 'NUN' is not one of ABBR, DESC, ENTY, HUM, LOC, NUM - did you mean 'NUM'?"),
        ("NUM:date", ":2: sentence is empty"),
    ],
)
def test_faults_of_trec(tmp_path: Path, line: str, told: str) -> None:
    put(tmp_path, "TREC/TREC_10.label", f"HUM:ind Who ?\n{line}\n")
    assert fault(tmp_path, "trec", "test") == f"TREC_10.label{told}"


def test_latin_1_is_read_and_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    text = "HUM:ind Who ?\nLOC:city Where is the caf\u00e9 ?\n"
    path = put(tmp_path, "TREC/train_5500.label", text.encode("latin-1"))
    with caplog.at_level(logging.WARNING):
        latin = read_corpus("trec", "train", tmp_path)
    position = text.index("\u00e9")
    assert caplog.messages == [
        f"{path}:2: not UTF-8 text: byte 0xe9 at position {position}; the file is read as latin-1"
    ]
    caplog.clear()
    put(tmp_path, "TREC/train_5500.label", text)
    assert list(read_corpus("trec", "train", tmp_path)) == list(latin)
    assert caplog.messages == []
    put(tmp_path, "MRPC/msr_paraphrase_test.txt", (HEADER + "1\t2\t3\tCaf\u00e9.\tB.\n").encode("latin-1"))
    assert fault(tmp_path, "mrpc", "test").endswith("; save the file as UTF-8")


def test_mrpc(tmp_path: Path) -> None:
    path = put(
        tmp_path, "MRPC/msr_paraphrase_test.txt", f'\ufeff{HEADER}1\t7\t8\tHe said " no .\tNo .\n0\t1\t2\tA\tNone\n'
    )
    rows = read_corpus("mrpc", "test", tmp_path)
    assert list(rows) == [
        {"sentence1": 'He said " no .', "sentence2": "No .", "label": "paraphrase"},
        {"sentence1": "A", "sentence2": "None", "label": "other"},
    ]
    assert rows.where(1) == f"{path}:3"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (f"{HEADER}2\t7\t8\tA\tB\n", ":2: label '2' is not one of 0, 1"),
        (f"{HEADER}1\t7\t8\tA\n", ":2: 4 cells between tabs, the header has 5 columns"),
        (f"{HEADER}1\t7\t8\tA\t\n", ":2: #2 String is empty"),
        (HEADER.replace("Quality", "quality"), ":1: missing column 'Quality'; found 'quality' - did you mean"),
    ],
)
def test_faults_of_mrpc(tmp_path: Path, text: str, told: str) -> None:
    put(tmp_path, "MRPC/msr_paraphrase_train.txt", text)
    assert fault(tmp_path, "mrpc", "train").startswith(f"msr_paraphrase_train.txt{told}")


@pytest.mark.parametrize(("name", "split"), SPLITS)
def test_the_sample_has_every_class(name: str, split: str) -> None:
    rows = read_corpus(name, split, sample_dir())
    counts = Counter(rows.column("label"))
    assert set(counts) == LABELS[name]
    assert min(counts.values()) >= (1 if name == "trec" else len(rows) // 4)
    assert rows.counts.get("dropped: blank line", 0) == {"cr": 4, "mpqa": 3}.get(name, 0)


def test_no_sentence_of_the_sample_is_in_two_splits() -> None:
    for name in ("sst2", "trec"):
        splits = [set(read_corpus(name, split, sample_dir()).column("sentence")) for split in CORPORA[name].splits]
        assert len(set.union(*splits)) == sum(map(len, splits))


@pytest.mark.parametrize("key", REAL)
def test_real_files_have_the_known_classes(real_data: Path, key: str) -> None:
    name, split = key.split("/")
    rows = read_corpus(name, split, real_data)
    counts, blank = REAL[key]
    assert Counter(rows.column("label")) == counts
    assert rows.counts.get("dropped: blank line", 0) == blank
    assert rows.counts["read"] == len(rows) + blank == SENTEVAL.get(key, len(rows))


def test_real_trec_reads_the_same_in_both_encodings(real_data: Path, tmp_path: Path) -> None:
    utf8 = (real_data / "transfer/TREC/train_5500.label").read_text(encoding="utf-8")
    put(tmp_path, "TREC/train_5500.label", utf8.encode("latin-1"))
    assert list(read_corpus("trec", "train", tmp_path)) == list(read_corpus("trec", "train", real_data))
