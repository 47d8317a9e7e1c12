"""Logged values as the run's own ``curves.csv``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pytorch_lightning.loggers import Logger
from pytorch_lightning.utilities import rank_zero_only

from lightning_cse.runs import Curves


class CurvesLogger(Logger):
    """Write every logged value, by step, to the run's ``curves.csv``."""

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
        """Append the values of one step."""
        if step is None:
            raise ValueError(f"{sorted(metrics)} must be logged with a step")
        self.curves.append(step, metrics)

    def log_hyperparams(self, *args: Any, **kwargs: Any) -> None:
        """Do nothing: the run folder holds the resolved config."""
