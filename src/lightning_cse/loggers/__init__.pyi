from .plots import run_figures as run_figures
from .tensorboard_view import TensorBoardView as TensorBoardView
from .view import CurvesLogger as CurvesLogger
from .view import RunView as RunView
from .wandb_view import WandbView as WandbView
