"""From the nodes of a config to the objects of a run."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from hydra.errors import InstantiationException
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf
from pytorch_lightning.utilities.exceptions import MisconfigurationException  # type: ignore[attr-defined]  # not theirs

from lightning_cse.callbacks import Diagnostics, build_diagnostics
from lightning_cse.data import ContrastiveData
from lightning_cse.encoders import SentenceEncoder
from lightning_cse.errors import ConfigError, LightningCSEError, did_you_mean
from lightning_cse.evaluation import Task, check_parts
from lightning_cse.methods import Method

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Parts:
    """What a run is built of.

    ``left_out`` has the tasks of the suite that are not done, by name, with the reason; those that the method does not
    suit are among ``tasks`` too.
    """

    encoder: SentenceEncoder
    data: ContrastiveData
    tasks: dict[str, Task]
    diagnostics: Diagnostics
    method: Method
    left_out: dict[str, str]

    @property
    def digests(self) -> dict[str, str]:
        """The sha256 of every file that decides the result, by its name in the official layout."""
        digests = dict(self.data.digests)
        for task in self.tasks.values():
            digests |= task.digests
        for side in self.diagnostics.sides.values():
            digests |= side.digests
        return digests


GIVEN = {
    "method": {"encoder"},
    "data": {"tokenize", "seed"},
    "logger": {"run", "group", "settings", "resumed_at", "tags"},
}
"""Arguments that are not in the config but added where a node is built, by the node's key."""


def build(cfg: DictConfig) -> Parts:
    """Build encoder, data, tasks, diagnostics and method of a config."""
    with torch.random.fork_rng():  # what loading draws must not decide how a method's own layers begin
        encoder: SentenceEncoder = built(cfg.encoder)
    data: ContrastiveData = built(cfg.data, tokenize=encoder.tokenizer, seed=cfg.seed)
    left_out: dict[str, str] = {}
    tasks = build_tasks(cfg.suite, left_out)
    check_parts(tasks)
    method: Method = built(cfg.method, encoder=encoder)
    data.use(method.roles, method.optional)
    left_out |= _unsuited(tasks, method)
    _check_monitor(cfg.monitor, tasks, left_out)
    diagnostics = build_diagnostics(method, data, cfg.diag, cfg.paths.data_dir)
    return Parts(encoder, data, tasks, diagnostics, method, left_out)


def automatic_reading(cfg: DictConfig, encoder: SentenceEncoder) -> dict[str, Any]:
    """Return what the ``auto`` choices of how an encoder reads became, by dotted key, since they decide the result."""
    became = {"encoder.pooling": encoder.pooling, "encoder.max_length": encoder.max_length}
    return {key: value for key, value in became.items() if OmegaConf.select(cfg, key) == "auto"}


def build_tasks(suite: DictConfig, left_out: dict[str, str] | None = None) -> dict[str, Task]:
    """Build the tasks of a suite, each by the name its metrics go by; those that cannot be done are left out and told.

    Args:
        suite: the tasks' nodes.
        left_out: where to note the tasks that are left out, and why.
    """
    tasks: dict[str, Task] = {}
    for key, node in suite.items():
        task: Task = built(node)
        corpus, line, rest = str(key).partition("_")
        name = corpus + task.suffix + line + rest
        reason = task.lacking()
        if reason is None:
            tasks[name] = task
            continue
        log.warning("the task %s is left out: %s", name, reason)
        if left_out is not None:
            left_out[name] = reason
    return tasks


def _unsuited(tasks: Mapping[str, Task], method: Method) -> dict[str, str]:
    """Tell which tasks ask what the method does not answer, and return what they need."""
    kind = type(method).__name__
    reasons = {
        name: f"it needs {' and '.join(task.needs)}, which {kind} does not give"
        for name, task in tasks.items()
        if not task.suits(method)
    }
    for name, reason in sorted(reasons.items()):
        log.info("the task %s is left out: %s", name, reason)
    return reasons


def _check_monitor(monitor: str, tasks: Mapping[str, Task], left_out: Mapping[str, str]) -> None:
    watched = {name: task for name, task in tasks.items() if name not in left_out and "dev" in task.splits}
    known = [f"val/{name}/{metric}" for name, task in watched.items() for metric in task.metrics]
    if monitor in known:
        return
    fault = f"is no dev score{did_you_mean(monitor, known)}"
    unwatched = {name: "tested only" for name in tasks if name not in watched}
    unwatched |= {name: f"left out: {reason}" for name, reason in left_out.items()}
    for name, why in unwatched.items():
        if monitor.startswith(f"val/{name}/"):
            fault = f"is of a task that is {why}"
    raise ConfigError([f"monitor: {monitor!r} {fault} (there are: {', '.join(known)})"])


def built(node: DictConfig, **given: Any) -> Any:
    """Build a node of the config; an argument that its class refuses is the user's mistake, and told by its key.

    Raises:
        ConfigError: if the class, or one below it, says that a value is wrong.
        LightningCSEError: what the class itself raises of these.
    """
    try:
        return instantiate(node, **given)
    except InstantiationException as error:
        cause = error.__cause__ or error.__context__
        if isinstance(cause, LightningCSEError):
            raise cause from None  # it says itself what to do
        if not isinstance(cause, ValueError | MisconfigurationException):
            raise  # a bug
        key = re.search(r"^full_key: (.+)$", str(error), re.MULTILINE)
        raise ConfigError([f"{key[1] if key else node._get_full_key(None)}: {cause}"]) from error


def plain(cfg: DictConfig) -> dict[str, Any]:
    """Return a config as plain values, resolved."""
    plain: dict[str, Any] = OmegaConf.to_container(cfg, resolve=True)  # type: ignore[assignment]  # a DictConfig's is
    return plain
