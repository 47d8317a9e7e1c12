"""Models that are not trained here: LENGTH, whitening and few-shot LLMs. The untrained encoder is `models.PointModel`.

Torch and encoders are imported on first use: a verdict needs neither.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from lightning_cse.baselines.verdict import NO_VERDICT, Verdict

if TYPE_CHECKING:
    from lightning_cse.baselines.few_shot import FewShot
    from lightning_cse.baselines.length import Length
    from lightning_cse.baselines.whitening import Whitening

__all__ = ["NO_VERDICT", "FewShot", "Length", "Verdict", "Whitening"]

_LAZY = {"FewShot": "few_shot", "Length": "length", "Whitening": "whitening"}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_LAZY[name]}"), name)
