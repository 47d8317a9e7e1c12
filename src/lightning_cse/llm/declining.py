"""Replies in which a model declines in words of its own."""

from __future__ import annotations

import re
from typing import Final

_DECLINES: Final = re.compile(
    r"\b(sorry|apologi[sz]e|can(not| not|['’]?t)|unable|wo(n['’]t|uld rather not)|will not|not able|decline|refuse)\b",
    re.IGNORECASE,
)


def declines(text: str) -> bool:
    """Return whether a reply that is not what was asked for reads as if the model declined.

    Few endpoints set `Reply.refusal`; with most, a model that declines says so. The words also stand in replies that do
    what was asked, so a reply is first to be read as such.

    Example:
        >>> declines("I'm sorry, but I can't help with that."), declines("Hm, hard to say.")
        (True, False)
    """
    return bool(_DECLINES.search(text))
