"""Where logged values go: always to the run's own curves, and to W&B or TensorBoard as a view on the same values."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
