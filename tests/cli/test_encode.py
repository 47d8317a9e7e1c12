"""``python -m lightning_cse.encode``: the rows of its file, and files that it refuses."""

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import lightning_cse
from lightning_cse import encode
from lightning_cse.inference import SentenceModel

SENTENCES = [
    "It is cold in here.",
    "Is it?",
    'She said "no, thanks", and left.',
    "salt " * 200,
    "Tea.",
]

Encode = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Encode:
    """Run the command in this process and folder, two rows at a time: exit code, stdout, stderr."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(encode, "ROWS", 2)

    def given(*arguments: str) -> tuple[int, str, str]:
        try:
            code = encode.main(["tiny", *arguments])
        except SystemExit as error:  # of argparse
            code = int(error.code or 0)
        return code, *capsys.readouterr()

    return given


def test_row_i_is_the_vector_of_sentence_i(run: Encode, tmp_path: Path) -> None:
    table = pd.DataFrame({"id": range(5), "text": SENTENCES})
    Path("s.txt").write_text("\n".join(text.strip() for text in SENTENCES) + "\n", encoding="utf-8")
    table.to_csv("s.csv", index=False)
    table.to_csv("s.csv.gz", index=False)
    table.to_json("s.jsonl", orient="records", lines=True)
    want = lightning_cse.load("tiny").encode([text.strip() for text in SENTENCES])
    for kind in ("txt", "csv", "csv.gz", "jsonl"):
        file, more = f"s.{kind}", () if kind == "txt" else ("--column", "text")
        code, out, errors = run(file, *more, "--to", "made/v.npy")
        assert (code, out) == (0, "made/v.npy\n"), errors
        assert (
            "5 vectors of 32 numbers, view primary of tiny; 1 sentences cut to the maximum length"
            in errors
        )
        found = np.load("made/v.npy", mmap_mode="r")
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-5)
    run("s.txt", "--to", "made/v.npy", "--normalize", "--batch-size", "1")
    np.testing.assert_allclose(
        np.load("made/v.npy"), want / np.linalg.norm(want, axis=1)[:, None], atol=1e-5
    )


def test_what_is_refused_leaves_the_file_as_it_was(
    run: Encode, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("v.npy").write_text("before")
    Path("empty.txt").write_text("")
    Path("gap.txt").write_text("a\nb\n\nd\n")
    Path("gap.csv").write_text("text,n\na,1\nb,2\nc,3\n,4\n")
    Path("two.csv").write_text("text,n\na,1\n")
    with gzip.open("broken.txt.gz", "wb") as file:
        file.write(b"a\n" * 100_000)
    Path("broken.txt.gz").write_bytes(Path("broken.txt.gz").read_bytes()[:-20])
    for line, message in (
        ("none.txt", "none.txt: No such file or directory"),
        ("empty.txt", "empty.txt: "),
        ("gap.txt", "gap.txt:3: no sentence, but each row becomes a vector: remove this row"),
        ("gap.csv --column text", "gap.csv:5: no sentence"),
        ("two.csv", "two.csv: has several columns: name the one of the sentences with --column"),
        (
            "two.csv --column txt",
            "two.csv: no column 'txt' - did you mean 'text'? (found: text, n)",
        ),
        (
            "two.csv --column text --view implicit",
            "tiny (PointModel) has no view 'implicit' (it has: primary)",
        ),
        ("broken.txt.gz", "broken.txt.gz: cannot be read as text"),
        ("-", "FILE is read twice, so it cannot be standard input"),
    ):
        code, out, errors = run(*line.split(), "--to", "v.npy")
        assert (code, out) == (2, ""), line
        assert message in errors, line
    Path("s.txt").write_text("a\n" * 5)
    original, stops = (
        SentenceModel.encode,
        iter([False, False, True]),
    )  # when the first rows are written

    def stopping(*arguments: Any, **options: Any) -> Any:
        if next(stops):
            raise KeyboardInterrupt
        return original(*arguments, **options)

    monkeypatch.setattr(SentenceModel, "encode", stopping)
    assert run("s.txt", "--to", "v.npy")[0] == 130
    assert Path("v.npy").read_text() == "before"
    assert not [path.name for path in Path().iterdir() if path.name.endswith(".tmp")]
