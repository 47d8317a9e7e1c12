"""Asking a server that answers, stalls, limits, breaks off and lies."""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from llm_server import FAULTS, ODD, TRANSIENT, ChatServer, always, first, prompt, share

import lightning_cse
from lightning_cse.errors import LightningCSEError
from lightning_cse.llm import ChatClient, Endpoint, Failure, LLMError, Pace, Reply, ReplyCache, Request, calls
from lightning_cse.llm import pace as paces
from lightning_cse.llm.cache import Entry
from lightning_cse.llm.troubles import Trouble

SOURCE = str(Path(lightning_cse.__file__).parents[1])
MENDED = tuple(fault for fault in FAULTS if fault != "quota")
ENDLESS = ("silent", "stall", "trickle")

Serve = Callable[..., ChatServer]
Client = Callable[..., ChatClient]
Asked = Callable[[ChatClient, Sequence[Request]], "list[Reply | Failure]"]


def questions(count: int, start: int = 0) -> list[Request]:
    return [Request((("user", f"question {k}"),), {"temperature": 0}) for k in range(start, start + count)]


def answers(count: int, start: int = 0) -> list[str]:
    return [f"question {k}"[::-1] for k in range(start, start + count)]


def texts(outcomes: Sequence[Reply | Failure]) -> list[str]:
    return [outcome.text if isinstance(outcome, Reply) else f"FAILED {outcome.reason}" for outcome in outcomes]


def test_what_is_sent_and_what_comes_back(serve: Serve, client: Client, asked: Asked, key: str) -> None:
    server = serve()
    request = Request(
        (("system", "Reverse."), ("user", "one two")), {"temperature": 0.5, "max_tokens": 7, "min_p": 0.1, "stop": "\n"}
    )
    asking = client(server, model="some/model")
    reply = Reply("owt eno", "stop", None, 3, 2, served="some/model", endpoint=server.url)
    assert asked(asking, [request]) == [reply]
    (call,) = server.calls
    assert call.authorization == f"Bearer {key}"
    assert call.body == {
        "model": "some/model",
        "messages": [{"role": "system", "content": "Reverse."}, {"role": "user", "content": "one two"}],
        "temperature": 0.5,
        "max_tokens": 7,
        "min_p": 0.1,
        "stop": "\n",
    }
    assert asking.account.as_dict() == asking.account.as_dict() | {
        "requests": 1, "cached": 0, "retried": 0, "prompt_tokens": 3, "completion_tokens": 2,
    }  # fmt: skip


def test_many_requests_against_a_bad_server(serve: Serve, client: Client, asked: Asked, cache: ReplyCache) -> None:
    # Without those that end by our own clock: on a busy machine it could cut off a call that is being answered.
    kinds = tuple(kind for kind in TRANSIENT if kind not in ENDLESS)
    server = serve(plan=share(0.2, kinds, times=4), seconds=0.002)
    asking = client(server, cache, concurrency=16)
    assert texts(asked(asking, questions(200))) == answers(200)
    faults = [call.fault for call in server.calls if call.fault is not None]
    assert set(faults) == set(kinds)
    assert set(server.answered.values()) == {1}
    assert len(server.answered) == 200
    assert 8 <= server.peak <= 16
    assert asking.account.retried == len(faults)
    assert (asking.account.requests, asking.account.failed, asking.account.cached) == (200, 0, 0)

    before = len(server.calls)
    again = client(server, cache)
    assert texts(asked(again, questions(201))) == answers(201)
    assert len(server.calls) == before + 1
    assert (again.account.cached, again.account.requests) == (200, 201)
    assert again.account.cached_prompt_tokens == asking.account.prompt_tokens
    assert again.account.prompt_tokens == 2


@pytest.mark.parametrize("concurrency", [1, 5])
def test_no_more_calls_at_once_than_asked_for(serve: Serve, client: Client, asked: Asked, concurrency: int) -> None:
    together = threading.Barrier(concurrency)

    def answer(body: dict[str, Any]) -> str:
        together.wait(60)  # nobody is answered before as many are there
        return "done"

    server = serve(answer)
    assert texts(asked(client(server, concurrency=concurrency), questions(20))) == ["done"] * 20
    assert server.peak == concurrency


def test_requests_are_taken_as_calls_become_free(serve: Serve, client: Client) -> None:
    taken = itertools.count()

    def endless() -> Iterator[Request]:
        while True:
            yield questions(1, next(taken))[0]

    outcomes = client(serve(), concurrency=3).ask(endless())
    assert next(taken) == 0  # a call takes nothing before somebody waits for it
    for _ in range(10):
        next(outcomes)
    outcomes.close()
    assert 10 <= next(taken) <= 10 + 3 + 1


def test_outcomes_come_as_they_are_ready(serve: Serve, client: Client) -> None:
    def answer(body: dict[str, Any]) -> str:
        time.sleep(0.3 if prompt(body) == "question 0" else 0)
        return "done"

    order = [index for index, _ in client(serve(answer), concurrency=2).ask(questions(4))]
    assert order[-1] == 0
    assert sorted(order) == [0, 1, 2, 3]


def test_equal_requests_are_asked_once(serve: Serve, client: Client, asked: Asked, cache: ReplyCache) -> None:
    server = serve(seconds=0.02)
    asking = client(server, cache, concurrency=3)
    got = asked(asking, [*questions(1), *questions(2), *questions(1)])
    assert texts(got) == [answers(1)[0], *answers(2), answers(1)[0]]
    assert server.answered == {"question 0": 1, "question 1": 1}
    assert sorted(outcome.cached for outcome in got if isinstance(outcome, Reply)) == [False, False, True, True]
    assert (asking.account.requests, asking.account.cached) == (4, 2)
    assert asking.account.prompt_tokens == asking.account.cached_prompt_tokens == 4


def test_equal_requests_that_want_another_sample_are_asked_again(
    serve: Serve, client: Client, asked: Asked, cache: ReplyCache
) -> None:
    server = serve()
    request = questions(1)[0]
    asked(client(server, cache), [request, Request(request.messages, request.parameters, sample=1)])
    assert server.answered == {"question 0": 2}
    assert server.calls[0].body == server.calls[1].body


@pytest.mark.parametrize("fault", MENDED)
def test_every_fault_is_mended_by_asking_again(serve: Serve, client: Client, asked: Asked, fault: str) -> None:
    server = serve(plan=first(fault))
    asking = client(server, timeout=0.5 if fault in ENDLESS else 60.0)
    assert texts(asked(asking, questions(1))) == answers(1)
    assert [call.fault for call in server.calls] == [fault, None]
    assert asking.account.retried == 1


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("silent", "no answer within 0.5 s"),
        ("stall", "no answer within 0.5 s"),
        ("trickle", "no answer within 0.5 s"),
        ("error", "status 500: The server had an error"),
        ("unavailable", "status 503: <html><body>503 Service"),
        ("break", "the connection broke off"),
        ("break_body", "the connection broke off"),
        ("garbage", "the answer is no JSON; it begins"),
        ("html", "the answer is no JSON; it begins '<html><body>Please log in"),
        ("array", "the answer is no chat completion"),
        ("empty", "there is no message in the answer"),
        ("numbers", "the message is no text"),
        ("finish_error", "the reply broke off with an error: .*Provider is down"),
    ],
)
def test_a_request_that_never_gets_through_is_told_and_not_kept(
    serve: Serve, client: Client, asked: Asked, cache: ReplyCache, fault: str, reason: str
) -> None:
    server = serve(plan=lambda body, _: fault if prompt(body) == "question 1" else None)
    asking = client(server, cache, retries=1, timeout=0.5 if fault in ENDLESS else 60.0)
    good, failed, *_ = asked(asking, questions(3))
    assert isinstance(good, Reply)
    assert isinstance(failed, Failure)
    assert re.match(reason, failed.reason)
    assert failed.attempts == 2
    assert not failed.final
    assert (asking.account.failed, asking.account.retried) == (1, 1)
    assert len(cache) == 2
    server.plan = None
    assert texts(asked(client(server, cache), questions(3))) == answers(3)


def test_a_request_waits_as_long_as_it_is_told_and_so_do_all_others(serve: Serve, client: Client) -> None:
    server = serve(plan=lambda body, nth: "limit" if prompt(body) == "question 0" and nth == 0 else None)
    server.retry_after = "0.3"
    assert len(list(client(server, concurrency=1).ask(questions(2)))) == 2
    times = [call.at for call in server.calls]
    assert times[1] - times[0] >= 0.3

    server = serve(plan=first("limit"), retry_after="0.3", seconds=0.0)
    got = list(client(server, concurrency=4).ask(questions(8)))
    assert len(got) == 8
    started = [call.at for call in server.calls]
    refused = [call.at for call in server.calls if call.fault == "limit"]
    assert not [at for at in started if refused[3] + 0.05 < at < refused[3] + 0.28]


def test_being_told_to_wait_is_no_fault_of_a_request(serve: Serve, client: Client, asked: Asked) -> None:
    server = serve(plan=first(*["limit"] * 5), retry_after="0.001")
    assert texts(asked(client(server, retries=1), questions(2))) == answers(2)
    server = serve(plan=always("limit"), retry_after="0.001")
    (failed,) = asked(client(server, retries=1), questions(1))
    assert failed == Failure("status 429: Rate limit reached", 1 + calls.WAITS)


@pytest.mark.parametrize("retry_after", ["0", "Mon, 01 Jan 2001 00:00:00 GMT"])
def test_being_told_not_to_wait_leaves_the_backoff(
    serve: Serve, client: Client, asked: Asked, retry_after: str
) -> None:
    server = serve(plan=first(*["limit"] * 3), retry_after=retry_after)
    assert texts(asked(client(server, backoff=0.04), questions(1))) == answers(1)
    times = [call.at for call in server.calls]
    for nth, (early, late) in enumerate(itertools.pairwise(times)):
        assert late - early >= 0.75 * 0.04 * 2**nth


def test_limits_of_a_day_are_not_waited_for(serve: Serve, client: Client) -> None:
    server = serve(plan=always("limit"), retry_after="3600")
    with pytest.raises(LLMError, match=r"asks to wait 3,600 s .*when it is over"):
        list(client(server).ask(questions(3)))


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        ("unauthorized", r"does not let us in \(status 401.*environment variable OPENAI_API_KEY holds the wrong one"),
        ("forbidden", r"does not let us in \(status 403: Your country is not supported\)"),
        ("payment", r"wants money first \(status 402: Insufficient Balance\)"),
        ("quota", r"wants money first \(status 429: You exceeded your current quota\)"),
        ("no_path", r"no such address or no model 'm' \(status 404: Not Found\): llm.base_url ends in /v1"),
    ],
)
def test_what_no_retry_mends_ends_all_at_once(serve: Serve, client: Client, kind: str, told: str, key: str) -> None:
    server = serve(plan=always(kind))
    with pytest.raises(LLMError, match=told) as caught:
        list(client(server, concurrency=2).ask(questions(50)))
    assert len(server.calls) <= 2
    assert key not in str(caught.value)


def test_a_server_that_wants_a_key_where_there_is_none_says_which(
    serve: Serve, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MY_KEY", raising=False)
    with pytest.raises(LLMError, match="MY_KEY is not set, and this one wants it: set MY_KEY"):
        list(client(serve(key="k"), key_variable="MY_KEY").ask(questions(1)))


def test_a_local_server_needs_no_key_and_gets_a_word(
    serve: Serve, client: Client, asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY")
    server = serve()
    assert texts(asked(client(server), questions(1))) == answers(1)
    assert server.calls[0].authorization == "Bearer none-needed"


def test_an_unknown_model_is_told_with_those_there_are(serve: Serve, client: Client) -> None:
    server = serve(models=["llama-3-8b", "qwen"])
    with pytest.raises(LLMError, match=r"no model 'lama-3-8b' - did you mean 'llama-3-8b'\?.*one of: llama-3-8b, qwen"):
        list(client(server, model="lama-3-8b").ask(questions(1)))


def test_one_request_that_is_refused_ends_only_itself(serve: Serve, client: Client, asked: Asked) -> None:
    kinds = {"question 3": "too_long", "question 4": "bad_request", "question 5": "forbidden"}
    server = serve(plan=lambda body, _: kinds.get(prompt(body)))
    got = asked(client(server, concurrency=1), questions(7))
    assert got[3] == Failure("status 400: This model's maximum context length is 8 tokens", 1, final=True)
    assert got[4] == Failure("status 400: Unsupported parameter: 'max_tokens'", 1, final=True)
    assert got[5] == Failure("status 403: Your country is not supported", 1, final=True)
    assert texts([*got[:3], got[6]]) == [*answers(3), *answers(1, 6)]
    assert len(server.calls) == 7


@pytest.mark.parametrize("kind", ["bad_request", "error", "html"])
def test_a_server_that_answers_nobody_is_given_up(serve: Serve, client: Client, kind: str) -> None:
    server = serve(plan=always(kind))
    with pytest.raises(LLMError, match=r"the last \d+ requests to \S+/v1 all failed.*the last reason: "):
        list(client(server, concurrency=2, retries=0).ask(questions(500)))
    assert len(server.calls) <= 10


def test_requests_that_are_too_long_say_nothing_of_the_server(serve: Serve, client: Client, asked: Asked) -> None:
    server = serve(plan=always("too_long"))
    assert len(asked(client(server, concurrency=2), questions(30))) == 30


def test_an_address_without_a_server_is_told_at_once(serve: Serve, client: Client) -> None:
    with ChatServer() as server:
        pass
    started = time.monotonic()
    with pytest.raises(LLMError, match=r"cannot be reached \(no connection.*Is the server running\?.*llm.base_url"):
        list(client(server, concurrency=1).ask(questions(1)))
    assert time.monotonic() - started < 5


def test_a_server_that_dies_is_told_and_the_next_start_continues(
    serve: Serve, client: Client, asked: Asked, cache: ReplyCache
) -> None:
    server = serve()
    asking = client(server, cache, concurrency=2, retries=3)
    got = []
    with pytest.raises(LLMError, match=r"cannot be reached .*the same command continues"):
        for index, _ in asking.ask(questions(40)):
            got.append(index)
            if len(got) == 10:
                server.stop()
    assert 10 <= len(got) < 40
    assert len(cache) == asking.account.requests >= len(got)

    other = serve()
    assert texts(asked(client(other, cache), questions(40))) == answers(40)
    assert sum(other.answered.values()) == 40 - asking.account.requests
    assert not other.answered.keys() & {f"question {index}" for index in got}


def test_a_server_that_starts_again_is_asked_on(serve: Serve, client: Client, asked: Asked) -> None:
    server = serve()
    asking = client(server, concurrency=2, backoff=0.1)
    port = server.server_address[1]
    outcomes = asking.ask(questions(30))
    for _ in range(5):
        next(outcomes)
    server.stop()
    timer = threading.Timer(0.2, lambda: serve(port=port))
    timer.start()
    rest = [outcome for _, outcome in outcomes]
    timer.join()
    assert len(rest) == 25
    assert all(isinstance(outcome, Reply) for outcome in rest)


@pytest.mark.parametrize(
    ("odd", "reply"),
    [
        ("filter_400", Reply("", "content_filter", "content_filter")),
        ("huge_usage", Reply("0 noitseuq", "stop", None, None, None)),
        ("refusal", Reply("", "stop", "I cannot help with that.", 2, 0)),
        ("filter", Reply("", "content_filter", "content_filter", 2, 0)),
        ("length", Reply("0 n", "length", None, 2, 2)),
        ("null", Reply("", "stop", None, 2, 0)),
        ("no_usage", Reply("0 noitseuq", "stop", None, None, None)),
        ("surrogate", Reply("cut ?", "stop", None, 2, 2)),
    ],
)
def test_odd_replies_are_replies_and_kept(
    serve: Serve, client: Client, asked: Asked, cache: ReplyCache, odd: str, reply: Reply
) -> None:
    server = serve(plan=always(odd))
    asking = client(server, cache)
    served = None if odd == "filter_400" else "m"
    assert asked(asking, questions(1)) == [replace(reply, served=served, endpoint=server.url)]
    assert asking.account.unmetered == (reply.prompt_tokens is None)
    (kept,) = asked(asking, questions(1))
    assert isinstance(kept, Reply)
    assert kept == replace(reply, served=served, endpoint=server.url, cached=True)
    assert len(server.calls) == 1


def test_every_odd_reply_of_the_server_is_tried() -> None:
    marks = test_odd_replies_are_replies_and_kept.pytestmark  # type: ignore[attr-defined]
    assert {case[0] for case in marks[0].args[1]} == set(ODD)


def test_kept_replies_need_no_network_no_key_and_no_package(
    serve: Serve, client: Client, asked: Asked, cache: ReplyCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked(client(serve(), cache), questions(5))
    monkeypatch.delenv("OPENAI_API_KEY")
    monkeypatch.setitem(sys.modules, "openai", None)
    elsewhere = client("https://api.example.org/v1", cache)
    assert texts(asked(elsewhere, questions(5))) == answers(5)
    with pytest.raises(LLMError, match=r"https://api\.example\.org/v1 wants a key.*OPENAI_API_KEY holds none"):
        list(elsewhere.ask(questions(6)))
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    with pytest.raises(LLMError, match=r"pip install 'lightning_cse\[llm\]'"):
        list(elsewhere.ask(questions(6)))


def test_the_key_is_seen_nowhere(
    serve: Serve,
    client: Client,
    cache: ReplyCache,
    key: str,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    caplog.set_level(logging.DEBUG)
    for name in calls._LOGGERS:
        caplog.set_level(logging.DEBUG, logger=name)
    server = serve(plan=first("error", "break", "limit"))
    asking, errors = client(server, cache), []
    got = list(asking.ask(questions(3)))
    server.plan = always("unauthorized")  # which repeats it
    whole = len("Incorrect API key provided: Bearer ")
    for server.padding in (0, 297 - whole - 12):  # whole, and where the middle of it is cut off
        with pytest.raises(LLMError) as caught:
            list(asking.ask(questions(9)))
        errors += [str(caught.value), repr(caught.value.__context__)]
    cache.close()
    assert server.calls[-1].authorization == f"Bearer {key}"
    assert any(record.name.startswith("openai") for record in caplog.records)
    assert "..." in errors[2]
    seen = [caplog.text, *capfd.readouterr(), *errors, repr(got)]
    seen += [repr(vars(asking)), repr(asking.endpoint), repr(asking.account)]
    seen += [path.read_bytes().decode("latin-1") for path in cache.path.parent.iterdir()]
    assert [text for text in seen if key[:8] in text] == []


def test_calls_are_not_logged_one_by_one(serve: Serve, client: Client, asked: Asked, caplog: Any) -> None:
    caplog.set_level(logging.INFO)
    for name in calls._LOGGERS:
        logging.getLogger(name).setLevel(logging.NOTSET)
    asked(client(serve(plan=first("error"))), questions(3))
    assert caplog.records == []


def test_it_works_where_an_event_loop_runs(serve: Serve, client: Client, asked: Asked) -> None:
    server = serve()

    async def within() -> list[str]:
        return texts(asked(client(server), questions(3)))

    assert asyncio.run(within()) == answers(3)


@pytest.mark.filterwarnings("error")
def test_leaving_early_keeps_and_counts_what_came(serve: Serve, client: Client, cache: ReplyCache) -> None:
    left = threading.Event()
    server = serve(lambda body: str(left.wait(60)) if prompt(body) == "question 0" else "done")
    asking = client(server, cache, concurrency=4)
    for index, outcome in asking.ask(questions(100)):
        assert index > 0
        assert isinstance(outcome, Reply)
        if len(server.answered) > 20:
            threading.Timer(0.1, left.set).start()
            break
    assert server.answered["question 0"] == 1
    assert 20 < asking.account.requests == len(cache) == len(server.calls) == server.answered.total() < 100


@pytest.mark.filterwarnings("error")
def test_leaving_while_a_reply_is_written_keeps_and_counts_it(serve: Serve, client: Client, tmp_path: Path) -> None:
    writing, left = threading.Event(), threading.Event()

    class Slow(ReplyCache):
        def put_all(self, entries: Sequence[Entry]) -> list[Reply]:
            writing.set()
            left.wait(60)
            return super().put_all(entries)

    def requests() -> Iterator[Request]:
        yield from questions(1)
        writing.wait(60)
        threading.Timer(0.1, left.set).start()
        raise LightningCSEError("enough")

    with Slow(tmp_path / "replies") as cache:
        asking = client(serve(), cache, concurrency=2)
        with pytest.raises(LightningCSEError, match="enough"):
            list(asking.ask(requests()))
        assert asking.account.requests == len(cache) == 1


@pytest.mark.filterwarnings("error")
def test_whatever_the_cache_raises_ends_it(serve: Serve, client: Client, tmp_path: Path) -> None:
    class Broken(ReplyCache):
        def put_all(self, entries: Sequence[Entry]) -> list[Reply]:
            raise TypeError("not of this world")

    server = serve()
    with Broken(tmp_path / "replies") as cache:
        asking = client(server, cache, concurrency=3)
        for _ in range(2):  # nothing hangs of the first time
            with pytest.raises(TypeError, match="not of this world"):
                list(asking.ask(questions(20)))
    assert len(server.calls) <= 12


def test_a_cache_that_cannot_be_written_ends_it(serve: Serve, client: Client, cache: ReplyCache) -> None:
    asking = client(serve(), cache, concurrency=2)
    assert len(cache) == 0
    assert cache._connection is not None
    cache._connection.execute("PRAGMA query_only=1")
    with pytest.raises(LLMError, match=r"replies\.sqlite cannot be used \(attempt to write"):
        list(asking.ask(questions(5)))


def test_replies_that_come_together_share_a_write(serve: Serve, client: Client, asked: Asked, tmp_path: Path) -> None:
    sizes = []

    class Slow(ReplyCache):
        def put_all(self, entries: Sequence[Entry]) -> list[Reply]:
            sizes.append(len(entries))
            time.sleep(0.1)
            return super().put_all(entries)

    with Slow(tmp_path / "replies") as cache:
        assert texts(asked(client(serve(), cache, concurrency=20), questions(40))) == answers(40)
        assert sum(sizes) == len(cache) == 40
        assert len(sizes) < 20


@pytest.mark.filterwarnings("error")
def test_a_fault_of_the_requests_themselves_stops_the_calls(serve: Serve, client: Client) -> None:
    def requests() -> Iterator[Request]:
        yield from questions(2)
        raise LightningCSEError("line 3 is no sentence")

    with pytest.raises(LightningCSEError, match="line 3"):
        list(client(serve(plan=always("silent")), concurrency=4, timeout=0.2).ask(requests()))


def wait_until(condition: Callable[[], bool], seconds: float = 30.0) -> bool:
    until = time.monotonic() + seconds
    while not condition() and time.monotonic() < until:
        time.sleep(0.01)
    return condition()


def test_a_pace_is_asked_before_every_call_and_told_what_came(serve: Serve) -> None:
    class Counted(Pace):
        def __init__(self) -> None:
            super().__init__()
            self.turns: list[Request] = []
            self.settled: list[tuple[Request, int | None]] = []

        async def turn(self, request: Request) -> None:
            await super().turn(request)
            self.turns.append(request)

        def settle(self, request: Request, got: Reply | Trouble | None) -> None:
            self.settled.append((request, got.prompt_tokens if isinstance(got, Reply) else None))

    server = serve(plan=first("error", "limit"))
    pace = Counted()
    asking = ChatClient(Endpoint("m", base_url=server.url, backoff=0.001), pace=pace)
    assert len(list(asking.ask(questions(4)))) == 4
    assert len(pace.turns) == len(server.calls) == 12
    assert all(pace.settled.count((request, None)) == 2 for request in questions(4))
    assert all(pace.settled.count((request, 2)) == 1 for request in questions(4))

    # A budget goes on from one asking to the next, and is told what comes after the end.
    left = threading.Event()
    server.plan, server.answer = None, lambda body: "" if prompt(body) == "question 7" else str(left.wait(60))
    outcomes = asking.ask(questions(3, 7))
    next(outcomes)
    assert wait_until(lambda: len(server.calls) == 15)
    threading.Timer(0.1, left.set).start()
    outcomes.close()
    came = {request.messages[0][1]: tokens for request, tokens in pace.settled[12:]}
    assert came == {"question 7": 2, "question 8": 2, "question 9": 2}
    assert len(pace.settled) == len(pace.turns) == 15


def test_those_who_were_held_start_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    async def starts() -> list[float]:
        pace, begun = Pace(), time.monotonic()

        async def one() -> float:
            await pace.turn(questions(1)[0])
            return time.monotonic() - begun

        assert await one() < 0.1
        pace.hold(0.2)
        pace.hold(0.1)  # asks for less: the longer one holds
        return sorted(await asyncio.gather(*(one() for _ in range(5))))

    monkeypatch.setattr(paces, "_SPREAD", 2.0)
    times = asyncio.run(starts())
    assert times[0] >= 0.2
    assert min(late - early for early, late in itertools.pairwise(times)) > 0.02
    assert times[-1] < 0.2 + 0.4 + 0.3


def test_who_answered_is_told_and_kept(
    serve: Serve, client: Client, asked: Asked, cache: ReplyCache, caplog: pytest.LogCaptureFixture
) -> None:
    one, other = serve(served="m-2026-01-01"), serve(served="m-quantised")
    first_client = client(one, cache)
    (reply,) = asked(first_client, questions(1))
    assert isinstance(reply, Reply)
    assert (reply.served, reply.endpoint) == ("m-2026-01-01", one.url)
    assert asked(client(f"{one.url}/", cache), questions(1)) == [replace(reply, cached=True)]
    assert caplog.messages == []

    second = client(other, cache)
    got = [*asked(second, [*questions(1), *questions(1)]), *asked(second, questions(2))]
    assert got[:3] == [replace(reply, cached=True)] * 3
    assert second.account.as_dict() == second.account.as_dict() | {
        "served": {"m-2026-01-01": 3, "m-quantised": 1}, "endpoints": {one.url: 3, other.url: 1},
    }  # fmt: skip
    (warning,) = caplog.messages
    assert warning.startswith(f"replies in the cache came from {one.url}, and {other.url} is asked now: they are taken")


SCRIPT = """
import signal
import sys
from pathlib import Path
from lightning_cse.llm import ChatClient, Endpoint, ReplyCache, Request

signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job of a shell inherits an ignored one

requests = (Request((("user", f"question {k}"),), {"temperature": 0}) for k in range(10_000))
client = ChatClient(Endpoint("m", base_url=sys.argv[1]), ReplyCache(Path(sys.argv[2])))
try:
    for index, outcome in client.ask(requests):
        print(index, flush=True)
except KeyboardInterrupt:
    print("stopped", client.account.requests, flush=True)
"""


def start_script(server: ChatServer, cache: ReplyCache) -> tuple[subprocess.Popen[str], list[str]]:
    """Return a process that asks, once it has told of 20 replies, and what it told."""
    process = subprocess.Popen(
        [sys.executable, "-W", "always", "-c", SCRIPT, server.url, str(cache.path)],
        env=os.environ | {"PYTHONPATH": SOURCE},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    return process, [process.stdout.readline() for _ in range(20)]


def test_a_killed_process_loses_nothing_it_was_told(
    serve: Serve, client: Client, asked: Asked, cache: ReplyCache
) -> None:
    process, told = start_script(serve(), cache)
    process.kill()
    rest, _ = process.communicate(timeout=60)
    indices = [int(line) for line in [*told, *rest.splitlines()] if line.strip()]
    assert len(indices) >= 20

    other = serve()
    count = max(indices) + 1
    assert texts(asked(client(other, cache, concurrency=16), questions(count))) == answers(count)
    assert not other.answered.keys() & {f"question {index}" for index in indices}
    assert all(times == 1 for times in other.answered.values())


@pytest.mark.parametrize(("interrupts", "kept"), [(1, 28), (2, 20)])
def test_an_interrupted_process_waits_for_what_is_paid_unless_it_is_interrupted_again(
    serve: Serve, client: Client, asked: Asked, cache: ReplyCache, interrupts: int, kept: int
) -> None:
    go = threading.Event()

    def answer(body: dict[str, Any]) -> str:
        # After a while nothing comes any more: the interrupt finds a process that waits.
        assert int(prompt(body).split()[1]) < 20 or go.wait(60)
        return prompt(body)[::-1]

    server = serve(answer)
    process, _ = start_script(server, cache)
    assert wait_until(lambda: len(server.calls) == 28)  # all places are taken
    for _ in range(interrupts):
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            process.wait(0.3)
    if interrupts == 1:
        assert process.poll() is None
        go.set()
    rest, complaints = process.communicate(timeout=30)
    assert (rest, complaints, process.returncode) == (f"stopped {kept}\n", "", 0)
    assert len(server.calls) == 28
    go.set()

    other = serve()
    assert texts(asked(client(other, cache), questions(30))) == answers(30)
    assert len(other.calls) == 30 - kept


def test_importing_the_room_takes_neither_torch_nor_the_network_packages() -> None:
    script = "import sys, lightning_cse.llm; print(*{'torch', 'openai', 'httpx2', 'pydantic'} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", script], env=os.environ | {"PYTHONPATH": SOURCE}, capture_output=True, text=True
    )
    assert (done.stdout, done.stderr) == ("\n", "")
