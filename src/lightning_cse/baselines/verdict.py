"""What a model that reads sentences, and has no embeddings, says of a pair."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

NO_VERDICT: Final = ("refused", "unparsable", "failed")
"""The answers that are none: the model declined, it named no label or several, or the endpoint gave no reply."""


@dataclass(frozen=True)
class Verdict:
    """Whether a hypothesis is entailed by its premise.

    Attributes:
        entailed: None where the answer is one of `NO_VERDICT`.
        answer: the type of hypothesis it was taken for (``explicit``, ``implied``, ``neutral``, ``contradiction``), or
            why there is no verdict.
    """

    entailed: bool | None
    answer: str
