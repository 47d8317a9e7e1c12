"""``python -m lightning_cse.search`` as a user starts it, and its answers by trained runs."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from lightning_cse.data import read_corpus, sample_dir
from lightning_cse.engine.load import load_model
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
def search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Search:
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
    command = ("--model", "tiny", "--corpus", corpus, "--query", QUERY, "--query", "Nobody knows.", "-k", 3)
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


@pytest.mark.parametrize("experiment", ["dualcse_cross", "gausscse", pytest.param("dualgauss", marks=pytest.mark.slow)])
def test_runs_answer_their_questions(
    experiment: str, search: Search, corpus: Path, run_tiny: Callable[..., Any], tmp_path: Path
) -> None:
    run = run_tiny(tmp_path, f"+experiment={experiment}").path
    model = load_model(str(run)).answers
    texts = model.embed(SENTENCES).to(torch.float64)
    query = model.embed([QUERY]).to(torch.float64)[torch.zeros(len(SENTENCES), dtype=torch.long)]
    asked = {
        ("--relation", "similar"): model.similarity(query, texts),
        ("--relation", "entails"): model.entailment_score(query, texts),
        ("--relation", "entailed_by"): model.entailment_score(texts, query),
    }
    primary = next(iter(texts.views().values()))
    for name, view in query.views().items():
        asked["--view", name] = torch.cosine_similarity(view, primary)
    for how, scores in asked.items():
        command = ("--model", run, "--corpus", corpus, *how, "--query", QUERY, "-k", 60, "--format", "json")
        code, out, err = search(*command)
        assert code == 0, err
        got = {hit["sentence"]: hit["score"] for hit in json.loads(out)["hits"]}
        assert list(got.values()) == sorted(got.values(), reverse=True)
        for sentence, score in zip(SENTENCES, scores.tolist(), strict=True):
            # A batch of another size pads otherwise, which moves the last digits of a float32.
            assert got[sentence] == pytest.approx(score, abs=2e-5), how


def test_lines_of_standard_input_are_answered_in_step(search: Search, corpus: Path, tmp_path: Path) -> None:
    given = f"\n{SENTENCES[3]}\n".encode()
    code, out, err = search("--model", "tiny", "--corpus", corpus, "--queries", "-", "-k", 1, given=given)
    assert code == 0, err
    nothing, answer = map(json.loads, out.splitlines())
    assert nothing == {"query": "", "hits": []}
    assert answer["query"] == answer["hits"][0]["sentence"] == SENTENCES[3]
    (tmp_path / "queries.txt").write_bytes(given)
    command = ("--model", "tiny", "--corpus", corpus, "--queries", tmp_path / "queries.txt", "-k", 1)
    assert json.loads(search(*command, "--format", "json")[1]) == answer


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--corpus", "premises.txt"), "one of the arguments --query --queries is required"),
        (("--corpus", "no.txt", "--query", "a"), "no.txt: No such file"),
        (("--corpus", "premises.txt", "--query", " "), "no query; give a sentence"),
        (("--corpus", "premises.txt", "--queries", "no.txt"), "no.txt: No such file"),
        (("--corpus", "premises.txt", "--query", "a", "-k", "0"), "must be an integer >= 1, got '0'"),
        (("--corpus", "premises.txt", "--query", "a", "--model", "tny"), "no model 'tny' - did you mean 'tiny'?"),
        (("--corpus", "premises.txt", "--query", "a", "--model", "length"), "length has no encoder"),
        (("--corpus", "premises.txt", "--query", "a", "--pooling", "men"), "pooling: must be one of"),
        (("--corpus", "premises.txt", "--query", "a", "--relation", "entails"), "is the same both ways"),
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
