"""When the next call may start."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Final

from lightning_cse.llm.requests import Reply, Request

LONGEST_SPREAD: Final = 5.0
"""Seconds within which those who waited start."""

_SPREAD: Final = 0.25  # of the time they were held
_GOLDEN: Final = 0.6180339887498949  # its multiples, without their whole part, lie far apart from one another

_LOG = logging.getLogger(__name__)


class Pace:
    """Every call waits for its `turn`, and whoever is told to wait makes all others wait with `hold`.

    A budget per minute is a subclass that waits longer in `turn`, and that learns from `settle` what a call took. One
    pace serves all that a client asks, one event loop after the other; it is used in one at a time.
    """

    def __init__(self) -> None:
        self._until = 0.0
        self._spread = 0.0
        self._held = 0

    async def turn(self, request: Request) -> None:
        """Return when the request may be sent.

        Calls that were held start one after the other: all at once, they would meet the same limit again.
        """
        if self._until <= time.monotonic():
            return
        self._held += 1
        share = self._held * _GOLDEN % 1
        while (left := self._until + share * self._spread - time.monotonic()) > 0:  # noqa: ASYNC110 - a time is awaited, not a state
            await asyncio.sleep(left)

    def hold(self, seconds: float) -> None:
        """Let no call start for so long."""
        until = time.monotonic() + seconds
        if until > self._until + 1:
            _LOG.info("the endpoint asks to wait %.0f s", seconds)
        if until > self._until:
            self._until = until
            self._spread = min(_SPREAD * seconds, LONGEST_SPREAD)

    def settle(self, request: Request, reply: Reply | None) -> None:
        """Take note of what came of a call that had its turn: exactly once each.

        Args:
            request: what was asked.
            reply: what came, with its tokens; None if nothing did, or if the call was cut off.
        """
