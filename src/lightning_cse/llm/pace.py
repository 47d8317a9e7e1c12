"""When the next call may start."""

from __future__ import annotations

import asyncio
import logging

from lightning_cse.llm.requests import Request

_LOG = logging.getLogger(__name__)


class Pace:
    """Every call waits for its `turn`, and whoever is told to wait makes all others wait with `hold`.

    A budget per minute is a subclass that waits longer in `turn`. Lives in one event loop.
    """

    def __init__(self) -> None:
        self._until = 0.0

    async def turn(self, request: Request) -> None:
        """Return when the request may be sent."""
        while (left := self._until - asyncio.get_running_loop().time()) > 0:  # noqa: ASYNC110 - a time is awaited, not a state
            await asyncio.sleep(left)

    def hold(self, seconds: float) -> None:
        """Let no call start for so long."""
        until = asyncio.get_running_loop().time() + seconds
        if until > self._until + 1:
            _LOG.info("the endpoint asks to wait %.0f s", seconds)
        self._until = max(self._until, until)
