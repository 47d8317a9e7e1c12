"""The keys of the composed configs, with their types and bounds, which pydantic reads.

The arguments of a node with a ``_target_`` are annotated by its class; only what is narrower than
that stands here.
"""

from dataclasses import dataclass
from typing import Annotated, Any, Literal, NotRequired, Protocol, TypedDict

from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError


class Node:
    """Stands for what is built from a class and its arguments, ``{_target_: ...}``."""


@dataclass(frozen=True)
class Builds:
    """What a node must build: ``base`` is the dotted name of a class, ``options`` a TypedDict of
    arguments that it annotates in place of the class.
    """

    base: str = ""
    options: Any = None


class Embeds(Protocol):
    """What a baseline can do."""

    def embed(self, sentences: Any) -> Any:
        """Return the embeddings of sentences."""


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
_CURVES = "a run needs its curves and checkpoints; logger=csv leaves out the dashboard"
_BY_NAME = "add each by a name: +callbacks.mine={_target_: my_module.MyCallback}"
_STEPS = "dev sets are evaluated by optimizer steps: eval_every"
_GROUP = "choose a dashboard: logger=wandb, logger=tensorboard or, for none, logger=csv"
_FILES = "a run's folder has its files: paths.runs_dir, keep_last=true"
_ORDER = "the order of the rows follows from the seed, and a resumed run continues in it"
_FSDP = (
    "fsdp shards the weights, but evaluation, gradient clipping and checkpoints need them whole "
    "between steps; use ddp, and to save memory +adapter=lora, "
    "encoder.gradient_checkpointing=true or method.chunk_size"
)


def refused(advice: str, prefix: str = "") -> BeforeValidator:
    """Refuse values that begin with ``prefix``, and say what to use in their place."""

    def refuse(value: Any) -> Any:
        if str(value).startswith(prefix):
            raise PydanticCustomError("refused", "cannot be set; {advice}", {"advice": advice})

        return value

    return BeforeValidator(refuse)


Strategy = Annotated[
    Literal["auto", "ddp", "ddp_find_unused_parameters_true"], refused(_FSDP, "fsdp")
]


class OptimizerOptions(TypedDict):
    """The rate, which every optimizer needs, and the other arguments of AdamW."""

    lr: NotNegative
    weight_decay: NotRequired[NotNegative]
    eps: NotRequired[NotNegative]
    betas: NotRequired[list[Annotated[float, Field(ge=0, lt=1)]]]


class MethodOptions(TypedDict):
    """Arguments that every method has; the encoder is added when it is built."""

    encoder: NotRequired[Any]
    optimizer: Annotated[Node, Builds("torch.optim.Optimizer", OptimizerOptions)]
    chunk_size: NotRequired[Count | None]


class EncoderOptions(TypedDict):
    """Arguments of an encoder of which its class does not say what they are."""

    adapter: NotRequired[Annotated[Node, Builds("peft.PeftConfig")] | None]


class LoggerOptions(TypedDict):
    """The folder, which is added when a logger is built."""

    save_dir: NotRequired[Any]


class CallbackOptions(TypedDict):
    """Early stopping is left out while its patience is null."""

    patience: NotRequired[int | None]


class TrainerOptions(TypedDict):
    """Arguments of Lightning's Trainer that have bounds or fewer choices, or that cannot work."""

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
    enable_checkpointing: NotRequired[Literal[True] | None]
    limit_val_batches: NotRequired[Count | Annotated[float, Field(gt=0, le=1)] | None]
    barebones: NotRequired[Annotated[Any, refused(_CURVES)]]
    callbacks: NotRequired[Annotated[Any, refused(_BY_NAME)]]
    check_val_every_n_epoch: NotRequired[Annotated[Any, refused(_STEPS)]]
    default_root_dir: NotRequired[Annotated[Any, refused(_FILES)]]
    logger: NotRequired[Annotated[Any, refused(_GROUP)]]
    reload_dataloaders_every_n_epochs: NotRequired[Annotated[Any, refused(_ORDER)]]
    use_distributed_sampler: NotRequired[Annotated[Any, refused(_ORDER)]]


Data = Annotated[Node, Builds("lightning_cse.data.ContrastiveData")]
Encoder = Annotated[Node, Builds("lightning_cse.encoders.SentenceEncoder", EncoderOptions)]
Logger = Annotated[Node, Builds("pytorch_lightning.loggers.Logger", LoggerOptions)]
Suite = dict[str, Annotated[Node, Builds("lightning_cse.evaluation.Task")]]


class Paths(TypedDict):
    """The folders of data, runs and caches."""

    data_dir: str
    runs_dir: str
    cache_dir: str | None


class Limits(TypedDict):
    """The largest numbers of rows to evaluate on."""

    dev_rows: Count | None
    test_rows: Count | None
    dev_pairs: Pairs | None
    test_pairs: Pairs | None


class Diagnostics(TypedDict):
    """What is measured beside the tasks."""

    evaluation: Literal["stsb_dev", "none"]
    dropout: bool
    positive_score: NotNegative
    negative_score: NotNegative
    sentences: Several


class Own(TypedDict):
    """The user's own test sets."""

    sts: Files
    pairs: Files
    nli: Files
    direction: Files
    columns: dict[str, str] | None


class Command(TypedDict):
    """The keys that every command has."""

    paths: Paths
    corpora: dict[str, str | list[str]]
    own: NotRequired[Own]


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
    diag: Diagnostics
    data: Data
    encoder: Encoder
    method: Annotated[Node, Builds("lightning_cse.methods.Method", MethodOptions)]
    suite: Suite
    baselines: dict[str, Annotated[Node, Builds("lightning_cse.config.schema.Embeds")]]
    callbacks: dict[
        str, Annotated[Node, Builds("pytorch_lightning.Callback", CallbackOptions)] | None
    ]
    logger: dict[str, Logger] | None
    trainer: Annotated[Node, Builds("pytorch_lightning.Trainer", TrainerOptions)]


class FewShot(TypedDict):
    """The labelled examples that a language model is shown."""

    shots: Annotated[int, Field(ge=0)]
    seed: Seed


class Evaluate(Command):
    """The keys of ``conf/evaluate.yaml``; the package ``llm`` checks those of ``llm``."""

    model: str
    suite: Suite
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

    data: Data
    pattern: dict[str, Any]
    encoder: NotRequired[Encoder | None]
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


class Beside(TypedDict):
    """The pairs of STS-B with which a training set is compared."""

    split: Literal["train", "dev", "test"]
    positive_score: NotNegative
    negative_score: NotNegative


class Difficulty(TypedDict):
    """The sides of RFD before training."""

    positive_score: NotNegative
    negative_score: NotNegative
    sentences: Several


class Describe(Command):
    """The keys of ``conf/describe.yaml``."""

    data: Data
    encoder: Encoder
    seed: Seed
    rows: Several
    positive: Sources
    negative: Sources
    beside: Beside
    rfd: Difficulty
    probe_steps: Annotated[int, Field(ge=0)]
    method: Annotated[Node, Builds("lightning_cse.methods.Method", MethodOptions)]
    recipe: Recipe


SCHEMAS: dict[str, Any] = {
    "train": Train,
    "evaluate": Evaluate,
    "generate": Generate,
    "describe": Describe,
}
"""The keys of each command's config."""
