from .dual_contrastive import DualContrastive as DualContrastive
from .gaussian_contrastive import GaussianContrastive as GaussianContrastive
from .hierarchical_triplet import HierarchicalTriplet as HierarchicalTriplet
from .implicitness_ranking import ImplicitnessRanking as ImplicitnessRanking
from .info_nce import InfoNCE as InfoNCE
