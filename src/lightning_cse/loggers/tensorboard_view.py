"""TensorBoard as a view on a run, for curves without an account."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from typing import Any

from pytorch_lightning.loggers import TensorBoardLogger

from lightning_cse.loggers.view import RunView
from lightning_cse.runs import Run


class TensorBoardView(RunView, TensorBoardLogger):
    """TensorBoard as a view on a run, as `RunView`: event files under ``<run folder>/tensorboard``.

    The settings, with the final values, stand in TensorBoard's table of runs (HPARAMS). A resumed run makes it forget
    the steps after the one from which it is resumed; arguments as of `WandbView`.
    """

    CALLED = "TensorBoard"

    def __init__(
        self, *, run: Run, group: str, settings: Mapping[str, Any], tags: Sequence[str], resumed_at: int | None = None
    ) -> None:
        folder, purge = run.path / "tensorboard", None if resumed_at is None else resumed_at + 1
        if resumed_at is None:
            shutil.rmtree(folder, ignore_errors=True)
        super().__init__(folder, name="", version="", default_hp_metric=False, purge_step=purge, max_queue=1000)
        self._settings = {**settings, "group": group, "tags": " ".join(tags)}

    def _conclude(self, values: dict[str, float], step: int) -> None:
        super(RunView, self).log_hyperparams(self._settings, metrics=values, step=step)

    def _end(self, exit_code: int) -> None:
        if self._experiment is not None:
            self._experiment.close()
