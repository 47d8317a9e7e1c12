"""The check of a composed config before anything heavy is imported: types and values.

A config of ``train`` is merged into the schema `Train`, which only serves this check and is then
discarded: it has types and no defaults. Nodes of type Any, with a ``_target_``, are checked where
they are built.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import ConfigKeyError, OmegaConfBaseException

from lightning_cse.config.compose import plain_line, without_hydra
from lightning_cse.errors import ConfigError, did_you_mean, user_error
from lightning_cse.runs.hashing import PRECISIONS


@dataclass
class Paths:
    """The folders of data, runs and caches."""

    data_dir: str
    runs_dir: str
    cache_dir: str | None


@dataclass
class Trainer:
    """The arguments of Lightning's Trainer in ``conf/``; `ENGINE` lists those that are refused, and
    a plus adds any other one.
    """

    _target_: str
    accelerator: str
    strategy: str
    devices: Any
    num_nodes: int
    precision: Any
    max_epochs: int | None
    max_steps: int
    max_time: Any
    limit_train_batches: Any
    limit_val_batches: Any
    accumulate_grad_batches: int
    gradient_clip_val: float | None
    gradient_clip_algorithm: str | None
    num_sanity_val_steps: int
    log_every_n_steps: int
    enable_model_summary: bool
    deterministic: Any
    benchmark: bool | None


@dataclass
class EarlyStopping:
    """When a run stops before its last step."""

    patience: int | None
    min_delta: float


@dataclass
class Callbacks:
    """The settings of callbacks; a plus adds further callbacks by any name."""

    early_stopping: EarlyStopping


@dataclass
class Diagnostics:
    """What is measured beside the tasks."""

    evaluation: str
    dropout: bool
    positive_score: float
    negative_score: float
    sentences: int


@dataclass
class Train:
    """The top-level keys of ``conf/train.yaml``."""

    name: str
    seed: int
    monitor: str
    eval_every: int | None
    least_evaluations: int
    force: bool
    retry_failed: bool
    keep_last: bool
    figures: bool
    init_from: str | None
    limits: dict[str, int | None]
    data: Any
    suite: Any
    encoder: Any
    corpora: Any
    baselines: Any
    logger: Any
    recipe: Any
    method: Any
    trainer: Trainer
    callbacks: Callbacks
    paths: Paths
    diag: Diagnostics
    # Keys that only some suites add.
    transfer: Any = None
    own: Any = None


CHOSEN = {"name": "experiment", "suite": "suite", "pattern": "pattern", "data": "data"}
"""Keys that are set by choosing an option of a group."""

OPEN = (
    "llm.parameters.",
    "method.optimizer.",
    "encoder.adapter.",
    "trainer.",
    "callbacks.",
    "suite.",
    "baselines.",
    "hydra.",
)
"""Nodes to which a plus adds any key. All others have only the keys in ``conf/``."""

_DEV = "dev sets are evaluated by optimizer steps: eval_every, least_evaluations, limits.dev_pairs"
_ORDER = "the order of the rows follows from the seed, and a resumed run continues in it"
_FILES = "a run's folder has its files: paths.runs_dir, keep_last=true"
ENGINE = {
    "barebones": "a run needs its curves and checkpoints: logger=csv leaves out the dashboard",
    "callbacks": "add each by a name: +callbacks.mine={_target_: my_module.MyCallback}",
    "check_val_every_n_epoch": _DEV,
    "ckpt_path": "the same command resumes a run; init_from=RUN starts from another run's weights",
    "default_root_dir": _FILES,
    "enable_checkpointing": _FILES,
    "fast_dev_run": "it leaves no record: +debug=tiny, or trainer.max_steps=3",
    "limit_predict_batches": "a run predicts by its test: limits.test_pairs",
    "limit_test_batches": "limits.test_pairs limits the test",
    "logger": "choose a dashboard: logger=wandb, logger=tensorboard or, for none, logger=csv",
    "overfit_batches": "+debug=overfit, or data.train_rows=64",
    "reload_dataloaders_every_n_epochs": _ORDER,
    "use_distributed_sampler": _ORDER,
    "val_check_interval": _DEV,
}
"""Arguments of Lightning's Trainer that the engine sets, and what to use in their place."""

_PAIR = ("premise", "hypothesis", "label")
OWN: dict[str, tuple[str, ...]] = {
    "sts": ("sentence1", "sentence2", "score"),
    "nli": _PAIR,
    "direction": _PAIR,
}
"""The test sets of ``suite=own``, and the columns that each reads."""

AT_LEAST = {
    "few_shot.shots": 0,
    "data.llm_rows": 0,
    "patience": 0,
    "most_words": 1,
    "eval_every": 1,
    "least_evaluations": 1,
    "limits.dev_rows": 1,
    "limits.test_rows": 1,
    "limits.dev_pairs": 1,
    "limits.test_pairs": 1,
    "n": 1,
    "callbacks.early_stopping.patience": 1,
    "data.max_tokens": 1,
    "data.held_out_rows": 1,
    "trainer.accumulate_grad_batches": 1,
    "method.chunk_size": 1,
    "data.batch_size": 2,
    "data.train_rows": 2,
    "diag.sentences": 2,
    "rows": 2,
    "suite.snli.auprc_thresholds": 2,
    "suite.mnli.auprc_thresholds": 2,
    "suite.sick.auprc_thresholds": 2,
}
"""Keys whose value, if not null, must be an integer of at least this."""

BELOW = {
    "seed": 2**32,
    "encoder.dropout": 1,
    "diag.positive_score": float("inf"),
    "diag.negative_score": float("inf"),
    "method.optimizer.lr": float("inf"),
    "trainer.gradient_clip_val": float("inf"),
    "callbacks.early_stopping.min_delta": float("inf"),
}
"""Keys whose value, if not null, must be a number from 0 to just below this."""

_ACCELERATORS = ("auto", "cpu", "gpu", "cuda", "mps")
_STRATEGIES = ("auto", "ddp", "ddp_find_unused_parameters_true")
_SWITCH = ("True", "False")
CHOICES = {
    "trainer.precision": (*PRECISIONS.values(), *PRECISIONS, "auto"),
    "trainer.accelerator": _ACCELERATORS,
    "precision": ("32-true", "bf16-mixed", "auto"),
    "accelerator": _ACCELERATORS,
    "data.bad_rows": ("error", "skip"),
    "diag.evaluation": ("stsb_dev", "none"),
    "beside.split": ("train", "dev", "test"),
    "show_prompts": _SWITCH,
    "force": _SWITCH,
    "retry_failed": _SWITCH,
}
"""Keys whose value, if not null, must be one of these."""


# The check -------------------------------------------------------------------


def check(cfg: DictConfig, config_name: str) -> None:
    """Check a composed config; it is not changed.

    Raises ConfigError for unknown keys, wrong types, and values that allow no run.
    """
    cfg = without_hydra(cfg)
    if "local" in cfg:
        raise ConfigError(["conf/local: the first line of the file must be '# @package _global_'"])

    if any(OmegaConf.is_missing(cfg, key) for key in CHOSEN):
        from lightning_cse.config.suggestions import not_chosen

        raise ConfigError(not_chosen(cfg))

    if faults := list(_value_faults(_resolved(cfg, config_name))):
        raise ConfigError(faults)


def _resolved(cfg: DictConfig, config_name: str) -> DictConfig:
    """Return the config resolved, and that of ``train`` merged into its schema without an error."""
    try:
        values = OmegaConf.to_container(cfg, resolve=True, throw_on_missing=True)
        plain: DictConfig = OmegaConf.create(values)  # type: ignore[assignment]  # of a mapping
        if config_name == "train":
            _check_types(plain)
    except OmegaConfBaseException as error:
        near = ""
        if isinstance(error, ConfigKeyError):
            near = instead(str(error.key)) or did_you_mean(str(error.key), error.parent_node)

        fault = f"{error.full_key or 'config'}: {plain_line(error)}{near}"
        raise user_error(error) or ConfigError([fault]) from error

    return plain


def instead(key: str) -> str:
    """Return what to use in the place of an argument that Lightning has elsewhere."""
    reason = ENGINE.get(key.removeprefix("trainer."))
    return f" - {reason}" if reason else ""


def _check_types(plain: DictConfig) -> None:
    """Merge a config into the schema of ``train``."""
    schema = OmegaConf.structured(Train)
    schema.trainer = Trainer
    schema.callbacks = Callbacks
    for node in (schema.trainer, schema.callbacks):
        OmegaConf.set_struct(node, False)  # a plus adds any key of theirs

    if missing := OmegaConf.missing_keys(OmegaConf.merge(schema, plain)):
        raise ConfigError(f"{key}: is missing, and cannot be left out" for key in sorted(missing))


# Values --------------------------------------------------------------------------------------


def _value_faults(plain: DictConfig) -> Iterator[str]:
    """Yield a fault for each value that is out of its range, or not one of its choices."""
    for key, least in AT_LEAST.items():
        value = OmegaConf.select(plain, key)
        if value is not None and not (type(value) is int and value >= least):
            yield f"{key}: must be an integer >= {least}, got {value!r}"

    for key in ("patience", "most_words"):
        if plain.get(key, 0) is None:
            yield f"{key}: must be an integer, got None"

    for key, limit in BELOW.items():
        value = OmegaConf.select(plain, key)
        if value is not None and not (isinstance(value, int | float) and 0 <= value < limit):
            yield f"{key}: must be a number >= 0 and < {limit}, got {value!r}"

    for key, choices in CHOICES.items():
        value = OmegaConf.select(plain, key)
        if value is not None and str(value) not in choices:
            near = did_you_mean(str(value), choices)
            yield f"{key}: must be {' or '.join(choices)}, got {value!r}{near}"

    if "own" in plain:
        yield from _own(plain.own)

    if "monitor" in plain:
        yield from _training(plain)


def _own(own: DictConfig) -> Iterator[str]:
    """Yield a fault if there is no test set, and for each column that no test set reads."""
    tests = [name for name in OWN if own.get(name)]
    if not tests:
        yield f"suite=own: has no test set; add own.{'=FILE, own.'.join(OWN)}=FILE"
        return

    read = {column for test in tests for column in OWN[test]}
    for name in own.get("columns") or ():
        if name not in read:
            yield f"own.columns: no test set reads a {name!r}{did_you_mean(str(name), read)}"


def _training(plain: DictConfig) -> Iterator[str]:
    """Yield a fault for each value with which there can be no training."""
    if not re.fullmatch(r"\w[\w.+-]{0,79}(/\w[\w.+-]{0,79})*", str(plain.name)):
        name = str(plain.name)[:80]
        allowed = "up to 80 letters, digits and . _ + - per level"
        yield f"name: {name!r} is not a valid name: use {allowed}"

    stopping = plain.callbacks.early_stopping
    if stopping.patience is None and stopping.min_delta:
        yield "callbacks.early_stopping.min_delta: set callbacks.early_stopping.patience, too"

    for name, node in plain.callbacks.items():
        if name != "early_stopping" and not (isinstance(node, DictConfig) and "_target_" in node):
            yield f"callbacks.{name}: give its class: {{_target_: my_module.MyCallback}}"

    trainer = plain.trainer
    for key in trainer:
        if key in ENGINE:
            yield f"trainer.{key}: is set by lightning_cse; {ENGINE[key]}"

    limit = trainer.limit_train_batches
    if isinstance(limit, float) and not 0 <= limit <= 1:
        kinds = "a number of batches, or a share from 0.0 to 1.0"
        yield f"trainer.limit_train_batches: must be {kinds}, got {limit!r}"

    if trainer.max_epochs in (None, -1) and trainer.max_steps == -1:
        limits = "trainer.max_epochs or trainer.max_steps"
        yield f"trainer.max_epochs: training never ends unless {limits} is set"

    if plain.data.get("streaming"):
        if trainer.max_steps == -1:
            steps = "a stream has no epochs to count, so give the number of steps"
            yield f"trainer.max_steps: {steps} (data.streaming=true)"

        if limit is not None:
            instead = "a stream has no epochs; trainer.max_steps ends the training"
            yield f"trainer.limit_train_batches: {instead}"

    yield from _several(plain)


def _several(plain: DictConfig) -> Iterator[str]:
    """Yield a fault for each value with which several devices cannot train."""
    strategy = plain.trainer.strategy
    if strategy.startswith("fsdp"):
        yield (
            f"trainer.strategy: {strategy} shards the weights, but evaluation, gradient clipping "
            "and checkpoints need them whole between steps; use ddp, and to save memory "
            "adapter=lora, encoder.gradient_checkpointing=true or method.chunk_size"
        )
    elif strategy not in _STRATEGIES:
        near = did_you_mean(strategy, _STRATEGIES)
        yield f"trainer.strategy: must be {' or '.join(_STRATEGIES)}, got {strategy!r}{near}"

    chosen = plain.trainer.devices
    is_list = isinstance(chosen, ListConfig) and len(chosen) > 0
    if not is_list and not (type(chosen) is int and chosen >= 1):
        kinds = "a number of devices, at least 1, or a list of GPUs"
        yield f"trainer.devices: must be {kinds}, got {chosen!r}"

    size = plain.data.get("batch_size", -1)
    count = devices(plain)
    if size is None:
        yield "data.batch_size: must be an integer >= 2, got None"
    elif type(size) is int and 0 < size < count:
        yield (
            f"data.batch_size: {size} is the batch of all {count} devices, "
            "too small for one row each; raise it"
        )


def devices(cfg: DictConfig) -> int:
    """Return the number of devices that a training run asks for; 1 if only the machine can tell."""
    chosen = cfg.trainer.devices
    if isinstance(chosen, ListConfig):
        chosen = len(chosen)

    if not isinstance(chosen, int) or chosen < 1:
        chosen = 1

    return int(chosen * cfg.trainer.num_nodes)
