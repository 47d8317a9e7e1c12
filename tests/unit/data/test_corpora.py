"""Corpora: their declarations, where files are looked for, the hub, counts, and corpora of one's
own.
"""

import gzip
import hashlib
import logging
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lightning_cse import prepare
from lightning_cse.data import Rows, corpora
from lightning_cse.data.corpora import (
    CORPORA,
    read_corpus,
    register_corpora,
    sample_dir,
)
from lightning_cse.errors import ConfigError, DataError

INLI = ",dataset,premise,implied_entailment,explicit_entailment,neutral,contradiction\n"
ROW = "0,circa,Tea? I had some.,No tea.,I had tea.,It was hot.,I want tea.\n"
Put = Callable[[str, str | bytes], Path]
Plain = Callable[[Rows], list[dict[str, Any]]]


def fault(name, split, folder):
    with pytest.raises(DataError) as caught:
        read_corpus(
            name,
            split,
            folder,
        )
    return str(caught.value)


# The declarations


@pytest.mark.parametrize(
    ("name", "split", "message"),
    [
        ("inly", "train", "unknown corpus 'inly' - did you mean 'inli'"),
        (
            "inli",
            "vla",
            r"'inli' has no split 'vla' - did you mean 'val'\?.*: train, val, test, dev",
        ),
    ],
)
def test_unknown_names(tmp_path, name, split, message):
    assert re.search(
        message,
        fault(
            name,
            split,
            tmp_path,
        ),
    )


# Files


def test_a_split_is_read_from_a_plain_or_gzipped_file(put, plain, tmp_path):
    data = (INLI + ROW).encode()
    path = put("INLI/val.csv", data)
    rows = read_corpus(
        "inli",
        "val",
        tmp_path,
    )
    assert rows.names == ("dataset", "premise", *INLI.strip().split(",")[3:])
    assert rows.counts == {"read": 1}
    assert rows.where(0) == f"{path}:2"
    (file,) = rows.files
    assert (file.name, file.path) == ("INLI/val.csv", str(path))
    assert file.sha256 == hashlib.sha256(data).hexdigest()
    assert (
        read_corpus(
            "inli",
            "dev",
            str(tmp_path),
        ).files
        == rows.files
    ), "dev is an alias of val"

    path.unlink()
    put("INLI/val.csv.gz", gzip.compress(data))
    packed = read_corpus(
        "inli",
        "val",
        tmp_path,
    )
    assert plain(packed) == plain(rows)
    assert (packed.files[0].name, packed.files[0].sha256) == (file.name, file.sha256)
    put("INLI/val.csv", INLI + ROW * 2)
    assert (
        len(
            read_corpus(
                "inli",
                "val",
                tmp_path,
            )
        )
        == 2
    ), "the plain file goes before .gz"


@pytest.mark.parametrize(
    ("name", "split", "parts"),
    [
        ("inli", "dev", ["corpus 'inli', split 'val' was not found", "{}/INLI/val.csv and val.csv.gz", "python -m lightning_cse.prepare inli --data-dir '{}'", "LIGHTNING_CSE_DATA"]),
        ("impscore", "dev", ["the command that prepares corpora fetches nothing: put all_data.csv of"]),
        ("stsb", "dev", ["stsb) could not load it: ", "OfflineMode"]),
    ],
)  # fmt: skip
def test_a_missing_file_is_reported(tmp_path, name, split, parts):
    folder = tmp_path / "no folder"
    message = fault(
        name,
        split,
        folder,
    )
    for part in parts:
        assert part.format(folder) in message


LATIN = (INLI + ROW + ROW.replace("hot", "caf\u00e9")).encode("latin-1")
WHOLE = gzip.compress((INLI + ROW * 50).encode(), compresslevel=0)


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("", b"", ": the file is empty (0 bytes)"),
        ("", LATIN, ":3: not UTF-8 text: byte 0xe9; save the file as UTF-8"),
        (".gz", b"no gzip", ": the compressed data is cut off or broken (Not a gzipped file"),
        (".gz", WHOLE[:-6] + b"\1" + WHOLE[-5:], ": the compressed data is cut off or broken (CRC"),
        (".gz", WHOLE[: len(WHOLE) // 2], ": the compressed data is cut off or broken (Comp"),
    ],
)
def test_unreadable_files(put, tmp_path, name, data, message):
    path = put(f"INLI/train.csv{name}", data)
    assert fault(
        "inli",
        "train",
        tmp_path,
    ).startswith(f"{path}{message}")


def test_latin_1_is_read_with_a_warning_where_it_is_declared(put, plain, tmp_path, caplog):
    text = "HUM:ind Who ?\nLOC:city Where is the caf\u00e9 ?\n"
    path = put("transfer/TREC/train_5500.label", text.encode("latin-1"))
    with caplog.at_level(logging.WARNING):
        latin = plain(
            read_corpus(
                "trec",
                "train",
                tmp_path,
            )
        )
    assert caplog.messages == [f"{path}:2: not UTF-8 text: byte 0xe9; the file is read as latin-1"]
    put("transfer/TREC/train_5500.label", text)
    assert (
        plain(
            read_corpus(
                "trec",
                "train",
                tmp_path,
            )
        )
        == latin
    )


# Counts


@pytest.fixture
def counting(monkeypatch):
    monkeypatch.setattr(
        corpora,
        "SAMPLE",
        "SAMPLE",
    )


@pytest.mark.usefixtures("counting")
def test_an_official_file_must_have_its_number_of_rows(put, tmp_path):
    path = put("INLI/val.csv", INLI + ROW * 999)
    message = fault(
        "inli",
        "val",
        tmp_path,
    )
    assert message.startswith(f"{path}: 999 rows of split 'val', but the official file has 1,000")
    assert f"python -m lightning_cse.prepare inli --force --data-dir {tmp_path}\n" in message
    put("INLI/val.csv", INLI + ROW * 1000)
    assert (
        len(
            read_corpus(
                "inli",
                "val",
                tmp_path,
            )
        )
        == 1000
    )

    put("INLI/val.csv", INLI + ROW * 3)
    (tmp_path / "SAMPLE").touch()
    assert (
        len(
            read_corpus(
                "inli",
                "val",
                tmp_path,
            )
        )
        == 3
    )
    assert (
        len(
            read_corpus(
                "inli",
                "val",
                sample_dir(),
            )
        )
        == 120
    )


# The hub


def fake_hub(monkeypatch, answer):
    """Replace the client of the hub by one that returns these rows, or raises."""
    calls: list[tuple[Any, ...]] = []

    def load_dataset(name, *, split, revision):
        calls.append((name, split, revision))
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.delenv("HF_HUB_OFFLINE")
    monkeypatch.delenv("HF_DATASETS_OFFLINE", raising=False)
    monkeypatch.setitem(
        sys.modules,
        "datasets",
        SimpleNamespace(load_dataset=load_dataset),
    )
    return calls


def test_stsb_from_the_hub(put, tmp_path, monkeypatch):
    planes = {
        "sentence1": " A plane.",
        "sentence2": "Planes.",
        "score": 0.76,
    }
    cats = {
        "sentence1": "A\tcat.",
        "sentence2": "None",
        "score": 1.0,
    }
    calls = fake_hub(monkeypatch, [planes, cats])
    rows = read_corpus(
        "stsb",
        "dev",
        tmp_path,
    )
    revision = "ab7a5ac0e35aa22088bdcf23e7fd99b220e53308"
    assert calls == [("sentence-transformers/stsb", "validation", revision)]
    assert rows.column("score") == [3.8, 5.0]
    assert rows.column("sentence1") == ["A plane.", "A\tcat."]
    assert rows.where(1) == "hf://datasets/sentence-transformers/stsb@ab7a5ac0e35a/validation:2"
    assert (rows.files[0].name, len(rows.files[0].sha256)) == ("STS/STSBenchmark/sts-dev.csv", 64)

    put("STS/STSBenchmark/sts-dev.csv", "a\tb\tc\t0\t5.000\tA plane.\tAn air plane.\n")
    assert (
        len(
            read_corpus(
                "stsb",
                "dev",
                tmp_path,
            )
        )
        == 1
    )
    assert len(calls) == 1, "a file goes before the hub"


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (
            [
                {
                    "premise": "a",
                    "hypothesis": "b",
                    "label": 3,
                }
            ],
            r"snli@\w+/test:1: label 3 is not one of 0",
        ),
        (ConnectionError("no route"), "snli\\) could not load it: ConnectionError: no route"),
    ],
)
def test_faults_of_the_hub(tmp_path, monkeypatch, answer, message):
    fake_hub(monkeypatch, answer)
    assert re.search(
        message,
        fault(
            "snli",
            "test",
            tmp_path,
        ),
    )


# Splits of parts, files side by side


def test_a_line_that_one_file_leaves_out_is_left_out_of_all(put, plain, tmp_path):
    scores = {
        "FNWN": "1\n\n2.5\n",
        "headlines": "0\n",
        "OnWN": " \n5\n",
    }
    for subset, text in scores.items():
        pairs = [f"{subset} {line}.\tTwo {line}.\n" for line in range(text.count("\n"))]
        put(f"STS/STS13-en-test/STS.input.{subset}.txt", "".join(pairs))
        put(f"STS/STS13-en-test/STS.gs.{subset}.txt", text)
    rows = read_corpus(
        "sts13",
        "test",
        tmp_path,
    )
    assert rows.names == ("sentence1", "sentence2", "score", "subset")
    assert [tuple(row.values()) for row in plain(rows)] == [
        ("FNWN 0.", "Two 0.", 1.0, "FNWN"),
        ("FNWN 2.", "Two 2.", 2.5, "FNWN"),
        ("headlines 0.", "Two 0.", 0.0, "headlines"),
        ("OnWN 1.", "Two 1.", 5.0, "OnWN"),
    ]
    assert rows.counts == {"read": 6, "dropped: no gold score": 2}
    assert rows.column("line") == [1, 3, 1, 2]
    assert len(rows.files) == 6

    onwn = put("STS/STS13-en-test/STS.gs.OnWN.txt", " \n5\n4\n")
    lengths = r"differ in length: .*input\.OnWN\.txt: 2 rows, .*gs\.OnWN\.txt: 3 rows"
    assert re.search(
        lengths,
        fault(
            "sts13",
            "test",
            tmp_path,
        ),
    )
    onwn.unlink()
    assert re.search(
        r"was not found\n  looked for: .*gs\.OnWN",
        fault(
            "sts13",
            "test",
            tmp_path,
        ),
    )


# A split is read again only if its files have changed


def test_a_split_is_kept_until_its_file_changes(put, tmp_path, monkeypatch):
    opened: list[Path] = []

    def noting(path, real=corpora.read_bytes):
        opened.append(path)
        return real(path)

    monkeypatch.setattr(
        corpora,
        "read_bytes",
        noting,
    )
    path = put("INLI/train.csv", INLI + ROW * 2)
    first, second = (
        read_corpus(
            "inli",
            "train",
            tmp_path,
        )
        for _ in range(2)
    )
    assert len(opened) == 1
    assert list(first) == list(second)
    assert (first.files, first.counts) == (second.files, second.counts)
    first.counts["read"] = 0
    assert (
        read_corpus(
            "inli",
            "train",
            tmp_path,
        ).counts["read"]
        == 2
    )
    # Another content of the same size, with the same time of change.
    before = path.stat()
    path.write_bytes(path.read_bytes().replace(b"No tea.", b"My tea."))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (
        read_corpus(
            "inli",
            "train",
            tmp_path,
        ).column("implied_entailment")
        == ["My tea."] * 2
    )


# Corpora of one's own

OWN = """
mine:
  title: My pairs
  layout: {reader: csv, columns: {sentence1: question, sentence2: answer}}
  files:
    - {split: train, path: %s}
"""


@pytest.fixture
def config_dir(tmp_path, monkeypatch):
    """A folder of configs; what it registers is forgotten after the test."""
    folder = tmp_path / "configs"
    folder.mkdir()
    for name in ("mine", "other"):
        monkeypatch.setitem(
            CORPORA,
            name,
            CORPORA["inli"],
        )
        monkeypatch.delitem(CORPORA, name)
    return folder


@pytest.mark.parametrize("absolute", [False, True])
def test_corpora_of_ones_own(put, tmp_path, config_dir, absolute, capsys):
    register_corpora(config_dir)  # without a corpora.yaml
    path = put("my/pairs.csv", "question,answer\nQ?,A.\n")
    declaration = OWN % (path if absolute else "my/pairs.csv")
    (config_dir / "corpora.yaml").write_text(declaration)
    place = [
        "--config-dir",
        str(config_dir),
        "--data-dir",
        str(tmp_path),
    ]
    assert (
        prepare.main(
            [
                "mine",
                "--check",
                *place,
            ]
        )
        == 0
    )
    assert f"{path}: ok, any rows of train" in capsys.readouterr().out
    rows = read_corpus(
        "mine",
        "train",
        tmp_path,
    )
    assert [row["sentence2"] for row in rows] == ["A."]

    (config_dir / "corpora.yaml").write_text(declaration.replace("answer}", "question}"))
    register_corpora(config_dir)
    assert read_corpus(
        "mine",
        "train",
        tmp_path,
    ).column("sentence2") == ["Q?"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ((OWN % "x").replace("mine", "inli"), "inli: lightning_cse has a corpus of this name"),
        ((OWN % "x").replace("title", "titel"), "mine.titel: Extra inputs are not permitted"),
        ((OWN % "x").replace("csv", "cvs"), "mine.layout: no reader 'cvs' - did you mean 'csv'"),
        ((OWN % "x").replace("question", "{lable: x}"), "mine.layout: sentence1: no kind of column 'lable'"),
        ("mine: {", "cannot be read: "),
    ],
)  # fmt: skip
def test_faulty_declarations(config_dir, text, message):
    path = config_dir / "corpora.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        register_corpora(config_dir)
    assert str(caught.value).startswith(f"{path}: {message}")
    assert "mine" not in CORPORA
