"""What asking a language model took: calls, tokens, money."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from lightning_cse.llm.requests import Failure, Reply


def price_of(price: Mapping[Any, float], sent: int, received: int) -> float:
    """Return what tokens cost, at a price in USD per million tokens of ``input`` and ``output``."""
    return (sent * price["input"] + received * price["output"]) / 1_000_000


def dollars(cost: float, least: int = 4) -> str:
    """Return a sum with at least so many digits behind the point, and two that count.

    Example:
        >>> dollars(12.5), dollars(0.0000421), dollars(3.14159, least=2)
        ('$12.5000', '$0.000042', '$3.14')
    """
    digits = max(least, 1 - math.floor(math.log10(cost))) if cost > 0 else 2
    return f"${cost:,.{digits}f}"


def commonest(reasons: Counter[str]) -> str:
    """Return the three commonest reasons, each with its count."""
    return "; ".join(f"{reason} ({count})" for reason, count in reasons.most_common(3))


@dataclass
class Account:
    """Counts over requests.

    Attributes:
        requests: those that ended: ``cached``, ``failed``, or answered now.
        retried: calls beyond the first of a request.
        unmetered: replies now without a count of tokens, which are in no sum below.
        prompt_tokens: tokens sent for the replies of now.
        cached_prompt_tokens: tokens that were sent for cached replies when these were new.
        served: replies, cached ones too, by the model that answered.
        endpoints: likewise, by address.
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

    def add(self, outcome: Reply | Failure) -> None:
        """Count a request that ended."""
        self.requests += 1
        if isinstance(outcome, Failure):
            self.failed += 1
            return
        self.served.update([outcome.model] if outcome.model else [])
        self.endpoints.update([outcome.endpoint] if outcome.endpoint else [])
        sent, received = outcome.prompt_tokens or 0, outcome.completion_tokens or 0
        if outcome.cached:
            self.cached += 1
            self.cached_prompt_tokens += sent
            self.cached_completion_tokens += received
        else:
            self.unmetered += outcome.prompt_tokens is None or outcome.completion_tokens is None
            self.prompt_tokens += sent
            self.completion_tokens += received

    def cost(self, price: Mapping[Any, float] | None, *, if_new: bool = False) -> float | None:
        """Return what the tokens of now cost in USD, or with ``if_new`` those of cached replies too; None: unknown."""
        replies = self.requests - self.failed - (0 if if_new else self.cached)
        if price is None or (self.unmetered and self.unmetered == replies):
            return None
        old = (self.cached_prompt_tokens, self.cached_completion_tokens) if if_new else (0, 0)
        return price_of(price, self.prompt_tokens + old[0], self.completion_tokens + old[1])

    def as_dict(self) -> dict[str, Any]:
        """Return the counts by name, for a record."""
        return asdict(self) | {name: dict(sorted(getattr(self, name).items())) for name in ("served", "endpoints")}
