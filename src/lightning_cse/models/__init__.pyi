from .base import Model as Model
from .base import build as build
from .dual import DualModel as DualModel
from .dual_gaussian import DualGaussianModel as DualGaussianModel
from .gaussian import GaussianModel as GaussianModel
from .impscore import ImpScoreModel as ImpScoreModel
from .point import PointModel as PointModel
