"""Corpora: their declarations, where files are looked for, counts, and corpora of one's own."""

import gzip
import hashlib
import json
from collections import Counter
from pathlib import Path

import pytest

from lightning_cse import prepare
from lightning_cse.data import corpora
from lightning_cse.data.corpora import read_corpus, read_sources
from lightning_cse.data.declarations import CORPORA, register_corpora, sample_dir
from lightning_cse.data.rows import files_of, names_of, where
from lightning_cse.errors import ConfigError, DataError

INLI = ",dataset,premise,implied_entailment,explicit_entailment,neutral,contradiction\n"
ROW = "0,circa,Tea? I had some.,No tea.,I had tea.,It was hot.,I want tea.\n"


def test_a_split_is_read_from_a_plain_or_gzipped_file(put, plain, tmp_path):
    data = (INLI + ROW).encode()
    path = put("INLI/val.csv", data)
    counts = Counter()
    rows = read_corpus("inli", "val", tmp_path, account=counts)
    assert names_of(rows) == ["dataset", "premise", *INLI.strip().split(",")[3:]]
    assert counts == {"read": 1}
    assert where(rows, 0) == f"{path}:2"
    (file,) = files_of(rows)
    assert (file.name, file.path) == ("INLI/val.csv", str(path))
    assert file.sha256 == hashlib.sha256(data).hexdigest()
    assert files_of(read_corpus("inli", "dev", str(tmp_path))) == [file], "an alias of val"

    put("INLI/train.csv.gz", gzip.compress(data))
    packed = read_corpus("inli", "train", tmp_path)
    assert plain(packed) == plain(rows)
    assert [(f.name, f.sha256) for f in files_of(packed)] == [("INLI/train.csv", file.sha256)]
    put("INLI/train.csv", INLI + ROW * 2)
    assert len(read_corpus("inli", "train", tmp_path)) == 2, "the plain file goes before .gz"


WHOLE = gzip.compress((INLI + ROW * 50).encode(), compresslevel=0)


@pytest.mark.parametrize(
    ("name", "split", "data", "words"),
    [
        ("inly", "train", b"", "unknown corpus 'inly' - did you mean 'inli'"),
        ("inli", "vla", b"", "no split 'vla'; choose from: train, val, test, dev"),
        ("inli", "val", b"", "looked for: {0}/INLI/val.csv, also with .gz"),
        ("inli", "val", b"", "python -m lightning_cse.prepare inli --data-dir '{0}'"),
        ("inli", "train", b"", "{0}/INLI/train.csv: the file is empty"),
        ("inli", "train", f"{INLI}caf\u00e9".encode("latin-1"), "train.csv:2: not UTF-8 text"),
        ("inli", "test", b"no gzip", "test.csv.gz: the compressed data is cut off or broken"),
        ("inli", "test", WHOLE[:-6] + b"\1" + WHOLE[-5:], "cut off or broken (CRC"),
    ],
)
def test_faults_of_files(put, tmp_path, name, split, data, words):
    put("INLI/train.csv", data)
    put("INLI/test.csv.gz", data)
    with pytest.raises(DataError) as caught:
        read_corpus(name, split, tmp_path)

    assert words.format(tmp_path) in str(caught.value)


def test_latin_1_is_read_with_a_warning_where_it_is_declared(put, tmp_path, caplog):
    text = "HUM:ind Who ?\nLOC:city Where is the caf\u00e9 ?\n"
    path = put("transfer/TREC/train_5500.label", text.encode("latin-1"))
    rows = read_corpus("trec", "train", tmp_path)
    assert rows["sentence"][:] == ["Who ?", "Where is the caf\u00e9 ?"]
    assert caplog.messages == [f"{path} is not UTF-8, and is read as latin-1"]


def test_an_official_file_must_have_its_number_of_rows(put, tmp_path, monkeypatch):
    monkeypatch.setattr(corpora, "SAMPLE", "SAMPLE")
    put("INLI/val.csv", INLI + ROW * 3)
    with pytest.raises(DataError, match=r"3 rows of split 'val', .* has 1,000(.|\n)* --force"):
        read_corpus("inli", "val", tmp_path)

    put("SAMPLE", "")
    assert len(read_corpus("inli", "val", tmp_path)) == 3


def test_a_line_that_one_file_leaves_out_is_left_out_of_all(put, plain, tmp_path):
    scores = {"FNWN": "1\n\n2.5\n", "headlines": "0\n", "OnWN": " \n5\n"}
    for subset, text in scores.items():
        pairs = [f"{subset} {line}.\tTwo {line}.\n" for line in range(text.count("\n"))]
        put(f"STS/STS13-en-test/STS.input.{subset}.txt", "".join(pairs))
        put(f"STS/STS13-en-test/STS.gs.{subset}.txt", text)

    counts = Counter()
    rows = read_corpus("sts13", "test", tmp_path, account=counts)
    assert names_of(rows) == ["sentence1", "sentence2", "score", "subset"]
    assert [tuple(row.values()) for row in plain(rows)][:3] == [
        ("FNWN 0.", "Two 0.", 1.0, "FNWN"),
        ("FNWN 2.", "Two 2.", 2.5, "FNWN"),
        ("headlines 0.", "Two 0.", 0.0, "headlines"),
    ]
    assert counts == {"read": 6, "dropped: no gold score": 2}
    assert rows["line"][:] == [1, 3, 1, 2]

    put("STS/STS13-en-test/STS.gs.OnWN.txt", " \n5\n4\n")
    with pytest.raises(DataError, match=r"differ in length: .*OnWN\.txt': 2, .*OnWN\.txt': 3"):
        read_corpus("sts13", "test", tmp_path)


# Rows that are kept without their anchors

KEPT = """
texts:
  layout: {{reader: lines, columns: [sentence]}}
  files: [{{split: train, path: texts.txt}}]
kept:
  layout: {{reader: json, columns: [anchor, positive]}}
  files: [{{split: train, path: {}, anchors: [texts/train]}}]
"""
SENTENCES = ["The café is open.", "Rain fell."]


def test_anchors_are_the_sentences_that_have_their_digests(put, tmp_path, config_dir):
    digests = [hashlib.sha256(text.encode()).hexdigest()[:16] for text in SENTENCES]
    rows = [{"anchor": key, "positive": text} for key, text in zip(digests, "ab", strict=True)]
    path = put("kept.jsonl", "\n".join(map(json.dumps, rows)))
    (config_dir / "corpora.yaml").write_text(KEPT.format(path))
    register_corpora(config_dir)
    put("texts.txt", f"Another.\n{SENTENCES[1]}\n")
    counts = Counter()
    partial = read_corpus("kept", "train", tmp_path, account=counts)

    assert (partial["anchor"][:], partial["positive"][:]) == ([SENTENCES[1]], ["b"])
    assert counts == {"read": 2, "dropped: anchor not in the corpora": 1}
    assert [Path(file.path).name for file in files_of(partial)] == ["kept.jsonl", "texts.txt"]

    put("texts.txt", "\n".join(SENTENCES))
    assert read_corpus("kept", "train", tmp_path)["anchor"][:] == SENTENCES


def test_kept_rows_have_their_anchors(real_data):
    account = Counter()
    rows = read_corpus("ngcse_kept", "wiki_sts", real_data, account=account)
    assert account == {"read": len(rows)} == {"read": 600}
    assert len(rows["anchor"][0].split()) > 3


# Corpora of one's own

OWN = """
mine:
  layout: {reader: csv, columns: {sentence1: question, sentence2: answer}}
  files:
    - {split: train, path: my/pairs.csv}
"""


@pytest.fixture
def config_dir(tmp_path, monkeypatch):
    """A folder of configs; what it registers is forgotten after the test."""
    for name in ("mine", "kept", "texts"):
        monkeypatch.setitem(CORPORA, name, CORPORA["inli"])
        monkeypatch.delitem(CORPORA, name)

    (tmp_path / "configs").mkdir()

    return tmp_path / "configs"


def test_corpora_of_ones_own(put, tmp_path, config_dir, capsys):
    register_corpora(config_dir)  # without a corpora.yaml
    path = put("my/pairs.csv", "question,answer\nQ?,A.\n")
    (config_dir / "corpora.yaml").write_text(OWN)
    options = ["--config-dir", str(config_dir), "--data-dir", str(tmp_path)]
    assert prepare.main(["mine", "--check", *options]) == 0
    assert f"{path}: ok, any rows of train" in capsys.readouterr().out
    assert read_corpus("mine", "train", tmp_path)["sentence2"][:] == ["A."]

    changed = OWN.replace("answer}", "question}").replace("my/pairs.csv", str(path))
    (config_dir / "corpora.yaml").write_text(changed)
    register_corpora(config_dir)
    assert read_corpus("mine", "train", tmp_path)["sentence2"][:] == ["Q?"]


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("mine", "inli", "inli: corpora of lightning_cse"),
        ("layout", "leyout", "leyout Extra inputs are not permitted"),
        ("csv", "cvs", "no reader 'cvs'"),
        ("question", "{lable: x}", "sentence1: no kind 'lable'"),
        ("}}", "", "while parsing"),
    ],
)
def test_faulty_declarations(config_dir, old, new, words):
    path = config_dir / "corpora.yaml"
    path.write_text(OWN.replace(old, new, 1))
    with pytest.raises(ConfigError) as caught:
        register_corpora(config_dir)

    assert str(caught.value).startswith(f"{path}: ")
    assert words in str(caught.value)
    assert "mine" not in CORPORA


def test_missing_file_is_read_from_the_hub(put, tmp_path, monkeypatch):
    declared = CORPORA["stsb"]
    copy = put("hub/validation.csv", "sentence1,sentence2,score\nA dog runs.,A dog ran.,0.64\n")
    hub = declared.hub.model_copy(update={"id": str(copy.parent), "revision": None})
    monkeypatch.setitem(
        CORPORA,
        "here",
        declared.model_copy(update={"name": "here", "hub": hub, "files": declared.files[1:]}),
    )
    rows = read_corpus("here", "dev", tmp_path)
    assert rows["score"][:] == [3.2], "from [0, 1] to the official range"
    assert where(rows, 0).startswith("hf://datasets/")

    with pytest.raises(DataError, match=r"(?s)looked for: .*the Hugging Face hub \(.*fetch"):
        read_corpus("here", "test", tmp_path)


# Sources


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (["inli"], "'inli' is not of the form corpus/split"),
        (["my/rows.xlsx"], "'my/rows.xlsx' is not of the form corpus/split"),
        ([], "give a file of your own, or corpus/split"),
        (["my/no.jsonl"], "my/no.jsonl: there is no such file"),
        (["inly/train"], "unknown corpus 'inly' - did you mean 'inli'"),
    ],
)
def test_errors_name_the_key(names, words):
    with pytest.raises((ConfigError, DataError), match=r"^data\.train: ") as caught:
        read_sources(names, sample_dir(), key="data.train")

    assert words in str(caught.value)
