"""``python -m lightning_cse.generate`` against a local server, as a user starts it, stops it and kills it."""

from __future__ import annotations

import hashlib
import json
import random
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from llm_server import TRANSIENT, ChatServer, prompt, share

from lightning_cse.llm import ReplyCache, Request

Start = Callable[..., "subprocess.Popen[str]"]

pytestmark = pytest.mark.timeout(900)  # as the other tests that start processes on a busy machine

LINE = (
    "generate",
    "+pattern=sts",
    "data=wiki",
    "corpora=sample",
    "paths=sample",
    "llm.model=some-model",
    "llm.backoff=0.01",
)


def answer(body: dict[str, Any]) -> str:
    """A good sentence of the role that the prompt is of; now and then a bad one, another each time."""
    if len(body["messages"]) == 1:
        return "half"  # of a fault
    system, words = body["messages"][0]["content"], prompt(body).rstrip(".").split()
    if random.random() < 0.1:
        return random.choice([prompt(body), "I'm sorry, but I can't help with that.", "One. Two of it. Three of it."])
    if "fewer details" in system:
        return " ".join(words[: len(words) // 2]) + "."
    if "means the same" in system:
        return " ".join([*words[1:], "so", "it", "is"]) + "."
    return "Nothing of the kind: " + " ".join(reversed(words[:4])) + "."


def rows(folder: Path) -> list[dict[str, str]]:
    (path,) = (folder / "runs").rglob("wiki_sts.jsonl")
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_rows_a_summary_and_the_command_that_trains_on_them(start: Start, tmp_path: Path, key: str) -> None:
    with ChatServer(answer, key=key) as server:
        stdout, stderr = start(*LINE, f"llm.base_url={server.url}", "n=20", "encoder=tiny").communicate(timeout=300)
    assert stderr == ""
    (folder,) = (tmp_path / "runs" / "generate").iterdir()
    names = {"config.yaml", "histograms.png", "journal.jsonl", "summary.json", "wiki_sts.provenance.json"}
    assert names | {"given_up.jsonl", "wiki_sts.jsonl"} == {path.name for path in folder.iterdir()}
    assert len(rows(tmp_path)) == 20
    told = stdout.splitlines()
    place = folder.relative_to(tmp_path)
    assert told[-1].strip() == (
        "python -m lightning_cse.train +experiment=ngcse_wiki_sts_ht corpora=sample paths=sample "
        f"'corpora.llm_wiki_sts=[{place}/wiki_sts.jsonl]'"
    )
    assert f"rows: {folder}/wiki_sts.jsonl" in told
    for role in ("positive", "intermediate", "negative"):
        assert any(line.startswith(role) for line in told)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert not [path for path in files if key.encode() in path.read_bytes()]
    assert key not in stdout


@pytest.mark.slow
def test_ctrl_c_then_the_same_command(start: Start, tmp_path: Path) -> None:
    with ChatServer(answer, seconds=0.01) as server:
        line = (f"llm.base_url={server.url}", "n=60", "llm.concurrency=4", "~encoder")
        process = start(*LINE, *line)
        while sum(server.answered.values()) < 40 and process.poll() is None:
            time.sleep(0.005)
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate(timeout=200)
        assert (process.returncode, "Traceback" in stderr) == (130, False), stderr
        assert stderr.splitlines()[-1] == "interrupted; the same command continues after the last reply"
        assert "of 60 rows; all that came is kept" in stdout
        before, kept = len(server.calls), cached(tmp_path).total()
        assert before == kept, "calls under way are waited for"
        stdout, stderr = start(*LINE, *line).communicate(timeout=200)
        assert stderr == ""
        assert len(server.calls) - before == cached(tmp_path).total() - kept
    assert len(rows(tmp_path)) == 60


@pytest.mark.slow
def test_a_dead_endpoint_is_one_message(start: Start, tmp_path: Path) -> None:
    with ChatServer() as server:
        pass  # and is gone
    stdout, stderr = start(*LINE, f"llm.base_url={server.url}", "n=5", "llm.retries=1").communicate(timeout=200)
    assert stderr.startswith("error: ")
    assert stderr.count("error: ") == 1
    assert "cannot be reached" in stderr
    assert "Traceback" not in stdout + stderr
    assert not list((tmp_path / "runs").rglob("wiki_sts.jsonl"))


def cached(folder: Path) -> Counter[str]:
    """How many replies the cache holds, by the text of what was asked last and what stood before it."""
    found: Counter[str] = Counter()
    path = folder / "cache" / "llm" / "replies.sqlite"
    if path.is_file():
        with ReplyCache(path) as cache, cache._told() as connection:
            for standing, last in connection.execute("SELECT standing, last FROM replies"):
                found[f"{standing} {last}"] += 1
    return found


@pytest.mark.slow
def test_killed_twice_among_faults_nothing_is_lost_and_nothing_is_paid_twice(start: Start, tmp_path: Path) -> None:
    count, at_once = 200, 16
    with ChatServer(answer, share(0.1, TRANSIENT, times=3)) as server:
        line = [f"llm.base_url={server.url}", f"n={count}", f"llm.concurrency={at_once}"]
        line += ["~encoder", "llm.timeout=2", "llm.retries=8", "samples=8"]
        for kill in (150, 400):
            process = start(*LINE, *line)
            while sum(server.answered.values()) < kill and process.poll() is None:
                time.sleep(0.005)
            process.kill()
            process.communicate()
            finished, before = cached(tmp_path), len(server.calls)
            assert sum(server.answered.values()) - finished.total() <= 2 * at_once
        _, stderr = start(*LINE, *line).communicate(timeout=300)
        assert stderr == ""
        final = cached(tmp_path)
        # What has one reply only was not rejected, so that nothing was to be asked again.
        done = {key for key, replies in finished.items() if final[key] == replies == 1}
        assert len(done) > 300
        asked_later = Counter(kept_as(call.body) for call in server.calls[before:])
        assert done.isdisjoint(asked_later)
        assert {call.fault for call in server.calls} >= {"limit", "error", "break", "garbage"}
    made = rows(tmp_path)
    assert len({row["anchor"] for row in made}) == len(made) == count
    assert all(list(row) == ["anchor", "positive", "intermediate", "negative"] for row in made)


def kept_as(body: dict[str, Any]) -> str:
    """The text by which `cached` knows a request."""
    messages = Request(tuple((each["role"], each["content"]) for each in body["messages"])).messages
    standing = hashlib.sha256(json.dumps(messages[:-1], ensure_ascii=False).encode()).hexdigest()
    return f"{standing} {json.dumps(messages[-1], ensure_ascii=False)}"


def test_a_pattern_and_a_data_set_that_are_not_there_are_told_with_those_that_are(start: Start) -> None:
    stdout, stderr = start(*LINE, "+pattern=st", "data=my/own.txt").communicate(timeout=100)
    assert (stdout, stderr.count("\n")) == ("", 3)
    assert "+pattern=st: there is no pattern 'st' - did you mean 'sts'? (there are: nli, sts)" in stderr
    assert "data=my/own.txt: there is no data 'my/own.txt' - a file of your own is for data.train" in stderr
