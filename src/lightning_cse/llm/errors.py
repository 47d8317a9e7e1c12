"""What ends the asking as a whole."""

from __future__ import annotations

from lightning_cse.errors import LightningCSEError


class LLMError(LightningCSEError):
    """No further reply can be had until the user mends something; the replies that came are in the cache."""
