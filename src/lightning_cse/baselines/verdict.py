"""The verdict on a pair by a model that reads sentences and has no embeddings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

HYPOTHESES: Final = {
    "explicit": ("explicit_entailment", True),
    "implied": ("implied_entailment", True),
    "neutral": ("neutral", False),
    "contradiction": ("contradiction", False),
}
"""Type of hypothesis: its column in INLI, and whether it is entailed."""

NO_VERDICT: Final = ("refused", "unparsable", "failed")
"""The answers that are none: the model declined, it named no label or several, or the endpoint gave no reply."""


@dataclass(frozen=True)
class Verdict:
    """Whether a hypothesis is entailed by its premise; None where ``answer`` is one of `NO_VERDICT`, not a type."""

    entailed: bool | None
    answer: str
