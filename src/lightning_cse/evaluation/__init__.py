"""Evaluation tasks, one per file: they ask a model a few questions and know nothing else about
it.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
