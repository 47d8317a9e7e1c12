"""Build the objects of a run from a checked config."""

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytorch_lightning as pl
import torch
from datasets import Dataset
from hydra.errors import InstantiationException
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf
from pytorch_lightning.callbacks import WeightAveraging
from pytorch_lightning.utilities.exceptions import MisconfigurationException  # type: ignore[attr-defined]  # not theirs

from lightning_cse.callbacks import Diagnostics, build_diagnostics
from lightning_cse.data import ContrastiveDataModule
from lightning_cse.data.preparation import Tables
from lightning_cse.encoders import SentenceEncoder
from lightning_cse.engine.load import initialise
from lightning_cse.errors import ConfigError, LightningCSEError
from lightning_cse.evaluation import Task, check_parts
from lightning_cse.evaluation.task import Answers
from lightning_cse.methods import Method

log = logging.getLogger(__name__)

SAMPLE = "stsb_sample"
"""The task that stands in for test sets of your own (``conf/data/file.yaml``)."""

REFUSED = {
    "BackboneFinetuning": "it changes which weights are trained; set encoder.freeze_embeddings, an "
    "adapter, or two runs with init_from",
    "BaseFinetuning": "it changes which weights are trained while the optimizer exists",
    "BasePredictionWriter": "a run never calls trainer.predict; predictions/ has those of the test",
    "BatchSizeFinder": "another batch is another loss; set data.batch_size, and method.chunk_size "
    "where memory is short",
    "GradientAccumulationScheduler": "the number of steps, which the learning rate needs, cannot be "
    "known; use trainer.accumulate_grad_batches",
    "LearningRateFinder": "a loss says little of the dev score; sweep over method.optimizer.lr",
    "ModelPruning": "it renames the weights, so the checkpoint cannot be loaded as a model",
    "StochasticWeightAveraging": "its average exists only after the last validation; use "
    "EMAWeightAveraging",
}
"""Lightning's callbacks that cannot work here, by name."""


@dataclass(frozen=True)
class Parts:
    """The objects of a run.

    ``monitor`` is the dev score that chooses the best checkpoint, ``left_out`` has the reason for
    each task that is not evaluated, and ``resolved`` what the config leaves open, by dotted key:
    values of ``auto``, and digests of other models that are read. The Trainer and the baselines are
    made when they are needed.
    """

    encoder: SentenceEncoder
    data: ContrastiveDataModule
    tasks: dict[str, Task]
    diagnostics: Diagnostics
    method: Method
    monitor: str
    left_out: dict[str, str]
    callbacks: list[pl.Callback]
    resolved: dict[str, Any]
    make_trainer: Callable[..., pl.Trainer]
    make_baselines: dict[str, Callable[[], Answers]]

    @property
    def digests(self) -> dict[str, str]:
        """The sha256 of every file that affects the result, by its name in the official layout."""
        digests = dict(self.data.digests)
        for task in self.tasks.values():
            digests |= task.digests

        for side in self.diagnostics.sides.values():
            digests |= side.digests

        return digests

    @property
    def encoder_digests(self) -> dict[str, str]:
        """The name of the encoder, and the digests of its files."""
        return {"name": self.encoder.name, **self.encoder.digests}

    @property
    def parameter_counts(self) -> dict[str, int]:
        """The numbers of all parameters and of those that are trained."""
        sizes = [(weight.numel(), weight.requires_grad) for weight in self.method.parameters()]
        return {
            "total": sum(size for size, _ in sizes),
            "trainable": sum(size for size, is_trained in sizes if is_trained),
        }


def build(cfg: DictConfig) -> Parts:
    """Build encoder, method, data, tasks, callbacks and diagnostics of a config."""
    callbacks = _build_callbacks(cfg.callbacks)  # before data is read
    with torch.random.fork_rng():  # loading must not change the method's own initial weights
        encoder: SentenceEncoder = built(cfg.encoder, _convert_="all")

    method: Method = built(cfg.method, encoder=encoder)
    data = build_data(cfg, encoder, method)
    resolved = encoder_values(cfg, encoder)
    if data.settings.negatives is not None:
        from lightning_cse.engine.negatives import add_mined_negatives  # loads models

        resolved |= add_mined_negatives(data, method)

    tasks, left_out = build_tasks(cfg.suite, (data.held_out, next(iter(method.pairs.values()))))
    left_out |= unsuited(tasks, method.model, type(method).__name__)
    monitor = _checked_monitor(cfg.monitor, tasks, left_out)
    data.tasks = {**tasks}
    diagnostics = build_diagnostics(method, data, cfg.diag, cfg.paths.data_dir)
    data.watched_sentences = diagnostics.sentences()
    data.embeds_watched = not diagnostics.dropout
    if cfg.init_from is not None:
        resolved["init_from"] = initialise(method, str(cfg.init_from))

    return Parts(
        encoder,
        data,
        tasks,
        diagnostics,
        method,
        monitor,
        left_out,
        callbacks,
        resolved,
        make_trainer=partial(built, cfg.trainer, _convert_="all"),
        make_baselines={str(name): partial(built, node) for name, node in cfg.baselines.items()},
    )


def _build_callbacks(nodes: DictConfig) -> list[pl.Callback]:
    """Build the callbacks of a config; raise ConfigError for one that cannot work."""
    callbacks = []
    for name, node in nodes.items():
        if node is None or (name == "early_stopping" and node.get("patience") is None):
            continue

        callback: pl.Callback = built(node)
        for parent in type(callback).__mro__:
            if parent.__name__ in REFUSED and parent.__module__.startswith("pytorch_lightning"):
                fault = f"{parent.__name__} cannot be used: {REFUSED[parent.__name__]}"
                raise ConfigError([f"callbacks.{name!s}: {fault}"])

        if isinstance(callback, WeightAveraging):
            # Averages of the encoder's positions, which are integers, would be rounded down.
            callback._use_buffers = False

        callbacks.append(callback)

    return callbacks


def build_data(
    cfg: DictConfig, encoder: SentenceEncoder, method: Method, tables: Tables | None = None
) -> ContrastiveDataModule:
    """Build the data module of a method; ``tables`` are its sources, if they have been read."""
    return ContrastiveDataModule(
        built(cfg.data),
        tokenize=encoder.tokenizer,
        seed=cfg.seed,
        roles=method.roles,
        optional=method.optional,
        instructed=encoder.instructed,
        max_length=encoder.max_length,
        tables=tables,
    )


def encoder_values(cfg: DictConfig, encoder: SentenceEncoder) -> dict[str, Any]:
    """Return the values that the encoder's ``auto`` options resolved to, by dotted key."""
    values = {"encoder.pooling": encoder.pooling, "encoder.max_length": encoder.max_length}
    chosen: dict[str, Any] = {
        key: value for key, value in values.items() if OmegaConf.select(cfg, key) == "auto"
    }
    # With its pooling, an encoder also has its folder's instructions.
    if "encoder.pooling" in chosen and encoder.instructions:
        chosen["encoder.instructions"] = encoder.instructions

    return chosen


def unsuited(tasks: Mapping[str, Task], answers: object, name: str) -> dict[str, str]:
    """Return the reason for each task that does not suit a model, and log it."""
    reasons = {}
    for key, task in sorted(tasks.items()):
        if not task.suits(answers):
            needs = " and ".join(task.needs)
            reasons[key] = f"it needs {needs}, which {name} does not give"
            log.info("the task %s is left out: %s", key, reasons[key])

    return reasons


def _checked_monitor(monitor: str, tasks: Mapping[str, Task], left_out: Mapping[str, str]) -> str:
    """Return the key that chooses the best checkpoint, for ``auto`` the first dev score; raise
    ConfigError if it is none of a dev score.
    """
    scores: list[str] = []
    reasons = dict(left_out)
    for name, task in tasks.items():
        if "dev" not in task.splits:
            reasons.setdefault(name, f"it has no dev side; {task.without_dev}")
        elif name not in left_out:
            scores += [f"val/{name}/{metric}" for metric in task.metrics]

    if monitor == "auto" and scores:
        log.info("%s chooses the checkpoint", scores[0])
        return scores[0]

    if monitor not in scores:
        reason = reasons.get(monitor.partition("/")[2].partition("/")[0])
        hint = f": {reason}" if reason else ""
        choices = ", ".join(scores) or "none"
        fault = f"monitor: {monitor!r} is not a dev score{hint} (choose from: {choices})"
        raise ConfigError([fault])

    return monitor


def build_tasks(
    suite: DictConfig, held_out: tuple[Dataset, Sequence[str]] | None = None
) -> tuple[dict[str, Task], dict[str, str]]:
    """Return the tasks of a suite by name, and the reason for each that cannot be run; ``held_out``
    has held-out rows, and the two roles that mean the same.
    """
    tasks: dict[str, Task] = {}
    left_out: dict[str, str] = {}
    for key, node in suite.items():
        task: Task = built(node)
        corpus, line, setting = str(key).partition("_")
        name = corpus + task.suffix + line + setting
        if held_out is not None and hasattr(task, "take"):  # as `HeldOutRetrieval`
            task.take(*held_out)

        reason = task.lacking()
        if reason is None:
            tasks[name] = task
        else:
            left_out[name] = reason
            log.warning("the task %s is left out: %s", name, reason)

    if SAMPLE in tasks:
        log.info(
            "no dev set of your own: evaluated on STS-B's sample of 100 pairs, too (your own are "
            "'own.sts={dev: FILE, test: FILE}', or own.pairs, own.nli, own.direction)"
        )

    check_parts(tasks)

    return tasks, left_out


def built(node: DictConfig, **given: Any) -> Any:
    """Build a node of the config.

    Raises ConfigError with the node's key if its class refuses an argument.
    """
    try:
        return instantiate(node, **given)
    except InstantiationException as error:
        cause = error.__cause__ or error.__context__
        if isinstance(cause, LightningCSEError | OSError):
            raise cause from None  # its message already says what to do

        if not isinstance(cause, ValueError | MisconfigurationException):
            raise  # a bug

        match = re.search(r"^full_key: (.+)$", str(error), re.MULTILINE)
        key = match[1] if match else node._get_full_key(None)
        raise ConfigError([f"{key}: {cause}"]) from error


def plain(cfg: DictConfig) -> dict[str, Any]:
    """Return a config as plain values, resolved."""
    plain: dict[str, Any] = OmegaConf.to_container(cfg, resolve=True)  # type: ignore[assignment]  # a DictConfig's is
    return plain
