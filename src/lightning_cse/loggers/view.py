"""What every view on a run shares: it shows the values of the curves elsewhere, and can never fail the run."""

from __future__ import annotations

import contextlib
import logging
import math
from abc import abstractmethod
from argparse import Namespace
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, ClassVar

from pytorch_lightning.loggers import Logger
from pytorch_lightning.utilities import rank_zero_only

__all__ = ["RunView", "final_values", "rank"]

_LOG = logging.getLogger("lightning_cse.loggers")


class RunView(Logger):
    """A view on a run: useful when it works, and never able to fail, change or stop the run.

    Whatever goes wrong inside is told once as a warning and turns the view off. It starts with the first value, or when
    a Trainer starts.

    A Trainer calls ``finalize("success")`` at the end of *every* fit, validation and test, so that does not end the
    view: `close` does, and so does any other status. `conclude` before it adds what the whole run came to.

    Args:
        folder: The run folder.
    """

    CALLED: ClassVar[str]
    """What the view is called in messages."""

    ADVICE: ClassVar[str] = "logger=csv leaves it out"

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = Path(folder)
        self._run: Any = None
        self._off = False

    @property
    def save_dir(self) -> str:
        """The run folder."""
        return str(self._folder)

    @property
    def experiment(self) -> Any:
        """What takes the values, started if it was not; None where the view is off."""
        if self._run is None and not self._off and rank() == 0:
            self._guarded("start", self._begin)
        return self._run

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Show the values of one step."""
        run = self.experiment
        if run is not None:
            self._guarded("log", lambda: self._log(run, metrics, step))

    def log_hyperparams(self, params: dict[str, Any] | Namespace, *args: Any, **kwargs: Any) -> None:
        """Do nothing: the view has the resolved config from the start."""

    def conclude(self, record: Mapping[str, Any]) -> None:
        """Show what a finished run came to, beside its settings.

        No sentence and no prediction goes along: corpora have licences, and a view may be seen by others.

        Args:
            record: The run's record, or the part of it that `final_values` reads.
        """
        run = self.experiment
        if run is not None:
            self._guarded("show the result", lambda: self._conclude(run, final_values(record), int(record["steps"])))

    def finalize(self, status: str) -> None:
        """End the view as failed, unless ``status`` is a Trainer's word that one of its calls went well."""
        if status not in {"success", "finished"}:
            self.close(1)

    def close(self, exit_code: int = 0) -> None:
        """End the view inside this job, so that the next one starts its own; later calls do nothing.

        Args:
            exit_code: 0 for a run that went well, anything else for a failed one.
        """
        run, self._run = self._run, None
        off, self._off = self._off, True
        if run is not None and not off:
            self._guarded("finish", lambda: self._end(run, exit_code))

    @abstractmethod
    def _start(self) -> Any:
        """Return what takes the values; None turns the view off without a word."""

    @abstractmethod
    def _log(self, run: Any, metrics: Mapping[str, float], step: int | None) -> None: ...

    @abstractmethod
    def _conclude(self, run: Any, values: dict[str, float], step: int) -> None: ...

    @abstractmethod
    def _end(self, run: Any, exit_code: int) -> None: ...

    def _surroundings(self) -> AbstractContextManager[None]:
        """Return what is put around every call, to leave the process as it was."""
        return contextlib.nullcontext()

    def _begin(self) -> None:
        self._run = self._start()
        self._off = self._run is None

    def _guarded(self, what: str, call: Callable[[], object]) -> None:
        try:
            with self._surroundings():
                call()
        except Exception as error:  # noqa: BLE001 - the service, the disk, a package: none of it may reach the run
            run, self._run = self._run, None
            self._off = True
            if run is not None:
                with contextlib.suppress(Exception), self._surroundings():
                    self._end(run, 1)  # else it stays open, and the next start of this run would find it in use
            _LOG.warning(
                "%s could not %s (%s: %s): the run goes on without it, its values are in %s; %s",
                self.CALLED,
                what,
                type(error).__name__,
                " ".join(str(error).split())[:300],
                self._folder,
                self.ADVICE,
            )


def final_values(record: Mapping[str, Any]) -> dict[str, float]:
    """Return the numbers of a record that a table of runs has as columns.

    Keys: ``test/...`` as in the record, ``best/score`` and ``best/step`` (dev), and ``summary/...``, such as
    ``summary/rfd_alignment``. What is empty or no finite number is left out.
    """
    best, summary = record["best"], record.get("summary") or {}
    values = dict(record["metrics"])
    values |= {f"best/{key}": best[key] for key in ("score", "step")}
    values |= {f"summary/{key}": value for key, value in summary.items() if not key.startswith("best_")}
    return {key: value for key, value in values.items() if value is not None and math.isfinite(value)}


def rank() -> int:
    """Return this process's rank among those of a run."""
    return int(getattr(rank_zero_only, "rank", None) or 0)
