"""Requests of which some depend on replies to others."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from llm_server import ChatServer, always, first, prompt

import lightning_cse
from lightning_cse.llm import ChatClient, LLMError, Reply, ReplyCache, Request
from lightning_cse.llm import asking as asking_module
from lightning_cse.llm.cache import Entry

SOURCE = str(Path(lightning_cse.__file__).parents[1])

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


class Gate:
    """What a server waits for before it answers anybody but the one who is broke."""

    def __init__(self) -> None:
        self._open = threading.Event()

    def answer(self, body: dict[str, Any]) -> str:
        if prompt(body) != "broke":
            self._open.wait(30)
        return prompt(body)[::-1]

    def open(self, after: float = 0.0) -> None:
        """Open it so many seconds from now, when as a rule somebody is waiting."""
        timer = threading.Timer(after, self._open.set)
        timer.daemon = True
        timer.start()


@pytest.fixture
def gate() -> Iterator[Gate]:
    made = Gate()
    yield made
    made.open()


class Stopped(Exception):  # noqa: N818 - no error: as an interrupt is none
    """What a consumer raises."""


def under_way(server: ChatServer, count: int) -> None:
    """Wait until so many calls have come."""
    until = time.monotonic() + 30
    while len(server.calls) < count and time.monotonic() < until:
        time.sleep(0.005)
    assert len(server.calls) == count


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("end", [Stopped, KeyboardInterrupt, GeneratorExit])
def test_calls_under_way_at_the_end_are_answered_kept_and_counted(
    serve: Serve, client: Client, cache: ReplyCache, end: type[BaseException]
) -> None:
    server = serve(seconds=0.3)
    asking = client(server, cache, concurrency=64)
    with pytest.raises(end), asking.session() as session:
        for number in range(200):
            session.submit(number, request(str(number)))
        under_way(server, 64)
        raise end
    assert len(server.calls) == server.answered.total() == len(cache) == 64
    assert asking.account.requests == 64
    assert asking.account.prompt_tokens == 64


def test_leaving_the_loop_waits_for_the_calls_under_way(
    serve: Serve, client: Client, cache: ReplyCache, gate: Gate
) -> None:
    server = serve(lambda body: "first" if prompt(body) == "0" else gate.answer(body))
    asking = client(server, cache, concurrency=4)
    for index, _ in asking.ask(request(str(number)) for number in range(100)):
        assert index == 0
        under_way(server, 4)
        gate.open(after=0.1)
        break
    assert sorted(server.answered) == ["0", "1", "2", "3"]
    assert asking.account.requests == len(cache) == 4


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("settings", "fault", "begun"),
    [
        ({"concurrency": 1}, None, 1),  # a place
        ({"requests_per_minute": 1}, None, 1),  # its turn
        ({"backoff": 30.0}, "error", 2),  # to be made again
        ({}, "limit", 2),  # the same, as long as the endpoint says
    ],
)
def test_what_waits_for_its_call_is_left_at_once(
    serve: Serve, client: Client, settings: dict[str, Any], fault: str | None, begun: int
) -> None:
    server = serve(plan=first(fault), seconds=0.1, retry_after="30")
    with client(server, **settings).session() as session:
        session.submit(0, request("a"))
        session.submit(1, request("b"))
        under_way(server, begun)
        time.sleep(0.0 if fault is None else 0.2)  # until the fault has come
        started = time.monotonic()
    assert time.monotonic() - started < 5
    assert len(server.calls) == begun


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("fault", ["error", "limit", "break", "unauthorized", "no_path"])
def test_a_call_that_fails_after_the_end_is_not_made_again(
    serve: Serve, client: Client, cache: ReplyCache, fault: str
) -> None:
    server = serve(plan=always(fault), seconds=0.15)
    asking = client(server, cache)
    with pytest.raises(Stopped), asking.session() as session:
        session.submit(0, request("a"))
        under_way(server, 1)
        raise Stopped
    assert len(server.calls) == 1
    assert (asking.account.requests, len(cache)) == (0, 0)


def test_a_call_that_stalls_is_waited_for_as_long_as_one_may_take(
    serve: Serve, client: Client, cache: ReplyCache, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asking_module, "_UNTOLD", 0.05)
    caplog.set_level(logging.INFO)
    server = serve(plan=always("silent"))
    asking = client(server, cache, timeout=0.3)
    with asking.session() as session:
        session.submit(0, request("a"))
        session.submit(1, request("b"))
        under_way(server, 2)
    assert len(server.calls) == 2
    assert asking.account.requests == 0
    assert caplog.messages == [
        "waiting for 2 calls under way, which are paid for (at most 0.3 s); Ctrl-C again leaves them"
    ]
    caplog.clear()
    with asking.session() as session:
        session.submit(0, request("c"))
        under_way(server, 3)
    assert caplog.messages == [
        "waiting for 1 call under way, which is paid for (at most 0.3 s); Ctrl-C again leaves them"
    ]


def test_nothing_is_told_where_the_end_is_quick(serve: Serve, client: Client, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    server = serve(seconds=0.1)
    with client(server).session() as session:
        session.submit(0, request("a"))
        under_way(server, 1)
    assert server.answered.total() == 1
    assert caplog.messages == []


@pytest.fixture
def interrupt() -> Iterator[Callable[[float], None]]:
    """Press Ctrl-C so many seconds from now."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # it may be ignored here
    main = threading.main_thread().ident
    assert main is not None
    timers: list[threading.Timer] = []

    def press(after: float) -> None:
        # A signal to the thread, as a terminal's: `interrupt_main` wakes nobody who waits.
        timers.append(threading.Timer(after, signal.pthread_kill, (main, signal.SIGINT)))
        timers[-1].start()

    yield press
    for timer in timers:
        timer.cancel()
    signal.signal(signal.SIGINT, before)


@pytest.mark.filterwarnings("error")
def test_an_interrupt_of_the_wait_leaves_what_is_under_way(
    serve: Serve, client: Client, cache: ReplyCache, gate: Gate, interrupt: Callable[[float], None]
) -> None:
    server = serve(lambda body: "fast" if prompt(body) == "1" else gate.answer(body))
    asking = client(server, cache, concurrency=8)
    session = asking.session()
    with pytest.raises(KeyboardInterrupt) as caught, session:
        for number in range(20):
            session.submit(number, request(str(number)))
        under_way(server, 9)  # one was answered, and the next began
        interrupt(0.2)
        started = time.monotonic()
        raise Stopped
    assert 0.15 < time.monotonic() - started < 3
    assert "llm calls" not in [thread.name for thread in threading.enumerate()]
    assert isinstance(caught.value.__context__, Stopped)
    assert len(server.calls) == 9
    assert (asking.account.requests, len(cache)) == (1, 1)
    session.close()  # once more is nothing
    assert asking.account.requests == 1


def test_an_error_that_ends_all_leaves_nothing_that_is_paid(
    serve: Serve, client: Client, cache: ReplyCache, gate: Gate
) -> None:
    server = serve(gate.answer, plan=lambda body, _: "payment" if prompt(body) == "broke" else None)
    asking = client(server, cache, concurrency=4)
    landed: list[str] = []
    with pytest.raises(LLMError, match="wants money first"), asking.session() as session:
        for text in ("a", "b", "c"):
            session.submit(text, request(text))
        under_way(server, 3)
        for text in ("broke", "waits for a place"):
            session.submit(text, request(text))
        under_way(server, 4)
        gate.open(after=0.2)
        for tag, _ in session.landed():
            landed.append(tag)
    assert landed == []
    assert sorted(call.body["messages"][0]["content"] for call in server.calls) == ["a", "b", "broke", "c"]
    assert sorted(text for text, times in server.answered.items() if times) == ["a", "b", "c"]
    assert asking.account.requests == len(cache) == 3


def test_of_several_errors_that_end_all_the_first_is_told(serve: Serve, client: Client, gate: Gate) -> None:
    plan = {"a": "unauthorized", "b": "payment"}  # the one that is submitted first is refused last
    server = serve(
        lambda body: gate.answer(body) if prompt(body) == "a" else "", plan=lambda body, _: plan[prompt(body)]
    )
    with pytest.raises(LLMError, match="wants money first"), client(server).session() as session:
        for text in plan:
            session.submit(text, request(text))
        gate.open(after=0.2)
        time.sleep(0.4)  # until both have come
        next(session.landed())


def test_nothing_is_asked_once_an_error_has_ended_all(serve: Serve, client: Client) -> None:
    server = serve(plan=always("unauthorized"))
    with client(server, concurrency=1).session() as session:
        for number in range(5):
            session.submit(number, request(str(number)))
        with pytest.raises(LLMError, match="does not let us in"):
            next(session.landed())
        session.submit(5, request("later"))
        with pytest.raises(LLMError, match="does not let us in"):
            next(session.landed())
        time.sleep(0.1)
        assert len(server.calls) == 1


@pytest.mark.filterwarnings("error")
def test_a_reply_at_the_end_that_cannot_be_kept_is_told(
    serve: Serve, client: Client, tmp_path: Path, caplog: pytest.LogCaptureFixture, gate: Gate
) -> None:
    class Full(ReplyCache):
        def put_all(self, entries: Sequence[Entry]) -> list[Reply]:
            raise LLMError("the disk is full")

    server = serve(gate.answer, plan=lambda body, _: "payment" if prompt(body) == "broke" else None)
    with Full(tmp_path / "replies") as cache:
        asking = client(server, cache)
        with pytest.raises(LLMError, match="wants money first"), asking.session() as session:
            session.submit(0, request("a"))
            session.submit(1, request("b"))
            under_way(server, 2)
            session.submit(2, request("broke"))
            gate.open(after=0.2)
            next(session.landed())
    assert asking.account.requests == 0
    assert caplog.messages == ["not all that came at the end is kept: the disk is full"]
    with pytest.raises(LLMError, match="wants money first"):
        next(session.landed())


@pytest.mark.filterwarnings("error")
def test_an_error_of_all_calls_is_told_once(
    serve: Serve, client: Client, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    both = threading.Barrier(2)

    class Full(ReplyCache):
        def put_all(self, entries: Sequence[Entry]) -> list[Reply]:
            raise LLMError("the disk is full")

    def answer(body: dict[str, Any]) -> str:
        both.wait(30)
        time.sleep(0.2 if prompt(body) == "b" else 0)
        return "done"

    server = serve(answer)
    with (
        Full(tmp_path / "replies") as cache,
        client(server, cache).session() as session,
        pytest.raises(LLMError, match="the disk is full"),
    ):
        session.submit(0, request("a"))
        session.submit(1, request("b"))
        next(session.landed())
    assert server.answered.total() == 2
    assert caplog.messages == []


FORGOTTEN = """
import sys
from lightning_cse.llm import ChatClient, Endpoint, Request


class Ring:
    pass


ring = Ring()
ring.itself = ring  # only the end of the program finds it
ring.outcomes = ChatClient(Endpoint("m", base_url=sys.argv[1])).ask(Request((("user", str(k)),)) for k in range(9))
print(next(ring.outcomes)[0], flush=True)
"""


def test_a_program_that_forgets_its_calls_ends(serve: Serve) -> None:
    server = serve(plan=lambda body, _: None if prompt(body) == "0" else "silent")
    done = subprocess.run(
        [sys.executable, "-c", FORGOTTEN, server.url],
        env=os.environ | {"PYTHONPATH": SOURCE},
        capture_output=True,
        text=True,
        timeout=40,
    )
    assert (done.stdout, done.stderr, done.returncode) == ("0\n", "", 0)
