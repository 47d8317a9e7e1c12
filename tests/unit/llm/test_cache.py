"""Replies on disk: what goes in comes out, whoever else is at it and whatever happens."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

import lightning_cse
from lightning_cse.llm import LLMError, Reply, ReplyCache, Request
from lightning_cse.llm import cache as module
from lightning_cse.llm.cache import Entry

SOURCE = str(Path(lightning_cse.__file__).parents[1])
REQUEST = Request((("system", "Ünïcode \0 😀"), ("user", "'quoted'")), {"temperature": 0.5, "max_tokens": 3}, sample=2)
REPLY = Reply("ja 😀\n", "stop", None, 12, 3, served="m-1", endpoint="https://one/v1")


def put(cache: ReplyCache, number: int, text: str = "yes") -> Reply:
    request = Request((("user", str(number)),))
    return cache.put(request.key("m"), "m", request, Reply(text, "stop"))


def test_what_is_kept_comes_back_as_cached(cache: ReplyCache) -> None:
    key = REQUEST.key("m")
    assert cache.get(key) is None
    assert cache.put(key, "m", REQUEST, REPLY) == REPLY
    refused = Reply("", "content_filter", "content_filter")
    cache.put("other", "m", REQUEST, refused)
    with ReplyCache(cache.path) as again:
        assert again.get(key) == replace(REPLY, cached=True)
        assert again.get("other") == Reply("", "content_filter", "content_filter", cached=True)
        assert len(again) == 2


def test_the_file_says_what_was_asked(cache: ReplyCache) -> None:
    cache.put(REQUEST.key("m"), "m", REQUEST, REPLY)
    with sqlite3.connect(cache.path) as file:
        row = file.execute(
            "SELECT model, messages, last, parameters, sample, served, endpoint, created"
            " FROM replies JOIN standing ON standing = digest"
        ).fetchone()
    file.close()
    assert row[0] == "m"
    assert row[1:3] == ('[["system", "Ünïcode \\u0000 😀"]]', '["user", "\'quoted\'"]')
    assert row[3:5] == ('{"max_tokens": 3, "temperature": 0.5}', 2)
    assert row[5:7] == ("m-1", "https://one/v1")
    assert row[7].endswith("+00:00")


def test_what_prompts_share_is_kept_once(cache: ReplyCache) -> None:
    shared = (("system", "Be brief. " * 300), ("user", "Is it?"), ("assistant", "No. "))
    other = (("system", "Be long."),)
    requests = [Request((*before, ("user", str(k)))) for before in (shared, other) for k in range(50)]
    cache.put_all([Entry(request.key("m"), "m", request, REPLY) for request in requests[::3]])
    for request in requests:
        cache.put(request.key("m"), "m", request, REPLY)
    cache.close()
    assert cache.path.stat().st_size < 100_000  # the prompts are 150,000
    with sqlite3.connect(cache.path) as file:
        assert file.execute("SELECT count(*) FROM standing").fetchone() == (2,)
        rows = file.execute("SELECT key, messages, last FROM replies JOIN standing ON standing = digest").fetchall()
    file.close()
    assert len(rows) == 100
    for key, standing, last in rows:
        messages = tuple((role, text) for role, text in [*json.loads(standing), json.loads(last)])
        assert Request(messages).key("m") == key


def test_the_first_reply_stays_and_the_second_is_still_paid(cache: ReplyCache) -> None:
    one = Reply("first", "stop", None, 1, 1, served="a", endpoint="http://a")
    cache.put("key", "m", REQUEST, one)
    kept = cache.put("key", "m", REQUEST, Reply("second", "length", "no", 2, 2, served="b", endpoint="http://b"))
    assert kept == replace(one, prompt_tokens=2, completion_tokens=2)
    assert cache.get("key") == replace(one, cached=True)


def test_a_reply_is_on_the_disk_before_anybody_sees_it(cache: ReplyCache) -> None:
    put(cache, 0)
    assert cache._connection is not None
    assert cache._connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert cache._connection.execute("PRAGMA synchronous").fetchone() == (2,)  # FULL
    assert not cache._connection.in_transaction


def test_threads_share_one_cache(cache: ReplyCache) -> None:
    threads = [
        threading.Thread(target=lambda k=k: [put(cache, number, f"by {k}") for number in range(20)]) for k in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(cache) == 20


def test_processes_share_one_file_from_its_first_moment(cache: ReplyCache) -> None:
    script = (
        "import sys; from pathlib import Path; from lightning_cse.llm import Reply, ReplyCache, Request\n"
        "cache = ReplyCache(Path(sys.argv[1])); input()\n"
        "for k in range(40):\n"
        "    request = Request((('user', str(k)),))\n"
        "    print(cache.put(request.key('m'), 'm', request, Reply(f'{sys.argv[2]} {k}', 'stop')).text)\n"
    )
    environment = os.environ | {"PYTHONPATH": SOURCE}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", script, str(cache.path), name],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in "abc"
    ]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    told = [process.communicate(timeout=60)[0].splitlines() for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0]
    assert len(told[0]) == 40
    assert told[0] == told[1] == told[2]
    assert len(cache) == 40


@pytest.mark.parametrize(
    "content", [b"no database, but longer than a header is" * 5, b"SQLite format 3\0" + b"\7" * 5000]
)
def test_a_file_that_is_no_database_is_named(cache: ReplyCache, content: bytes) -> None:
    cache.path.parent.mkdir()
    cache.path.write_bytes(content)
    with pytest.raises(LLMError, match=r"replies\.sqlite is damaged .*: move it away"):
        cache.get("key")
    assert cache.path.read_bytes() == content


def test_damage_within_the_file_is_named(cache: ReplyCache) -> None:
    cache.put_all([Entry(str(k), "m", REQUEST, Reply("long " * 50, "stop")) for k in range(200)])
    cache.close()
    whole = bytearray(cache.path.read_bytes())
    assert len(whole) > 20 * 4096
    whole[4096:] = os.urandom(1) * (len(whole) - 4096)
    cache.path.write_bytes(whole)
    with pytest.raises(LLMError, match=r"replies\.sqlite is damaged"):
        put(cache, 0)


def test_another_programs_database_is_left_alone(cache: ReplyCache) -> None:
    cache.path.parent.mkdir()
    with sqlite3.connect(cache.path) as other:
        other.execute("CREATE TABLE letters (text)")
    other.close()
    before = cache.path.read_bytes()
    with pytest.raises(LLMError, match="another program"):
        put(cache, 0)
    assert cache.path.read_bytes() == before


def test_another_layout_is_told(cache: ReplyCache, monkeypatch: pytest.MonkeyPatch) -> None:
    put(cache, 0)
    cache.close()
    monkeypatch.setattr(module, "VERSION", 2)
    with pytest.raises(LLMError, match="has layout 1, and this lightning_cse reads 2"):
        cache.get("key")


def test_a_place_where_no_file_can_be_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path, tmp_path / "file" / "cache"):
        with pytest.raises(LLMError, match=r"cannot be used .*may you write in it"):
            ReplyCache(path).get("key")


def test_replies_kept_together_are_kept_in_their_order_and_all_or_none(cache: ReplyCache) -> None:
    put(cache, 0, "first")
    key = Request((("user", "0"),)).key("m")
    entries = [Entry(name, "m", REQUEST, Reply(f"of {name}", "stop")) for name in ("b", key, "a", "b")]
    assert [reply.text for reply in cache.put_all(entries)] == ["of b", "first", "of a", "of b"]
    assert len(cache) == 3
    broken = Entry("d", "m", REQUEST, Reply(None, "stop"))  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        cache.put_all([Entry("c", "m", REQUEST, REPLY), broken])
    assert len(cache) == 3


def test_a_full_disk_is_told_and_what_was_kept_is_there(cache: ReplyCache) -> None:
    put(cache, 0)
    assert cache._connection is not None
    cache._connection.execute("PRAGMA max_page_count=1")
    with pytest.raises(LLMError, match="no space left on its disk"):
        put(cache, 1, "long " * 100_000)
    assert len(cache) == 1
    cache._connection.execute("PRAGMA max_page_count=1000")
    put(cache, 1)
    assert len(cache) == 2


def test_a_file_that_somebody_holds_is_told(cache: ReplyCache, monkeypatch: pytest.MonkeyPatch) -> None:
    put(cache, 0)
    cache.close()
    monkeypatch.setattr(module, "PATIENCE", 0.05)
    other = sqlite3.connect(cache.path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(LLMError, match="held by another process"):
        put(cache, 1)
    other.close()
    put(cache, 1)
    assert len(cache) == 2
