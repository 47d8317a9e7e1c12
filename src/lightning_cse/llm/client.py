"""One language model and all that is asked of it: many requests at once, every reply kept, cost reported."""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from rich.progress import TextColumn

from lightning_cse.errors import Interrupted
from lightning_cse.llm.account import Account, commonest, dollars
from lightning_cse.llm.cache import ReplyCache
from lightning_cse.llm.endpoint import Endpoint
from lightning_cse.llm.requests import Failure, LLMError, Reply, Request
from lightning_cse.progress import progress

if TYPE_CHECKING:
    from lightning_cse.llm.http import Calls

Item = TypeVar("Item")
Result = TypeVar("Result")
Outcome = Reply | Failure

_EVERY: Final = 60.0  # seconds between two lines of the log where there is no terminal
_NO_ITEM: Final = object()

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
        self.cache = None if cache_dir is None else ReplyCache(Path(cache_dir).expanduser() / "llm" / "replies.sqlite")
        self.account = Account()
        self._session: _Session | None = None

    async def reply(self, request: Request) -> Outcome:
        """Return the reply that is kept, or ask for it; only for functions that `each` runs.

        A new reply is in the cache before it is returned. Equal requests under way share one call.

        Raises:
            LLMError: if no further request will be answered, or the cache cannot be used.
        """
        session = self._session
        if session is None:
            raise RuntimeError("LLM.reply is for functions that LLM.each runs")
        key = request.key(self.endpoint.model)
        if (task := session.calls.get(key)) is not None:
            outcome = await asyncio.shield(task)
            outcome = replace(outcome, cached=True) if isinstance(outcome, Reply) else outcome
            self.account.add(outcome)
            return outcome
        if self.cache is not None and (kept := self.cache.get(key)) is not None:
            self.account.add(kept)
            return kept
        task = session.calls[key] = asyncio.create_task(self._paid(key, request, session.client(self)))
        task.add_done_callback(lambda _: session.calls.pop(key))
        return await asyncio.shield(task)

    async def _paid(self, key: str, request: Request, client: Calls) -> Outcome:
        outcome = await client.call(request)
        if isinstance(outcome, Reply) and self.cache is not None:
            outcome = self.cache.put(key, self.endpoint.model, request, outcome)
        self.account.add(outcome)
        return outcome

    def each(self, work: Callable[[Item], Awaitable[Result]], items: Iterable[Item]) -> Generator[Result, None, None]:
        """Do asynchronous work for each item, for ``llm.concurrency`` items at once, and yield results as they come.

        An item is taken when a place is free, and after each result again, so that an iterator may have more of them
        after a result. However this ends (an error, Ctrl-C, SIGTERM, a closed iterator), no further call starts, and
        those under way are waited for and their replies kept; a second signal cuts them off.

        Raises:
            Interrupted: after a signal.
        """
        source = iter(items)
        with asyncio.Runner() as runner, _Session(runner.get_loop(), self.endpoint) as session:
            self._session = session
            try:
                while not session.ended:
                    while (
                        len(session.tasks) < self.endpoint.concurrency
                        and (item := next(source, _NO_ITEM)) is not _NO_ITEM
                    ):
                        session.start(work(item))
                    if not session.tasks:
                        break
                    if (task := runner.run(session.finished.get())) is not None:
                        yield task.result()
            finally:
                try:
                    runner.run(session.close())
                finally:
                    self._session = None
                    self._close()

    def ask(self, requests: Iterable[Request], what: str, total: int | None = None) -> Iterator[tuple[int, Outcome]]:
        """Yield the position and the reply of each request as they come, and report progress and cost.

        Args:
            requests: taken one at a time as calls become free.
            what: what they are for.
            total: their number, if it is known.

        Raises:
            LLMError: at once if no further reply can be had; after all others, if some requests have no reply that
                asking again may bring.
        """

        async def one(item: tuple[int, Request]) -> tuple[int, Outcome]:
            return item[0], await self.reply(item[1])

        lost: dict[bool, Counter[str]] = {False: Counter(), True: Counter()}
        asked = 0
        with (
            self.watching(what, "replies", total) as advance,
            closing(self.each(one, enumerate(requests))) as outcomes,
        ):
            for number, outcome in outcomes:
                asked += 1
                if isinstance(outcome, Failure):
                    lost[outcome.final][outcome.reason] += 1
                advance(1)
                yield number, outcome
        if final := lost[True]:
            none = f"{final.total()} of {asked} questions have no reply, and asking again brings none"
            log.warning("%s: %s: %s", what, none, commonest(final))
        if again := lost[False]:
            rest = "the replies that came are kept, the same command asks for the rest"
            if self.cache is None:
                rest = "paths.cache_dir is null, so no reply is kept: the same command asks for all of them"
            raise LLMError(f"{again.total()} of {asked} questions have no reply: {commonest(again)}; {rest}")

    def announce(self, what: str, requests: Iterable[Request]) -> int:
        """Log how many calls requests will take, and return the number of requests, equal ones included."""
        total, kept = 0, {}
        for request in requests:
            total += 1
            key = request.key(self.endpoint.model)
            if key not in kept:
                kept[key] = self.cache is not None and self.cache.get(key) is not None
        self._close()
        there = sum(kept.values())
        note = "" if self.cache is not None else "; paths.cache_dir is null, so no reply is kept"
        counts = f"{len(kept)} questions to {self.endpoint.model}, {there} of them answered before"
        log.info("%s: %s: %d calls%s", what, counts, len(kept) - there, note)
        return total

    @contextmanager
    def watching(self, what: str, of: str, total: int | None = None, *, done: int = 0) -> Iterator[Callable[..., None]]:
        """Show a bar on a terminal, or a line of the log now and then, and at the end log what it all took.

        Args:
            what: what is done.
            of: what is counted.
            total: how many there will be, if that is known.
            done: how many there were before.

        Yields:
            A function to call with each advance: by how much, and what else to show.
        """
        last, now = time.monotonic(), done

        def advance(count: int, *shown: str) -> None:
            nonlocal last, now
            now += count
            note = ", ".join([*shown, *self._spent()])
            bar.update(task, completed=now, note=note)
            if bar.disable and time.monotonic() - last > _EVERY:
                last = time.monotonic()
                log.info("%s: %s%s %s, %s", what, f"{now:,}", "" if total is None else f" of {total:,}", of, note)

        with progress(TextColumn("{task.fields[note]}")) as bar:
            task = bar.add_task(f"{what}: {of}", total=total, completed=done, note="")
            try:
                yield advance
            finally:
                self._report(what)

    def taken(self) -> dict[str, Any]:
        """Return the account since this was asked last, with ``cost``, and ``cost_if_new`` without cached replies."""
        account, self.account = self.account, Account()
        price = self.endpoint.price
        return {**account.as_dict(), "cost": account.cost(price), "cost_if_new": account.cost(price, if_new=True)}

    def _spent(self) -> list[str]:
        account = self.account
        failed = [f"{account.failed} failed"] if account.failed else []
        cost = account.cost(self.endpoint.price)
        tokens = f"{account.prompt_tokens + account.completion_tokens:,} tokens"
        return [*failed, tokens, *([] if cost is None else [dollars(cost)])]

    def _report(self, what: str) -> None:
        account, price = self.account, self.endpoint.price
        cost = account.cost(price)
        unknown = "cost unknown (llm.price is not set)" if price is None else "cost unknown"
        log.info(
            "%s: %d questions, %d answered before, %d failed, %d retried; %s tokens sent, %s received, %s",
            what,
            account.requests,
            account.cached,
            account.failed,
            account.retried,
            f"{account.prompt_tokens:,}",
            f"{account.completion_tokens:,}",
            unknown if cost is None else dollars(cost),
        )

    def _close(self) -> None:
        if self.cache is not None:
            self.cache.close()


class _Session:
    """What is under way in the loop of one `LLM.each`, and how it ends: also by the first SIGINT or SIGTERM."""

    def __init__(self, loop: asyncio.AbstractEventLoop, endpoint: Endpoint) -> None:
        self.tasks: set[asyncio.Task[Any]] = set()  # of items
        self.calls: dict[str, asyncio.Task[Outcome]] = {}  # by the request's key
        self.finished: asyncio.Queue[asyncio.Task[Any] | None] = asyncio.Queue()
        self.ended = False
        self._loop = loop
        self._endpoint = endpoint
        self._client: Calls | None = None
        self._signal: int | None = None
        self._handlers: dict[int, Any] = {}

    def __enter__(self) -> _Session:
        if threading.current_thread() is threading.main_thread():
            for signum in (signal.SIGINT, signal.SIGTERM):
                if (before := signal.getsignal(signum)) is not signal.SIG_IGN:
                    self._handlers[signum] = before or signal.SIG_DFL
                    signal.signal(signum, self._stop)
        return self

    def __exit__(self, *_: object) -> None:
        for signum, handler in self._handlers.items():
            signal.signal(signum, handler)
        if self._signal is not None:
            raise Interrupted("stopped; the same command continues where it stopped", self._signal)

    def client(self, llm: LLM) -> Calls:
        """Return what makes calls; kept replies need neither a key nor the openai package."""
        if self._client is None:
            try:
                from lightning_cse.llm.http import Calls
            except ImportError as error:
                raise LLMError(f"asking a language model needs pip install 'lightning_cse[llm]' ({error})") from error
            self._client = Calls(llm.endpoint, llm.account)
        return self._client

    def start(self, work: Any) -> None:
        task = self._loop.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self._finish)

    def _finish(self, task: asyncio.Task[Any]) -> None:
        self.tasks.discard(task)
        self.finished.put_nowait(task)

    def end(self) -> None:
        """Let no further call start."""
        self.ended = True
        busy = set() if self._client is None else self._client.http.under_way
        if self._client is not None:
            self._client.http.ended = True
        for task in {*self.tasks, *self.calls.values()} - busy:
            task.cancel()
        self.finished.put_nowait(None)

    async def close(self) -> None:
        """End, and wait for the calls under way."""
        self.end()
        under_way = list(self.calls.values())
        if under_way and (await asyncio.wait(under_way, timeout=1.0))[1]:
            log.info(
                "waiting for %d calls under way, which are paid for (at most %g s); Ctrl-C again cuts them off",
                len(self.calls),
                self._endpoint.timeout,
            )
        await asyncio.gather(*self.tasks, *under_way, return_exceptions=True)
        if self._client is not None:
            await self._client.close()

    def _stop(self, signum: int, frame: object) -> None:
        """Handle a signal: end as at any error; cut off the calls under way where they are waited for."""
        again = self.ended or self._signal is not None
        self._signal = signum
        self._loop.call_soon_threadsafe(self._cut_off if again else self.end)

    def _cut_off(self) -> None:
        self.end()
        for task in self.calls.values():
            task.cancel()
