"""Work under way at a language model, and how it ends: by itself, by an error, by Ctrl-C or by SIGTERM."""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from lightning_cse.errors import Interrupted
from lightning_cse.llm.account import Account
from lightning_cse.llm.endpoint import Endpoint
from lightning_cse.llm.requests import Failure, LLMError, Reply

if TYPE_CHECKING:
    from lightning_cse.llm.http import Calls

log = logging.getLogger(__name__)


class Session:
    """Tasks in one event loop, and the calls that they share.

    Attributes:
        asked: calls under way or waiting, by the request's key.
        finished: tasks whose results were not fetched; None wakes who waits for one when all is to end.
    """

    def __init__(self, endpoint: Endpoint, account: Account) -> None:
        self.endpoint = endpoint
        self.account = account
        self.ended = False
        self.asked: dict[str, asyncio.Task[Reply | Failure]] = {}
        self.finished: asyncio.Queue[asyncio.Task[Any] | None] = asyncio.Queue()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._calls: Calls | None = None
        self._signal: int | None = None

    @property
    def open(self) -> int:
        """How many tasks have no result that was fetched."""
        return len(self._tasks) + self.finished.qsize()

    def calls(self) -> Calls:
        """Return what makes calls; without one, neither a key nor the openai package is needed."""
        if self._calls is None:
            try:
                from lightning_cse.llm.http import Calls
            except ImportError as error:
                raise LLMError(f"asking a language model needs pip install 'lightning_cse[llm]' ({error})") from error
            self._calls = Calls(self.endpoint, self.account)
        return self._calls

    def start(self, work: Coroutine[Any, Any, Any], loop: asyncio.AbstractEventLoop) -> None:
        """Begin a task."""
        task = loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(self.finished.put_nowait)

    def end(self) -> None:
        """Let no further call start."""
        self.ended = True
        under_way = set()
        if self._calls is not None:
            self._calls.ended, under_way = True, self._calls.under_way
        for task in {*self._tasks, *self.asked.values()} - under_way:
            task.cancel()
        self.finished.put_nowait(None)

    async def close(self) -> None:
        """End, and wait for the calls under way."""
        self.end()
        if (calls := list(self.asked.values())) and (await asyncio.wait(calls, timeout=1.0))[1]:
            wait = "waiting for %d calls under way, which are paid for (at most %g s); Ctrl-C again cuts them off"
            log.info(wait, len(self.asked), self.endpoint.timeout)
        await asyncio.gather(*self._tasks, *calls, return_exceptions=True)
        if self._calls is not None:
            await self._calls.aclose()

    @contextmanager
    def signals(self, loop: asyncio.AbstractEventLoop) -> Iterator[None]:
        """End at the first SIGINT or SIGTERM, cut off the calls under way at the second, and raise Interrupted."""

        def stop(signum: int, frame: object) -> None:
            again, self._signal = self.ended or self._signal is not None, signum
            loop.call_soon_threadsafe(self._cut_off if again else self.end)

        handlers: dict[int, Any] = {}
        if threading.current_thread() is threading.main_thread():
            handlers = {each: signal.signal(each, stop) for each in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for signum, handler in handlers.items():
                signal.signal(signum, handler or signal.SIG_DFL)
            if self._signal is not None:
                raise Interrupted("stopped; the same command continues where it stopped", self._signal)

    def _cut_off(self) -> None:
        for task in self.asked.values():
            task.cancel()
