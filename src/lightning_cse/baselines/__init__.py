"""What answers a method's questions without being trained here."""

from lightning_cse.baselines.few_shot import FewShot
from lightning_cse.baselines.length import Length
from lightning_cse.baselines.plain import PlainEncoder
from lightning_cse.baselines.verdict import NO_VERDICT, Verdict
from lightning_cse.baselines.whitening import Whitening

__all__ = ["NO_VERDICT", "FewShot", "Length", "PlainEncoder", "Verdict", "Whitening"]
