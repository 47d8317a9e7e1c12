"""One language model and all that is asked of it: many requests at once, every reply kept, cost reported."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Generator, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, Final, TypeVar

from rich.progress import TextColumn

from lightning_cse.llm.account import Account, commonest, dollars
from lightning_cse.llm.cache import ReplyCache
from lightning_cse.llm.endpoint import Endpoint
from lightning_cse.llm.requests import Failure, LLMError, Reply, Request
from lightning_cse.llm.session import Session
from lightning_cse.progress import progress

Item = TypeVar("Item")
Result = TypeVar("Result")
Outcome = Reply | Failure

_EVERY: Final = 60.0  # seconds between two lines of the log where there is no terminal

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
        self._session: Session | None = None

    async def reply(self, request: Request) -> Outcome:
        """Return the reply that is kept, or ask for it; only within the work of `each`.

        A new reply is in the cache before it is returned. Equal requests under way share one call.

        Raises:
            LLMError: if no further request will be answered, or the cache cannot be used.
        """
        session, key = self._session, request.key(self.endpoint.model)
        if session is None:
            raise RuntimeError("LLM.reply needs the loop of LLM.each")
        if (call := session.asked.get(key)) is not None:
            outcome = await asyncio.shield(call)
            outcome = replace(outcome, cached=True) if isinstance(outcome, Reply) else outcome
        elif self.cache is None or (outcome := self.cache.get(key)) is None:
            call = session.asked[key] = asyncio.create_task(self._ask(key, request, session))
            call.add_done_callback(lambda _: session.asked.pop(key))
            return await asyncio.shield(call)
        self.account.add(outcome)
        return outcome

    async def _ask(self, key: str, request: Request, session: Session) -> Outcome:
        outcome = await session.calls().call(request)
        if isinstance(outcome, Reply) and self.cache is not None:
            outcome = self.cache.put(key, self.endpoint.model, request, outcome)
        self.account.add(outcome)
        return outcome

    def each(
        self, work: Callable[[Item], Coroutine[Any, Any, Result]], items: Iterable[Item]
    ) -> Generator[Result, None, None]:
        """Do asynchronous work for ``llm.concurrency`` items at once, and yield results as they come.

        An item is taken when a place is free, and after each result again, so that an iterator may have more of them
        after a result. However this ends (an error, Ctrl-C, SIGTERM, a closed iterator), no further call starts, and
        those under way are waited for and their replies kept; a second signal cuts them off.

        Raises:
            Interrupted: after a signal.
        """
        source = iter(items)
        session = self._session = Session(self.endpoint, self.account)
        with asyncio.Runner() as runner, session.signals(loop := runner.get_loop()):
            try:
                while not session.ended:
                    for item in islice(source, self.endpoint.concurrency - session.open):
                        session.start(work(item), loop)
                    if not session.open:
                        break
                    if (task := runner.run(session.finished.get())) is not None:
                        yield task.result()
            finally:
                try:
                    runner.run(session.close())
                finally:
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
        keys = [request.key(self.endpoint.model) for request in requests]
        kept = 0 if self.cache is None else sum(self.cache.get(key) is not None for key in set(keys))
        self._close()
        note = "" if self.cache is not None else "; paths.cache_dir is null, so no reply is kept"
        counts = (len(set(keys)), self.endpoint.model, kept, len(set(keys)) - kept)
        log.info("%s: %d questions to %s, %d of them answered before: %d calls%s", what, *counts, note)
        return len(keys)

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
        money = dollars(cost) if cost is not None else "cost unknown" + ("" if price else " (llm.price is not set)")
        counts = (account.requests, account.cached, account.failed, account.retried)
        tokens = (f"{account.prompt_tokens:,}", f"{account.completion_tokens:,}")
        log.info(
            "%s: %d questions, %d answered before, %d failed, %d retried; %s tokens sent, %s received, %s",
            *(what, *counts, *tokens, money),
        )

    def _close(self) -> None:
        if self.cache is not None:
            self.cache.close()
