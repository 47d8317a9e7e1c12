"""``python -m lightning_cse.generate`` against a local server, as a user starts it, stops it and
kills it.
"""

import json
import random
import signal
import sqlite3
import time
from collections import Counter

import pytest
from llm_server import TRANSIENT, ChatServer, prompt, share

pytestmark = pytest.mark.timeout(900)  # as the other tests that start processes on a busy machine

LINE = (
    "generate",
    "+pattern=sts",
    "data=wiki",
    "corpora=sample",
    "paths=sample",
    "llm.model=some-model",
)


def answer(body):
    """A good sentence of the role that the prompt is of; now and then a bad one, another each
    time.
    """
    system, words = body["messages"][0]["content"], prompt(body).rstrip(".").split()
    if random.random() < 0.1:
        refusal = "I'm sorry, but I can't help with that."
        return random.choice([prompt(body), refusal, "One. Two of it. Three of it."])

    if "fewer details" in system:
        return " ".join(words[: len(words) // 2]) + "."

    mark = "so" if "means the same" in system else "never"

    return " ".join([*words[1:], mark, "it", "is"]) + "."


def rows(folder):
    (path,) = (folder / "runs").rglob("wiki_sts.jsonl")
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def cached(folder):
    """The number of replies in the cache by the sentence that was asked about and the standing
    instruction.
    """
    path = folder / "cache" / "llm" / "replies.sqlite"
    if not path.is_file():
        return Counter()

    query = "SELECT messages, last FROM replies JOIN standing ON standing = digest"
    with sqlite3.connect(path, timeout=60) as connection:
        return Counter(
            f"{json.loads(last)[1]} {json.loads(first)[0][1]}"
            for first, last in connection.execute(query)
        )


def answered(server, process, count):
    """Wait until the server has answered this often, or the process has ended."""
    while sum(server.answered.values()) < count and process.poll() is None:
        time.sleep(0.005)


@pytest.mark.slow
def test_generate_end_to_end(start, tmp_path, key):
    with ChatServer(answer, key=key) as server:
        line = (f"llm.base_url={server.url}", "n=20", "encoder=tiny")
        stdout, stderr = start(*LINE, *line).communicate(timeout=300)

    assert stderr == ""
    (folder,) = (tmp_path / "runs/generate/wiki_sts").iterdir()
    names = ["config.yaml", "given_up.jsonl", "record.json"]
    names += ["wiki_sts.jsonl", "wiki_sts.provenance.json"]
    assert sorted(path.name for path in folder.iterdir()) == names
    assert len(rows(tmp_path)) == 20
    command = stdout.splitlines()[-1].strip()
    assert command.startswith("python -m lightning_cse.train +experiment=ngcse_wiki_sts_ht ")
    assert f"corpora.llm_wiki_sts=[{folder}/wiki_sts.jsonl]" in command
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert not [path for path in files if key.encode() in path.read_bytes()]
    assert key not in stdout


@pytest.mark.slow
def test_continues_after_a_signal(start, tmp_path):
    with ChatServer(answer, seconds=0.02) as server:
        line = (*LINE, f"llm.base_url={server.url}", "n=60", "llm.concurrency=4", "~encoder")
        process = start(*line)
        answered(server, process, 40)
        process.send_signal(signal.SIGTERM)
        _, stderr = process.communicate(timeout=200)
        assert (process.returncode, "Traceback" in stderr) == (143, False), stderr
        assert "the same command continues" in stderr.splitlines()[-1]
        before, replies = len(server.calls), cached(tmp_path).total()
        assert before == replies, "calls under way are waited for"
        assert start(*line).communicate(timeout=200)[1] == ""
        assert len(server.calls) - before == cached(tmp_path).total() - replies

    assert len(rows(tmp_path)) == 60


@pytest.mark.slow
def test_kills_and_faults_lose_no_reply_and_pay_none_twice(start, tmp_path):
    count, at_once = 200, 16
    with ChatServer(answer, share(0.1, TRANSIENT, times=3)) as server:
        line = [*LINE, f"llm.base_url={server.url}", f"n={count}", f"llm.concurrency={at_once}"]
        line += ["~encoder", "llm.timeout=2", "llm.retries=8", "samples=8"]
        for kill in (150, 400):
            process = start(*line)
            answered(server, process, kill)
            process.kill()
            process.communicate()
            finished, before = cached(tmp_path), len(server.calls)
            assert sum(server.answered.values()) - finished.total() <= 2 * at_once

        assert start(*line).communicate(timeout=300)[1] == ""
        final = cached(tmp_path)
        # What has one reply only was not rejected, so that nothing was to be asked again.
        single = {
            request for request, replies in finished.items() if final[request] == replies == 1
        }
        later = {
            f"{prompt(call.body)} {call.body['messages'][0]['content']}"
            for call in server.calls[before:]
        }
        assert len(single) > 300
        assert single.isdisjoint(later)

    written = rows(tmp_path)
    assert len({row["anchor"] for row in written}) == len(written) == count
    assert all(list(row) == ["anchor", "positive", "intermediate", "negative"] for row in written)
