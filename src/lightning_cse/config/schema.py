"""The schema of ``conf/train.yaml``, and the values that a type alone does not refuse.

`lightning_cse.config.check` merges a config into `Train` and discards the result: the schema has
types and no defaults. Nodes of type Any are checked where they are built.
"""

from dataclasses import dataclass, field
from typing import Any, Final

from omegaconf import MISSING


@dataclass
class Paths:
    """The folders of data, runs and caches."""

    data_dir: str = MISSING
    runs_dir: str = MISSING
    cache_dir: str | None = MISSING


@dataclass
class Optimizer:
    """Open: every optimizer has further arguments."""

    lr: float = MISSING
    weight_decay: float = MISSING


@dataclass
class Schedule:
    """The learning rate's schedule."""

    _target_: str = MISSING
    name: str = MISSING
    warmup: float = MISSING


@dataclass
class Method:
    """Open: every method has further arguments."""

    optimizer: Optimizer = field(default_factory=Optimizer)
    schedule: Schedule = field(default_factory=Schedule)


@dataclass
class Trainer:
    """The arguments of Lightning's Trainer that a user sets; the engine sets the others."""

    _target_: str = MISSING
    accelerator: str = MISSING
    strategy: str = MISSING
    devices: Any = MISSING
    num_nodes: int = MISSING
    precision: Any = MISSING
    max_epochs: int | None = MISSING
    max_steps: int = MISSING
    max_time: Any = MISSING
    limit_train_batches: Any = MISSING
    limit_val_batches: Any = MISSING
    accumulate_grad_batches: int = MISSING
    gradient_clip_val: float | None = MISSING
    gradient_clip_algorithm: str | None = MISSING
    num_sanity_val_steps: int = MISSING
    log_every_n_steps: int = MISSING
    enable_model_summary: bool = MISSING
    deterministic: Any = MISSING
    benchmark: bool | None = MISSING


@dataclass
class EarlyStopping:
    """When a run stops before its last step."""

    patience: int | None = MISSING
    min_delta: float = MISSING


@dataclass
class Callbacks:
    """The settings of callbacks."""

    early_stopping: EarlyStopping = field(default_factory=EarlyStopping)


@dataclass
class Diagnostics:
    """What is measured beside the tasks."""

    evaluation: str = MISSING
    dropout: bool = MISSING
    positive_score: float = MISSING
    negative_score: float = MISSING
    sentences: int = MISSING


@dataclass
class Train:
    """The top-level keys of ``conf/train.yaml``."""

    name: str = MISSING
    seed: int = MISSING
    monitor: str = MISSING
    eval_every: int = MISSING
    least_evaluations: int = MISSING
    force: bool = MISSING
    retry_failed: bool = MISSING
    keep_last: bool = MISSING
    figures: bool = MISSING
    limits: dict[str, int | None] = MISSING
    data: Any = MISSING
    suite: Any = MISSING
    encoder: Any = MISSING
    corpora: Any = MISSING
    baselines: Any = MISSING
    logger: Any = MISSING
    recipe: Any = MISSING
    transfer: Any = MISSING
    own: Any = MISSING
    method: Method = field(default_factory=Method)
    trainer: Trainer = field(default_factory=Trainer)
    callbacks: Callbacks = field(default_factory=Callbacks)
    paths: Paths = field(default_factory=Paths)
    diag: Diagnostics = field(default_factory=Diagnostics)


WITH_A_SUITE: Final = {"transfer", "own"}
"""The keys of `Train` that only some suites add."""

CHOSEN: Final = {
    "name": "experiment",
    "suite": "suite",
    "pattern": "pattern",
    "data": "data",
}
"""Keys that are set by choosing an option of a group."""

OPEN: Final = ("llm.parameters.", "method.optimizer.", "suite.", "baselines.", "hydra.")
"""Nodes to which a plus adds any key. All others have only the keys in ``conf/``."""

INDIRECT: Final = ("corpora", "limits", "own", "transfer")
"""Nodes that have an effect only through the keys that refer to them."""

PRECISIONS: Final = {
    "32": "32-true",
    "bf16": "bf16-mixed",
    "16": "16-mixed",
}
"""Training precisions, by Lightning's short names; ``16-mixed`` needs a GPU."""

OWN: Final = {
    "sts": ("sentence1", "sentence2", "score"),
    "nli": ("premise", "hypothesis", "label"),
    "direction": ("premise", "hypothesis", "label"),
    "retrieval": (),
}
"""The tests of ``suite=own``, and the columns that each of them reads."""

AT_LEAST: Final = {
    "few_shot.shots": 0,
    "data.llm_rows": 0,
    "patience": 0,
    "eval_every": 1,
    "least_evaluations": 1,
    "limits.dev_rows": 1,
    "limits.test_rows": 1,
    "limits.dev_pairs": 1,
    "limits.test_pairs": 1,
    "n": 1,
    "samples": 1,
    "most_words": 1,
    "callbacks.early_stopping.patience": 1,
    "data.max_tokens": 1,
    "data.held_out_rows": 1,
    "data.llm_rows_together": 1,
    "trainer.accumulate_grad_batches": 1,
    "trainer.num_nodes": 1,
    "method.chunk_size": 1,
    "data.batch_size": 2,
    "data.train_rows": 2,
    "diag.sentences": 2,
    "rows": 2,
    "summary_rows": 2,
}
"""Keys whose value, if not null, must be an integer of at least this."""

BELOW: Final = {
    "seed": 2**32,
    "encoder.dropout": 1,
    "diag.positive_score": float("inf"),
    "diag.negative_score": float("inf"),
    "method.optimizer.lr": float("inf"),
    "trainer.gradient_clip_val": float("inf"),
    "callbacks.early_stopping.min_delta": float("inf"),
}
"""Keys whose value, if not null, must be a number from 0 to just below this."""

_ACCELERATORS: Final = ("auto", "cpu", "gpu", "cuda", "mps")
_SWITCH: Final = ("True", "False")
CHOICES: Final = {
    "trainer.precision": (*PRECISIONS.values(), "auto"),
    "trainer.accelerator": _ACCELERATORS,
    "precision": ("32-true", "bf16-mixed", "auto"),
    "accelerator": _ACCELERATORS,
    "diag.evaluation": ("stsb_dev", "corpus_dev", "none"),
    "beside.split": ("train", "dev", "test"),
    "show_prompts": _SWITCH,
    "force": _SWITCH,
    "retry_failed": _SWITCH,
}
"""Keys whose value, if not null, must be one of these."""
