"""The check of a composed config, before anything is built: keys, types, values, and the arguments
of every node.
"""

from collections.abc import Iterator
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from lightning_cse.config.compose import options, plain_line, without_hydra
from lightning_cse.config.nodes import node_faults, value_faults
from lightning_cse.config.schema import SCHEMAS, Trainer
from lightning_cse.errors import ConfigError, did_you_mean, user_error

CHOSEN = {"name": "experiment", "suite": "suite", "pattern": "pattern", "data": "data"}
"""Keys that are set by choosing an option of a group."""

_ORDER = "the order of the rows follows from the seed, and a resumed run continues in it"
_FILES = "a run's folder has its files: paths.runs_dir, keep_last=true"
REFUSED = {
    "barebones": "a run needs its curves and checkpoints; logger=csv leaves out the dashboard",
    "callbacks": "add each by a name: +callbacks.mine={_target_: my_module.MyCallback}",
    "check_val_every_n_epoch": "dev sets are evaluated by optimizer steps: eval_every",
    "ckpt_path": "the same command resumes a run; init_from=RUN starts from another run's weights",
    "default_root_dir": _FILES,
    "logger": "choose a dashboard: logger=wandb, logger=tensorboard or, for none, logger=csv",
    "reload_dataloaders_every_n_epochs": _ORDER,
    "use_distributed_sampler": _ORDER,
}
"""Arguments of Lightning's Trainer that cannot work, and what to use in their place."""

_PAIR = ("premise", "hypothesis", "label")
OWN = {"sts": ("sentence1", "sentence2", "score"), "nli": _PAIR, "direction": _PAIR}
"""The test sets of ``suite=own``, and the columns that each reads."""


def check(cfg: DictConfig, config_name: str) -> None:
    """Check a composed config; it is not changed.

    Raises ConfigError with a line for each fault.
    """
    cfg = without_hydra(cfg)
    if "local" in cfg:
        raise ConfigError(["conf/local: the first line of the file must be '# @package _global_'"])

    if faults := list(not_chosen(cfg)):
        raise ConfigError(faults)

    values = _plain(cfg)
    schema = SCHEMAS[config_name]
    of_others = {key for other in SCHEMAS.values() for key in other.model_fields}
    of_others -= schema.model_fields.keys()
    read = {key: value for key, value in values.items() if key not in of_others}
    faults = list(value_faults(read, "", schema)) or list(_relations(read))
    texts = {text for fault in faults for text in fault.split(": ", maxsplit=1)}
    of_nodes: dict[tuple[str, str], str] = {}  # several nodes may refer to one value
    for fault in node_faults(read, {f"trainer.{name}" for name in Trainer.model_fields}):
        key, _, text = fault.partition(": ")
        if not {key, text} & texts:
            of_nodes.setdefault((key.rpartition(".")[2], text), fault)

    if faults := [*faults, *of_nodes.values()]:
        raise ConfigError(faults)


def not_chosen(cfg: DictConfig) -> Iterator[str]:
    """Yield a fault for each group of which no option was chosen, with a list of the options."""
    for key, group in CHOSEN.items():
        if OmegaConf.is_missing(cfg, key):
            plus = "" if group == "data" else "+"
            names = ", ".join(options(group))
            yield f"{key}: no {group} was chosen - add {plus}{group}=<one of these>: {names}"


def _plain(cfg: DictConfig) -> dict[str, Any]:
    """Return the resolved values of a config."""
    try:
        values: Any = OmegaConf.to_container(cfg, resolve=True, throw_on_missing=True)
    except RecursionError as error:
        raise ConfigError(["config: a value refers to itself"]) from error
    except OmegaConfBaseException as error:
        fault = f"{error.full_key or 'config'}: {plain_line(error)}"
        raise user_error(error) or ConfigError([fault]) from error

    return dict(values)


# What types cannot say ------------------------------------------------------------------------


def _relations(values: dict[str, Any]) -> Iterator[str]:
    """Yield a fault for each value that another one excludes."""
    if values.get("own"):
        yield from _own(values["own"])

    if "trainer" in values:
        yield from _training(values)


def _own(own: dict[str, Any]) -> Iterator[str]:
    """Yield a fault if there is no test set, and for each column that no test set reads."""
    tests = [name for name in OWN if own[name]]
    if not tests:
        yield f"suite=own: has no test set; add own.{'=FILE, own.'.join(OWN)}=FILE"
        return

    columns = {column for test in tests for column in OWN[test]}
    for name in own["columns"] or ():
        if name not in columns:
            yield f"own.columns: no test set reads a {name!r}{did_you_mean(name, columns)}"


def _training(values: dict[str, Any]) -> Iterator[str]:
    """Yield a fault for each value with which there can be no training."""
    trainer = values["trainer"]
    for name in trainer.keys() & REFUSED.keys():
        yield f"trainer.{name}: cannot be set; {REFUSED[name]}"

    if trainer.get("limit_val_batches") == 0:
        yield "trainer.limit_val_batches: validation chooses the checkpoint that is tested"

    if trainer["max_epochs"] in (None, -1) and trainer["max_steps"] == -1:
        limits = "trainer.max_epochs or trainer.max_steps"
        yield f"trainer.max_epochs: training never ends unless {limits} is set"

    stopping = values["callbacks"].get("early_stopping") or {}
    if stopping.get("patience") is None and stopping.get("min_delta"):
        yield "callbacks.early_stopping.min_delta: set callbacks.early_stopping.patience, too"

    for name, node in values["callbacks"].items():
        if node is not None and "_target_" not in node and name != "early_stopping":
            yield f"callbacks.{name}: give its class: {{_target_: my_module.MyCallback}}"

    data = values["data"]
    if data.get("streaming"):
        if trainer["max_steps"] == -1:
            steps = "a stream has no epochs to count, so give the number of steps"
            yield f"trainer.max_steps: {steps} (data.streaming=true)"

        if trainer["limit_train_batches"] is not None:
            ending = "a stream has no epochs; trainer.max_steps ends the training"
            yield f"trainer.limit_train_batches: {ending}"

    count = _devices(trainer)
    size = data.get("batch_size")
    if isinstance(size, int) and 0 < size < count:
        small = f"{size} is the batch of all {count} devices, too small for one row each; raise it"
        yield f"data.batch_size: {small}"


def devices(cfg: DictConfig) -> int:
    """Return the number of devices that a training run asks for."""
    return _devices(cfg.trainer)


def _devices(trainer: Any) -> int:
    each = trainer["devices"]
    return int((each if isinstance(each, int) else len(each)) * trainer["num_nodes"])
