"""W&B as a view on a run; nothing else in the package logs there."""

from __future__ import annotations

import contextlib
import logging
import netrc
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final, Literal
from urllib.parse import urlsplit

from lightning_cse.loggers.view import RunView

__all__ = ["STEP", "WandbView", "account", "is_logged_in"]

_LOG = logging.getLogger("lightning_cse.loggers")

STEP: Final = "trainer/global_step"
"""The axis of every curve."""

_LONGEST: Final = 128  # of W&B's ids, names and groups
_LONGEST_TAG: Final = 64
_OFFLINE_MODES: Final = frozenset({"offline", "dryrun"})


class WandbView(RunView):
    """W&B as a view on a run, as `RunView`.

    It is offline when nobody is logged in. An earlier run of the same id is taken up where W&B knows one; offline, a
    resumed run is a second offline folder of the same id.

    Every curve is defined with ``trainer/global_step`` as its axis. A run's line in W&B's table has the highest and the
    last of each dev score (``val/stsb/spearman.max``), the lowest and the last of each loss, the last of everything
    else, and from `conclude` on the final values: ``test/...``, ``best/score``, ``summary/rfd_alignment``.

    Args:
        project: The W&B project.
        entity: The W&B user or team, None for the account's own.
        offline: True writes to the run folder only; False asks for a connection; None decides by ``WANDB_MODE``,
            else by whether somebody is logged in. ``WANDB_MODE``, where set, beats False.
        identity: What `lightning_cse.runs.identity` returned.
        name: The experiment's name.
        seed: The seed.
        group: The name, or ``name/sweep``.
        settings: The resolved config as plain containers. Values under keys that look like secrets are left out.
        folder: The run folder.
        resume: Whether the run goes on from a checkpoint; else what W&B has of the same id is begun anew. Steps
            between the checkpoint and the kill are sent twice.
        tags: Words to find the run by, such as its profile; the method's and the encoder's names are added.

    Example:
        >>> view = WandbView(identity="0123456789", name="dualcse_cross", seed=0, group="dualcse_cross", settings={},
        ...                  folder=Path("runs"))
        >>> view.version
        'dualcse_cross-0123456789-s0'
    """

    CALLED = "W&B"
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
        tags: Sequence[str] = (),
    ) -> None:
        super().__init__(folder)
        self._resume = resume
        self._project = project
        self._entity = entity
        self._offline = offline
        self._id = _run_id(name, identity, seed)
        self._name = f"{name[: _LONGEST - 24]}-s{seed}"
        self._group = group[:_LONGEST]
        self._config = dict(settings)
        self._tags = list(dict.fromkeys(tag[:_LONGEST_TAG] for tag in (*_own_tags(settings), *tags) if tag))
        self._defined: set[str] = set()

    @property
    def name(self) -> str:
        """The W&B project, which is what Lightning calls a logger's name."""
        return self._project

    @property
    def version(self) -> str:
        """The run's id."""
        return self._id

    def _log(self, run: Any, metrics: Mapping[str, float], step: int | None) -> None:
        for key in metrics:
            self._define(run, key)
        run.log(dict(metrics) if step is None else {**metrics, STEP: step})

    def _define(self, run: Any, key: str) -> None:
        """Define a curve once, by its own name: W&B does not say which of several patterns it follows."""
        if key not in self._defined:
            self._defined.add(key)
            run.define_metric(key, step_metric=STEP, summary=_kept(key))

    def _conclude(self, run: Any, values: dict[str, float], step: int) -> None:
        run.summary.update(values)

    def _end(self, run: Any, exit_code: int) -> None:
        run.finish(exit_code=exit_code)

    def _surroundings(self) -> AbstractContextManager[None]:
        return _environment_kept()

    def _start(self) -> Any:
        mode = _mode(self._offline)
        if mode == "disabled":
            return None
        import wandb  # slow to load, and not needed with logger=csv

        if mode == "online" and not is_logged_in():
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
            tags=self._tags,
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
                # It holds the command line, secrets and all.
                x_disable_meta=True,
                init_timeout=self.INIT_SECONDS,
                login_timeout=self.INIT_SECONDS,
                finish_timeout=self.FINISH_SECONDS,
            ),
        )
        run.define_metric(STEP)
        if mode == "online":
            _LOG.info("W&B: %s", run.url)
        else:
            _LOG.info("W&B: offline in %s; `wandb sync` on the folder in it uploads it.", self._folder / "wandb")
        return run


def _kept(key: str) -> str | None:
    """Return what of a curve stands in the run's line of W&B's table; None for its last value."""
    family, _, rest = key.partition("/")
    if family == "val" and not rest.endswith("threshold"):
        return "max,last"
    if family == "train" and rest != "learning_rate":
        return "min,last"
    return None


def _own_tags(settings: Mapping[str, Any]) -> Iterator[str]:
    """Yield the names of a run's method and encoder, as far as the settings tell them."""
    method, encoder = (settings.get(key) or {} for key in ("method", "encoder"))
    yield str(method.get("_target_", "")).rpartition(".")[2].lower()
    yield str(encoder.get("name", ""))


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
    return "online" if is_logged_in() else "offline"


def is_logged_in() -> bool:
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


def account(timeout: int = 20) -> str:
    """Return the user or team of whoever is logged in; asks the server.

    Args:
        timeout: Seconds to wait for it.

    Raises:
        Exception: whatever W&B raises where there is no network or the key is not taken.
    """
    import wandb

    entity: str | None = wandb.Api(timeout=timeout).default_entity
    return entity or ""
