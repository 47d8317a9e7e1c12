"""lightning_cse: the contrastive sentence-embedding papers as PyTorch Lightning modules and Hydra configs.

``lightning_cse.load("runs/...")`` loads a trained model, or an encoder by its name.
"""

import importlib
from typing import Any

__version__ = "0.1.0"

_LAZY = {"load": ("lightning_cse.engine.load", "load_model")}


def __getattr__(name: str) -> Any:
    """Import a public name on first use: ``import lightning_cse`` alone loads no torch."""
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, attribute = _LAZY[name]
    return getattr(importlib.import_module(module), attribute)


def __dir__() -> list[str]:
    """List the public names."""
    return ["__version__", *_LAZY]
