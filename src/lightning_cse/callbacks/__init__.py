"""What watches a training: evaluation and diagnostics, checkpoints, the log of steps, the progress shown."""

from lightning_cse.callbacks.checkpoints import BestAndLast, RandomState
from lightning_cse.callbacks.diagnostics import Diagnostics, Side, build_diagnostics
from lightning_cse.callbacks.evaluation import Evaluation
from lightning_cse.callbacks.interrupts import Interrupts
from lightning_cse.callbacks.steps import StepBar, StepLog

__all__ = [
    "BestAndLast",
    "Diagnostics",
    "Evaluation",
    "Interrupts",
    "RandomState",
    "Side",
    "StepBar",
    "StepLog",
    "build_diagnostics",
]
