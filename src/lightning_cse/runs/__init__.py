"""A run on disk: its folder, status, lock, record, curves, predictions, and its hash."""

import lazy_loader

# The stub beside this file lists the public names; each is imported when it is first used.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
