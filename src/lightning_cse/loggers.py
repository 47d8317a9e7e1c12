"""Where logged values go: always to the run's own curves, and to W&B as a view on the same values."""

from __future__ import annotations

import contextlib
import logging
import netrc
import os
import re
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Literal
from urllib.parse import urlsplit

from pytorch_lightning.loggers import Logger
from pytorch_lightning.utilities import rank_zero_only

from lightning_cse.records import Curves

__all__ = ["CurvesLogger", "WandbView"]

_LOG = logging.getLogger(__name__)

_STEP: Final = "trainer/global_step"
_LONGEST: Final = 128  # of W&B's ids, names and groups
# `tokenizer` and its kin name no secret.
_SECRET: Final = re.compile(r"key|token(?!i[sz])|secret|password", re.IGNORECASE)
_OFFLINE_MODES: Final = frozenset({"offline", "dryrun"})


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
        if _rank() != 0:
            return
        if step is None:
            raise ValueError(f"a curve needs a step, and {sorted(metrics)} came without one")
        self.curves.append(step, metrics)

    def log_hyperparams(self, params: dict[str, Any] | Namespace, *args: Any, **kwargs: Any) -> None:
        """Do nothing: the resolved config lies in the run folder."""

    def finalize(self, status: str) -> None:
        """Close the file; a later value opens it again."""
        self.curves.close()


class WandbView(Logger):
    """W&B as a view on a run: useful when it works, and never able to fail, change or stop the run.

    Whatever W&B raises is told once as a warning and turns the view off. It is offline when nobody is logged in.
    The run starts with the first value (or when a Trainer starts) and takes up an earlier run of the same id where
    W&B knows one; offline, a resumed run is a second offline folder of the same id.

    A Trainer calls ``finalize("success")`` at the end of *every* fit, validation and test, so that does not end the
    view: `close` does, and so does any other status.

    Args:
        project: The W&B project.
        entity: The W&B user or team, None for the account's own.
        offline: True writes to the run folder only; False asks for a connection; None decides by ``WANDB_MODE``,
            else by whether somebody is logged in. ``WANDB_MODE``, where set, beats False.
        identity: What `lightning_cse.records.identity` returned.
        name: The experiment's name.
        seed: The seed.
        group: The name, or ``name/sweep``.
        settings: The resolved config as plain containers. Values under keys that look like secrets are left out.
        folder: The run folder.
        resume: Whether the run goes on from a checkpoint; else what W&B has of the same id is begun anew. Steps
            between the checkpoint and the kill are sent twice.

    Example:
        >>> view = WandbView(identity="0123456789", name="dualcse_cross", seed=0, group="dualcse_cross", settings={},
        ...                  folder=Path("runs"))
        >>> view.version
        'dualcse_cross-0123456789-s0'
    """

    INIT_SECONDS = 30.0
    FINISH_SECONDS = 60.0

    def __init__(
        self,
        *,
        project: str = "lightning_cse",
        entity: str | None = None,
        offline: bool | None = None,
        identity: str,
        name: str,
        seed: int,
        group: str,
        settings: Mapping[str, Any],
        folder: Path,
        resume: bool = True,
    ) -> None:
        super().__init__()
        self._resume = resume
        self._project = project
        self._entity = entity
        self._offline = offline
        self._id = _run_id(name, identity, seed)
        self._name = f"{name[: _LONGEST - 24]}-s{seed}"
        self._group = group[:_LONGEST]
        self._config = _without_secrets(settings)
        self._folder = Path(folder)
        self._run: Any = None
        self._off = False

    @property
    def name(self) -> str:
        """The W&B project, which is what Lightning calls a logger's name."""
        return self._project

    @property
    def version(self) -> str:
        """The run's id."""
        return self._id

    @property
    def save_dir(self) -> str:
        """The run folder."""
        return str(self._folder)

    @property
    def experiment(self) -> Any:
        """The W&B run, started if it was not; None where the view is off."""
        if self._run is None and not self._off and _rank() == 0:
            self._guarded("start", self._start)
        return self._run

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Send the values of one step."""
        run = self.experiment
        if run is not None:
            values = dict(metrics) if step is None else {**metrics, _STEP: step}
            self._guarded("log", lambda: run.log(values))

    def log_hyperparams(self, params: dict[str, Any] | Namespace, *args: Any, **kwargs: Any) -> None:
        """Do nothing: W&B has the resolved config from the start, nested once."""

    def finalize(self, status: str) -> None:
        """End the view as failed, unless ``status`` is a Trainer's word that one of its calls went well."""
        if status not in {"success", "finished"}:
            self.close(1)

    def close(self, exit_code: int = 0) -> None:
        """End the W&B run inside this job, so that the next one starts its own; later calls do nothing.

        Args:
            exit_code: 0 for a run that went well, anything else for a failed one.
        """
        run, self._run = self._run, None
        off, self._off = self._off, True
        if run is not None and not off:
            self._guarded("finish", lambda: run.finish(exit_code=exit_code))

    def _guarded(self, what: str, call: Callable[[], object]) -> None:
        try:
            with _environment_kept():
                call()
        except Exception as error:  # noqa: BLE001 - W&B, its service, the disk: none of it may reach the run
            self._off = True
            self._run = None
            message = " ".join(str(error).split())[:300]
            _LOG.warning(
                "W&B could not %s (%s: %s): the run goes on without it, its values are in %s; logger=csv leaves it out",
                what,
                type(error).__name__,
                message,
                self._folder,
            )

    def _start(self) -> None:
        mode = _mode(self._offline)
        if mode == "disabled":
            self._off = True
            return
        import wandb  # slow to load, and not needed with logger=csv

        if mode == "online" and not _logged_in():
            _LOG.warning("W&B: nobody is logged in, so the view is written offline. `wandb login` changes that.")
            mode = "offline"
        self._folder.mkdir(parents=True, exist_ok=True)  # W&B goes elsewhere, with a warning, if it is not there
        run = wandb.init(
            project=self._project,
            entity=self._entity,
            id=self._id,
            name=self._name,
            group=self._group,
            job_type="train",
            config=self._config,
            dir=str(self._folder),
            mode=mode,
            resume="allow" if self._resume else None,  # None: a run of this id that W&B knows is begun anew
            settings=wandb.Settings(
                # Not the process's global run: runs of a multirun never meet.
                reinit="create_new",
                console="off",
                silent=True,
                # The record holds the commit; a diff of somebody's files is nothing to send unasked.
                disable_git=True,
                disable_code=True,
                save_code=False,
                init_timeout=self.INIT_SECONDS,
                login_timeout=self.INIT_SECONDS,
                finish_timeout=self.FINISH_SECONDS,
            ),
        )
        self._run = run
        run.define_metric(_STEP)
        run.define_metric("*", step_metric=_STEP)
        if mode == "online":
            _LOG.info("W&B: %s", run.url)
        else:
            _LOG.info("W&B: offline in %s; `wandb sync` on the folder in it uploads it.", self._folder / "wandb")


def _rank() -> int:
    return int(getattr(rank_zero_only, "rank", None) or 0)


def _run_id(name: str, identity: str, seed: int) -> str:
    tail = f"-{identity}-s{seed}"
    head = re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-")
    return head[: _LONGEST - len(tail)] + tail


def _mode(offline: bool | None) -> Literal["online", "offline", "disabled"]:
    """Return ``online``, ``offline`` or ``disabled``; ``WANDB_MODE`` decides unless the config asks for less."""
    given = os.environ.get("WANDB_MODE", "").strip().lower()
    if given == "disabled":
        return "disabled"
    if offline or given in _OFFLINE_MODES:
        return "offline"
    if given or offline is False:
        return "online"
    return "online" if _logged_in() else "offline"


def _logged_in() -> bool:
    """Tell whether W&B would find credentials, in the places where it looks itself; asks nobody and no server."""
    if os.environ.get("WANDB_API_KEY") or os.environ.get("WANDB_IDENTITY_TOKEN_FILE"):
        return True
    host = urlsplit(os.environ.get("WANDB_BASE_URL") or "https://api.wandb.ai").netloc
    given = os.environ.get("NETRC")
    places = [Path(given)] if given else [Path("~/.netrc").expanduser(), Path("~/_netrc").expanduser()]
    for place in places:
        with contextlib.suppress(OSError, netrc.NetrcParseError, UnicodeDecodeError):
            found = netrc.netrc(place).authenticators(host)
            if found and found[2]:
                return True
    return False


def _without_secrets(config: Any) -> Any:
    """Return plain containers without the strings that stand under keys which look like secrets."""
    if isinstance(config, Mapping):
        kept = {}
        for key, value in config.items():
            strings = value if isinstance(value, list | tuple) else [value]
            if _SECRET.search(str(key)) and any(isinstance(item, str) for item in strings):
                continue
            kept[str(key)] = _without_secrets(value)
        return kept
    if isinstance(config, list | tuple):
        return [_without_secrets(item) for item in config]
    return config if config is None or isinstance(config, bool | int | float | str) else str(config)


@contextlib.contextmanager
def _environment_kept() -> Iterator[None]:
    """Take back what W&B writes into the process's environment: the next job would inherit it."""
    before = {key: value for key, value in os.environ.items() if key.startswith("WANDB_")}
    try:
        yield
    finally:
        for key in [key for key in os.environ if key.startswith("WANDB_")]:
            if key not in before:
                del os.environ[key]
        os.environ.update(before)
