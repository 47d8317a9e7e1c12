"""The keys of the composed configs, with their types and bounds, as pydantic models.

A model only serves the check of a config. The arguments of a node with a ``_target_`` are checked
against its class instead (`lightning_cse.config.nodes`).
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError

Count = Annotated[int, Field(ge=1)]
Several = Annotated[int, Field(ge=2)]
Pairs = Annotated[int, Field(ge=3)]  # a rank correlation of two pairs is always 1 or -1
Seed = Annotated[int, Field(ge=0, lt=2**32)]
NotNegative = Annotated[float, Field(ge=0)]
Sources = str | list[str] | None
Files = Sources | dict[str, Sources]
RecipeKey = Annotated[str, Field(pattern=r"^[a-z]")]  # not _target_
Recipe = dict[str, dict[RecipeKey, bool | int | float | str | None] | None]
Accelerator = Literal["auto", "cpu", "gpu", "cuda", "mps"]

_LEVEL = r"\w[\w.+-]{0,79}"
_FSDP = (
    "{strategy} shards the weights, but evaluation, gradient clipping and checkpoints need them "
    "whole between steps; use ddp, and to save memory +adapter=lora, "
    "encoder.gradient_checkpointing=true or method.chunk_size"
)


def _whole(strategy: Any) -> Any:
    if str(strategy).startswith("fsdp"):
        raise PydanticCustomError("refused", _FSDP, {"strategy": strategy})

    return strategy


Strategy = Annotated[
    Literal["auto", "ddp", "ddp_find_unused_parameters_true"], BeforeValidator(_whole)
]


class Keys(BaseModel):
    """Base of the models: values are not converted, numbers are finite, all keys are declared."""

    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)


class Node(Keys, extra="allow"):
    """A class or function, and its arguments."""

    target: str = Field(alias="_target_")


class Paths(Keys):
    """The folders of data, runs and caches."""

    data_dir: str
    runs_dir: str
    cache_dir: str | None


class Limits(Keys):
    """The largest numbers of rows to evaluate on."""

    dev_rows: Count | None
    test_rows: Count | None
    dev_pairs: Pairs | None
    test_pairs: Pairs | None


class Optimizer(Node):
    """The rate, which every optimizer needs, and the other arguments of AdamW."""

    lr: NotNegative
    weight_decay: NotNegative = 0.0
    eps: NotNegative = 0.0
    betas: list[Annotated[float, Field(ge=0, lt=1)]] = []


class Method(Node):
    """Arguments that every method has."""

    optimizer: Optimizer
    chunk_size: Count | None = None


class Trainer(Node):
    """Arguments of Lightning's Trainer that have bounds, or fewer choices than Lightning's."""

    accelerator: Accelerator
    strategy: Strategy
    devices: Count | Annotated[list[int], Field(min_length=1)]
    num_nodes: Count
    precision: Literal["32-true", "bf16-mixed", "16-mixed", "auto", "32", "bf16", "16", 32, 16]
    max_epochs: Annotated[int, Field(ge=-1)] | None
    max_steps: Annotated[int, Field(ge=-1)]
    limit_train_batches: Annotated[int, Field(ge=0)] | Annotated[float, Field(ge=0, le=1)] | None
    accumulate_grad_batches: Count
    gradient_clip_val: NotNegative | None
    gradient_clip_algorithm: Literal["norm", "value"] | None
    enable_checkpointing: Literal[True] | None = None


class Diagnostics(Keys):
    """What is measured beside the tasks."""

    evaluation: Literal["stsb_dev", "none"]
    dropout: bool
    positive_score: NotNegative
    negative_score: NotNegative
    sentences: Several


class Own(Keys):
    """The user's own test sets."""

    sts: Files
    nli: Files
    direction: Files
    columns: dict[str, str] | None
    delimiter: str | None
    encoding: str | None


class Transfer(Keys):
    """How the classifiers of the transfer tasks are fitted."""

    protocol: Literal["lbfgs", "senteval"]


class Command(Keys):
    """The keys that every command has, or that some suites add."""

    paths: Paths
    corpora: dict[str, str | list[str]]
    own: Own | None = None
    transfer: Transfer | None = None


class Train(Command):
    """The keys of ``conf/train.yaml``."""

    name: Annotated[str, Field(pattern=rf"^{_LEVEL}(/{_LEVEL})*$")]
    seed: Seed
    monitor: str
    eval_every: Count | None
    least_evaluations: Count
    force: bool
    retry_failed: bool
    keep_last: bool
    figures: bool
    init_from: str | None
    recipe: Recipe
    limits: Limits
    data: Node
    encoder: Node
    method: Method
    suite: dict[str, Node]
    baselines: dict[str, Node]
    callbacks: dict[str, dict[str, Any] | None]
    logger: dict[str, Any] | None
    trainer: Trainer
    diag: Diagnostics


class FewShot(Keys):
    """The labelled examples that a language model is shown."""

    shots: Annotated[int, Field(ge=0)]
    seed: Seed


class Evaluate(Command):
    """The keys of ``conf/evaluate.yaml``; the package ``llm`` checks those of ``llm``."""

    model: str
    suite: dict[str, Node]
    pooling: str
    prompt: str | None
    max_length: Count | Literal["auto"]
    whitening: Sources
    precision: Literal["32-true", "bf16-mixed", "auto"]
    accelerator: Accelerator
    few_shot: FewShot
    force: bool
    retry_failed: bool
    limits: Limits
    llm: dict[str, Any]


class Generate(Command):
    """The keys of ``conf/generate.yaml``; `build_pattern` checks those of ``pattern``."""

    data: Node
    pattern: dict[str, Any]
    encoder: Node | None = None
    n: Count | None
    seed: Seed
    samples: Count
    patience: Annotated[int, Field(ge=0)]
    checks_encoder: str | None
    most_words: Count
    show_prompts: bool
    summary_rows: Count
    llm: dict[str, Any]
    recipe: Recipe


class Beside(Keys):
    """The pairs of STS-B with which a training set is compared."""

    split: Literal["train", "dev", "test"]
    positive_score: NotNegative
    negative_score: NotNegative


class Describe(Command):
    """The keys of ``conf/describe.yaml``."""

    data: Node
    encoder: Node
    seed: Seed
    rows: Several
    positive: Sources
    negative: Sources
    beside: Beside
    recipe: Recipe


SCHEMAS: dict[str, type[Command]] = {
    "train": Train,
    "evaluate": Evaluate,
    "generate": Generate,
    "describe": Describe,
}
"""The model of each command's config."""
