"""Models: plain modules that embed sentences and answer questions about them; `methods` train them.

The `settings` of a model and its encoder suffice to build it again: ``build(encoder,
model.settings())``.
"""

import lazy_loader

# The stub beside this file lists the public names; each is imported when it is first used.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
