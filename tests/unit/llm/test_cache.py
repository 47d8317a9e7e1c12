"""The cache of replies: round trips, several processes, faulty files."""

import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import replace

import pytest

from lightning_cse.llm import LLMError, Reply, Request
from lightning_cse.llm.cache import ReplyCache

REQUEST = Request(
    (("system", "Ünïcode \0 😀"), ("user", "'quoted'")),
    {"temperature": 0.5, "max_tokens": 3},
    sample=2,
)
REPLY = Reply("ja 😀\n", "stop", "m-1", 12, 3)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "llm" / "replies.sqlite"


def test_round_trip_of_a_reply(path):
    cache, key = ReplyCache(path), REQUEST.key("m")
    assert cache.get(key) is None
    cache.put(key, "m", REQUEST, REPLY)
    assert ReplyCache(path).get(key) == replace(REPLY, cached=True), "for another process"
    cache.put(key, "m", REQUEST, Reply("second", "length", "m-2", 2, 2))
    cache.close()
    assert cache.get(key) == replace(REPLY, cached=True)


def test_requests_are_kept_and_shared_messages_stored_once(path):
    shared = (("system", "Be brief. " * 300), ("user", "Is it?"), ("assistant", "No. "))
    with closing(ReplyCache(path)) as cache:
        for number in range(50):
            request = Request((*shared, ("user", str(number))), {"seed": number})
            cache.put(request.key("m"), "m", request, REPLY)

    assert path.stat().st_size < 50_000, "the prompts are 150,000"
    columns = "key, model, messages, last, parameters"
    with closing(sqlite3.connect(path)) as file:
        rows = file.execute(
            f"SELECT {columns} FROM replies JOIN standing ON standing = digest"
        ).fetchall()

    assert len(rows) == 50
    for key, model, standing, last, parameters in rows:
        messages = tuple((role, text) for role, text in [*json.loads(standing), json.loads(last)])
        assert Request(messages, json.loads(parameters)).key(model) == key


SCRIPT = """
import os, signal, sys
from pathlib import Path
from lightning_cse.llm import Reply, Request
from lightning_cse.llm.cache import ReplyCache
cache = ReplyCache(Path(sys.argv[1]))
input()
for key in map(str, range(40)):
    with cache.claim(key):
        if cache.get(key) is None:
            if sys.argv[2] == "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            print(key)
            cache.put(key, "m", Request((("user", ""),)), Reply("yes", "stop"))
"""


def test_processes_with_one_cache_claim_each_key_once_also_if_one_is_killed(path):
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", SCRIPT, str(path), name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in ("first", "second", "killed")
    ]
    for process in processes:
        process.stdin.write("\n")
        process.stdin.flush()

    asked = [process.communicate(timeout=60)[0].split() for process in processes]
    assert sorted(map(int, [*asked[0], *asked[1]])) == list(range(40))
    assert asked[2] == []


def test_an_unusable_cache_file(path):
    path.parent.mkdir()
    path.write_bytes(b"no database, but longer than a header is" * 5)
    with pytest.raises(LLMError, match=r"replies\.sqlite cannot be used: .* move it away"):
        ReplyCache(path).get("key")

    assert path.read_bytes().startswith(b"no database")
