"""W&B as a view on a run; nothing else in the package logs there."""

from __future__ import annotations

import logging
import os
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

from pytorch_lightning.loggers import WandbLogger
from requests.utils import get_netrc_auth

from lightning_cse.loggers.view import RunView
from lightning_cse.runs import Run

log = logging.getLogger("lightning_cse.loggers")

STEP: Final = "trainer/global_step"  # the axis of every curve
_LONGEST, _LONGEST_TAG = 128, 64  # characters of W&B's ids, names and groups, and of its tags
_SETTINGS: Final = {
    "reinit": "create_new",  # not the process's global run: runs of a multirun stay apart
    "console": "off",
    "silent": True,
    # The record holds commit, versions and machine; metadata would hold the whole command line.
    **dict.fromkeys(("disable_git", "disable_code", "x_disable_meta", "x_disable_machine_info"), True),
    **dict.fromkeys(("save_code", "x_save_requirements"), False),
    **dict.fromkeys(("init_timeout", "login_timeout"), 30.0),
    "finish_timeout": 60.0,
}


class WandbView(RunView, WandbLogger):
    """W&B as a view on a run, as `RunView`; offline when nobody is logged in.

    A run's line in W&B's table has the highest and the last of each dev score (``val/stsb/spearman.max``), the lowest
    and the last of each loss, the last of everything else, and the final values: ``test/...``, ``best/score``.

    Args:
        project: The W&B project.
        entity: The W&B user or team; None for the account's own.
        offline: True writes to the run folder only; None decides by ``WANDB_MODE``, else by whether a user is logged
            in; False asks for a connection, unless ``WANDB_MODE`` says otherwise.
        run, group, settings, tags: The run, ``name/sweep``, the resolved config, and words such as the profile's name.
        resumed_at: The step from which the run is resumed; None begins anew.
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
        settings: Mapping[str, Any],
        resumed_at: int | None = None,
        tags: Sequence[str] = (),
    ) -> None:
        tail = f"-{run.config_hash}-s{run.seed}"
        method, encoder = (settings.get(key) or {} for key in ("method", "encoder"))
        own = (str(method.get("_target_", "")).rpartition(".")[2].lower(), str(encoder.get("name", "")))
        mode = _mode(offline)
        super().__init__(
            project=project,
            entity=entity,
            id=re.sub(r"[^A-Za-z0-9_-]+", "-", run.name).strip("-")[: _LONGEST - len(tail)] + tail,
            name=f"{run.name[: _LONGEST - 24]}-s{run.seed}",
            group=group[:_LONGEST],
            job_type="train",
            tags=list(dict.fromkeys(tag[:_LONGEST_TAG] for tag in (*own, *tags) if tag)),
            config=dict(settings),
            save_dir=run.path,
            mode=mode,
            resume=None if resumed_at is None else "allow",  # None: what W&B has of the same id is begun anew
            settings=_SETTINGS,
        )
        self._off = mode == "disabled"
        del self._wandb_init["anonymous"]  # of Lightning 2.6; W&B warns of it
        self._defined: set[str] = set()

    def _started(self) -> Any:
        if self._experiment is not None:
            return self._experiment
        launch, new = "wandb.sdk.launch", "WANDB_SERVICE" not in os.environ
        # W&B tries to import its Launch, which takes seconds in a large process, and continues without it.
        sys.modules.setdefault(launch, None)  # type: ignore[arg-type]
        try:
            run = super()._started()
        finally:
            if sys.modules[launch] is None:
                del sys.modules[launch]
            if new:
                os.environ.pop("WANDB_SERVICE", None)  # processes of later jobs would look for this one's service
        offline = self._wandb_init["mode"] == "offline"
        where = f"offline in {self.save_dir}/wandb; `wandb sync` on the folder in it uploads it"
        log.info("W&B: %s", where if offline else run.url)
        return run

    def _log(self, metrics: Mapping[str, float], step: int | None) -> None:
        for key in metrics.keys() - self._defined:
            self._defined.add(key)
            family, _, rest = key.partition("/")
            best = {"val": "max,last", "train": "min,last"}.get(family)
            plain = rest == "learning_rate" or rest.endswith("threshold")
            self.experiment.define_metric(key, step_metric=STEP, summary=None if plain else best)
        super()._log(metrics, step)

    def _conclude(self, values: dict[str, float], step: int) -> None:
        self.experiment.summary.update(values)

    def _end(self, exit_code: int) -> None:
        if self._experiment is not None:
            self._experiment.finish(exit_code=exit_code)


def _mode(offline: bool | None) -> str:
    """Return ``online``, ``offline`` or ``disabled``."""
    given = os.environ.get("WANDB_MODE", "").strip().lower()
    if given == "disabled":
        return given
    if offline or given in ("offline", "dryrun"):
        return "offline"
    if is_logged_in():
        return "online"
    if given or offline is False:
        log.warning("W&B: nobody is logged in, so the view is written offline; `wandb login` changes that")
    return "offline"


def is_logged_in() -> bool:
    """Whether W&B would find credentials, in the places where it looks itself; asks nobody and no server."""
    given = os.environ.get("WANDB_API_KEY") or os.environ.get("WANDB_IDENTITY_TOKEN_FILE")
    return bool(given or get_netrc_auth(os.environ.get("WANDB_BASE_URL") or "https://api.wandb.ai"))
