"""Many requests at once to a chat model, with every reply kept."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from lightning_cse.llm.account import Account
from lightning_cse.llm.cache import ReplyCache
from lightning_cse.llm.calls import Calls
from lightning_cse.llm.endpoint import Endpoint
from lightning_cse.llm.pace import Pace
from lightning_cse.llm.requests import Failure, Reply, Request

_Outcome = tuple[Reply | Failure, int]


class ChatClient:
    """Asks one endpoint, and keeps account of it.

    Args:
        endpoint: whom to ask.
        cache: where replies are looked for and kept; None: nowhere.
        pace: makes what decides when a call may start, anew for each `ask`.

    Attributes:
        account: counts over all that was asked through this client.
    """

    def __init__(self, endpoint: Endpoint, cache: ReplyCache | None = None, *, pace: Callable[[], Pace] = Pace) -> None:
        self.endpoint = endpoint
        self.cache = cache
        self.account = Account()
        self._pace = pace

    def ask(self, requests: Iterable[Request]) -> Iterator[tuple[int, Reply | Failure]]:
        """Ask, and yield each outcome with the position of its request, in the order in which they come.

        Requests are taken one at a time, as calls become free, in the caller's thread; the calls are made in another
        one. A reply is in the cache before it is yielded. Requests that equal one under way wait for its reply, so
        that, with a cache, no two equal ones are ever paid. To stop, leave the loop or close the iterator: calls under
        way are cut off, and what came is kept.

        Raises:
            LLMError: if no further request will be answered, or the cache cannot be used.
        """
        flights = _Flights(self)
        more = enumerate(requests)
        try:
            while True:
                while flights.waiting < self.endpoint.concurrency and (item := next(more, None)) is not None:
                    index, request = item
                    key = request.key(self.endpoint.model)
                    if flights.join(key, index):
                        continue
                    kept = None if self.cache is None else self.cache.get(key)
                    if kept is None:
                        flights.start(key, index, request)
                    else:
                        self.account.add(kept)
                        yield index, kept
                if not flights.waiting:
                    return
                yield from flights.landed()
        finally:
            flights.close()

    def calls(self) -> Calls:
        """Return what makes the calls of one `ask`.

        Raises:
            LLMError: if there is no key, or no `openai` package.
        """
        return Calls(self.endpoint, self._pace(), self.cache)


class _Flights:
    """The calls under way of one `ask`, in a thread with an event loop that begins with the first of them."""

    def __init__(self, client: ChatClient) -> None:
        self._client = client
        self._loop: _Loop | None = None
        self._indices: dict[str, list[int]] = {}
        self._keys: dict[concurrent.futures.Future[_Outcome], str] = {}

    @property
    def waiting(self) -> int:
        """How many requests wait for a reply."""
        return sum(map(len, self._indices.values()))

    def join(self, key: str, index: int) -> bool:
        """Let a request wait for an equal one, if there is one under way."""
        if key in self._indices:
            self._indices[key].append(index)
            return True
        return False

    def start(self, key: str, index: int, request: Request) -> None:
        if self._loop is None:
            self._loop = _Loop(self._client.calls())
        self._keys[self._loop.submit(key, request)] = key
        self._indices[key] = [index]

    def landed(self) -> Iterator[tuple[int, Reply | Failure]]:
        """Wait until something came, and yield it."""
        done, _ = concurrent.futures.wait(self._keys, return_when=concurrent.futures.FIRST_COMPLETED)
        # What ends all is told last: replies that came are had before.
        for future in sorted(done, key=lambda each: each.exception() is not None):
            yield from self._settle(future)

    def close(self) -> None:
        """End the thread, and count the replies that came and that nobody waits for any more."""
        if self._loop is None:
            return
        self._loop.close()
        for future in list(self._keys):
            if future.done() and not future.cancelled() and future.exception() is None:
                list(self._settle(future))

    def _settle(self, future: concurrent.futures.Future[_Outcome]) -> list[tuple[int, Reply | Failure]]:
        indices = self._indices.pop(self._keys.pop(future))
        outcome, retried = future.result()
        self._client.account.add(outcome, retried)
        again = replace(outcome, cached=True) if isinstance(outcome, Reply) else outcome
        for _ in indices[1:]:
            self._client.account.add(again)
        return [(indices[0], outcome), *((index, again) for index in indices[1:])]


class _Loop:
    """A thread with an event loop in which the calls are made; whoever asks may have a loop of their own."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        # A daemon: whoever leaves the program with calls under way leaves them.
        self._thread = threading.Thread(target=self._run, name="llm calls", daemon=True)
        self._thread.start()

    def submit(self, key: str, request: Request) -> concurrent.futures.Future[_Outcome]:
        return asyncio.run_coroutine_threadsafe(self._calls.outcome(key, request), self._loop)

    def close(self) -> None:
        """Cut off what is under way, and wait until the thread has ended."""
        with contextlib.suppress(RuntimeError):  # it ended by itself
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def _run(self) -> None:
        with contextlib.closing(self._loop):
            self._loop.run_until_complete(self._main())

    async def _main(self) -> None:
        await self._stop.wait()
        await self._calls.stop()
