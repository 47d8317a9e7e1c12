"""Requests under way, of which more may come as replies do."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import logging
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Final, Generic, Self, TypeVar

from lightning_cse.llm.calls import Calls
from lightning_cse.llm.requests import Failure, Reply, Request

if TYPE_CHECKING:
    from lightning_cse.llm.client import ChatClient

Tag = TypeVar("Tag")
"""By which the caller knows a request again; it is handed back with the outcome, and nothing else is done with it."""

_Outcome = tuple[Reply | Failure, int]

_UNTOLD: Final = 1.0  # seconds for which nobody wonders what is waited for
_AT_ONCE: Final = 0.5  # seconds that cutting off may take

_LOG = logging.getLogger(__name__)


class Asking(Generic[Tag]):
    """Requests to one endpoint, submitted one by one, and their outcomes as they land.

    A reply is in the cache before it lands. Requests that equal one under way wait for its reply, so that, with a
    cache, no two equal ones are ever paid. The calls are made in another thread, which begins with the first of them;
    all else happens in the caller's.

    A context manager. However it is left, no call starts any more from then on, nor is any made again; those under way,
    which are paid for, are waited for, each within its ``timeout``, and what comes is kept and counted. An interrupt
    (Ctrl-C, the second one as a rule) of that wait cuts them off. An error that ends all keeps further calls from
    starting even before the session is left.

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
        self._errors: list[BaseException] = []

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
        return 0 if self._errors else max(0, self._client.endpoint.concurrency - taken)

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
            if self._errors:
                raise self._errors[0]
            if not self._keys:
                return
            concurrent.futures.wait(self._keys, return_when=concurrent.futures.FIRST_COMPLETED)
            self._settle()

    def close(self) -> None:
        """Wait for the calls under way, end the thread, and count the replies that came and that nobody fetches.

        Closing again does nothing.

        Raises:
            KeyboardInterrupt: if that is interrupted; what came is counted all the same.
        """
        if self._loop is None:
            return
        before = len(self._errors)
        try:
            self._loop.close()
        finally:
            self._settle()
            self._keys.clear()
            self._tags.clear()
            told = {str(error) for error in self._errors[:before]}
            for error in sorted({str(error) for error in self._errors[before:]} - told):
                _LOG.warning("not all that came at the end is kept: %s", error)

    def _settle(self) -> None:
        """Let all that is done land."""
        for future in [future for future in self._keys if future.done()]:
            tags = self._tags.pop(self._keys.pop(future))
            if future.cancelled():
                continue
            if (error := future.exception()) is not None:
                self._errors.append(error)
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
        # Not the thread's own `join`: interrupted, it takes the thread for ended.
        self._ended = threading.Event()
        # A daemon: whoever leaves the program with calls under way leaves them.
        self._thread = threading.Thread(target=self._run, name="llm calls", daemon=True)
        self._thread.start()

    def submit(self, key: str, request: Request) -> concurrent.futures.Future[_Outcome]:
        return asyncio.run_coroutine_threadsafe(self._calls.outcome(key, request), self._loop)

    def close(self) -> None:
        """End the calls, and the thread with the last of those under way; what interrupts that wait cuts them off."""
        if sys.is_finalizing():
            return  # who forgot to close leaves the program, and the thread is gone already
        try:
            self._soon(self._end)
            if not self._ended.wait(_UNTOLD):
                self._tell()
                self._ended.wait()
        except BaseException:
            self._soon(self._calls.cut_off)
            if self._ended.wait(_AT_ONCE):
                self._thread.join()
            raise
        self._thread.join()

    def _tell(self) -> None:
        if count := self._calls.under_way:
            _LOG.info(
                "waiting for %d %s under way, which %s paid for (at most %g s); Ctrl-C again leaves them",
                count,
                *(("call", "is") if count == 1 else ("calls", "are")),
                self._calls.endpoint.timeout,
            )

    def _soon(self, callback: Callable[[], None]) -> None:
        with contextlib.suppress(RuntimeError):  # it ended by itself
            self._loop.call_soon_threadsafe(callback)

    def _end(self) -> None:
        # At once: until `_main` goes on, one more call could start.
        self._calls.end()
        self._stop.set()

    def _run(self) -> None:
        try:
            with contextlib.closing(self._loop):
                self._loop.run_until_complete(self._main())
        finally:
            self._ended.set()

    async def _main(self) -> None:
        await self._stop.wait()
        await self._calls.stop()
