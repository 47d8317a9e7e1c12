"""Sources for which nothing more is asked: what was written for them, what was rejected, and what all that took."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from lightning_cse.llm import price_of

UNANSWERABLE: Final = "refused by the endpoint"
"""The reason where asking again brings no reply: the request is too long for the model, say."""


@dataclass(frozen=True)
class Rejected:
    """A reply that is no sentence of its role: which role, why, and what it was."""

    role: str
    reason: str
    text: str


@dataclass(frozen=True)
class Settled:
    """A source for which nothing more is asked.

    Attributes:
        position: Its place in the order of drawing, from 0.
        anchor: The source sentence.
        sentences: What was accepted, by role; all roles, unless the source was given up.
        rejected: What was not, in the order of coming.
        replies: How many replies that took, cached ones too.
        prompt_tokens: What was sent for them, as far as the endpoint told; cached ones too.
        completion_tokens: What was received.
        unmetered: Replies of which it told no tokens.
        served: Replies by the model that answered, as far as it was told.
        complete: Whether all roles are there.
    """

    position: int
    anchor: str
    sentences: Mapping[str, str]
    rejected: Sequence[Rejected]
    replies: int
    prompt_tokens: int
    completion_tokens: int
    unmetered: int
    served: Mapping[str, int]
    complete: bool

    @property
    def unanswerable(self) -> bool:
        """Whether it was given up because the endpoint refused a request, which costs nothing to ask again."""
        return not self.complete and bool(self.rejected) and self.rejected[-1].reason == UNANSWERABLE


@dataclass(frozen=True)
class Unanswered:
    """A source without a reply, for a reason of the way: asked again by the next start, which may get one."""

    position: int
    reason: str


class Tally:
    """Counts over settled sources, from which rates, tokens and cost are told; it grows with no source.

    Args:
        roles: The pattern's roles, in their order.
    """

    def __init__(self, roles: Sequence[str]) -> None:
        self.complete = 0
        self.given_up = 0
        self.replies = 0
        self.prompt_tokens = 0
        self.completion_tokens = 0
        self.unmetered = 0
        self.served: Counter[str] = Counter()
        self._accepted = dict.fromkeys(roles, 0)
        self._rejected: dict[str, Counter[str]] = {role: Counter() for role in roles}

    def add(self, settled: Settled) -> None:
        """Count a source."""
        self.complete += settled.complete
        self.given_up += not settled.complete
        self.replies += settled.replies
        self.prompt_tokens += settled.prompt_tokens
        self.completion_tokens += settled.completion_tokens
        self.unmetered += settled.unmetered
        self.served.update(settled.served)
        for role in settled.sentences:
            self._accepted[role] += 1
        for rejected in settled.rejected:
            self._rejected[rejected.role][rejected.reason] += 1

    @property
    def rejected(self) -> int:
        """How many replies were rejected."""
        return sum(reasons.total() for reasons in self._rejected.values())

    def acceptance(self) -> dict[str, Any]:
        """Return how many sources are complete and given up, and of each role how many replies came to what."""
        roles = {
            role: {
                "asked": accepted + self._rejected[role].total(),
                "accepted": accepted,
                "rejected": dict(self._rejected[role].most_common()),
            }
            for role, accepted in self._accepted.items()
        }
        return {"sources": {"complete": self.complete, "given_up": self.given_up}, "roles": roles}

    def cost(self, price: Mapping[str, float] | None) -> float | None:
        """Return what all replies cost in USD when they were paid; None where prices or all tokens are unknown."""
        if price is None or (self.replies and self.unmetered == self.replies):
            return None
        return price_of(price, self.prompt_tokens, self.completion_tokens)
