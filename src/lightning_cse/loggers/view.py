"""A run's own curves, and the common part of all views, which show its values elsewhere and can never fail it."""

from __future__ import annotations

import contextlib
import logging
import math
from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from pytorch_lightning.loggers import Logger
from pytorch_lightning.utilities import rank_zero_only

from lightning_cse.errors import one_line
from lightning_cse.runs import Curves

log = logging.getLogger("lightning_cse.loggers")


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


class RunView(Logger):
    """Stand before one of Lightning's loggers and keep its failures from the run.

    The first exception is reported in one warning and switches the view off. A Trainer calls ``finalize`` at the end of
    every fit and test, so it does not end the view.
    """

    CALLED: ClassVar[str]  # in messages
    _off = False

    @property
    def experiment(self) -> Any:
        """What takes the values, started when it is first asked for; None where the view is off."""
        return self._guarded("start", self._started)

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Show the values of one step."""
        self._guarded("log", lambda: self._log(metrics, step))

    def conclude(self, record: Mapping[str, Any]) -> None:
        """Show the final values of a finished run beside its settings, but no sentences or predictions."""
        self._guarded("show the result", lambda: self._conclude(final_values(record), int(record["steps"])))

    def log_hyperparams(self, *args: Any, **kwargs: Any) -> None:
        """Do nothing: the view has the resolved config from the start."""

    def finalize(self, status: str) -> None:
        """Do nothing: `close` ends the view."""

    def close(self, exit_code: int = 0) -> None:
        """End the view within this job, so that the next one starts its own; later calls do nothing."""
        self._guarded("finish", lambda: self._end(exit_code))
        self._off = True

    def _started(self) -> Any:
        return super().experiment  # type: ignore[misc]  # of the logger behind this one

    def _log(self, metrics: Mapping[str, float], step: int | None) -> None:
        super().log_metrics(dict(metrics), step)  # type: ignore[safe-super]

    @abstractmethod
    def _conclude(self, values: dict[str, float], step: int) -> None: ...

    @abstractmethod
    def _end(self, exit_code: int) -> None: ...

    def _guarded(self, what: str, call: Callable[[], Any]) -> Any:
        if self._off:
            return None
        try:
            return call()
        except Exception as error:  # noqa: BLE001 - the service, the disk, a package: none of it may reach the run
            if not self._off:  # else a call inside this one has reported it
                self._off = True
                log.warning("%s could not %s (%s): the run continues without it", self.CALLED, what, one_line(error))
                if what != "finish":
                    with contextlib.suppress(Exception):
                        self._end(1)  # else it stays open, and the next start of this run would find it in use
            return None


def final_values(record: Mapping[str, Any]) -> dict[str, float]:
    """Return the finite numbers of a record for a table of runs: ``test/...``, ``best/score``, ``summary/...``."""
    values = record["metrics"] | {f"best/{key}": record["best"][key] for key in ("score", "step")}
    summary = record.get("summary") or {}
    values |= {f"summary/{key}": value for key, value in summary.items() if not key.startswith("best_")}
    return {key: value for key, value in values.items() if value is not None and math.isfinite(value)}
