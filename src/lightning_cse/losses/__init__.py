"""Training objectives: one a file, tensors in, scalar out; no model, no config, no logger."""

from lightning_cse.losses.dual_contrastive import DualContrastive
from lightning_cse.losses.gaussian_contrastive import GaussianContrastive
from lightning_cse.losses.hierarchical_triplet import HierarchicalTriplet
from lightning_cse.losses.implicitness_ranking import ImplicitnessRanking
from lightning_cse.losses.info_nce import InfoNCE

__all__ = ["DualContrastive", "GaussianContrastive", "HierarchicalTriplet", "ImplicitnessRanking", "InfoNCE"]
