"""What asking a language model took: calls, tokens, money."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from lightning_cse.llm.requests import Failure, Reply

_MILLION = 1_000_000


def price_of(price: Mapping[str, float], sent: int, received: int) -> float:
    """Return what tokens cost in USD.

    Args:
        price: USD per million tokens, of ``input`` and ``output``.
        sent: tokens of prompts.
        received: tokens of completions.
    """
    return (sent * price["input"] + received * price["output"]) / _MILLION


def dollars(cost: float, least: int = 4) -> str:
    """Return a sum with so many digits behind the point, or as many as show two that count.

    Example:
        >>> dollars(12.5), dollars(0.0000421), dollars(3.14159, least=2)
        ('$12.5000', '$0.000042', '$3.14')
    """
    digits = max(least, 1 - math.floor(math.log10(cost))) if cost > 0 else 2
    return f"${cost:,.{digits}f}"


@dataclass
class Account:
    """Counts over all requests that a client was given.

    Attributes:
        requests: requests that came to an end: ``cached``, ``failed``, or answered now.
        cached: of these, those that needed no call of their own.
        failed: of these, those that ended without a reply.
        retried: calls beyond the first of a request.
        unmetered: replies now whose endpoint told no tokens, which are in no sum below.
        prompt_tokens: tokens sent now, of replies that came; what a failed call took, endpoints do not tell.
        completion_tokens: tokens received now.
        cached_prompt_tokens: tokens that were sent for cached replies when these were new.
        cached_completion_tokens: tokens that were received for them.
        served: replies, cached ones too, by the model that answered; those that name none are not in it.
        endpoints: replies, cached ones too, by the address that answered.
    """

    requests: int = 0
    cached: int = 0
    failed: int = 0
    retried: int = 0
    unmetered: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_prompt_tokens: int = 0
    cached_completion_tokens: int = 0
    served: Counter[str] = field(default_factory=Counter)
    endpoints: Counter[str] = field(default_factory=Counter)

    def add(self, outcome: Reply | Failure, retried: int = 0) -> None:
        """Count one request that came to an end after so many retries."""
        self.requests += 1
        self.retried += retried
        if isinstance(outcome, Failure):
            self.failed += 1
            return
        self.served.update([outcome.served] if outcome.served else [])
        self.endpoints.update([outcome.endpoint] if outcome.endpoint else [])
        sent, received = outcome.prompt_tokens or 0, outcome.completion_tokens or 0
        if outcome.cached:
            self.cached += 1
            self.cached_prompt_tokens += sent
            self.cached_completion_tokens += received
            return
        self.unmetered += outcome.prompt_tokens is None or outcome.completion_tokens is None
        self.prompt_tokens += sent
        self.completion_tokens += received

    def cost(self, price: Mapping[str, float] | None) -> float | None:
        """Return what the tokens of now cost in USD; cached replies cost nothing, and ``unmetered`` are not in it.

        Args:
            price: USD per million tokens, of ``input`` and ``output``; None where it is unknown.

        Returns:
            The sum, or None where the price is unknown, or where there were replies and none told its tokens.
        """
        metered = self.requests - self.cached - self.failed - self.unmetered
        if price is None or (self.unmetered and not metered):
            return None
        return price_of(price, self.prompt_tokens, self.completion_tokens)

    def as_dict(self) -> dict[str, Any]:
        """Return the counts by name, for a record."""
        by_name = {name: dict(sorted(getattr(self, name).items())) for name in ("served", "endpoints")}
        return asdict(self) | by_name
