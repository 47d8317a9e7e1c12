"""The run's own logger: every logged value, by step, in ``curves.csv``."""

import math
from collections.abc import Mapping
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning import Callback
from pytorch_lightning.loggers import Logger
from pytorch_lightning.utilities import rank_zero_only

from lightning_cse.runs import Curves


class CurvesLogger(Logger):
    """Append every logged value to the run's ``curves.csv``, under the number of steps made."""

    def __init__(self, curves: Curves) -> None:
        super().__init__()
        self.curves = curves

    @property
    def name(self) -> str:
        """The file's name."""
        return self.curves.path.stem

    @property
    def version(self) -> str:
        """The name of the run's folder."""
        return self.curves.path.parent.name

    @rank_zero_only
    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Append the values of one step. Test scores belong to the record; a part of a loss that a
        batch lacks is NaN.
        """
        values = {}
        for key, value in metrics.items():
            is_lacking = key.startswith("train/") and math.isnan(value)
            if key != "epoch" and not key.startswith("test/") and not is_lacking:
                values[key] = value

        # LearningRateMonitor logs before the step is made.
        step = (step or 0) + ("train/learning_rate" in values)
        if values:
            self.curves.append(step, values)

    def log_hyperparams(self, *args: Any, **kwargs: Any) -> None:
        """Do nothing: the run folder holds the resolved config."""


class CurvesDigest(Callback):
    """Put the length and the digest of the curves into a checkpoint, after syncing them to the
    disk; a resumed run continues exactly there.
    """

    def __init__(self, curves: Curves) -> None:
        self.curves = curves

    def on_save_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Add them, in the process that writes."""
        if trainer.is_global_zero:
            checkpoint["curves"] = self.curves.sync()
