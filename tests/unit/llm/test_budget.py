"""Limits per minute, in a time that passes only while everybody waits."""

from __future__ import annotations

import asyncio
import itertools
import logging
import random
import selectors
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeVar

import pytest
from llm_server import ChatServer, prompt

from lightning_cse.llm import Budget, ChatClient, Endpoint, Pace, Reply, Request
from lightning_cse.llm.budget import MINUTE, UNTOLD
from lightning_cse.llm.troubles import Kind, Trouble

Serve = Callable[..., ChatServer]
Client = Callable[..., ChatClient]
Result = TypeVar("Result")


class Time:
    """Seconds, and event loops in which nobody really waits."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now

    def run(self, main: Coroutine[Any, Any, Result]) -> Result:
        loop = asyncio.SelectorEventLoop(_Jumping(self))
        loop.time = self  # type: ignore[method-assign]
        try:
            return loop.run_until_complete(main)
        finally:
            loop.close()


class _Jumping(selectors.SelectSelector):
    def __init__(self, clock: Time) -> None:
        super().__init__()
        self.clock = clock

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        assert timeout is not None, "everybody waits for ever"
        self.clock.now += max(0.0, timeout)
        return super().select(0)


@pytest.fixture
def clock() -> Time:
    return Time()


def request(text: str = "a", most: int | None = None) -> Request:
    return Request((("user", text),), {} if most is None else {"max_tokens": most})


def reply(prompt_tokens: int | None, completion_tokens: int | None) -> Reply:
    return Reply("b", "stop", None, prompt_tokens, completion_tokens)


def sized(tokens: int) -> Request:
    """Return a request that is expected to take so many tokens."""
    return request("abc", tokens - 5)  # four around the message, and one for three letters


async def starts(budget: Budget, clock: Time, requests: Sequence[Request]) -> list[float]:
    """Return after how many seconds each starts, if all come at once and none ends."""
    begun = clock()

    async def one(asked: Request) -> float:
        await budget.turn(asked)
        return clock() - begun

    return list(await asyncio.gather(*(one(each) for each in requests)))


async def later(seconds: float, then: Callable[[], Any]) -> None:
    await asyncio.sleep(seconds)
    then()


def test_requests_start_evenly_spaced_in_the_order_of_coming(clock: Time) -> None:
    times = clock.run(starts(Budget(600, clock=clock), clock, [request(str(k)) for k in range(12)]))
    assert times == pytest.approx([k / 10 for k in range(12)])


def test_less_than_one_request_per_minute_is_a_limit_too(clock: Time) -> None:
    assert clock.run(starts(Budget(0.5, clock=clock), clock, [request()] * 3)) == pytest.approx([0, 120, 240])


def test_time_that_passed_is_not_made_up_for(clock: Time) -> None:
    budget = Budget(60, clock=clock)

    async def main() -> list[float]:
        await budget.turn(request())
        await asyncio.sleep(30)
        return await starts(budget, clock, [request()] * 3)

    assert clock.run(main()) == pytest.approx([0, 1, 2])


@pytest.mark.parametrize("seed", range(12))
def test_no_minute_sees_more_than_the_limits(clock: Time, seed: int) -> None:
    draw = random.Random(seed)
    per_minute = draw.choice([7, 60, 300])
    limit = draw.choice([400, 3_000, 20_000])
    budget = Budget(per_minute, limit, clock=clock)
    places = asyncio.Semaphore(draw.choice([1, 4, 32]))
    calls: list[list[float]] = []  # when, and with what it counts
    minutes: list[tuple[int, int]] = []  # at each start: what counts of others, what is expected of this one

    async def one() -> None:
        await asyncio.sleep(draw.uniform(0, 90))
        asked = request("x" * draw.randrange(1, 1500), draw.choice([None, 50, 800]))
        async with places:
            await budget.turn(asked)
            tokens = draw.randrange(1, 600), draw.randrange(0, 400)
            got, took = draw.choice([
                (reply(*tokens), sum(tokens)),
                (reply(*tokens), sum(tokens)),
                (Trouble(Kind.LIMITED, ""), 0),
                (None, None),
            ])  # fmt: skip
            expected = budget._counted[-1].tokens
            minutes.append((sum(counts for at, counts in calls if at + MINUTE > clock()), expected))
            calls.append(call := [clock(), expected])
            await asyncio.sleep(draw.uniform(0, 20))
            call[1] = expected if took is None else took
            budget.settle(asked, got)

    async def main() -> None:
        await asyncio.gather(*(one() for _ in range(150)))

    clock.run(main())
    times = [at for at, _ in calls]
    assert times == sorted(times)
    assert len(times) == 150
    for first in times:
        assert sum(first <= at < first + MINUTE - 1e-6 for at in times) <= per_minute
    for others, expected in minutes:
        assert others + expected <= limit or others == 0
    assert budget._under_way == {}
    assert budget._waiting == 0


def test_the_tokens_of_one_call_after_another_exceed_the_limit_by_one_error_at_most(clock: Time) -> None:
    draw = random.Random(3)
    budget, limit = Budget(None, 2_000, clock=clock), 2_000
    calls: list[tuple[float, int, int]] = []

    async def main() -> None:
        for _ in range(300):
            asked = request("x" * draw.randrange(30, 300))
            await budget.turn(asked)
            took = draw.randrange(10, 80), draw.choice([draw.randrange(5, 20), draw.randrange(5, 900)])
            calls.append((clock(), budget._counted[-1].tokens, sum(took)))
            await asyncio.sleep(0.1)
            budget.settle(asked, reply(*took))

    clock.run(main())
    for nth, (at, expected, took) in enumerate(calls):
        minute = sum(each[2] for each in calls[: nth + 1] if each[0] > at - MINUTE)
        assert minute <= limit + max(0, took - expected)
    assert max(sum(each[2] for each in calls if at <= each[0] < at + MINUTE) for at, _, _ in calls) > 0.7 * limit


def test_a_reply_gives_back_what_it_did_not_take(clock: Time) -> None:
    budget, one = Budget(None, 1000, clock=clock), sized(900)

    async def main() -> list[float]:
        await budget.turn(one)
        _, times = await asyncio.gather(
            later(7, lambda: budget.settle(one, reply(5, 10))),
            starts(budget, clock, [sized(900), sized(80), sized(80)]),
        )
        return list(times)

    # 15 + 900 + 80 fit, and the third has to wait for the second to be a minute old.
    assert clock.run(main()) == pytest.approx([7, 7, 67])


def test_a_reply_that_took_more_counts_with_it(clock: Time) -> None:
    budget, one = Budget(None, 1000, clock=clock), sized(100)

    async def main() -> list[float]:
        await budget.turn(one)
        budget.settle(one, reply(500, 450))
        return await starts(budget, clock, [sized(100)])

    assert clock.run(main()) == [60]


UNUSED = sorted(set(Kind) - {Kind.FAULT, Kind.FILTERED}, key=lambda kind: kind.name)


@pytest.mark.parametrize(
    ("got", "due"),
    [
        *[(Trouble(kind, ""), 5.0) for kind in UNUSED],
        (Trouble(Kind.FAULT, "no answer within 5 s"), 60.0),
        (None, 60.0),
        (reply(None, None), 60.0),
        (reply(None, 0), 5.0),
        (reply(400, None), 60.0),
    ],
)
def test_what_counts_of_a_call_whose_tokens_nobody_tells(clock: Time, got: Any, due: float) -> None:
    budget, one = Budget(None, 1000, clock=clock), sized(900)

    async def main() -> list[float]:
        await budget.turn(one)
        return (await asyncio.gather(later(5, lambda: budget.settle(one, got)), starts(budget, clock, [sized(900)])))[1]

    assert clock.run(main()) == [due]


def test_a_call_larger_than_the_limit_goes_alone(clock: Time) -> None:
    budget = Budget(None, 1000, clock=clock)
    times = clock.run(starts(budget, clock, [sized(10), sized(5000), sized(5000), sized(10)]))
    assert times == pytest.approx([0, 60, 120, 180])


def test_it_need_not_wait_for_those_that_took_nothing(clock: Time) -> None:
    budget, one = Budget(None, 1000, clock=clock), sized(900)

    async def main() -> list[float]:
        await budget.turn(one)
        budget.settle(one, Trouble(Kind.LIMITED, ""))
        return await starts(budget, clock, [sized(5000)])

    assert clock.run(main()) == [0]


def test_a_call_that_takes_longer_than_a_minute_counts_no_more(clock: Time) -> None:
    budget, one = Budget(None, 1000, clock=clock), sized(900)

    async def main() -> list[float]:
        await budget.turn(one)
        await asyncio.sleep(70)
        await starts(budget, clock, [sized(900)])
        budget.settle(one, reply(5, 10))
        return await starts(budget, clock, [sized(100), sized(100)])

    assert clock.run(main()) == [0, 60]


def test_a_count_that_cannot_be_true_is_over_after_a_minute(clock: Time) -> None:
    budget = Budget(None, 10_000, clock=clock)

    async def main() -> list[float]:
        for took in [20] * 20 + [2**62]:
            await budget.turn(one := request())
            budget.settle(one, reply(took, took))
        return await starts(budget, clock, [request()] * 5)

    assert clock.run(main()) == pytest.approx([60] * 5)


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({"max_tokens": 300}, 300),
        ({"max_completion_tokens": 200, "max_tokens": 300}, 200),
        ({"max_tokens": 30.0}, 30),
        ({}, UNTOLD),
        ({"max_tokens": "30"}, UNTOLD),
        ({"max_tokens": -1}, UNTOLD),
    ],
)
def test_what_a_completion_is_expected_to_take_at_first(parameters: Any, expected: int) -> None:
    assert Budget()._estimate(Request((("user", "abc"),), parameters)) == (5, expected)


def test_what_the_last_replies_took_is_expected_of_the_next(clock: Time) -> None:
    budget = Budget(clock=clock)
    asked = Request((("system", "abc"), ("user", "abcdef")), {"max_tokens": 300})

    async def learn(count: int, took: Reply) -> tuple[int, int]:
        for _ in range(count):
            await budget.turn(asked)
            budget.settle(asked, took)
        return budget._estimate(asked)

    assert clock.run(learn(7, reply(22, 40))) == (11, 300)  # a few say little
    assert clock.run(learn(1, reply(22, 40))) == (22, 40)
    assert clock.run(learn(1, reply(22, 250))) == (22, 250)  # one in nine
    assert clock.run(learn(1, reply(2200, 40))) == (22, 40)  # one in ten changes nothing
    assert clock.run(learn(40, reply(None, None))) == (22, 40)
    assert clock.run(learn(50, reply(11, 1000))) == (11, 300)  # never more than is allowed


def test_a_turn_that_is_cut_off_takes_nothing(clock: Time) -> None:
    budget = Budget(60, 1000, clock=clock)

    async def main() -> list[float]:
        await budget.turn(sized(900))
        cut = [asyncio.create_task(budget.turn(sized(900))) for _ in range(3)]
        rest = asyncio.create_task(starts(budget, clock, [sized(90), sized(900)]))
        await asyncio.sleep(10)
        before = budget._tokens, len(budget._counted), budget._last
        for task in cut:
            task.cancel()
        await asyncio.gather(*cut, return_exceptions=True)
        assert all(task.cancelled() for task in cut)
        assert before == (900, 1, 1000.0)
        return await rest

    assert clock.run(main()) == pytest.approx([10, 60])
    assert budget._waiting == 0


def test_a_small_call_does_not_overtake_a_large_one(clock: Time) -> None:
    budget = Budget(None, 1000, clock=clock)
    order: list[int] = []

    async def one(tokens: int) -> None:
        await budget.turn(sized(tokens))
        order.append(tokens)

    async def main() -> None:
        await asyncio.gather(*(one(tokens) for tokens in (500, 800, 10, 900, 20)))

    clock.run(main())
    assert order == [500, 800, 10, 900, 20]


@pytest.mark.parametrize("limits", [(6000, None), (None, 1_000_000), (6000, 1_000_000)])
def test_a_wait_that_the_endpoint_asks_for_comes_on_top(clock: Time, limits: tuple[float | None, float | None]) -> None:
    budget = Budget(*limits, clock=clock)
    budget.hold(8)
    times = clock.run(starts(budget, clock, [request()] * 9))
    # Not all at once: they share the two seconds after it.
    assert times == pytest.approx([8 + 0.2 * nth for nth in range(1, 10)])
    assert clock.run(starts(budget, clock, [request()])) == pytest.approx([0.1])
    clock.now += 1
    assert clock.run(starts(budget, clock, [request()])) == [0]


def test_a_wait_holds_those_who_are_in_the_queue(clock: Time) -> None:
    budget = Budget(60, clock=clock)

    async def main() -> list[float]:
        return (await asyncio.gather(later(1.5, lambda: budget.hold(4)), starts(budget, clock, [request()] * 5)))[1]

    assert clock.run(main()) == pytest.approx([0, 1, 5.75, 6.75, 7.75])


def test_it_serves_one_event_loop_after_the_other(clock: Time) -> None:
    budget = Budget(60, 1000, clock=clock)

    async def left() -> None:
        waiting = [asyncio.create_task(budget.turn(sized(600))) for _ in range(4)]
        await asyncio.sleep(0.5)
        for task in waiting[1:]:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)

    for _ in range(3):
        clock.run(left())
    # One of each loop started, a minute after the one before; 300 tokens are left, and after a minute 700.
    assert clock.now == 1000 + 120
    assert clock.run(starts(budget, clock, [sized(300), sized(300)])) == pytest.approx([1, 60])


def test_calls_that_wait_long_say_once_for_which_limit(clock: Time, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    clock.run(starts(Budget(60, clock=clock), clock, [request()] * 6))
    assert caplog.messages == []
    clock.run(starts(Budget(60, clock=clock), clock, [request()] * 20))
    assert caplog.messages == ["calls wait for llm.requests_per_minute=60: one every 1 s"]

    caplog.clear()
    clock.run(starts(Budget(600, 1500, clock=clock), clock, [sized(700)] * 9))
    assert caplog.messages == ["calls wait for llm.tokens_per_minute=1,500: 1,400 tokens of the last minute"]

    caplog.clear()
    budget = Budget(600, clock=clock)
    budget.hold(30)
    clock.run(starts(budget, clock, [request()] * 8))
    assert caplog.messages == ["the endpoint asks to wait 30 s"]


def test_a_client_keeps_to_the_limits_of_its_endpoint() -> None:
    assert type(ChatClient(Endpoint("m")).pace) is Pace
    assert isinstance(ChatClient(Endpoint("m", requests_per_minute=10)).pace, Budget)
    assert isinstance(ChatClient(Endpoint("m", tokens_per_minute=10)).pace, Budget)
    pace = Pace()
    assert ChatClient(Endpoint("m", tokens_per_minute=10), pace=pace).pace is pace


@pytest.fixture
def turns(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """When calls were let go."""
    times: list[float] = []
    turn: Callable[[Budget, Request], Awaitable[None]] = Budget.turn

    async def noted(self: Budget, asked: Request) -> None:
        await turn(self, asked)
        times.append(time.monotonic())

    monkeypatch.setattr(Budget, "turn", noted)
    return times


def test_the_calls_of_a_client_are_spaced(serve: Serve, client: Client, turns: list[float]) -> None:
    server, begun = serve(seconds=0.15), time.monotonic()
    got = list(client(server, requests_per_minute=600).ask(request(f"question {k}") for k in range(12)))
    assert sorted(index for index, _ in got) == list(range(12))
    assert [prompt(call.body) for call in server.calls] == [f"question {k}" for k in range(12)]
    assert len(turns) == 12
    assert min(late - early for early, late in itertools.pairwise(turns)) >= 0.1 - 1e-3
    assert server.calls[-1].at - begun >= 1.1
    assert server.peak > 1


def test_a_client_counts_the_tokens_that_its_endpoint_tells(serve: Serve, client: Client, turns: list[float]) -> None:
    # As estimated, two calls would take the minute; as told, each takes 4 tokens.
    asking = client(serve(), tokens_per_minute=300)
    requests = [request(f"question {k}", 140) for k in range(12)]
    assert len(list(asking.ask(requests))) == len(turns) == 12
    assert isinstance(asking.pace, Budget)
    assert asking.pace._tokens == asking.account.prompt_tokens + asking.account.completion_tokens == 48
    assert asking.pace._under_way == {}
