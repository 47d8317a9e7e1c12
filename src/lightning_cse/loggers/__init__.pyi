from .plots import run_figures as run_figures
from .views import CurvesLogger as CurvesLogger
from .views import RunView as RunView
from .views import TensorBoardView as TensorBoardView
from .views import WandbView as WandbView
