"""Requests to a language model, its replies, and the account of calls, tokens and cost."""

import hashlib
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lightning_cse.errors import LightningCSEError


class LLMError(LightningCSEError):
    """No further reply can come: the endpoint, its key or the cache of replies is at fault."""


@dataclass(frozen=True)
class Request:
    """One call of a chat model."""

    # Role (system, user, assistant) and text.
    messages: tuple[tuple[str, str], ...]
    # Sent, by the endpoint's own names.
    parameters: Mapping[str, float | int | str] = field(default_factory=dict)
    # Not sent: equal requests with different numbers are asked separately.
    sample: int = 0
    # A JSON schema of the reply, for endpoints with structured output.
    schema: Mapping[str, Any] | None = None

    def key(self, model: str) -> str:
        """Return the digest under which a reply is kept; 0 and 0.0 are the same parameter."""
        parameters = {
            name: int(value) if isinstance(value, float) and value.is_integer() else value
            for name, value in self.parameters.items()
        }

        document: list[Any] = [model, self.messages, parameters, self.sample]
        if self.schema is not None:
            document.append(self.schema)

        return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class Reply:
    """One reply of a model."""

    # The reply, or the words of a refusal; it may be empty.
    text: str
    # Why it ended, in the endpoint's words: stop, length, content_filter, ...; or refusal.
    finish: str
    # The model that answered, in the endpoint's words, if given.
    model: str | None = None
    # None: the endpoint did not report them.
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    # Whether it came from the cache, or from an equal request, and cost nothing.
    cached: bool = False

    @property
    def tokens(self) -> int:
        """The number of tokens, sent and received, as far as the endpoint reported them."""
        return (self.prompt_tokens or 0) + (self.completion_tokens or 0)

    @property
    def refused(self) -> bool:
        """Whether the model or a filter of the endpoint refused to answer."""
        return self.finish in {"content_filter", "refusal"}


@dataclass(frozen=True)
class Failure:
    """No reply after all retries, and the reason; ``final``: asking again does not help."""

    reason: str
    final: bool = False


@dataclass
class Account:
    """Counts over requests that ended."""

    requests: int = 0
    cached: int = 0  # of these, answered without a call of their own
    failed: int = 0  # of these, without a reply
    prompt_tokens: int = 0  # of new replies, as far as the endpoint reported them
    completion_tokens: int = 0
    served: Counter[str] = field(default_factory=Counter)  # replies by the model that answered

    def add(self, outcome: Reply | Failure) -> None:
        """Count a request that ended."""
        self.requests += 1
        if isinstance(outcome, Failure):
            self.failed += 1
            return

        if outcome.model:
            self.served[outcome.model] += 1

        if outcome.cached:
            self.cached += 1
        else:
            self.prompt_tokens += outcome.prompt_tokens or 0
            self.completion_tokens += outcome.completion_tokens or 0

    def cost(self, price: Mapping[Any, float] | None) -> float | None:
        """Return the cost of new replies in USD; None if the price or the tokens are unknown."""
        replies = self.requests - self.failed - self.cached
        if price is None or (replies and not self.prompt_tokens):
            return None

        return price_of(price, self.prompt_tokens, self.completion_tokens)

    def spent(self, price: Mapping[Any, float] | None) -> str:
        """Return the counts, tokens and cost as text."""
        tokens = self.prompt_tokens + self.completion_tokens
        return (
            f"{self.requests:,} questions, {self.cached:,} of them in the cache, "
            f"{self.failed:,} failed; {tokens:,} tokens, cost: {dollars(self.cost(price))}"
        )


def price_of(price: Mapping[Any, float], sent: float, received: float) -> float:
    """Return the cost of tokens, at a price in USD per million ``input`` and ``output``."""
    return (sent * price["input"] + received * price["output"]) / 1_000_000


def dollars(cost: float | None) -> str:
    """Return a sum of money as text."""
    return "unknown (see llm.price)" if cost is None else f"${cost:,.4f}"


def commonest(reasons: Counter[str]) -> str:
    """Return the three commonest reasons, each with its count."""
    return "; ".join(f"{reason} ({count})" for reason, count in reasons.most_common(3))
