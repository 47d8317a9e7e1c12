"""One request until its end: the call, its retries, and when to give up on the endpoint."""

from __future__ import annotations

import asyncio
import json
import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from lightning_cse.errors import did_you_mean
from lightning_cse.llm.cache import Entry, ReplyCache
from lightning_cse.llm.endpoint import NO_KEY, Endpoint
from lightning_cse.llm.errors import LLMError
from lightning_cse.llm.keeper import Keeper
from lightning_cse.llm.pace import Pace
from lightning_cse.llm.requests import Failure, Reply, Request
from lightning_cse.llm.troubles import Kind, Trouble, read_reply, trouble_of

if TYPE_CHECKING:
    import openai

LONGEST_BACKOFF: Final = 30.0
"""Seconds; the doubling ends there."""

LONGEST_WAIT: Final = 120.0
"""Seconds that an endpoint may ask to wait; beyond, it is a limit of the day, and not for us to sit out."""

WAITS: Final = 10
"""Times ``retries`` that a request may be told to wait: being early is no fault of it."""

NEVER_THERE: Final = 3
"""Refused connections in a row after which an endpoint that never answered is not there."""

_CONNECT: Final = 10.0  # seconds
_LOGGERS: Final = ("openai", "httpx", "httpcore", "httpx2", "httpcore2")


class Calls:
    """Calls of one endpoint, all from one event loop.

    They `end` together: then no call starts any more, whatever waits for one is cancelled, and those under way, which
    are paid for, go on until they are answered or out of time; `cut_off` does not wait for that. The first error that
    no further request can mend ends them as well.

    Args:
        endpoint: whom to ask.
        pace: when the next call may start.
        cache: where a reply is kept before anybody sees it.

    Raises:
        LLMError: if there is no key, or no `openai` package.
    """

    def __init__(self, endpoint: Endpoint, pace: Pace, cache: ReplyCache | None) -> None:
        self.endpoint = endpoint
        self.pace = pace
        self._key = endpoint.key()
        self._places = asyncio.Semaphore(endpoint.concurrency)
        self._http = _http(endpoint, self._key)
        self._keeper = Keeper(cache)
        self._ended = False
        # Whoever keeps a reply is in neither.
        self._waiting: set[asyncio.Task[Any] | None] = set()  # for a place, for their turn, or before they ask again
        self._under_way: set[asyncio.Task[Any] | None] = set()
        self._heard = 0  # responses of whichever status
        self._answered = 0
        self._unreached = 0  # in a row
        self._failed = 0  # in a row
        # Two rounds of all that are under way: less can be bad luck, and more costs money and time.
        self._patience = max(8, 2 * endpoint.concurrency)

    @property
    def under_way(self) -> int:
        """How many calls are made at this moment."""
        return len(self._under_way)

    async def outcome(self, key: str, request: Request) -> tuple[Reply | Failure, int]:
        """Ask until there is a reply, or no use in asking; beyond the endpoint's concurrency, wait for others to end.

        Args:
            key: the request's key, which also spreads the retries of many in time, the same way each time.
            request: what to ask.

        Returns:
            The kept reply or the failure, and the number of retries.

        Raises:
            LLMError: if no further request will be answered.
            CancelledError: if the calls ended before there was an outcome.
        """
        if self._ended:
            raise asyncio.CancelledError
        task = asyncio.current_task()
        self._waiting.add(task)
        try:
            async with self._places:
                return await self._outcome(key, request)
        except Exception:
            self.end()
            raise
        finally:
            self._waiting.discard(task)

    async def _outcome(self, key: str, request: Request) -> tuple[Reply | Failure, int]:
        heard, faults, waits = self._heard, 0, 0
        while True:
            await self.pace.turn(request)
            got = await self._call(key, request)
            if isinstance(got, Reply):
                return got, faults + waits
            if self._ended:
                raise asyncio.CancelledError  # it would be asked again, or would tell of one more error
            await self._give_up_on_all(got)
            limited = got.kind is Kind.LIMITED
            waits, faults = waits + limited, faults + (not limited)
            asked = faults + waits
            hopeless = got.kind in {Kind.REFUSED, Kind.TOO_LONG, Kind.FORBIDDEN}
            if hopeless or faults > self.endpoint.retries or waits > WAITS * self.endpoint.retries:
                self._failure(got, silent=self._heard == heard)
                return Failure(self._told(got), asked, final=hopeless), asked - 1
            await self._wait(got, key, asked)

    def end(self) -> None:
        """Let no further call start; those under way go on."""
        self._ended = True
        for task in self._waiting - {asyncio.current_task()}:
            if task is not None:
                task.cancel()

    def cut_off(self) -> None:
        """Leave the calls under way unanswered; replies that came are kept all the same."""
        for task in self._under_way:
            if task is not None:
                task.cancel()

    async def stop(self) -> None:
        """End, and wait until the calls under way are over and what came is kept."""
        self.end()
        await asyncio.gather(*asyncio.all_tasks() - {asyncio.current_task()}, return_exceptions=True)
        await self._keeper.close()
        await self._http.close()

    async def _call(self, key: str, request: Request) -> Reply | Trouble:
        """Make a call that had its turn, and keep its reply."""
        task, got = asyncio.current_task(), None
        self._waiting.discard(task)
        self._under_way.add(task)
        try:
            got = await self._once(request)
        finally:
            self._under_way.discard(task)
            self.pace.settle(request, got)
        if isinstance(got, Reply):
            self._answered += 1
            self._failed = 0
            return await self._keeper.keep(Entry(key, self.endpoint.model, request, got))
        self._waiting.add(task)
        return got

    async def _once(self, request: Request) -> Reply | Trouble:
        """Make one call within the time one may take, and return what went wrong without its exception."""
        messages: Any = [{"role": role, "content": text} for role, text in request.messages]
        try:
            # The client's own limit is for each piece of the body: a trickle would pass it.
            async with asyncio.timeout(self.endpoint.timeout):
                answer = await self._http.chat.completions.with_raw_response.create(
                    model=self.endpoint.model, messages=messages, extra_body=dict(request.parameters)
                )
            self._heard, self._unreached = self._heard + 1, 0
            return replace(read_reply(answer.content, self._hide), endpoint=self.endpoint.address)
        except Exception as error:  # noqa: BLE001 - what is no trouble of a call is raised again there
            trouble = trouble_of(error, self.endpoint.timeout, self._hide)
            responded = hasattr(error, "response")
        if trouble.kind is Kind.UNREACHED:
            self._unreached += 1
        elif responded:
            self._heard, self._unreached = self._heard + 1, 0
        if trouble.kind is Kind.FILTERED:
            return Reply("", "content_filter", refusal="content_filter", endpoint=self.endpoint.address)
        return trouble

    async def _wait(self, trouble: Trouble, key: str, asked: int) -> None:
        spread = int(key[asked % 56 :][:8], 16) / 16**8
        seconds = min(self.endpoint.backoff * 2 ** min(asked - 1, 30), LONGEST_BACKOFF) * (0.75 + spread / 2)
        if trouble.wait is not None:
            if trouble.wait > LONGEST_WAIT:
                raise LLMError(
                    f"{self._who} asks to wait {trouble.wait:,.0f} s ({self._told(trouble)}): a limit of the hour or "
                    "the day is used up. Give the same command again when it is over"
                )
            self.pace.hold(trouble.wait)
            # Some say 0, or a date that is over by our clock: the backoff holds all the same.
            seconds = max(seconds, trouble.wait + min(seconds, trouble.wait) * spread)
        await asyncio.sleep(seconds)

    def _failure(self, trouble: Trouble, *, silent: bool) -> None:
        """Count a request that ends without a reply, and give up on the endpoint where it is not that request's fault.

        Raises:
            LLMError: if so.
        """
        if trouble.kind is Kind.TOO_LONG:
            return
        if trouble.kind is Kind.UNREACHED and silent:
            raise LLMError(self._not_there(trouble))
        self._failed += 1
        if self._failed >= self._patience:
            raise LLMError(
                f"the last {self._failed} requests to {self._who} all failed, and none was answered in between; the "
                f"last reason: {self._told(trouble)}. Mend that (is llm.base_url right? As a rule it ends in /v1), and "
                "give the same command again"
            )

    async def _give_up_on_all(self, trouble: Trouble) -> None:
        """Raise an LLMError where no request will be answered."""
        told = self._told(trouble)
        if trouble.kind is Kind.MODEL:
            raise LLMError(await self._no_model(trouble))
        if trouble.kind is Kind.UNREACHED and not self._heard and self._unreached >= NEVER_THERE:
            raise LLMError(self._not_there(trouble))
        if trouble.kind is Kind.KEY or (trouble.kind is Kind.FORBIDDEN and not self._answered):
            variable = self.endpoint.key_variable
            held = (
                f"is not set, and this one wants it: set {variable}" if self._key == NO_KEY else "holds the wrong one"
            )
            raise LLMError(
                f"{self._who} does not let us in ({told}): the environment variable {variable} {held}, "
                "or name another with llm.key_variable=..."
            )
        if trouble.kind is Kind.MONEY:
            raise LLMError(f"{self._who} wants money first ({told}). After that, give the same command again")

    def _not_there(self, trouble: Trouble) -> str:
        here = " Is the server running?" if self.endpoint.here else " Is there a network?"
        return (
            f"{self._who} cannot be reached ({self._told(trouble)}).{here} Its address is llm.base_url, as in "
            "llm.base_url=http://localhost:8000/v1; the same command continues where this one ends"
        )

    async def _no_model(self, trouble: Trouble) -> str:
        """Return what to say of a 404: whether the model or the address is wrong, as far as the endpoint tells."""
        model, names = self.endpoint.model, []
        try:
            async with asyncio.timeout(self.endpoint.timeout):
                listed = json.loads((await self._http.models.with_raw_response.list()).content)
            names = sorted(str(each["id"]) for each in listed["data"])
        except Exception as error:  # noqa: BLE001 - whatever it is, the first error is the one to tell
            logging.getLogger(__name__).debug("%s lists no models (%s)", self._who, type(error).__name__)
        told = self._told(trouble)
        if not names:
            return (
                f"{self._who} knows no such address or no model {model!r} ({told}): llm.base_url ends in /v1 as a "
                "rule, and llm.model is the endpoint's own name"
            )
        shown = ", ".join(names[:20]) + (f", and {len(names) - 20} more" if len(names) > 20 else "")
        return f"{self._who} has no model {model!r}{did_you_mean(model, names)} ({told}). llm.model is one of: {shown}"

    @property
    def _who(self) -> str:
        return self.endpoint.url

    def _told(self, trouble: Trouble) -> str:
        """Return the reason as part of a sentence."""
        return trouble.reason.rstrip(".")

    def _hide(self, text: str) -> str:
        """Return what the endpoint says without the key, which some servers repeat."""
        return text.replace(self._key, "***") if self._key != NO_KEY else text


def _http(endpoint: Endpoint, key: str) -> openai.AsyncOpenAI:
    try:
        import openai
    except ImportError as error:
        raise LLMError(f"asking a language model needs pip install 'lightning_cse[llm]' ({error})") from error
    for name in _LOGGERS:  # a line for every call, and at DEBUG what is sent
        logger = logging.getLogger(name)
        if logger.level == logging.NOTSET:
            logger.setLevel(logging.WARNING)
    return openai.AsyncOpenAI(
        api_key=key,
        base_url=endpoint.url,
        # Its retries are neither counted nor paced, and do not know of answers that are no JSON.
        max_retries=0,
        timeout=openai.Timeout(endpoint.timeout, connect=min(_CONNECT, endpoint.timeout)),
        # A proxy of the environment does not see this machine.
        http_client=openai.DefaultAsyncHttpxClient(trust_env=not endpoint.here),
    )
