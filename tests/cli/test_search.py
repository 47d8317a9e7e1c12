"""``python -m lightning_cse.search`` as a user starts it, and its answers by trained runs."""

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from lightning_cse.data import read_corpus, sample_dir
from lightning_cse.search import main

Search = Callable[..., tuple[int, str, str]]

# A busy machine may take minutes to load torch; pytest's own limit is made for tests that start no process.
pytestmark = pytest.mark.timeout(900)

SENTENCES = list(dict.fromkeys(read_corpus("inli", "train", sample_dir()).column("premise")))[:60]
QUERY = SENTENCES[17]


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """Sixty sentences, the last of them twice."""
    path = tmp_path / "premises.txt"
    path.write_text("\n".join([*SENTENCES, SENTENCES[-1]]) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Search:
    """Run the command in this process: exit code, standard output, standard error."""
    monkeypatch.setenv("LIGHTNING_CSE_CACHE", str(tmp_path / "cache"))

    def run(*arguments: object, given: bytes = b"") -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(given)))
        try:
            code = main([str(argument) for argument in arguments])
        except SystemExit as error:  # of argparse
            code = int(error.code or 0)
        return code, *capsys.readouterr()

    return run


def test_queries_tables_and_what_is_kept(search: Search, corpus: Path, tmp_path: Path) -> None:
    command = (
        "--model",
        "tiny",
        "--corpus",
        corpus,
        "--query",
        QUERY,
        "--query",
        "Nobody knows.",
        "-k",
        3,
    )
    code, out, err = search(*command, "--format", "json")
    assert code == 0, err
    first, second = map(json.loads, out.splitlines())
    assert (first["query"], second["query"]) == (QUERY, "Nobody knows.")
    assert first["hits"][0] == {"rank": 1, "score": 1.0, "sentence": QUERY, "line": 18, "times": 1}
    assert [hit["rank"] for hit in second["hits"]] == [1, 2, 3]
    (kept,) = (tmp_path / "cache" / "search").iterdir()
    before = kept.stat()
    assert search(*command, "--format", "json", "--index", "IVF2,Flat")[1] == out
    assert kept.stat().st_mtime_ns == before.st_mtime_ns
    assert len(list(kept.parent.iterdir())) == 2, "the embeddings and the index"
    assert "1.0000  " in search(*command)[1]
    whole = search("--model", "tiny", "--corpus", corpus, "--query", SENTENCES[-1], "-k", 100)[1]
    assert f"{SENTENCES[-1]}  (line 60, x2)" in whole
    search(*command, "--pooling", "mean")
    assert len(list(kept.parent.iterdir())) == 3, "other vectors"


def test_lines_of_standard_input_are_answered_in_step(
    search: Search, corpus: Path, tmp_path: Path
) -> None:
    given = f"\n{SENTENCES[3]}\n".encode()
    code, out, err = search(
        "--model", "tiny", "--corpus", corpus, "--queries", "-", "-k", 1, given=given
    )
    assert code == 0, err
    nothing, answer = map(json.loads, out.splitlines())
    assert nothing == {"query": "", "hits": []}
    assert answer["query"] == answer["hits"][0]["sentence"] == SENTENCES[3]
    (tmp_path / "queries.txt").write_bytes(given)
    command = (
        "--model",
        "tiny",
        "--corpus",
        corpus,
        "--queries",
        tmp_path / "queries.txt",
        "-k",
        1,
    )
    assert json.loads(search(*command, "--format", "json")[1]) == answer


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--corpus", "no.txt", "--query", "a"), "no.txt: No such file"),
        (("--corpus", "premises.txt", "--query", " "), "no query; give at least one sentence"),
        (
            ("--corpus", "premises.txt", "--query", "a", "--model", "tny"),
            "no model 'tny' - did you mean 'tiny'?",
        ),
        (("--corpus", "premises.txt", "--query", "a", "--relation", "entails"), "is symmetric"),
        (("--corpus", "premises.txt", "--query", "a", "--index", "IFV"), "--index IFV: "),
    ],
)
def test_one_clear_error(
    arguments: tuple[str, ...],
    message: str,
    search: Search,
    corpus: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(corpus.parent)
    code, out, err = search("--model", "tiny", *arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert "Traceback" not in err
