"""What asking a language model took: calls, tokens, money."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lightning_cse.llm.requests import Failure, Reply


def price_of(price: Mapping[Any, float], sent: int, received: int) -> float:
    """Return what tokens cost, at a price in USD per million tokens of ``input`` and ``output``."""
    return (sent * price["input"] + received * price["output"]) / 1_000_000


def dollars(cost: float, least: int = 4) -> str:
    """Return a sum with at least so many digits behind the point, and two that count: $12.5000, $0.000042."""
    return f"${cost:,.{max(least, 1 - math.floor(math.log10(cost))) if cost > 0 else 2}f}"


def commonest(reasons: Counter[str]) -> str:
    """Return the three commonest reasons, each with its count."""
    return "; ".join(f"{reason} ({count})" for reason, count in reasons.most_common(3))


@dataclass
class Account:
    """Counts over requests that ended."""

    requests: int = 0
    cached: int = 0  # of these, answered without a call of their own
    failed: int = 0  # of these, without a reply
    retried: int = 0  # calls beyond the first of a request
    unmetered: int = 0  # new replies without a count of tokens
    prompt_tokens: int = 0  # of new replies
    completion_tokens: int = 0
    cached_prompt_tokens: int = 0  # of cached replies, when these were new
    cached_completion_tokens: int = 0
    served: Counter[str] = field(default_factory=Counter)  # replies by the model that answered

    def add(self, outcome: Reply | Failure) -> None:
        """Count a request that ended."""
        self.requests += 1
        if isinstance(outcome, Failure):
            self.failed += 1
            return
        self.served.update([outcome.model] if outcome.model else [])
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
        """Return what new replies cost in USD, or with ``if_new`` the cached ones too; None if that is unknown."""
        replies = self.requests - self.failed - (0 if if_new else self.cached)
        if price is None or (self.unmetered and self.unmetered == replies):
            return None
        old = (self.cached_prompt_tokens, self.cached_completion_tokens) if if_new else (0, 0)
        return price_of(price, self.prompt_tokens + old[0], self.completion_tokens + old[1])

    def spent(self, price: Mapping[Any, float] | None) -> str:
        """Return tokens and cost of new replies, for a line."""
        cost = self.cost(price)
        unknown = "cost unknown" if price else "llm.price is not set"
        return f"{self.prompt_tokens + self.completion_tokens:,} tokens, {unknown if cost is None else dollars(cost)}"

    def line(self, price: Mapping[Any, float] | None) -> str:
        """Return all counts as a line."""
        counts = (
            f"{self.requests} questions, {self.cached} answered before, {self.failed} failed, {self.retried} retried"
        )
        return f"{counts}; {self.spent(price)}"
