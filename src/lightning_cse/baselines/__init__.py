"""What answers a method's questions without being trained here."""

from lightning_cse.baselines.length import Length
from lightning_cse.baselines.plain import PlainEncoder
from lightning_cse.baselines.whitening import Whitening

__all__ = ["Length", "PlainEncoder", "Whitening"]
