"""lightning_cse: the contrastive sentence-embedding papers as PyTorch Lightning modules and Hydra configs."""

__version__ = "0.1.0"
