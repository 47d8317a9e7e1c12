"""Loggers: a run's own curves always, and W&B or TensorBoard as a view of the same values."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
