"""A language model and the requests to it: many at once, with every reply kept."""

import asyncio
import logging
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Generator, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from itertools import islice
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, TypeVar

from rich.progress import TextColumn

from lightning_cse.llm.cache import ReplyCache
from lightning_cse.llm.endpoint import Endpoint
from lightning_cse.llm.requests import Account, Failure, LLMError, Reply, Request, commonest
from lightning_cse.progress import progress

if TYPE_CHECKING:
    from lightning_cse.llm.http import Calls, Form

Item = TypeVar("Item")
Result = TypeVar("Result")
Outcome = Reply | Failure

POLLING = 0.2
"""Seconds between two looks whether another process has a reply."""

log = logging.getLogger(__name__)


class LLM:
    """A language model at an endpoint, whose replies are kept in a folder for caches."""

    def __init__(self, llm: Mapping[str, Any], cache_dir: str) -> None:
        self.endpoint = Endpoint.model_validate(llm)
        self.parameters = self.endpoint.sent
        self.cache = ReplyCache(Path(cache_dir).expanduser() / "llm" / "replies.sqlite")
        self.account = Account()
        self.form: Form | None = None  # None: no request was sent yet
        self._calls: Calls

    async def reply(self, request: Request) -> Outcome:
        """Return the kept reply, or ask for it and keep it; for use within `each`.

        A request that another process is asking is waited for.
        """
        key = request.key(self.endpoint.model)
        outcome: Outcome | None

        async with self._calls.locks[key]:  # an equal request may be under way
            while (outcome := self.cache.get(key)) is None:
                if self.cache.claim(key):
                    outcome = await self._ask(key, request)
                    break

                await self._calls.pause(POLLING)

        self.account.add(outcome)

        return outcome

    async def _ask(self, key: str, request: Request) -> Outcome:
        """Ask for the reply to a claimed request, and keep it."""
        try:
            outcome = await self._calls.call(request)
            if isinstance(outcome, Reply):
                outcome = self.cache.put(key, self.endpoint.model, request, outcome)
        finally:
            self.cache.release(key)

        return outcome

    def each(
        self, work: Callable[[Item], Coroutine[Any, Any, Result]], items: Iterable[Item]
    ) -> Generator[Result]:
        """Do work for ``llm.concurrency`` items at once, and yield results as they come.

        Items are taken after each result, so an iterator may have more of them by then. However
        this ends, also by an error, Ctrl-C or SIGTERM, it waits for the calls under way and keeps
        their replies; a signal during that wait aborts them.
        """
        from lightning_cse.llm.http import Calls  # importing it takes a second

        source = iter(items)
        tasks = set[asyncio.Task[Result]]()
        finished = asyncio.Queue[asyncio.Task[Result] | None]()  # None: SIGTERM

        with closing(self.cache), asyncio.Runner() as runner:
            self._calls = Calls(self.endpoint, self.account, self.form)
            loop = runner.get_loop()
            try:
                with _terminated_outside(loop, lambda: finished.put_nowait(None)) as terminate:
                    while True:
                        for item in islice(source, self.endpoint.concurrency - len(tasks)):
                            task = loop.create_task(work(item))
                            task.add_done_callback(finished.put_nowait)
                            tasks.add(task)

                        if not tasks:
                            break

                        done = runner.run(finished.get())
                        if done is None:
                            terminate()
                        else:
                            tasks.remove(done)
                            yield done.result()
            finally:
                runner.run(self._calls.close(tasks))
                self.form = self._calls.form

    def ask(
        self, requests: Iterable[Request], what: str, total: int | None = None
    ) -> Iterator[tuple[int, Outcome]]:
        """Yield position and reply of each request as they come; or raise LLMError."""

        async def one(item: tuple[int, Request]) -> tuple[int, Outcome]:
            number, request = item
            return number, await self.reply(request)

        reasons = Counter[str]()
        passing = 0

        with (
            self.watching(what, "replies", total) as advance,
            closing(self.each(one, enumerate(requests))) as outcomes,
        ):
            for number, outcome in outcomes:
                if isinstance(outcome, Failure):
                    reasons[outcome.reason] += 1
                    passing += not outcome.final

                advance(1)
                yield number, outcome

        without = f"{reasons.total()} questions have no reply: {commonest(reasons)}"
        if passing:
            raise LLMError(f"{without}. The same command asks for the missing replies")

        if reasons:
            log.warning("%s: %s", what, without)

    @contextmanager
    def watching(
        self, what: str, of: str, total: int | None = None
    ) -> Iterator[Callable[..., None]]:
        """Show a bar, or log a line per minute, as the yielded function is called."""
        last = time.monotonic()

        def advance(count: int, *shown: str) -> None:
            nonlocal last
            note = ", ".join([*shown, self.account.spent(self.endpoint.price)])
            bar.update(task, advance=count, note=note)
            if bar.disable and time.monotonic() - last > 60:
                last = time.monotonic()
                log.info("%s: %d %s, %s", what, bar.tasks[task].completed, of, note)

        with progress(TextColumn("{task.fields[note]}")) as bar:
            task = bar.add_task(f"{what}: {of}", total=total, note="")
            try:
                yield advance
            finally:
                log.info("%s: %s", what, self.account.spent(self.endpoint.price))

    def taken(self) -> dict[str, Any]:
        """Return the account since the last call, with its ``cost``."""
        account = self.account
        self.account = Account()

        return {**vars(account), "cost": account.cost(self.endpoint.price)}


@contextmanager
def _terminated_outside(
    loop: asyncio.AbstractEventLoop, wake: Callable[[], None]
) -> Iterator[Callable[[], None]]:
    """Yield what calls the handler of SIGTERM if there was one; the loop calls ``wake`` then.

    An exception of the handler in the middle of a task would end the task, and lose its reply.
    asyncio itself does this for SIGINT.
    """
    handler = signal.getsignal(signal.SIGTERM)
    signals: list[tuple[int, FrameType | None]] = []

    def remember(signum: int, frame: FrameType | None) -> None:
        signals.append((signum, frame))
        loop.call_soon_threadsafe(wake)

    def terminate() -> None:
        while callable(handler) and signals:
            handler(*signals.pop())

    is_held = callable(handler) and threading.current_thread() is threading.main_thread()
    if is_held:
        signal.signal(signal.SIGTERM, remember)
    try:
        yield terminate
    finally:
        if is_held:
            signal.signal(signal.SIGTERM, handler)
            terminate()
