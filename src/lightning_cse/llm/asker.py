"""Questions to a language model, whatever for: announced, watched, counted, and seen to their end."""

from __future__ import annotations

import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Final

from rich.progress import TextColumn

from lightning_cse.errors import ConfigError, did_you_mean
from lightning_cse.llm import Account, ChatClient, Endpoint, Failure, LLMError, Reply, ReplyCache, Request, dollars
from lightning_cse.progress import progress

__all__ = ["Asker", "commonest", "wrong_settings"]

log = logging.getLogger(__name__)

_PARAMETERS: Final = "parameters"
"""The key below ``llm`` that is not about the way to the endpoint, but goes there."""
_WAY: Final = tuple(field.name for field in fields(Endpoint))

_MOST_REASONS: Final = 3
_TOLD_EVERY: Final = 60.0
"""Seconds between two lines of the log that say how far it is, where there is no terminal."""


def wrong_settings(llm: Any) -> Iterator[str]:
    """Yield what is wrong with the settings below ``llm``, as plain values."""
    if not isinstance(llm, Mapping):
        yield f"llm: {llm!r} says nothing of an endpoint; leave it out, and set what is below: llm.model=my-model"
        return
    for name in llm:
        if name not in (*_WAY, _PARAMETERS):
            near = did_you_mean(str(name), _WAY) or "; what is sent to the model stands below llm.parameters"
            yield f"llm.{name}: there is no such setting{near}"
    try:
        Endpoint(**_way(llm))
    except ConfigError as error:
        yield from error.faults
    yield from _wrong_parameters(llm.get(_PARAMETERS))


class Asker:
    """One language model, and all that is asked of it.

    Every reply is kept below the folder of caches, so what was stopped goes on with what has no reply.

    Args:
        llm: the settings below ``llm``, as plain values, in which `wrong_settings` finds nothing.
        cache_dir: the folder of caches; None: no reply is kept.

    Attributes:
        endpoint: whom it asks.
        parameters: what goes there with every question.
        client: makes the calls.
    """

    def __init__(self, llm: Mapping[str, Any], cache_dir: str | None) -> None:
        self.endpoint = Endpoint(**_way(llm))
        self.parameters = {name: value for name, value in llm[_PARAMETERS].items() if value is not None}
        path = None if cache_dir is None else Path(cache_dir).expanduser() / "llm" / "replies.sqlite"
        self.cache = None if path is None else ReplyCache(path)
        self.client = ChatClient(self.endpoint, self.cache)

    def announce(self, what: str, requests: Iterable[Request]) -> int:
        """Say before the first call how many there will be.

        Args:
            what: what the questions are for, for a line of the log.
            requests: the questions; read once, and none is held.

        Returns:
            Their number, in which equal ones count each.
        """
        total, kept = 0, {}
        with ExitStack() as stack:
            if self.cache is not None:
                stack.callback(self.cache.close)
            for total, request in enumerate(requests, start=1):  # noqa: B007 - the last one is the number
                key = request.key(self.endpoint.model)
                if key not in kept:
                    kept[key] = self.cache is not None and self.cache.get(key) is not None
        there = sum(kept.values())
        log.info(
            "%s: %d questions to %s, %d of them answered before: %d calls%s",
            what,
            len(kept),
            self.endpoint.model,
            there,
            len(kept) - there,
            "" if self.cache is not None else "; paths.cache_dir is null, so no reply is kept",
        )
        return total

    def ask(
        self, requests: Iterable[Request], what: str, total: int | None = None
    ) -> Iterator[tuple[int, Reply | Failure]]:
        """Give the replies as they come, under a progress bar where there is a terminal, and tell what they took.

        Args:
            requests: the questions, taken one at a time as calls become free.
            what: what they are for, for the bar and the log.
            total: their number, if it is known.

        Yields:
            The position of a question, and its reply, or the failure that asking again would not mend.

        Raises:
            LLMError: at once if no further reply can be had; and when all the others are answered, if some questions
                have no reply that asking again may bring.
        """
        lost: Counter[str] = Counter()
        hopeless: Counter[str] = Counter()
        asked = 0
        # Closed by name: an interrupt must not wait until the replies under way are forgotten by chance.
        with (
            self.watching(what, "replies", total) as advance,
            closing(_generator(self.client.ask(requests))) as replies,
        ):
            for number, reply in replies:
                asked += 1
                if isinstance(reply, Failure):
                    (hopeless if reply.final else lost)[reply.reason] += 1
                advance(1)
                yield number, reply
        if hopeless:
            log.warning(
                "%s: %d of %d questions have no reply, and asking again brings none: %s",
                what,
                hopeless.total(),
                asked,
                commonest(hopeless),
            )
        if lost:
            rest = (
                "paths.cache_dir is null, so no reply is kept: the same command asks for all of them"
                if self.cache is None
                else "the replies that came are kept, the same command asks for the rest"
            )
            raise LLMError(f"{lost.total()} of {asked} questions have no reply: {commonest(lost)}; {rest}")

    @contextmanager
    def watching(self, what: str, of: str, total: int | None = None, *, done: int = 0) -> Iterator[Callable[..., None]]:
        """Show a bar on a terminal, or a line of the log now and then; at the end of the block, tell what it all took.

        The cache is closed then, too, whatever ends the block.

        Args:
            what: what the questions are for, for the bar and the log.
            of: what is counted.
            total: how many there are to be, if that is known.
            done: how many there were before.

        Yields:
            What is told of each advance: by how much, and what else is to be shown before failures, tokens and money.
        """
        with ExitStack() as stack:
            stack.callback(self._tell, what)  # whatever ends the asking: what was paid is told
            if self.cache is not None:
                stack.callback(self.cache.close)
            bar = stack.enter_context(progress(TextColumn("{task.fields[told]}")))
            task = bar.add_task(f"{what}: {of}", total=total, completed=done, told="")
            last = time.monotonic()

            def advance(count: int, *told: str) -> None:
                nonlocal last
                bar.update(
                    task, advance=count, told=", ".join([*told, *_spent(self.client.account, self.endpoint.price)])
                )
                if bar.disable and time.monotonic() - last > _TOLD_EVERY:
                    last = time.monotonic()
                    (row,) = bar.tasks
                    most = "" if total is None else f" of {total:,}"
                    log.info("%s: %s%s %s, %s", what, f"{row.completed:,.0f}", most, of, row.fields["told"])

            yield advance

    def taken(self) -> dict[str, Any]:
        """Return the account since this was asked last.

        It has the counts of `Account` and two sums in USD, None where they are unknown: ``cost``, what the calls took,
        and ``cost_if_new``, what they and the replies that were there would have taken together.
        """
        account, self.client.account = self.client.account, Account()
        price = self.endpoint.price
        return {**account.as_dict(), "cost": account.cost(price), "cost_if_new": _as_new(account).cost(price)}

    def _tell(self, what: str) -> None:
        account, price = self.client.account, self.endpoint.price
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


def _way(llm: Mapping[str, Any]) -> dict[str, Any]:
    return {name: llm[name] for name in _WAY if name in llm}


def _wrong_parameters(parameters: Any) -> Iterator[str]:
    at = f"llm.{_PARAMETERS}"
    if not isinstance(parameters, Mapping):
        yield f"{at}: {parameters!r} has no names; give numbers and texts by name, as in {at}.max_tokens=64"
        return
    sent = {str(name): value for name, value in parameters.items() if value is not None}
    for name, value in sent.items():
        if not isinstance(value, str | int | float):
            yield f"{at}.{name}: {value!r} is not one text, number or truth value"
        elif isinstance(value, float) and not math.isfinite(value):
            yield f"{at}.{name}: {value!r} is not a finite number"
    try:
        Request((("user", ""),), sent)
    except LLMError as error:
        yield f"{at}: {error}"


def _generator(replies: Iterator[tuple[int, Reply | Failure]]) -> Generator[tuple[int, Reply | Failure], None, None]:
    yield from replies


def commonest(reasons: Counter[str]) -> str:
    """Return the commonest of some reasons, each with its count, for a message."""
    return "; ".join(f"{reason} ({count})" for reason, count in reasons.most_common(_MOST_REASONS))


def _as_new(account: Account) -> Account:
    """Return an account as if nothing had been answered before."""
    return replace(
        account,
        cached=0,
        prompt_tokens=account.prompt_tokens + account.cached_prompt_tokens,
        completion_tokens=account.completion_tokens + account.cached_completion_tokens,
    )


def _spent(account: Account, price: Mapping[str, float] | None) -> list[str]:
    """Return failures, tokens and money in a few words each."""
    parts = [f"{account.failed} failed"] if account.failed else []
    parts.append(f"{account.prompt_tokens + account.completion_tokens:,} tokens")
    cost = account.cost(price)
    return parts if cost is None else [*parts, dollars(cost)]
