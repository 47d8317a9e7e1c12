"""Build the objects of a run from a config; each node is checked against its class before anything is loaded."""

import inspect
import logging
import pkgutil
import re
import types
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Union, Unpack, get_args, get_origin, get_type_hints

import torch
from hydra.errors import InstantiationException
from hydra.utils import instantiate
from omegaconf import DictConfig, ListConfig, OmegaConf, open_dict
from pytorch_lightning.utilities.exceptions import MisconfigurationException  # type: ignore[attr-defined]  # not theirs

from lightning_cse.callbacks import Diagnostics, build_diagnostics
from lightning_cse.config.check import PRECISIONS, is_unasked
from lightning_cse.data import ContrastiveDataModule
from lightning_cse.encoders import SentenceEncoder
from lightning_cse.errors import ConfigError, LightningCSEError, did_you_mean
from lightning_cse.evaluation import Task, check_parts
from lightning_cse.methods import Method
from lightning_cse.runs.machine import has

log = logging.getLogger(__name__)

GIVEN: Mapping[str, Collection[str]] = {
    "method": {"encoder"},
    "logger": {"run", "group", "settings", "resumed_at", "tags"},
}
"""Arguments that are not in the config but added when a node is built, by the node's key."""


@dataclass(frozen=True)
class Parts:
    """The objects of a run; ``left_out`` maps the name of each task that is not evaluated to the reason."""

    encoder: SentenceEncoder
    data: ContrastiveDataModule
    tasks: dict[str, Task]
    diagnostics: Diagnostics
    method: Method
    left_out: dict[str, str]

    @property
    def digests(self) -> dict[str, str]:
        """The sha256 of every file that affects the result, by its name in the official layout."""
        readers: tuple[Any, ...] = (
            self.data,
            *self.tasks.values(),
            *self.diagnostics.sides.values(),
        )
        return {name: digest for reader in readers for name, digest in reader.digests.items()}


def build(cfg: DictConfig) -> Parts:
    """Build encoder, data, tasks, diagnostics and method of a config."""
    with (
        torch.random.fork_rng()
    ):  # loading must not change the initial weights of the method's own layers
        encoder: SentenceEncoder = built(cfg.encoder)
    method: Method = built(cfg.method, encoder=encoder)
    data = ContrastiveDataModule(
        built(cfg.data),
        tokenize=encoder.tokenizer,
        seed=cfg.seed,
        roles=method.roles,
        optional=method.optional,
    )
    tasks, left_out = build_tasks(cfg.suite)
    for name, task in sorted(tasks.items()):
        if not task.suits(method.model):
            left_out[name] = (
                f"it needs {' and '.join(task.needs)}, which {type(method).__name__} does not give"
            )
            log.info("the task %s is left out: %s", name, left_out[name])
    watched = {
        name: task for name, task in tasks.items() if name not in left_out and "dev" in task.splits
    }
    scores = [f"val/{name}/{metric}" for name, task in watched.items() for metric in task.metrics]
    if cfg.monitor not in scores:
        reasons = {
            name: f"it has no dev side; {task.without_dev}"
            for name, task in tasks.items()
            if "dev" not in task.splits
        }
        near, name = did_you_mean(cfg.monitor, scores), "/".join(str(cfg.monitor).split("/")[1:2])
        why = f" of {name}: {reason}" if (reason := (reasons | left_out).get(name)) else near
        raise ConfigError(
            [
                f"monitor: {cfg.monitor!r} is not a dev score{why} (choose from: {', '.join(scores) or 'none'})"
            ]
        )
    diagnostics = build_diagnostics(method, data, cfg.diag, cfg.paths.data_dir)
    return Parts(encoder, data, tasks, diagnostics, method, left_out)


def resolve_automatic(cfg: DictConfig, *, under: str = "trainer") -> dict[str, Any]:
    """Replace ``auto`` in the config by the values for this machine, and return those that affect a result.

    ``under`` is the node that has ``accelerator`` and ``precision``; an empty string means the top level.
    """
    node, prefix = (cfg[under], f"{under}.") if under else (cfg, "")
    if node.accelerator == "auto":
        node.accelerator = "gpu" if torch.cuda.is_available() else "cpu"
    if not has(node.accelerator):
        raise ConfigError(
            [f"{prefix}accelerator: torch finds no {node.accelerator} on this machine; use auto"]
        )
    on_gpu = node.accelerator in ("gpu", "cuda")
    if node.precision == "auto":
        # The check of the CPU is private to torch; where it is missing, float32 is always right.
        on_cpu = getattr(torch.cpu, "_is_avx512_bf16_supported", lambda: False)
        fast = torch.cuda.is_bf16_supported(including_emulation=False) if on_gpu else on_cpu()
        node.precision = "bf16-mixed" if fast else "32-true"
    node.precision = PRECISIONS.get(str(node.precision), node.precision)
    if node.precision == "16-mixed" and not on_gpu:
        raise ConfigError([f"{prefix}precision: 16-mixed needs a GPU; use 32-true or bf16-mixed"])
    if isinstance(node.get("devices"), ListConfig) and not on_gpu:
        raise ConfigError(
            [
                f"{prefix}devices: a list names GPUs, but the accelerator is {node.accelerator}; give a number"
            ]
        )
    return {f"{prefix}{key}": node[key] for key in ("accelerator", "precision")}


def automatic_reading(cfg: DictConfig, encoder: SentenceEncoder) -> dict[str, Any]:
    """Return the values that the encoder's ``auto`` options resolved to, by dotted key; they affect the result."""
    became = {"encoder.pooling": encoder.pooling, "encoder.max_length": encoder.max_length}
    return {key: value for key, value in became.items() if OmegaConf.select(cfg, key) == "auto"}


def build_tasks(suite: DictConfig) -> tuple[dict[str, Task], dict[str, str]]:
    """Return the tasks of a suite, by their names in metrics, and the reason for each task that cannot be run."""
    tasks: dict[str, Task] = {}
    left_out: dict[str, str] = {}
    for key, node in suite.items():
        task: Task = built(node)
        corpus, line, rest = str(key).partition("_")
        name = corpus + task.suffix + line + rest
        if (reason := task.lacking()) is None:
            tasks[name] = task
        else:
            left_out[name] = reason
            log.warning("the task %s is left out: %s", name, reason)
    check_parts(tasks)
    return tasks, left_out


def built(node: DictConfig, **given: Any) -> Any:
    """Build a node of the config; arguments that its class refuses become a ConfigError with the node's key."""
    try:
        return instantiate(node, **given)
    except InstantiationException as error:
        cause = error.__cause__ or error.__context__
        if isinstance(cause, LightningCSEError | OSError):
            raise cause from None  # its message already says what to do
        if not isinstance(cause, ValueError | MisconfigurationException):
            raise  # a bug
        key = re.search(r"^full_key: (.+)$", str(error), re.MULTILINE)
        raise ConfigError([f"{key[1] if key else node._get_full_key(None)}: {cause}"]) from error


def plain(cfg: DictConfig) -> dict[str, Any]:
    """Return a config as plain values, resolved."""
    plain: dict[str, Any] = OmegaConf.to_container(cfg, resolve=True)  # type: ignore[assignment]  # a DictConfig's is
    return plain


# Nodes against signatures --------------------------------------------------------------------------------------------


def check_nodes(cfg: DictConfig) -> None:
    """Check the arguments of every node with a ``_target_`` against its signature, without building anything.

    Types are checked where the annotation is made of builtins, ``Literal``, unions and sequences of them. Tests of
    ``suite=own`` that were given no files are removed from the config first.
    """
    with open_dict(cfg):
        for name in [name for name, task in (cfg.get("suite") or {}).items() if is_unasked(task)]:
            del cfg.suite[name]
    values = OmegaConf.to_container(cfg, resolve=True, throw_on_missing=True)
    faults: dict[str, str] = {}
    for group in ("suite", "baselines"):
        for name, node in (values.get(group) or {}).items():  # type: ignore[union-attr]
            if not isinstance(node, list) and "_target_" not in (node or {}):
                faults[name] = f"{group}.{name}: has no _target_; leave it out with ~{group}.{name}"
    for key, node in _nodes(values, ""):
        for fault in _faults(node, key, GIVEN.get(key, ())):
            faults.setdefault(fault.partition(": ")[2], fault)
    if faults:
        raise ConfigError(faults.values())


def _nodes(value: Any, key: str) -> Iterator[tuple[str, dict[str, Any]]]:
    if isinstance(value, dict) and "_target_" in value:
        yield key, value
    for name, part in value.items() if isinstance(value, dict) else enumerate(value):
        if isinstance(part, (dict, list)) and name != "hydra":
            yield from _nodes(part, f"{key}.{name}" if key else str(name))


def _faults(node: Mapping[str, Any], key: str, given: Collection[str]) -> Iterator[str]:
    """Yield one line per unknown, mistyped or missing argument of a node; ``given`` are added when it is built."""
    try:
        target = pkgutil.resolve_name(node["_target_"])
        signature = _signature(target)
    except (ImportError, AttributeError, ValueError) as error:
        yield f"{key}._target_: {node['_target_']!r} cannot be used ({error})"
        return
    name, parameters = target.__name__, signature.parameters
    options = {option: value for option, value in node.items() if not option.startswith("_")}
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    for option, value in options.items():
        if option not in parameters and not takes_any:
            yield f"{key}: {name} got an unexpected argument '{option}'{did_you_mean(option, parameters)}"
        elif option in parameters and not _is(value, parameters[option].annotation):
            kind = inspect.formatannotation(parameters[option].annotation).replace("typing.", "")
            near = did_you_mean(str(value), re.findall(r"'([^']+)'", kind))
            yield f"{key}.{option}: {name} takes {kind}, got {value!r}{near}"
    known = {option for option in (*options, *given) if option in parameters}
    try:
        (signature.bind_partial if node.get("_partial_") else signature.bind)(
            **dict.fromkeys(known)
        )
    except TypeError as error:
        yield f"{key}: {name}: {error}"


def _signature(target: Any) -> inspect.Signature:
    """Return the signature of a callable, with the options of an unpacked TypedDict one by one."""
    try:
        signature = inspect.signature(target, eval_str=True)
    except NameError:  # a name imported for type checkers only
        signature = inspect.signature(target)
    parameters = dict(signature.parameters)
    for name, parameter in signature.parameters.items():
        if get_origin(parameter.annotation) is Unpack:
            del parameters[name]
            (options,) = get_args(parameter.annotation)
            for option, kind in get_type_hints(options).items():
                parameters[option] = inspect.Parameter(
                    option, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind
                )
    return signature.replace(parameters=list(parameters.values()))


def _is(value: Any, kind: Any) -> bool:
    """Whether a value fits an annotation; true where this cannot be decided, as for a node that is not built yet."""
    origin, inner = get_origin(kind), get_args(kind)
    if isinstance(value, dict) and "_target_" in value:
        return True
    if origin in (Union, types.UnionType):
        return any(_is(value, option) for option in inner)
    if origin is Literal:
        return value in inner
    if kind in (bool, int, float, str):
        return isinstance(value, (int, float) if kind is float else kind) and isinstance(
            value, bool
        ) == (kind is bool)
    if origin in (list, tuple, Sequence):
        return isinstance(value, list) and all(_is(item, inner[0]) for item in value)
    return value is None if kind is types.NoneType else True
