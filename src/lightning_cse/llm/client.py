"""A language model and the requests to it: many at once, with every reply kept."""

import logging
import queue
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from functools import cached_property
from itertools import islice
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from rich.progress import TextColumn

from lightning_cse.llm.cache import ReplyCache
from lightning_cse.llm.endpoint import Endpoint
from lightning_cse.llm.requests import Account, Failure, LLMError, Reply, Request, commonest
from lightning_cse.progress import progress

if TYPE_CHECKING:
    from lightning_cse.llm.http import Calls

Item = TypeVar("Item")
Result = TypeVar("Result")
Outcome = Reply | Failure

PATIENCE = 8.0
"""Seconds after which a log line names an endpoint that has not answered yet."""

log = logging.getLogger(__name__)


class LLM:
    """A language model at an endpoint, whose replies are kept in a folder for caches."""

    def __init__(self, llm: Mapping[str, Any], cache_dir: str) -> None:
        self.endpoint = Endpoint.model_validate(llm)
        self.parameters = self.endpoint.sent
        self.cache = ReplyCache(Path(cache_dir).expanduser() / "llm" / "replies.sqlite")
        self.account = Account()
        self._lock = threading.Lock()

    @cached_property
    def calls(self) -> "Calls":
        """What asks the endpoint."""
        from lightning_cse.llm.http import Calls  # importing it takes a second

        return Calls(self.endpoint)

    def reply(self, request: Request) -> Outcome:
        """Return the kept reply, or ask for it and keep it; for use within `each`.

        A request that is being asked, by this process or another, is waited for.
        """
        key = request.key(self.endpoint.model)
        outcome: Outcome | None = self.cache.get(key)
        if outcome is None:
            with self.cache.claim(key).acquire(cancel_check=self.calls.stopping.is_set):
                outcome = self.cache.get(key) or self.calls.call(request)
                if isinstance(outcome, Reply) and not outcome.cached:
                    self.cache.put(key, self.endpoint.model, request, outcome)

        with self._lock:
            self.account.add(outcome)

        return outcome

    def each(self, work: Callable[[Item], Result], items: Iterable[Item]) -> Generator[Result]:
        """Do work for ``llm.concurrency`` items at once, and yield results as they come.

        Items are taken after each result, so an iterator may have more of them by then. However
        this ends, also by an error, Ctrl-C or SIGTERM, it waits for the calls under way and keeps
        their replies; a signal during that wait aborts them.
        """
        source = iter(items)
        results: queue.SimpleQueue[Any] = queue.SimpleQueue()
        running = 0
        self.calls.stopping.clear()
        # A signal reaches the main thread alone, so it interrupts no call of the pool's threads.
        with closing(self.cache), ThreadPool(self.endpoint.concurrency) as pool:
            try:
                while True:
                    for item in islice(source, self.endpoint.concurrency - running):
                        pool.apply_async(work, (item,), {}, results.put, results.put)
                        running += 1

                    if not running:
                        break

                    result = self._next(results)
                    running -= 1
                    if isinstance(result, BaseException):
                        raise result

                    yield result
            finally:
                self.calls.stopping.set()
                if running:
                    log.info("waiting for %d calls; Ctrl-C aborts them", running)

                pool.close()
                pool.join()

    def _next(self, results: "queue.SimpleQueue[Item]") -> Item:
        """Return the next result, with a warning if the endpoint never answered so far."""
        try:
            return results.get(timeout=None if self.calls.form else PATIENCE)
        except queue.Empty:
            log.warning(
                "%s has not answered for %g s; a call may take %g s (llm.timeout)",
                self.endpoint.address,
                PATIENCE,
                self.endpoint.timeout,
            )

        return results.get()

    def ask(
        self, requests: Iterable[Request], name: str, total: int | None = None
    ) -> Iterator[tuple[int, Outcome]]:
        """Yield position and reply of each request as they come; or raise LLMError."""
        reasons = Counter[str]()
        may_pass = 0

        def numbered_reply(item: tuple[int, Request]) -> tuple[int, Outcome]:
            number, request = item
            return number, self.reply(request)

        with (
            self.watching(name, "replies", total) as advance,
            closing(self.each(numbered_reply, enumerate(requests))) as outcomes,
        ):
            for number, outcome in outcomes:
                if isinstance(outcome, Failure):
                    reasons[outcome.reason] += 1
                    may_pass += not outcome.final

                advance(1)
                yield number, outcome

        without = f"{reasons.total()} questions have no reply: {commonest(reasons)}"
        if may_pass:
            raise LLMError(f"{without}. The same command asks for the missing replies")

        if reasons:
            log.warning("%s: %s", name, without)

    @contextmanager
    def watching(
        self, name: str, unit: str, total: int | None = None
    ) -> Iterator[Callable[..., None]]:
        """Show a bar, or log a line per minute, as the yielded function is called."""
        last = time.monotonic()

        def advance(count: int, *notes: str) -> None:
            nonlocal last
            note = ", ".join([*notes, self.account.spent(self.endpoint.price)])
            bar.update(task, advance=count, note=note)
            if bar.disable and time.monotonic() - last > 60:
                last = time.monotonic()
                log.info("%s: %d %s, %s", name, bar.tasks[task].completed, unit, note)

        with progress(TextColumn("{task.fields[note]}")) as bar:
            task = bar.add_task(f"{name}: {unit}", total=total, note="")
            try:
                yield advance
            finally:
                log.info("%s: %s", name, self.account.spent(self.endpoint.price))

    def taken(self) -> dict[str, Any]:
        """Return the account since the last call, with its ``cost``."""
        account = self.account
        self.account = Account()
        retried, self.calls.retried = self.calls.retried, 0

        return {**vars(account), "retried": retried, "cost": account.cost(self.endpoint.price)}
