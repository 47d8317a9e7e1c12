"""TensorBoard as a view on a run, for curves without an account."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from lightning_cse.loggers.view import RunView

__all__ = ["TensorBoardView"]

_FOLDER: Final = "tensorboard"


class TensorBoardView(RunView):
    """TensorBoard as a view on a run, as `RunView`: event files under ``<run folder>/tensorboard``.

    ``tensorboard --logdir runs`` shows all runs below a folder. A resumed run writes a further file whose first step
    makes TensorBoard forget what an earlier one has from that step on, so that no step is there twice. `conclude`
    writes the settings with the final values, for TensorBoard's table of runs (HPARAMS).

    Args:
        identity: What `lightning_cse.runs.identity` returned.
        name: The experiment's name.
        seed: The seed.
        group: The name, or ``name/sweep``; it stands among the settings.
        settings: The resolved config as plain containers. Values under keys that look like secrets are left out.
        folder: The run folder.
        resume: Whether the run goes on from a checkpoint; else what is there of an earlier start is removed.
        tags: Words to find the run by; they stand among the settings.
    """

    CALLED = "TensorBoard"
    ADVICE = "pip install 'lightning_cse[tensorboard]' if it is not there, and logger=csv leaves it out"

    def __init__(
        self,
        *,
        identity: str,
        name: str,
        seed: int,
        group: str,
        settings: Mapping[str, Any],
        folder: Path,
        resume: bool = True,
        tags: Sequence[str] = (),
    ) -> None:
        super().__init__(folder)
        self._resume = resume
        self._name = name
        self._version = f"{identity}-s{seed}"
        self._config = dict(settings) | {"group": group, "tags": " ".join(tags)}
        self._first: int | None = None

    @property
    def name(self) -> str:
        """The experiment's name."""
        return self._name

    @property
    def version(self) -> str:
        """The run's identity and seed."""
        return self._version

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Show the values of one step."""
        if self._first is None:
            self._first = step
        super().log_metrics(metrics, step)

    @property
    def experiment(self) -> Any:
        """Lightning's logger, started with the first value, whose step tells from where a resumed run goes on."""
        return super().experiment if self._first is not None else None

    def conclude(self, record: Mapping[str, Any]) -> None:
        """Show what a finished run came to, beside its settings; as `RunView`."""
        if self._first is None:
            self._first = int(record["steps"]) + 1  # resumed after the last step: nothing of before is taken back
        super().conclude(record)

    def _start(self) -> Any:
        from pytorch_lightning.loggers import TensorBoardLogger

        folder = self._folder / _FOLDER
        if not self._resume:
            shutil.rmtree(folder, ignore_errors=True)
        run = TensorBoardLogger(
            save_dir=folder, name="", version="", default_hp_metric=False, purge_step=self._first, max_queue=1000
        )
        run.experiment  # noqa: B018 - opens the file, or says here what is lacking
        return run

    def _log(self, run: Any, metrics: Mapping[str, float], step: int | None) -> None:
        run.log_metrics(metrics, step)

    def _conclude(self, run: Any, values: dict[str, float], step: int) -> None:
        run.log_hyperparams(self._config, metrics=values, step=step)

    def _end(self, run: Any, exit_code: int) -> None:
        run.experiment.close()

    def finalize(self, status: str) -> None:
        """Write what waits, after every one of a Trainer's calls; else as `RunView`."""
        super().finalize(status)
        run = self._run
        if run is not None:
            self._guarded("write", run.experiment.flush)
