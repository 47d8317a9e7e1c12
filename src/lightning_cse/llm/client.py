"""Many requests at once to a chat model, with every reply kept."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from typing import Any

from lightning_cse.llm.account import Account
from lightning_cse.llm.asking import Asking
from lightning_cse.llm.budget import Budget
from lightning_cse.llm.cache import ReplyCache
from lightning_cse.llm.calls import Calls
from lightning_cse.llm.endpoint import Endpoint
from lightning_cse.llm.pace import Pace
from lightning_cse.llm.requests import Failure, Reply, Request

_LOG = logging.getLogger(__name__)


class ChatClient:
    """Asks one endpoint, and keeps account of it.

    Args:
        endpoint: whom to ask.
        cache: where replies are looked for and kept; None: nowhere.
        pace: decides when a call may start; a budget of it holds over all that this client asks. None: a `Budget` where
            the endpoint has limits per minute.

    Attributes:
        account: counts over all that was asked through this client.
    """

    def __init__(self, endpoint: Endpoint, cache: ReplyCache | None = None, *, pace: Pace | None = None) -> None:
        self.endpoint = endpoint
        self.cache = cache
        self.account = Account()
        self.pace = pace or _pace(endpoint)
        self._told = False

    def ask(self, requests: Iterable[Request]) -> Iterator[tuple[int, Reply | Failure]]:
        """Ask, and yield each outcome with the position of its request, in the order in which they come.

        Requests are taken one at a time, as calls become free, in the caller's thread. To stop, leave the loop or close
        the iterator: as at the end of any `Asking`, no further call starts, and those under way are waited for.

        Raises:
            LLMError: if no further request will be answered, or the cache cannot be used.
        """
        asking: Asking[int]
        with self.session() as asking:
            more = enumerate(requests)

            def fill() -> None:
                while asking.free and (item := next(more, None)) is not None:
                    asking.submit(*item)

            fill()
            for landed in asking.landed():
                yield landed
                fill()

    def session(self) -> Asking[Any]:
        """Return what requests can be submitted to one by one, where some depend on replies to others."""
        return Asking(self)

    def kept(self, key: str) -> Reply | None:
        """Return the reply that is in the cache, and say once where it came from another endpoint than this one.

        Raises:
            LLMError: if the cache cannot be used.
        """
        reply = None if self.cache is None else self.cache.get(key)
        now = self.endpoint.address
        if reply is not None and reply.endpoint not in {None, now} and not self._told:
            self._told = True
            _LOG.warning(
                "replies in the cache came from %s, and %s is asked now: they are taken as they are, since the model's "
                "name, the prompt and the parameters are the same. Where the models are not, use another cache",
                reply.endpoint,
                now,
            )
        return reply

    def calls(self) -> Calls:
        """Return what makes the calls of one session.

        Raises:
            LLMError: if there is no key, or no `openai` package.
        """
        return Calls(self.endpoint, self.pace, self.cache)


def _pace(endpoint: Endpoint) -> Pace:
    if endpoint.requests_per_minute is None and endpoint.tokens_per_minute is None:
        return Pace()
    return Budget(endpoint.requests_per_minute, endpoint.tokens_per_minute)
