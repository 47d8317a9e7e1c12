"""Metrics of embeddings and scores: functions, and three `torchmetrics.Metric` classes."""

import lazy_loader

# The stub beside this file lists the public names; each is imported at its first use, as
# torchmetrics takes seconds.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
