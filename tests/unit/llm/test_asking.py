"""Requests of which some depend on replies to others."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from llm_server import ChatServer, always, prompt

from lightning_cse.llm import ChatClient, Failure, LLMError, Reply, ReplyCache, Request

Serve = Callable[..., ChatServer]
Client = Callable[..., ChatClient]


def request(text: str) -> Request:
    return Request((("user", text),))


@pytest.mark.filterwarnings("error")
def test_requests_may_follow_from_replies(serve: Serve, client: Client, cache: ReplyCache) -> None:
    # Each reply of one letter more is asked on with, until it is long enough.
    server = serve(lambda body: prompt(body) + "x")
    asking = client(server, cache, concurrency=2)
    for calls in (12, 0):  # the second time out of the cache
        got: dict[str, list[str]] = {"a": [], "b": [], "c": []}
        before = len(server.calls)
        with asking.session() as session:
            for tag in got:
                session.submit(tag, request(tag))
            for tag, outcome in session.landed():
                assert isinstance(outcome, Reply)
                got[tag].append(outcome.text)
                if len(outcome.text) < 5:
                    session.submit(tag, request(outcome.text))
            assert list(session.landed()) == []
        assert got == {tag: [tag + "x" * count for count in range(1, 5)] for tag in got}
        assert len(server.calls) - before == calls
    assert server.peak <= 2
    assert (asking.account.requests, asking.account.cached) == (24, 12)


def test_free_counts_what_is_under_way_and_what_landed_and_was_not_fetched(
    serve: Serve, client: Client, cache: ReplyCache
) -> None:
    go = threading.Event()

    def answer(body: dict[str, Any]) -> str:
        go.wait(60)
        return "done"

    cache.put(request("kept").key("m"), "m", request("kept"), Reply("of old", "stop"))
    server = serve(answer)
    with client(server, cache, concurrency=3).session() as session:
        assert session.free == 3
        for free, text in ((2, "a"), (1, "kept"), (0, "a"), (0, "more"), (0, "and more"), (0, "than fit")):
            session.submit(text, request(text))
            assert session.free == free
        landed = session.landed()
        (tag, outcome) = next(landed)
        assert (tag, getattr(outcome, "text", None)) == ("kept", "of old")
        go.set()
        assert sorted(tag for tag, _ in landed) == ["a", "a", "and more", "more", "than fit"]
        assert session.free == 3
    assert server.peak <= 3


def test_a_tag_comes_back_as_it_was(serve: Serve, client: Client) -> None:
    tag: dict[str, list[int]] = {"not hashable": [1]}
    with client(serve()).session() as session:
        session.submit(tag, request("a"))
        ((back, _),) = session.landed()
    assert back is tag


def test_what_ends_all_is_told_after_what_came(serve: Serve, client: Client, cache: ReplyCache) -> None:
    cache.put(request("kept").key("m"), "m", request("kept"), Reply("of old", "stop"))
    server = serve(plan=always("unauthorized"))
    asking = client(server, cache)
    with asking.session() as session:
        session.submit(0, request("a"))
        session.submit(1, request("kept"))
        landed = session.landed()
        assert next(landed)[0] == 1
        with pytest.raises(LLMError, match="does not let us in"):
            next(landed)
        assert session.free == 0
        with pytest.raises(LLMError, match="does not let us in"):
            next(session.landed())
    assert asking.account.requests == 1


def test_leaving_a_session_cuts_off_what_is_under_way(serve: Serve, client: Client) -> None:
    server = serve(plan=lambda body, _: "silent" if prompt(body) == "slow" else None)
    asking = client(server, concurrency=1, retries=0)
    with asking.session() as session:
        for text in ("fast", "slow", "waits for its place"):
            session.submit(text, request(text))
        for tag, outcome in session.landed():
            assert tag == "fast"
            assert not isinstance(outcome, Failure)
            break
    assert asking.account.requests == 1
    assert "waits for its place" not in server.answered
