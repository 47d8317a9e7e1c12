"""When the next call may start."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from lightning_cse.llm.requests import Reply, Request

if TYPE_CHECKING:
    from lightning_cse.llm.troubles import Trouble

LONGEST_SPREAD: Final = 5.0
"""Seconds within which those who waited start."""

_SPREAD: Final = 0.25  # of the time they were held
_GOLDEN: Final = 0.6180339887498949  # its multiples, without their whole part, lie far apart from one another

_LOG = logging.getLogger(__name__)


class Pace:
    """Every call waits for its `turn`, and whoever is told to wait makes all others wait with `hold`.

    A budget per minute is a subclass that waits longer in `turn`, and that learns from `settle` what a call took. One
    pace serves all that a client asks, one event loop after the other; it is used in one at a time.

    Args:
        clock: seconds that only grow, as the event loops count them.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._until = 0.0
        self._spread = 0.0
        self._held = 0

    async def turn(self, request: Request) -> None:
        """Return when the request may be sent.

        Calls that were held start one after the other: all at once, they would meet the same limit again.
        """
        if self._until <= self._clock():
            return
        self._held += 1
        share = self._held * _GOLDEN % 1
        while (left := self._until + share * self._spread - self._clock()) > 0:  # noqa: ASYNC110 - a time is awaited, not a state
            await asyncio.sleep(left)

    def hold(self, seconds: float) -> None:
        """Let no call start for so long."""
        until = self._clock() + seconds
        if until > self._until + 1:
            _LOG.info("the endpoint asks to wait %.0f s", seconds)
        if until > self._until:
            self._until = until
            self._spread = min(_SPREAD * seconds, LONGEST_SPREAD)

    def settle(self, request: Request, got: Reply | Trouble | None) -> None:
        """Take note of what came of a call that had its turn: exactly once each.

        Args:
            request: what was asked.
            got: what came: a reply with its tokens, or what went wrong; None if nothing is known, or if the call was
                cut off.
        """
