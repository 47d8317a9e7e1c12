"""Loggers: a run's own curves always, and any logger of Lightning beside them, which cannot fail
the run.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
