"""What answers a method's questions without being trained here."""

from lightning_cse.baselines.length import Length
from lightning_cse.baselines.plain import PlainEncoder

__all__ = ["Length", "PlainEncoder"]
