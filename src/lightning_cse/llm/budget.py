"""Calls within the limits of a minute."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from lightning_cse.llm.pace import Pace
from lightning_cse.llm.requests import Reply, Request
from lightning_cse.llm.troubles import Kind, Trouble

MINUTE: Final = 60.0
"""Seconds for which a call's tokens count."""

LONG: Final = 5.0
"""Seconds that a call may wait before the user is told why."""

UNTOLD: Final = 512
"""Tokens that a completion is expected to take where nothing is known."""

_REQUESTS: Final = "llm.requests_per_minute"
_TOKENS: Final = "llm.tokens_per_minute"
_LIMITS: Final = ("max_completion_tokens", "max_tokens")
_BYTES: Final = 3  # of a token: four as a rule in English, fewer elsewhere
_FRAME: Final = 4  # tokens around each message
_LEARNT: Final = 8  # replies after which they are believed
_REMEMBERED: Final = 50
_USUAL: Final = 0.9  # of the replies took so much or less: a single wrong count changes nothing
# The endpoint answered without the model, or there was none; any other trouble may have come when the work was done.
_UNUSED: Final = frozenset(Kind) - {Kind.FAULT, Kind.FILTERED}

_LOG = logging.getLogger(__name__)


class Budget(Pace):
    """Lets calls start as an endpoint's limits per minute allow, in the order in which they came.

    Requests are spaced evenly, since endpoints enforce their limits by the second as well; so no 60 seconds see more
    starts than the limit. Tokens are counted from the start of a call on for 60 seconds: before it as an estimate, from
    the length of the messages and from what the last replies took, afterwards as the endpoint tells. At no start do the
    tokens counted exceed the limit, unless nothing else is counted: a call larger than the limit goes alone. What the
    calls under way take beyond their estimates comes on top.

    Args:
        requests_per_minute: of the endpoint; None: no limit.
        tokens_per_minute: prompts and completions together; None: no limit.
        clock: seconds that only grow, as the event loops count them.
    """

    def __init__(
        self,
        requests_per_minute: float | None = None,
        tokens_per_minute: float | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(clock=clock)
        self._apart = 0.0 if requests_per_minute is None else MINUTE / requests_per_minute
        self._limit = math.inf if tokens_per_minute is None else tokens_per_minute
        self._names = {_REQUESTS: requests_per_minute, _TOKENS: tokens_per_minute}
        self._last = -math.inf  # when a call started
        self._counted: deque[_Taken] = deque()  # in the order of their starts
        self._tokens = 0  # of those counted
        self._under_way: dict[int, list[_Taken]] = {}  # by the request itself: equal ones are calls of their own
        self._per_prompt = _Usual()  # real tokens by those of the length
        self._per_completion = _Usual()
        self._told: set[str] = set()
        self._waiting = 0
        self._changed: asyncio.Future[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._line = asyncio.Lock()

    async def turn(self, request: Request) -> None:
        """Return when the request may be sent; whoever is cut off before has taken nothing."""
        self._waiting += 1
        try:
            async with self._queue():
                while True:
                    # Anew each time: replies that came meanwhile say more.
                    prompt, completion = self._estimate(request)
                    now = self._clock()
                    due, limit = self._due(prompt + completion, now)
                    if due <= now:
                        break
                    self._tell(limit, due - now)
                    await self._wait(due - now)
                self._take(_Taken(request, now, prompt, completion))
        finally:
            self._waiting -= 1

    def settle(self, request: Request, got: Reply | Trouble | None) -> None:
        """Count what a call took in the place of its estimate.

        Where the endpoint tells no tokens, and where a call may have been worked on although no reply came, the
        estimate stays; what surely took nothing gives its tokens back.
        """
        calls = self._under_way[id(request)]
        taken = calls.pop(0)
        if not calls:
            del self._under_way[id(request)]
        before = taken.tokens
        if isinstance(got, Reply):
            self._learn(taken, got)
            taken.prompt = taken.prompt if got.prompt_tokens is None else got.prompt_tokens
            taken.completion = taken.completion if got.completion_tokens is None else got.completion_tokens
        elif got is not None and got.kind in _UNUSED:
            taken.prompt = taken.completion = 0
        if taken.counted:
            self._tokens += taken.tokens - before
        if self._changed is not None and not self._changed.done():
            self._changed.set_result(None)

    def _queue(self) -> asyncio.Lock:
        """Return the lock of the running loop, which lets in whoever came first."""
        if self._loop is not (loop := asyncio.get_running_loop()):
            self._loop, self._line = loop, asyncio.Lock()
        return self._line

    async def _wait(self, seconds: float) -> None:
        """Wait so long, or until a call is settled."""
        self._changed = asyncio.get_running_loop().create_future()
        try:
            await asyncio.wait([self._changed], timeout=seconds)
        finally:
            self._changed = None

    def _due(self, tokens: int, now: float) -> tuple[float, str | None]:
        """Return when a call may start as things are, and the name of the limit that it waits for."""
        return max(
            (self._due_held(now), None),
            (self._last + self._apart, _REQUESTS),
            (self._due_tokens(tokens, now), _TOKENS),
            key=lambda each: each[0],
        )

    def _due_held(self, now: float) -> float:
        """Return when a call may start as to `hold`: those that wait share the time after it."""
        end = self._until + self._spread
        if now >= end:
            return now
        if now < self._until:
            return self._until  # only then is it known how many wait
        begin = max(self._until, self._last)
        return begin + (end - begin) / (self._waiting + 1)

    def _due_tokens(self, tokens: int, now: float) -> float:
        while self._counted and self._counted[0].at + MINUTE <= now:
            first = self._counted.popleft()
            first.counted = False
            self._tokens -= first.tokens
        left, due = self._tokens, now
        for taken in self._counted:
            if left <= 0 or left + tokens <= self._limit:
                break
            left, due = left - taken.tokens, taken.at + MINUTE
        return due

    def _take(self, taken: _Taken) -> None:
        self._last = taken.at
        self._counted.append(taken)
        self._tokens += taken.tokens
        self._under_way.setdefault(id(taken.request), []).append(taken)

    def _estimate(self, request: Request) -> tuple[int, int]:
        """Return how many tokens a call will take for its prompt and for its completion."""
        most = _most(request.parameters)
        usual = self._per_completion.value()
        completion = (UNTOLD if most is None else most) if usual is None else min(usual, most or usual)
        return math.ceil(_length(request) * (self._per_prompt.value() or 1.0)), math.ceil(completion)

    def _learn(self, taken: _Taken, reply: Reply) -> None:
        if reply.prompt_tokens:
            self._per_prompt.add(reply.prompt_tokens / _length(taken.request))
        if reply.completion_tokens is not None:
            self._per_completion.add(reply.completion_tokens)

    def _tell(self, limit: str | None, seconds: float) -> None:
        """Say once for each limit that calls wait for it: those in the queue about as long each as the first."""
        if limit is None or limit in self._told or seconds * self._waiting <= LONG:
            return
        self._told.add(limit)
        count = f"{self._tokens:,} tokens of the last minute" if limit == _TOKENS else f"one every {self._apart:.3g} s"
        _LOG.info("calls wait for %s=%s: %s", limit, f"{self._names[limit]:,g}", count)


@dataclass(eq=False)
class _Taken:
    """What a call is counted with."""

    request: Request
    at: float
    prompt: int
    completion: int
    counted: bool = True

    @property
    def tokens(self) -> int:
        return self.prompt + self.completion


class _Usual:
    """What most of the last replies did not exceed."""

    def __init__(self) -> None:
        self._last: deque[float] = deque(maxlen=_REMEMBERED)

    def add(self, value: float) -> None:
        self._last.append(value)

    def value(self) -> float | None:
        """Return it, or None while there are too few."""
        if len(self._last) < _LEARNT:
            return None
        return sorted(self._last)[math.ceil(_USUAL * len(self._last)) - 1]


def _length(request: Request) -> float:
    """Return about how many tokens the messages have, by their length alone."""
    return sum(_FRAME + len(text.encode()) / _BYTES for _, text in request.messages)


def _most(parameters: Mapping[str, float | int | str]) -> float | None:
    """Return how many tokens a completion can take, if that is set."""
    for name in _LIMITS:
        value = parameters.get(name)
        if isinstance(value, int | float) and 0 < value < math.inf:
            return value
    return None
