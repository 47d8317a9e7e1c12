"""lightning_cse: the contrastive sentence-embedding papers as PyTorch Lightning modules and Hydra
configs.

``lightning_cse.load("runs/...")`` loads a trained model, or an encoder by its name;
``lightning_cse.train(["+experiment=dualcse_cross", "+debug=tiny"])`` trains one.
"""

import lazy_loader

__version__ = "1.0.0"

# The stub beside this file lists the public names; each is imported when it is first used. `train`
# stays the function when its module of the same name is imported.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
