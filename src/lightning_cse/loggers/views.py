"""Loggers of a run: its own curves, and views in TensorBoard and W&B, which can never fail the
run.
"""

import contextlib
import logging
import math
import os
import re
import shutil
import sys
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

from pytorch_lightning.loggers import Logger, TensorBoardLogger, WandbLogger
from requests.utils import get_netrc_auth

from lightning_cse.errors import one_line
from lightning_cse.runs import Curves, Run

log = logging.getLogger("lightning_cse.loggers")

STEP = "trainer/global_step"  # the axis of every curve
_SETTINGS = {
    "reinit": "create_new",  # not the process's global run: runs of a sweep stay apart
    "console": "off",
    "silent": True,
    # The record holds commit, versions and machine; metadata would hold the whole command line.
    "disable_git": True,
    "disable_code": True,
    "save_code": False,
    "x_disable_meta": True,
    "x_disable_machine_info": True,
    "x_save_requirements": False,
    "init_timeout": 30.0,
    "login_timeout": 30.0,
    "finish_timeout": 60.0,
}

Metrics = Mapping[str, float]
Values = Mapping[str, Any]


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

    def log_metrics(self, metrics: Metrics, step: int | None = None) -> None:
        """Append the values of one step; only the first process of a run has loggers."""
        assert step is not None  # noqa: S101 - Lightning passes it
        self.curves.append(step, metrics)

    def log_hyperparams(self, *args: Any, **kwargs: Any) -> None:
        """Do nothing: the run folder holds the resolved config."""


class RunView(Logger):
    """Wrap one of Lightning's loggers, and keep its failures away from the run.

    The first exception is reported in one warning and switches the view off. A Trainer calls
    ``finalize`` at the end of every fit and test, so ``finalize`` does not end the view.
    """

    CALLED: ClassVar[str]  # its name in messages
    _off = False

    @property
    def experiment(self) -> Any:
        """The object that takes the values, started on first use; None if the view is off."""
        return self._guarded("start", self._started)

    def log_metrics(self, metrics: Metrics, step: int | None = None) -> None:
        """Show the values of one step."""
        self._guarded("log", lambda: self._log(metrics, step))

    def conclude(self, record: Values) -> None:
        """Show the final values of a finished run next to its settings, but no sentences or
        predictions.
        """
        self._guarded("conclude", lambda: self._conclude(final_values(record), record["steps"]))

    def log_hyperparams(self, *args: Any, **kwargs: Any) -> None:
        """Do nothing: the view has the resolved config from the start."""

    def finalize(self, status: str) -> None:
        """Do nothing: `close` ends the view."""

    def close(self, exit_code: int = 0) -> None:
        """End the view within this job, so that the next job starts its own; later calls do
        nothing.
        """
        self._guarded("finish", lambda: self._end(exit_code))
        self._off = True

    def _started(self) -> Any:
        return super().experiment  # type: ignore[misc]  # of the wrapped logger

    def _log(self, metrics: Metrics, step: int | None) -> None:
        super().log_metrics(dict(metrics), step)  # type: ignore[safe-super]

    @abstractmethod
    def _conclude(self, values: Metrics, step: int) -> None: ...

    @abstractmethod
    def _end(self, exit_code: int) -> None: ...

    def _guarded(self, what: str, call: Callable[[], Any]) -> Any:
        if self._off:
            return None

        try:
            return call()
        except Exception as error:  # noqa: BLE001 - no failure of a view may reach the run
            if not self._off:  # else a nested call has reported it
                self._off = True
                text = "%s could not %s (%s): the run continues without it"
                log.warning(text, self.CALLED, what, one_line(error))
                with contextlib.suppress(Exception):  # an open view would stay in use
                    if what != "finish":
                        self._end(1)

            return None


def _layout(monitor: str) -> Mapping[str, Any]:
    """Return the page "Custom scalars" of TensorBoard: charts by title, with patterns of curves."""
    # TensorBoard gives a run one colour per chart: the two sides would look alike in one.
    charts = {
        "Relative fitting difficulty": {
            "RFD of alignment": "diag/(.*/)?rfd_alignment",
            "RFD of uniformity": "diag/(.*/)?rfd_uniformity",
        },
        "The sides that RFD compares": {
            "alignment, held-out training rows": "diag/(.*/)?held_out/alignment",
            "alignment, evaluation set": "diag/(.*/)?eval/alignment",
            "uniformity, held-out training rows": "diag/(.*/)?held_out/uniformity",
            "uniformity, evaluation set": "diag/(.*/)?eval/uniformity",
        },
        "Training": {
            f"{monitor}, which chooses the checkpoint": f"{re.escape(monitor)}$",
            "loss": "train/loss$",
            "other dev scores": f"(?!{re.escape(monitor)}$)val/(?!.*threshold)",
        },
    }

    return {
        category: {title: ["Multiline", [pattern]] for title, pattern in some.items()}
        for category, some in charts.items()
    }


class TensorBoardView(RunView, TensorBoardLogger):
    """A view of a run in TensorBoard (see `RunView`): event files under ``<run
    folder>/tensorboard``.

    TensorBoard's table of runs (HPARAMS) has the settings and the final values, its page Custom
    scalars the curves of RFD, alignment and uniformity, dev scores and loss over all runs. When
    a run is resumed, the steps after the one that it is resumed from are dropped. The arguments are
    those of `WandbView`.
    """

    CALLED = "TensorBoard"

    def __init__(
        self,
        *,
        run: Run,
        group: str,
        settings: Values,
        tags: Sequence[str],
        resumed_at: int | None = None,
    ) -> None:
        folder = run.path / "tensorboard"
        if resumed_at is None:
            shutil.rmtree(folder, ignore_errors=True)

        super().__init__(
            folder,
            name="",
            version="",
            default_hp_metric=False,
            purge_step=None if resumed_at is None else resumed_at + 1,
            max_queue=1000,
        )
        self._settings = {**settings, "group": group, "tags": " ".join(tags)}

    def _started(self) -> Any:
        is_new = self._experiment is None
        writer = super()._started()
        if is_new:
            writer.add_custom_scalars(_layout(self._settings["monitor"]))

        return writer

    def _conclude(self, values: Metrics, step: int) -> None:
        super(RunView, self).log_hyperparams(self._settings, metrics=dict(values), step=step)

    def _end(self, exit_code: int) -> None:
        if self._experiment is not None:
            self._experiment.close()


class WandbView(RunView, WandbLogger):
    """A view of a run in W&B (see `RunView`), offline when no user is logged in.

    A run's row in W&B's table has the highest and the last of each dev score
    (``val/stsb/spearman.max``), the lowest and the last of each loss, the last of everything else,
    and the final values: ``test/...``, ``best/score``.

    Args:
        project: The W&B project.
        entity: The W&B user or team; None for the account's own.
        offline: True writes to the run folder only; None decides by ``WANDB_MODE``, else by whether
            a user is logged in; False asks for a connection, unless ``WANDB_MODE`` says otherwise.
        run, group, settings, tags: The run, ``name/sweep``, the resolved config, and words such as
            the profile's name.
        resumed_at: The step from which the run is resumed; None starts afresh.
    """

    CALLED = "W&B"

    def __init__(
        self,
        *,
        project: str = "lightning_cse",
        entity: str | None = None,
        offline: bool | None = None,
        run: Run,
        group: str,
        settings: Values,
        resumed_at: int | None = None,
        tags: Sequence[str] = (),
    ) -> None:
        name = re.sub(r"[^A-Za-z0-9_-]+", "-", run.name)
        method = (settings.get("method") or {}).get("_target_", "").rpartition(".")[2].lower()
        encoder = (settings.get("encoder") or {}).get("name", "")
        mode = _mode(offline)
        super().__init__(
            project=project,
            entity=entity,
            id=f"{name}-{run.config_hash}-s{run.seed}",
            name=f"{run.name}-s{run.seed}",
            group=group,
            job_type="train",
            tags=[
                tag[:64] for tag in dict.fromkeys((method, encoder, *tags)) if tag
            ],  # W&B's limit
            config=dict(settings),
            save_dir=run.path,
            mode=mode,
            resume=None if resumed_at is None else "allow",  # None replaces a run of the same id
            settings=_SETTINGS,
        )
        self._off = mode == "disabled"
        del self._wandb_init["anonymous"]  # set by Lightning 2.6; W&B warns about it
        self._defined: set[str] = set()

    def _started(self) -> Any:
        if self._experiment is not None:
            return self._experiment

        with _without_launch():
            run = super()._started()

        os.environ.pop("WANDB_SERVICE", None)  # the processes of later jobs would look for it
        if self._wandb_init["mode"] == "offline":
            folder = f"{self.save_dir}/wandb"
            log.info("W&B: offline in %s; `wandb sync` on the folder in it uploads the run", folder)
        else:
            log.info("W&B: %s", run.url)

        return run

    def _log(self, metrics: Metrics, step: int | None) -> None:
        for key in metrics.keys() - self._defined:
            self._defined.add(key)
            best = {"val": "max,last", "train": "min,last"}.get(key.partition("/")[0])
            if key.endswith(("/learning_rate", "threshold")):
                best = None

            self.experiment.define_metric(key, step_metric=STEP, summary=best)

        super()._log(metrics, step)

    def _conclude(self, values: Metrics, step: int) -> None:
        self.experiment.summary.update(values)

    def _end(self, exit_code: int) -> None:
        if self._experiment is not None:
            self._experiment.finish(exit_code=exit_code)


@contextlib.contextmanager
def _without_launch() -> Iterator[None]:
    """Hide "Launch", W&B's system of jobs, from a start of W&B, which then continues without it."""
    # The start imports it, and its pydantic classes search all modules of the process: seconds.
    name = "wandb.sdk.launch"
    is_new = name not in sys.modules
    if is_new:
        sys.modules[name] = None  # type: ignore[assignment]

    try:
        yield
    finally:
        if is_new:
            del sys.modules[name]


def _mode(offline: bool | None) -> str:
    """Return ``online``, ``offline`` or ``disabled``; only who is logged in is online."""
    given = os.environ.get("WANDB_MODE", "").lower()
    if given == "disabled":
        return given
    if offline or given == "offline":
        return "offline"
    if is_logged_in():
        return "online"
    if given or offline is False:
        log.warning("W&B: not logged in, so the run is logged offline; `wandb login` changes that")

    return "offline"


def is_logged_in() -> bool:
    """Whether W&B would find credentials in the places where it looks itself; neither user nor
    server is asked.
    """
    given = os.environ.get("WANDB_API_KEY") or os.environ.get("WANDB_IDENTITY_TOKEN_FILE")
    return bool(given or get_netrc_auth(os.environ.get("WANDB_BASE_URL") or "https://api.wandb.ai"))


def final_values(record: Values) -> Metrics:
    """Return the finite numbers of a record for a table of runs: ``test/...``, ``best/score``,
    ``summary/...``.
    """
    best = {f"best/{key}": record["best"][key] for key in ("score", "step")}
    summary = {f"summary/{key}": value for key, value in (record.get("summary") or {}).items()}
    values = {**record["metrics"], **best, **summary}

    return {
        key: value for key, value in values.items() if value is not None and math.isfinite(value)
    }
