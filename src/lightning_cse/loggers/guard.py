"""A logger of Lightning that can never fail a run."""

import contextlib
import logging
from collections.abc import Callable
from typing import Any

from pytorch_lightning.loggers import Logger

from lightning_cse.errors import one_line

log = logging.getLogger("lightning_cse.loggers")


def _guarded(name: str) -> Callable[..., Any]:
    def method(self: "Guard", *args: Any, **kwargs: Any) -> Any:
        return self._try(name, lambda: getattr(super(Guard, self), name)(*args, **kwargs))

    return method


class Guard(Logger):
    """Keep the failures of a logger away from the run; a base class before that of the logger.

    The first exception is reported in one warning and switches the logger off.
    """

    _is_off = False

    log_metrics = _guarded("log_metrics")
    log_hyperparams = _guarded("log_hyperparams")
    log_graph = _guarded("log_graph")
    save = _guarded("save")
    finalize = _guarded("finalize")
    after_save_checkpoint = _guarded("after_save_checkpoint")

    @property
    def experiment(self) -> Any:
        """The object that takes the values, started on first use; None if the logger is off or has
        none.
        """
        if not any("experiment" in vars(base) for base in type(self).__mro__[2:]):  # after Guard
            return None

        return self._try("start", lambda: super(Guard, self).experiment)  # type: ignore[misc]  # of the logger

    def close(self, exit_code: int = 0) -> None:
        """End the logger within this run, so that the next run of a sweep starts its own."""
        experiment: Any = getattr(self, "_experiment", None)
        if hasattr(experiment, "finish"):
            self._try("finish", lambda: experiment.finish(exit_code=exit_code))
        elif hasattr(experiment, "close"):
            self._try("finish", experiment.close)

        self._is_off = True

    def _try(self, action: str, call: Callable[[], Any]) -> Any:
        if self._is_off:
            return None

        try:
            return call()
        except Exception as error:  # noqa: BLE001 - no failure of a logger may reach the run
            if self._is_off:  # a call within this one has failed, and was reported
                return None  # type: ignore[unreachable]  # the call may have set it

            self._is_off = True
            name = type(self).__name__
            log.warning("%s: %s (%s): the run continues without it", name, action, one_line(error))
            with contextlib.suppress(Exception):  # an open run of W&B would stay in use
                if action != "finish":
                    vars(self)["_experiment"].finish(exit_code=1)

            return None


def guarded(*classes: type[Logger]) -> type[Logger]:
    """Return a class of loggers whose failures stay away from the run: the last of some classes,
    with those before it as base classes.
    """
    return type(classes[-1].__name__, (Guard, *classes), {})
