"""What watches a training: evaluation and diagnostics, checkpoints, the log of steps, the progress shown."""

from lightning_cse.callbacks.checkpoints import BestAndLast, RandomState
from lightning_cse.callbacks.diagnostics import Diagnostics, Side, build_diagnostics
from lightning_cse.callbacks.evaluation import Evaluation
from lightning_cse.callbacks.steps import StepLog, progress

__all__ = [
    "BestAndLast",
    "Diagnostics",
    "Evaluation",
    "RandomState",
    "Side",
    "StepLog",
    "build_diagnostics",
    "progress",
]
