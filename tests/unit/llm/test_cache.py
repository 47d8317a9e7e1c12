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
    assert cache.put(key, "m", REQUEST, REPLY) == REPLY
    assert ReplyCache(path).get(key) == replace(REPLY, cached=True), "for another process"
    later = Reply("second", "length", "m-2", 2, 2)
    first_reply = replace(REPLY, prompt_tokens=2, completion_tokens=2)
    assert cache.put(key, "m", REQUEST, later) == first_reply
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
import sys
from pathlib import Path
from lightning_cse.llm import Reply, Request
from lightning_cse.llm.cache import ReplyCache
cache = ReplyCache(Path(sys.argv[1]))
input()
for k in range(40):
    print(cache.put(str(k), 'm', Request((('user', ''),)), Reply(sys.argv[2], 'stop')).text)
"""


def test_processes_share_one_file(path):
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", SCRIPT, str(path), name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in "abc"
    ]
    for process in processes:
        process.stdin.write("\n")
        process.stdin.flush()

    first, *later = [process.communicate(timeout=60)[0].splitlines() for process in processes]
    assert len(first) == 40
    assert later == [first, first]


def test_a_claim_excludes_others_until_it_is_released_or_its_cache_closed(path):
    first, second = ReplyCache(path), ReplyCache(path)
    assert first.claim("a")
    assert not second.claim("a")
    assert second.claim("b")

    first.release("a")
    assert second.claim("a")
    second.release("b")

    first.claim("c")
    first.close()
    assert second.claim("c"), "its cache is closed"

    second.put("a", "m", REQUEST, REPLY)
    second.release("a")
    assert not first.claim("a"), "it has a reply"

    first.close()
    second.close()
    assert not list(path.parent.glob("*.sqlite.*.lock"))


CLAIMING = """
import sys
from pathlib import Path
from lightning_cse.llm.cache import ReplyCache
cache = ReplyCache(Path(sys.argv[1]))
print(cache.claim("a"), flush=True)
input()
"""


def test_the_claim_of_a_killed_process_is_taken_over(path):
    process = subprocess.Popen(
        [sys.executable, "-c", CLAIMING, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "True\n"
    with closing(ReplyCache(path)) as cache:
        assert not cache.claim("a"), "its process lives"
        process.kill()
        process.wait()
        assert cache.claim("a")

    assert not list(path.parent.glob("*.sqlite.*.lock"))


def test_an_unusable_cache_file(path):
    path.parent.mkdir()
    path.write_bytes(b"no database, but longer than a header is" * 5)
    with pytest.raises(LLMError, match=r"replies\.sqlite cannot be used: .* move it away"):
        ReplyCache(path).get("key")

    assert path.read_bytes().startswith(b"no database")
