"""Training objectives: tensors in, scalar out; no model, no config, no logger."""

import lazy_loader

# The stub beside this file lists the public names; each is imported when it is first used.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
