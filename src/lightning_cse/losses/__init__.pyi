from .dual_contrastive import DualContrastive as DualContrastive
from .gaussian_contrastive import GaussianContrastive as GaussianContrastive
from .info_nce import InfoNCE as InfoNCE
from .margins import HierarchicalTriplet as HierarchicalTriplet
from .margins import ImplicitnessRanking as ImplicitnessRanking
from .pairs import CosineRegression as CosineRegression
from .pairs import SoftmaxClassification as SoftmaxClassification
from .soft_info_nce import SoftInfoNCE as SoftInfoNCE
