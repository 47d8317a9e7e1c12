"""What watches a training: evaluation and diagnostics, checkpoints, the log of steps, the progress shown."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
