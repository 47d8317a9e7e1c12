"""Logged values as the run's own ``curves.csv``."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping
from typing import Any

from pytorch_lightning.loggers import Logger

from lightning_cse.loggers.view import rank
from lightning_cse.runs import Curves

__all__ = ["CurvesLogger"]


class CurvesLogger(Logger):
    """Writes every logged value, by step, to the run's ``curves.csv``.

    Args:
        curves: The run's curves, which the caller cuts back before it resumes.
    """

    def __init__(self, curves: Curves) -> None:
        super().__init__()
        self.curves = curves

    @property
    def name(self) -> str:
        """The file, without its ending."""
        return self.curves.path.stem

    @property
    def version(self) -> str:
        """The run folder's name."""
        return self.curves.path.parent.name

    @property
    def save_dir(self) -> str:
        """The run folder."""
        return str(self.curves.path.parent)

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Append the values of one step.

        Raises:
            ValueError: if no step is given.
        """
        if rank() != 0:
            return
        if step is None:
            raise ValueError(f"a curve needs a step, and {sorted(metrics)} came without one")
        self.curves.append(step, metrics)

    def log_hyperparams(self, params: dict[str, Any] | Namespace, *args: Any, **kwargs: Any) -> None:
        """Do nothing: the resolved config lies in the run folder."""

    def finalize(self, status: str) -> None:
        """Close the file; a later value opens it again."""
        self.curves.close()
