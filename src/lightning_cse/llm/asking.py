"""Requests under way, of which more may come as replies do."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import threading
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Generic, Self, TypeVar

from lightning_cse.llm.calls import Calls
from lightning_cse.llm.requests import Failure, Reply, Request

if TYPE_CHECKING:
    from lightning_cse.llm.client import ChatClient

Tag = TypeVar("Tag")
"""By which the caller knows a request again; it is handed back with the outcome, and nothing else is done with it."""

_Outcome = tuple[Reply | Failure, int]


class Asking(Generic[Tag]):
    """Requests to one endpoint, submitted one by one, and their outcomes as they land.

    A reply is in the cache before it lands. Requests that equal one under way wait for its reply, so that, with a
    cache, no two equal ones are ever paid. The calls are made in another thread, which begins with the first of them;
    all else happens in the caller's. A context manager: at its end calls under way are cut off, and what came is kept.

    Args:
        client: whom to ask, where to look for replies and keep them, and who keeps the account.

    Example:
        ::

            with client.session() as asking:
                for tag, request in first:
                    asking.submit(tag, request)
                for tag, outcome in asking.landed():
                    if (further := depends(outcome)) is not None:
                        asking.submit(tag, further)
    """

    def __init__(self, client: ChatClient) -> None:
        self._client = client
        self._loop: _Loop | None = None
        self._tags: dict[str, list[Tag]] = {}
        self._keys: dict[concurrent.futures.Future[_Outcome], str] = {}
        self._ready: deque[tuple[Tag, Reply | Failure]] = deque()
        self._error: BaseException | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def free(self) -> int:
        """How many may be submitted before all calls are taken; those that landed count until they are fetched.

        More may be submitted, and wait their turn; none is free where no further request will be answered.
        """
        taken = len(self._ready) + sum(map(len, self._tags.values()))
        return 0 if self._error is not None else max(0, self._client.endpoint.concurrency - taken)

    def submit(self, tag: Tag, request: Request) -> None:
        """Have a request asked, unless its reply is there.

        Raises:
            LLMError: if the cache cannot be used; if there is no key, or no `openai` package.
        """
        key = request.key(self._client.endpoint.model)
        if key in self._tags:
            self._tags[key].append(tag)
            return
        if (kept := self._client.kept(key)) is not None:
            self._land(tag, kept)
            return
        if self._loop is None:
            self._loop = _Loop(self._client.calls())
        self._keys[self._loop.submit(key, request)] = key
        self._tags[key] = [tag]

    def landed(self) -> Iterator[tuple[Tag, Reply | Failure]]:
        """Yield each outcome with its tag as it comes, until none is waited for; more may be submitted meanwhile.

        Raises:
            LLMError: if no further request will be answered, or the cache cannot be written; what came before lands
                before.
        """
        while True:
            while self._ready:
                yield self._ready.popleft()
            if self._error is not None:
                raise self._error
            if not self._keys:
                return
            concurrent.futures.wait(self._keys, return_when=concurrent.futures.FIRST_COMPLETED)
            self._settle()

    def close(self) -> None:
        """Cut off what is under way, end the thread, and count the replies that came and that nobody fetches."""
        if self._loop is not None:
            self._loop.close()
            self._settle()
            self._keys.clear()
            self._tags.clear()

    def _settle(self) -> None:
        """Let all that is done land."""
        for future in [future for future in self._keys if future.done()]:
            tags = self._tags.pop(self._keys.pop(future))
            if future.cancelled():
                continue
            if (error := future.exception()) is not None:
                self._error = self._error or error
                continue
            outcome, retried = future.result()
            again = replace(outcome, cached=True) if isinstance(outcome, Reply) else outcome
            self._land(tags[0], outcome, retried)
            for tag in tags[1:]:
                self._land(tag, again)

    def _land(self, tag: Tag, outcome: Reply | Failure, retried: int = 0) -> None:
        self._client.account.add(outcome, retried)
        self._ready.append((tag, outcome))


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
