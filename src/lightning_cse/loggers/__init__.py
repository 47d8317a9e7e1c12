"""Where logged values go: always to the run's own curves, and to W&B or TensorBoard as a view on the same values."""

from lightning_cse.loggers.curves import CurvesLogger
from lightning_cse.loggers.tensorboard_view import TensorBoardView
from lightning_cse.loggers.view import RunView
from lightning_cse.loggers.wandb_view import WandbView

__all__ = ["CurvesLogger", "RunView", "TensorBoardView", "WandbView"]
