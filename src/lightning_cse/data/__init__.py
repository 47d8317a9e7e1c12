"""From corpus files to token batches by role. The data code knows text and a tokenize function, but
no encoder.
"""

import lazy_loader

# The stub beside this file lists the public names; each is imported when it is first used.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
