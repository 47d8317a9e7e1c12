"""One language model and all that is asked of it: many requests at once, every reply kept, cost reported."""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Generator, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from rich.progress import TextColumn

from lightning_cse.errors import Interrupted
from lightning_cse.llm.account import Account, commonest
from lightning_cse.llm.cache import ReplyCache
from lightning_cse.llm.endpoint import Endpoint
from lightning_cse.llm.requests import Failure, LLMError, Reply, Request
from lightning_cse.progress import progress

if TYPE_CHECKING:
    from lightning_cse.llm.http import Calls

Item = TypeVar("Item")
Result = TypeVar("Result")
Outcome = Reply | Failure

log = logging.getLogger(__name__)


class LLM:
    """A language model at an endpoint.

    Args:
        llm: the settings below ``llm``, as plain values, in which `wrong_settings` finds nothing.
        cache_dir: the folder of caches; None: no reply is kept.
    """

    def __init__(self, llm: Mapping[str, Any], cache_dir: str | None) -> None:
        self.endpoint = Endpoint.model_validate(llm)
        self.parameters = {name: value for name, value in self.endpoint.parameters.items() if value is not None}
        self.kept = cache_dir is not None
        self.cache = ReplyCache(Path(cache_dir).expanduser() / "llm" / "replies.sqlite" if cache_dir else None)
        self.account = Account()
        self._session: _Session

    async def reply(self, request: Request) -> Outcome:
        """Return the reply that is kept, or ask for it and keep it; equal requests share a call. Only within `each`.

        Raises:
            LLMError: if no further request will be answered, or the cache cannot be used.
        """
        key, asked = request.key(self.endpoint.model), self._session.asked
        outcome: Outcome | None
        if (call := asked.get(key)) is not None:
            outcome = await asyncio.shield(call)
            outcome = replace(outcome, cached=True) if isinstance(outcome, Reply) else outcome
        elif (outcome := self.cache.get(key)) is None:
            call = asked[key] = asyncio.create_task(self._ask(key, request))
            call.add_done_callback(lambda _: asked.pop(key))
            return await asyncio.shield(call)
        self.account.add(outcome)
        return outcome

    async def _ask(self, key: str, request: Request) -> Outcome:
        if self._session.calls is None:
            from lightning_cse.llm.http import Calls  # kept replies need neither a key nor the openai package

            self._session.calls = Calls(self.endpoint, self.account)
        outcome = await self._session.calls.call(request)
        if isinstance(outcome, Reply):
            outcome = self.cache.put(key, self.endpoint.model, request, outcome)
        self.account.add(outcome)
        return outcome

    def each(self, work: Callable[[Item], Coroutine[Any, Any, Result]], items: Iterable[Item]) -> Generator[Result]:
        """Do asynchronous work for ``llm.concurrency`` items at once, and yield results as they come.

        Items are taken when places are free, and after each result again, so an iterator may have more of them then.
        However this ends (an error, Ctrl-C, SIGTERM, a closed iterator), no further call starts, and those under way
        are waited for and their replies kept; a signal during that wait cuts them off.

        Raises:
            Interrupted: after a signal.
        """
        source = iter(items)
        with closing(self.cache), asyncio.Runner() as runner:
            session = self._session = _Session(runner.get_loop())
            try:
                with session.signals():
                    while not session.ended:
                        for item in islice(source, self.endpoint.concurrency - len(session.tasks)):
                            session.start(work(item))
                        if not session.tasks:
                            break
                        if (task := runner.run(session.finished.get())) is not None:
                            session.tasks.remove(task)
                            yield task.result()
            finally:
                runner.run(session.close())
        if session.signal is not None:
            raise Interrupted("stopped; the same command continues where it stopped", session.signal)

    def ask(self, requests: Iterable[Request], what: str, total: int | None = None) -> Iterator[tuple[int, Outcome]]:
        """Yield the position and the reply of each request as they come, and report progress and cost.

        Raises:
            LLMError: at once if no further reply can be had; after all others, if some requests have no reply that
                asking again may bring.
        """

        async def one(item: tuple[int, Request]) -> tuple[int, Outcome]:
            return item[0], await self.reply(item[1])

        lost, hopeless = Counter[str](), Counter[str]()
        with self.watching(what, "replies", total) as advance, closing(self.each(one, enumerate(requests))) as outcomes:
            for number, outcome in outcomes:
                if isinstance(outcome, Failure):
                    (hopeless if outcome.final else lost)[outcome.reason] += 1
                advance(1)
                yield number, outcome
        if hopeless:
            reasons = commonest(hopeless)
            log.warning("%s: asking again brings no reply to %d questions: %s", what, hopeless.total(), reasons)
        if lost:
            kept = "the replies that came are kept" if self.kept else "paths.cache_dir is null, so no reply is kept"
            raise LLMError(
                f"{lost.total()} questions have no reply: {commonest(lost)}; {kept}. Give the same command again"
            )

    def announce(self, what: str, requests: Iterable[Request]) -> int:
        """Log how many calls requests will take, and return the number of requests, equal ones included."""
        keys = [request.key(self.endpoint.model) for request in requests]
        with closing(self.cache):
            there = sum(self.cache.get(key) is not None for key in set(keys))
        note = "" if self.kept else "; paths.cache_dir is null, so no reply is kept"
        counts = (len(set(keys)), self.endpoint.model, there, len(set(keys)) - there)
        log.info("%s: %d questions to %s, %d of them answered before: %d calls%s", what, *counts, note)
        return len(keys)

    @contextmanager
    def watching(self, what: str, of: str, total: int | None = None, *, done: int = 0) -> Iterator[Callable[..., None]]:
        """Show a bar on a terminal, or a line of the log a minute, and at the end log what it all took.

        Yields:
            A function to call with each advance: by how much, and what else to show.
        """
        last, now = time.monotonic(), done

        def advance(count: int, *shown: str) -> None:
            nonlocal last, now
            now += count
            note = ", ".join([*shown, self.account.spent(self.endpoint.price)])
            bar.update(task, completed=now, note=note)
            if bar.disable and time.monotonic() - last > 60:
                last = time.monotonic()
                log.info("%s: %s%s %s, %s", what, f"{now:,}", f" of {total:,}" if total else "", of, note)

        with progress(TextColumn("{task.fields[note]}")) as bar:
            task = bar.add_task(f"{what}: {of}", total=total, completed=done, note="")
            try:
                yield advance
            finally:
                log.info("%s: %s", what, self.account.line(self.endpoint.price))

    def taken(self) -> dict[str, Any]:
        """Return the account since this was asked last, with ``cost``, and ``cost_if_new`` without cached replies."""
        account, self.account = self.account, Account()
        price = self.endpoint.price
        return {**vars(account), "cost": account.cost(price), "cost_if_new": account.cost(price, if_new=True)}


class _Session:
    """Tasks of one event loop, and the calls that they share."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.calls: Calls | None = None
        self.asked: dict[str, asyncio.Task[Outcome]] = {}  # calls by the request's key, also those that wait
        self.tasks: set[asyncio.Task[Any]] = set()  # whose results were not fetched
        self.finished: asyncio.Queue[asyncio.Task[Any] | None] = asyncio.Queue()  # None: all is to end
        self.ended = False
        self.signal: int | None = None

    def start(self, work: Coroutine[Any, Any, Any]) -> None:
        task = self.loop.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.finished.put_nowait)

    def end(self) -> None:
        """Let no further call start."""
        self.ended = True
        under_way = set()
        if self.calls is not None:
            self.calls.ended, under_way = True, self.calls.under_way
        for task in {*self.tasks, *self.asked.values()} - under_way:
            task.cancel()
        self.finished.put_nowait(None)

    async def close(self) -> None:
        """End, and wait for the calls under way."""
        self.end()
        if self.calls is not None and self.calls.under_way:
            wait = "waiting for %d calls under way, which are paid for (at most %g s); Ctrl-C again cuts them off"
            log.info(wait, len(self.calls.under_way), self.calls.endpoint.timeout)
        await asyncio.gather(*self.tasks, *self.asked.values(), return_exceptions=True)
        if self.calls is not None:
            await self.calls.aclose()

    @contextmanager
    def signals(self) -> Iterator[None]:
        """Let SIGINT and SIGTERM end the session, and interrupt nothing."""

        def stop(signum: int, frame: object) -> None:
            self.signal = signum
            self.loop.call_soon_threadsafe(self.end)

        main = threading.current_thread() is threading.main_thread()
        handlers = {each: signal.signal(each, stop) for each in (signal.SIGINT, signal.SIGTERM) if main}
        try:
            yield
        finally:
            for signum, handler in handlers.items():
                signal.signal(signum, handler or signal.SIG_DFL)
