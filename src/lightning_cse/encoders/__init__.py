"""Sentences to vectors: transformer backbone, pooling, and the templates around a sentence."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
