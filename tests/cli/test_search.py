"""``python -m lightning_cse.search`` as a user starts it, and its answers by trained runs."""

from __future__ import annotations

import csv
import importlib.util
import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from lightning_cse.data import read_corpus, sample_dir
from lightning_cse.engine.load import load_model
from lightning_cse.index import IndexFolder
from lightning_cse.search import main

RunTiny = Callable[..., Any]
Search = Callable[..., tuple[int, str, str]]

# A busy machine may take minutes to load torch; pytest's own limit is made for tests that start no process.
pytestmark = pytest.mark.timeout(900)

SENTENCES = list(dict.fromkeys(read_corpus("inli", "train", sample_dir()).column("premise")))[:60]
QUERY = SENTENCES[17]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sixty sentences, the last of them twice."""
    path = tmp_path_factory.mktemp("corpus") / "premises.txt"
    path.write_text("\n".join([*SENTENCES, SENTENCES[-1]]) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def run_of(run_tiny: RunTiny, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Train a run of an experiment once."""
    runs: dict[str, Path] = {}

    def run(experiment: str) -> Path:
        if experiment not in runs:
            runs[experiment] = run_tiny(tmp_path_factory.mktemp(experiment), f"+experiment={experiment}").path
        return runs[experiment]

    return run


@pytest.fixture
def search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Search:
    """Run the command in this process: exit code, standard output, standard error."""
    monkeypatch.setenv("LIGHTNING_CSE_CACHE", str(tmp_path / "cache"))

    def run(*arguments: object, given: bytes | None = None) -> tuple[int, str, str]:
        if given is not None:
            monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(given)))
        try:
            code = main([str(argument) for argument in arguments])
        except SystemExit as error:  # of argparse
            code = int(error.code or 0)
        out, err = capsys.readouterr()
        return code, out, err

    return run


def start(arguments: list[str], tmp_path: Path, repository: Path, **how: Any) -> subprocess.Popen[str]:
    environment = os.environ | {
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(repository / "src"),
        "LIGHTNING_CSE_CACHE": str(tmp_path / "cache"),
    }
    line = [sys.executable, "-m", "lightning_cse.search", *arguments]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.PIPE}
    return subprocess.Popen(line, cwd=tmp_path, env=environment, text=True, **streams, **how)


def test_the_first_search_builds_and_the_second_finds(search: Search, corpus: Path, tmp_path: Path) -> None:
    command = ("--model", "tiny", "--corpus", corpus, "--query", QUERY, "--query", "Nobody knows.", "-k", 3)
    code, out, err = search(*command, "--format", "json")
    assert code == 0, err
    first, second = map(json.loads, out.splitlines())
    assert (first["query"], second["query"]) == (QUERY, "Nobody knows.")
    assert first["hits"][0] == {"rank": 1, "score": 1.0, "sentence": QUERY, "line": 18, "times": 1}
    assert [hit["rank"] for hit in second["hits"]] == [1, 2, 3]
    assert "index: building" in err
    assert "60 sentences (1 for the second time or more left out)" in err
    (folder,) = (tmp_path / "cache" / "index").iterdir()
    assert folder.name.startswith("premises-")
    code, again, err = search(*command, "--format", "csv")
    assert (code, err) == (0, "")
    rows = list(csv.DictReader(io.StringIO(again)))
    want = [{"query": one["query"], **hit} for one in (first, second) for hit in one["hits"]]
    assert rows == [{name: str(value) for name, value in row.items()} for row in want]
    code, table, _ = search(*command)
    assert code == 0
    assert "1.0000" in table
    assert all(hit["sentence"].split()[0] in table for hit in first["hits"])
    code, out, err = search("--model", "tiny", "--corpus", corpus)
    assert (code, out) == (0, f"{folder}\n")
    assert "no query was given: the index is ready" in err


def test_every_kind_gives_the_same_scores(search: Search, corpus: Path, tmp_path: Path) -> None:
    def hits(kind: str) -> dict[str, float]:
        code, out, err = search(
            *("--model", "tiny", "--corpus", corpus, "--kind", kind, "--query", "He is late."),
            *("-k", 100, "--format", "json", "--index", tmp_path / "index"),
        )
        assert code == 0, err
        return {hit["sentence"]: hit["score"] for hit in json.loads(out)["hits"]}

    exact = hits("exact")
    assert len(exact) == 60, "no more than there are"
    assert hits("ivf") == hits("hnsw") == hits("auto") == exact
    assert set(IndexFolder.open(tmp_path / "index").about["kinds"]) == {"ivf", "hnsw"}


@pytest.mark.parametrize("experiment", ["dualcse_cross", "gausscse", "dualgauss"])
def test_runs_answer_their_questions(
    experiment: str, search: Search, corpus: Path, run_of: Callable[[str], Path]
) -> None:
    run = run_of(experiment)
    model = load_model(str(run)).answers
    texts = model.embed(SENTENCES).to(torch.float64)
    query = model.embed([QUERY]).to(torch.float64)[torch.zeros(len(SENTENCES), dtype=torch.long)]
    asked = {
        ("--relation", "similar"): model.similarity(query, texts),
        ("--relation", "entails"): model.entailment_score(query, texts),
        ("--relation", "entailed_by"): model.entailment_score(texts, query),
    }
    views = texts.views()
    primary = next(iter(views.values()))
    for name, view in query.views().items():
        asked["--view", name] = torch.cosine_similarity(view, primary)
    for how, scores in asked.items():
        code, out, err = search(
            "--model", run, "--corpus", corpus, *how, "--query", QUERY, "-k", 60, "--format", "json"
        )
        assert code == 0, err
        got = json.loads(out)["hits"]
        assert [hit["score"] for hit in got] == sorted((hit["score"] for hit in got), reverse=True)
        by_sentence = {hit["sentence"]: hit["score"] for hit in got}
        for sentence, score in zip(SENTENCES, scores.tolist(), strict=True):
            # A batch of another size pads otherwise, which moves the last digits of a float32.
            assert by_sentence[sentence] == pytest.approx(score, abs=2e-5), how
    code, _, err = search("--model", run, "--corpus", corpus, "--view", "explict", "--query", "a")
    assert code == 2
    assert f"has no view 'explict'{' - did you mean' if 'explicit' in views else ' (it has: mean)'}" in err


@pytest.mark.slow
def test_lines_of_standard_input_are_answered_as_they_come(tmp_path: Path, repository: Path, corpus: Path) -> None:
    process = start(["--model", "tiny", "--corpus", str(corpus), "--queries", "-", "-k", "1"], tmp_path, repository)
    assert process.stdin is not None
    assert process.stdout is not None
    for number in (3, 5):
        process.stdin.write(f"\n{SENTENCES[number]}\n")
        process.stdin.flush()
        nothing, answer = (json.loads(process.stdout.readline()) for _ in range(2))  # while standard input is open
        assert nothing == {"query": "", "hits": [], "error": "the line is empty; give a sentence"}
        assert answer["query"] == answer["hits"][0]["sentence"] == SENTENCES[number]
    out, err = process.communicate()
    assert (process.returncode, out) == (0, ""), err
    assert "Traceback" not in err


@pytest.mark.slow  # starts two processes and embeds ten thousand sentences
def test_a_killed_build_goes_on(tmp_path: Path, repository: Path) -> None:
    path = tmp_path / "many.txt"
    path.write_text("".join(f"{SENTENCES[number % 60]} {number}\n" for number in range(10_000)))
    arguments = ["--model", "tiny", "--corpus", str(path), "--index", str(tmp_path / "index"), "--device", "cpu"]
    process = start(arguments, tmp_path, repository)
    progress = tmp_path / ".index.building" / "progress.json"
    while not progress.exists():
        assert process.poll() is None, process.stderr and process.stderr.read()
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    done = json.loads(progress.read_text())["count"]
    assert 0 < done < 10_000, "the machine was too quick for this test"
    assert not (tmp_path / "index").exists()
    again = start(arguments, tmp_path, repository)
    out, err = again.communicate()
    assert again.returncode == 0, err
    assert f"going on after {done:,} of 10,000 sentences" in err
    folder = IndexFolder.open(Path(out.strip()))
    assert folder.count == 10_000
    model = load_model("tiny").answers
    rows = [0, done - 1, done, 9_999]
    for row in rows:
        sentence = folder.sentence(row)
        assert sentence.endswith(f" {row}")
        got = folder.embedding(slice(row, row + 1)).vector
        assert torch.allclose(got, model.embed([sentence]).vector, atol=1e-5)


def test_an_index_of_something_else_is_told(search: Search, corpus: Path, tmp_path: Path) -> None:
    index = tmp_path / "index"
    assert search("--model", "tiny", "--corpus", corpus, "--index", index)[0] == 0
    code, out, err = search("--model", "tiny", "--index", index, "--query", QUERY, "-k", 1, "--format", "csv")
    assert (code, out.splitlines()[1].split(",")[-2:]) == (0, ["18", "1"]), err
    other = tmp_path / "other.txt"
    other.write_text("Nothing of the kind.\n")
    code, out, err = search("--model", "tiny", "--corpus", other, "--index", index, "--query", "a")
    assert (code, out) == (2, "")
    assert "an index of something else:\n  corpus: sha256 was" in err
    assert "--rebuild" in err
    code, _, err = search("--model", "tiny", "--pooling", "mean", "--index", index, "--query", "a")
    assert code == 2
    assert "model: pooling was cls and is mean" in err
    code, out, err = search("--model", "tiny", "--corpus", other, "--index", index, "--rebuild", "--query", "a")
    assert code == 0, err
    assert "Nothing of the kind." in out


def test_what_is_wrong_is_told_at_once(search: Search, corpus: Path, tmp_path: Path) -> None:
    queries, latin, blank = (tmp_path / name for name in ("queries.txt", "latin.txt", "blank.txt"))
    latin.write_bytes(b"fine\nna\xefve\n")
    blank.write_text("\n \n")
    plain = ("--model", "tiny", "--corpus", corpus)
    for arguments, told in (
        (("--model", "tiny"), "give --corpus, or --index with an index that is there"),
        (("--model", "tiny", "--corpus", tmp_path / "no.txt"), "no.txt: no such file"),
        (("--model", "tiny", "--corpus", tmp_path), "no file"),
        (("--model", "tiny", "--corpus", latin), "latin.txt:2: not UTF-8"),
        (("--model", "tiny", "--corpus", blank), "blank.txt: no line holds a sentence"),
        (
            ("--model", "tiny", "--index", tmp_path / "none", "--query", "a"),
            "no index there; give --corpus to build one",
        ),
        ((*plain, "--index", corpus.parent, "--query", "a"), "is no index, as it has no index.json"),
        (
            ("--model", "tny", "--corpus", corpus, "--query", "a"),
            "error: there is no model 'tny' - did you mean 'tiny'?\n",
        ),
        (
            ("--model", "length", "--corpus", corpus, "--query", "a"),
            "length has no encoder, and this command needs one",
        ),
        ((*plain, "--query", "a", "--query", " "), "--query: number 2 is empty"),
        ((*plain, "--queries", queries), "queries.txt: No such file"),
        ((*plain, "--queries", latin), "latin.txt:2: not UTF-8"),
        ((*plain, "--queries", blank), "blank.txt holds no sentence"),
        ((*plain, "--query", "a", "-k", "0"), "must be an integer >= 1, got '0'"),
        ((*plain, "--queries", "-", "--format", "csv"), "answered in lines of JSON, not as csv"),
        ((*plain, "--query", "a", "--relation", "entails", "--view", "primary"), "leave --view and --against out"),
        ((*plain, "--column", "text", "--query", "a"), "a text file has no columns"),
        (("--model", "tiny", "--index", tmp_path, "--rebuild"), "--rebuild needs --corpus"),
        ((*plain, "--index", corpus.parent, "--rebuild"), "is there already and is no index; give another folder"),
        ((*plain, "--query", "a", "--pooling", "men"), "pooling: must be one of"),
    ):
        code, out, err = search(*arguments)
        assert (code, out) == (2, ""), arguments
        assert told in err, err
        assert "Traceback" not in err
    code, out, err = search(*plain, "--queries", "-", "-k", 1, given=b"He is late.\nna\xefve\n")
    assert code == 2
    assert len(out.splitlines()) == 1, "what came before is answered"
    assert "standard input:2: not UTF-8" in err


def test_what_needs_no_encoder_is_told_without_one(tmp_path: Path, repository: Path, corpus: Path) -> None:
    (tmp_path / "latin.txt").write_bytes(b"fine\nna\xefve\n")
    (tmp_path / "blank.txt").write_text("\n \n")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").touch()
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "record.json").write_text("{}")
    code = f"""
import sys
import torch
from lightning_cse.search import main
torch.cuda.is_available = torch.backends.mps.is_available = lambda: False
def loaded(*arguments):
    code = main(["--model", "minilm_l6", "--query", "a", *arguments])
    print(code, *(name for name in ("transformers", "pytorch_lightning") if name in sys.modules))
corpus = ("--corpus", {str(corpus)!r})
loaded(*corpus, "--model", "run")
loaded(*corpus, "--model", "./none")
loaded(*corpus, "--device", "gpu")
loaded(*corpus, "--column", "text")
loaded(*corpus, "--index", "other")
loaded(*corpus, "--index", "other", "--rebuild")
loaded("--index", "none")
loaded("--corpus", "latin.txt")
loaded("--corpus", "blank.txt")
"""
    environment = os.environ | {"PYTHONPATH": str(repository / "src"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.stdout.splitlines() == ["2"] * 9, done.stderr
    for told in (
        "the run run has no config.yaml",
        "model: there is no folder ",
        "--device: torch finds no gpu",
        "a text file has no columns",
        "other is no index, as it has no index.json",
        "other is there already and is no index",
        "none: no index there",
        "latin.txt:2: not UTF-8",
        "blank.txt: no line holds a sentence",
    ):
        assert told in done.stderr


def test_a_kind_that_is_not_installed_is_told_before_anything_is_built(
    search: Search, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *more: None if name == "faiss" else find(name, *more))
    plain = ("--model", "tiny", "--corpus", corpus, "--index", tmp_path / "index")
    code, _, err = search(*plain, "--kind", "ivf")
    assert (code, err) == (2, "error: --kind ivf needs faiss: pip install faiss-cpu, or use --kind exact\n")
    assert not (tmp_path / "index").exists()


def test_a_direction_that_a_model_lacks_is_told_before_anything_is_built(
    search: Search, corpus: Path, tmp_path: Path
) -> None:
    plain = ("--model", "tiny", "--corpus", corpus, "--index", tmp_path / "index", "--query", "a")
    for relation in ("entails", "entailed_by"):
        code, out, err = search(*plain, "--relation", relation)
        assert (code, out) == (2, "")
        assert err == (
            f"error: --relation {relation}: the score of PointModel is the same both ways, so there is no direction "
            "to ask for; use --relation similar\n"
        )
    assert not (tmp_path / "index").exists()
    assert search(*plain, "--relation", "similar")[0] == 0


def test_every_line_has_its_answer(search: Search, corpus: Path) -> None:
    lines = (SENTENCES[3], "", "   ", SENTENCES[5])
    given = "".join(f"{line}\n" for line in lines).encode()
    code, out, err = search("--model", "tiny", "--corpus", corpus, "--queries", "-", "-k", 1, given=given)
    assert code == 0, err
    assert [answer["query"] for answer in map(json.loads, out.splitlines())] == [SENTENCES[3], "", "", SENTENCES[5]]


def test_help_is_quick(tmp_path: Path, repository: Path) -> None:
    code = "import sys\nfrom lightning_cse.search import main\n"
    code += "try: main(['--help'])\nexcept SystemExit: print('torch' in sys.modules)"
    environment = os.environ | {"PYTHONPATH": str(repository / "src")}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "False", done.stderr
    assert "--relation {similar,entails,entailed_by}" in done.stdout
