"""The check of a composed config before anything heavy is imported: keys, types, and values that allow no run.

The schema only serves this check and is then discarded. Nodes with a ``_target_`` are checked where they are built.
"""

import functools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, make_dataclass
from typing import Any, Final

from omegaconf import MISSING, DictConfig, ListConfig, OmegaConf
from omegaconf.errors import ConfigKeyError, OmegaConfBaseException

from lightning_cse.config.compose import CHOSEN, compose, is_choice, parse, plain_line
from lightning_cse.errors import ConfigError, did_you_mean, user_error

OPEN: Final = ("llm.parameters.", "method.optimizer.", "suite.", "baselines.", "hydra.")
"""Nodes to which a plus adds any key: ``+llm.parameters.top_p=0.9``. All others have only the keys in ``conf/``."""

PRECISIONS: Final = {"32": "32-true", "bf16": "bf16-mixed", "16": "16-mixed"}
"""Training precisions, by Lightning's short names; ``16-mixed`` needs a GPU."""

THROUGH: Final = ("corpora", "limits", "own", "transfer")
"""Nodes that have an effect only through the keys that refer to them."""

OWN: Final = {
    "sts": ("sentence1", "sentence2", "score"),
    "nli": ("premise", "hypothesis", "label"),
    "direction": ("premise", "hypothesis", "label"),
    "retrieval": (),
}
"""The tests of ``suite=own``, and the columns that each of them reads."""

LEAST: Final = {
    0: "few_shot.shots data.llm_rows patience",
    1: "eval_every least_evaluations limits.dev_rows limits.test_rows limits.dev_pairs limits.test_pairs n samples "
    "callbacks.early_stopping.patience "
    "data.max_tokens data.held_out_rows data.llm_rows_together trainer.accumulate_grad_batches trainer.num_nodes "
    "method.chunk_size most_words",
    2: "data.batch_size data.train_rows diag.sentences rows looked_at",
}
"""Keys whose value, if not null, must be an integer of at least this."""

BELOW: Final = {"seed": 2**32, "encoder.dropout": 1} | dict.fromkeys(
    ("method.optimizer.lr", "trainer.gradient_clip_val", "callbacks.early_stopping.min_delta"),
    float("inf"),
)
"""Keys whose value, if not null, must be a number from 0 to just below this."""

CHOICES: Final = {
    "trainer.precision": (*PRECISIONS.values(), "auto", *PRECISIONS),
    "precision": ("32-true", "bf16-mixed", "auto"),
    **dict.fromkeys(("trainer.accelerator", "accelerator"), ("auto", "cpu", "gpu", "cuda", "mps")),
    "diag.evaluation": ("stsb_dev", "corpus_dev", "none"),
    "beside.split": ("train", "dev", "test"),
    **dict.fromkeys(("show_prompts", "force", "retry_failed"), ("True", "False")),
}


def _schema(name: str, keys: Mapping[Any, str], **nodes: type) -> type:
    """Return a schema that requires these keys, listed by type, and these nodes."""
    fields: list[Any] = [
        (key, kind, MISSING) for kind, names in keys.items() for key in names.split()
    ]
    return make_dataclass(
        name, fields + [(key, node, field(default_factory=node)) for key, node in nodes.items()]
    )


_TRAINER: Final = {
    str: "_target_ accelerator strategy",
    int: "num_nodes max_steps accumulate_grad_batches num_sanity_val_steps log_every_n_steps",
    bool: "enable_model_summary",
    int | None: "max_epochs",
    float | None: "gradient_clip_val",
    str | None: "gradient_clip_algorithm",
    bool | None: "benchmark",
    Any: "max_time limit_train_batches devices precision deterministic limit_val_batches",
}
"""Arguments of Lightning's Trainer that a user sets; the engine sets the others."""

_TRAIN: Final = {
    str: "name monitor",
    int: "seed eval_every least_evaluations",
    bool: "force retry_failed keep_last figures",
    dict[str, int | None]: "limits",
    Any: "data suite encoder corpora baselines logger recipe transfer own",  # checked where they are built
}
"""The top-level keys of ``conf/train.yaml``."""

# Optimizers and methods also have arguments of their own.
_OPTIMIZER: Final = _schema("Optimizer", {float: "lr weight_decay"})
_SCHEDULE: Final = _schema("Schedule", {str: "_target_ name", float: "warmup"})
_METHOD: Final = _schema("Method", {}, optimizer=_OPTIMIZER, schedule=_SCHEDULE)
_STOPPING: Final = _schema("EarlyStopping", {int | None: "patience", float: "min_delta"})
_DIAG: Final = {
    str: "evaluation",
    bool: "dropout",
    float: "positive_score negative_score",
    int: "sentences",
}
TRAIN: Final = _schema(
    "Train",
    _TRAIN,
    trainer=_schema("Trainer", _TRAINER),
    method=_METHOD,
    callbacks=_schema("Callbacks", {}, early_stopping=_STOPPING),
    paths=_schema("Paths", {str: "data_dir runs_dir", str | None: "cache_dir"}),
    diag=_schema("Diag", _DIAG),
)


def check(
    cfg: DictConfig, config_name: str, overrides: Sequence[str] = (), *, all_read: bool = True
) -> None:
    """Raise ConfigError for unknown keys, wrong types, and values that allow no run; the config is not changed.

    The overrides are those of the command line, to check keys added with a plus and keys that nothing reads
    (``all_read``).
    """
    cfg = OmegaConf.masked_copy(cfg, [str(key) for key in cfg if key != "hydra"])
    if "local" in cfg:
        raise ConfigError(["conf/local: the first line of the file must be '# @package _global_'"])
    if faults := _added(config_name, overrides):
        raise ConfigError(faults)
    if any(OmegaConf.is_missing(cfg, key) for key in CHOSEN):
        from lightning_cse.config.suggestions import not_chosen

        raise ConfigError(not_chosen(cfg))
    try:
        plain: DictConfig = OmegaConf.create(
            OmegaConf.to_container(cfg, resolve=True, throw_on_missing=True)
        )  # type: ignore[assignment]
        missing = _typed(plain) if config_name == "train" else set()
    except OmegaConfBaseException as error:
        near = (
            did_you_mean(str(error.key), error.parent_node)
            if isinstance(error, ConfigKeyError)
            else ""
        )
        raise user_error(error) or ConfigError(
            [f"{error.full_key}: {plain_line(error)}{near}"]
        ) from error
    faults = [f"{key}: is missing, and cannot be left out" for key in missing]
    if (
        faults := faults
        or list(_values(plain))
        or list(unread(cfg, overrides).values() if all_read else ())
    ):
        raise ConfigError(faults)


def _added(config_name: str, overrides: Sequence[str]) -> list[str]:
    """Return a fault for each key that a plus adds where none can be added."""
    parsed = [parse(line) for line in overrides]
    added = [one for one in parsed if (one.is_add() or one.is_force_add()) and not is_choice(one)]
    added = [one for one in added if not one.key_or_group.startswith(OPEN)]
    if not added:
        return []
    from lightning_cse.config.suggestions import keys, unknown_key

    base = compose(config_name, *(str(one.input_line) for one in parsed if is_choice(one)))
    known = set(keys(base))
    return [unknown_key(one, base) for one in added if one.key_or_group not in known]


def unread(cfg: DictConfig, overrides: Sequence[str]) -> dict[str, str]:
    """Return a fault for each override that nothing in a composed config reads, by its key."""
    raw: Any = OmegaConf.to_container(cfg, resolve=False)
    for name in [name for name, node in (cfg.get("suite") or {}).items() if is_unasked(node)]:
        del raw["suite"][name]
    read: set[str] = set()
    waiting = [str(node) for key, node in raw.items() if key not in (*THROUGH, "hydra")]
    while waiting:
        for key in set(re.findall(r"\$\{([a-z]\w*(?:\.\w+)*)[}\[]", waiting.pop())) - read:
            read.add(key)
            waiting.append(
                str(functools.reduce(lambda node, part: node[part], key.split("."), raw))
            )
    faults = {}
    for one in map(parse, overrides):
        key, top = one.key_or_group, one.key_or_group.partition(".")[0]
        near = [other for other in sorted(read) if f"{other}.".startswith(f"{top}.")]
        is_read = any(
            f"{key}.".startswith(f"{other}.") or other.startswith(f"{key}.") for other in near
        )
        if top in THROUGH and not (is_read or is_choice(one) or one.is_delete()):
            there = ", ".join(near) or "none"
            faults[key] = (
                f"{one.input_line}: nothing reads {key} here; leave it out (keys that are read: {there})"
            )
    return faults


def is_unasked(task: Any) -> bool:
    """Whether a task belongs to ``suite=own`` and was given no files."""
    return isinstance(task, DictConfig) and task.get("files", "") is None


def _typed(plain: DictConfig) -> set[str]:
    """Merge the config into the schema, which raises an error for wrong types; return the missing keys."""
    for key in ("trainer", "method", "method.optimizer", "method.schedule", "limits", "diag"):
        if not isinstance(value := OmegaConf.select(plain, key), Mapping):
            raise ConfigError([f"{key}: must be a mapping, got {value!r}"])
    schema = OmegaConf.structured(TRAIN)
    for node in (schema.method, schema.method.optimizer):
        OmegaConf.set_struct(node, False)
    return set(OmegaConf.missing_keys(OmegaConf.merge(schema, plain))) - {
        "transfer",
        "own",
    }  # these come with a suite


def _infinite(node: Any, key: str) -> Iterator[str]:
    if isinstance(node, Mapping):
        for name, value in node.items():
            yield from _infinite(value, f"{key}.{name}".lstrip("."))
    elif isinstance(node, float) and not math.isfinite(node):
        yield f"{key}: must be a finite number, got {node}"


def _values(plain: DictConfig) -> Iterator[str]:
    """Yield a fault for each value that is out of its range, or not one of its choices."""
    yield from _infinite(plain, "")
    for key, least in {
        key: least for least, names in LEAST.items() for key in names.split()
    }.items():
        value = OmegaConf.select(plain, key)
        if value is not None and (
            isinstance(value, bool) or not isinstance(value, int) or value < least
        ):
            yield f"{key}: must be an integer >= {least}, got {value!r}"
    for key, limit in BELOW.items():
        value = OmegaConf.select(plain, key)
        if value is not None and not (isinstance(value, int | float) and 0 <= value < limit):
            yield f"{key}: must be a number >= 0 and < {limit}, got {value!r}"
    for key, known in CHOICES.items():
        value = OmegaConf.select(plain, key)
        if value is not None and str(value) not in known:
            shown = [one for one in known if one not in PRECISIONS]
            yield f"{key}: must be {' or '.join(shown)}, got {value!r}{did_you_mean(str(value), shown)}"
    yield from _own(plain.get("own") or {})
    if "monitor" in plain:
        yield from _training(plain)


def _training(plain: DictConfig) -> Iterator[str]:
    """Yield a fault for each value with which there can be no training."""
    if not re.fullmatch(r"\w[\w.+-]{0,79}(/\w[\w.+-]{0,79})*", str(plain.name)):
        yield f"name: {str(plain.name)[:80]!r} is not a valid name: use up to 80 letters, digits and . _ + - per level"
    if plain.callbacks.early_stopping.patience is None and plain.callbacks.early_stopping.min_delta:
        yield "callbacks.early_stopping.min_delta: needs callbacks.early_stopping.patience; set that too"
    limit, here = plain.trainer.limit_train_batches, plain.trainer.devices
    if limit is not None and not (
        type(limit) in (int, float) and limit >= 0 and (type(limit) is int or limit <= 1)
    ):
        yield f"trainer.limit_train_batches: must be a number of batches, or a share from 0.0 to 1.0, got {limit!r}"
    if not (isinstance(here, ListConfig) and here) and (type(here) is not int or here < 1):
        yield f"trainer.devices: must be a number of devices, at least 1, or a list of GPUs, got {here!r}"
    size, count = plain.data.get("batch_size", -1), devices(plain)
    if size is None:
        yield "data.batch_size: must be an integer >= 2, got None"
    elif type(size) is int and 0 < size < count:
        yield f"data.batch_size: {size} is the batch of all {count} devices, too small for one row each; raise it"
    empty = (key for key in ("method", "data", "encoder") if "_target_" not in (plain[key] or {}))
    yield from (f"{key}: has no _target_; choose an option of conf/{key}" for key in empty)
    if plain.trainer.max_epochs in (None, -1) and plain.trainer.max_steps == -1:
        yield "trainer.max_epochs: training never ends unless trainer.max_epochs or trainer.max_steps is set"
    if not any(isinstance(task, Mapping) for task in (plain.suite or {}).values()):
        yield "suite: has no task to choose the best checkpoint by"


def devices(cfg: DictConfig) -> int:
    """Return the number of devices that a training run asks for; 1 if only the machine can tell."""
    here = cfg.trainer.devices
    here = (
        len(here)
        if isinstance(here, ListConfig)
        else here
        if isinstance(here, int) and here > 0
        else 1
    )
    return int(here * cfg.trainer.num_nodes)


def _own(own: Mapping[str, Any]) -> Iterator[str]:
    """Yield a fault if ``suite=own`` has no test set, and for each column that no test set reads."""
    given = [name for name in OWN if own.get(name) is not None]
    if own and not given:
        yield "suite=own: has no test set; add own.sts=FILE, own.nli=FILE, own.direction=FILE or own.retrieval=FOLDER"
        return
    known = dict.fromkeys(column for name in given for column in OWN[name])
    for column in own.get("columns") or ():
        if column not in known:
            near = did_you_mean(str(column), known)
            yield f"own.columns: no test set reads a column {column!r}{near} (columns: {', '.join(known) or 'none'})"
