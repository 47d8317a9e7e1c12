"""Build the objects of a run from a config; each node is checked against its class first."""

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
from omegaconf import DictConfig, ListConfig, OmegaConf
from pytorch_lightning.utilities.exceptions import MisconfigurationException  # type: ignore[attr-defined]  # not theirs

from lightning_cse.callbacks import Diagnostics, build_diagnostics
from lightning_cse.config.schema import PRECISIONS
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
    """The objects of a run; ``left_out`` has the reason for each task that is not evaluated."""

    encoder: SentenceEncoder
    data: ContrastiveDataModule
    tasks: dict[str, Task]
    diagnostics: Diagnostics
    method: Method
    left_out: dict[str, str]

    @property
    def digests(self) -> dict[str, str]:
        """The sha256 of every file that affects the result, by its name in the official layout."""
        digests = dict(self.data.digests)
        for task in self.tasks.values():
            digests |= task.digests

        for side in self.diagnostics.sides.values():
            digests |= side.digests

        return digests


def build(cfg: DictConfig) -> Parts:
    """Build encoder, data, tasks, diagnostics and method of a config."""
    with torch.random.fork_rng():  # loading must not change the method's own initial weights
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
    left_out |= _unsuitable(tasks, method)
    _check_monitor(cfg.monitor, tasks, left_out)
    diagnostics = build_diagnostics(
        method,
        data,
        cfg.diag,
        cfg.paths.data_dir,
    )

    return Parts(
        encoder,
        data,
        tasks,
        diagnostics,
        method,
        left_out,
    )


def _unsuitable(tasks: Mapping[str, Task], method: Method) -> dict[str, str]:
    """Return the reason for each task whose questions the method's model does not answer."""
    reasons = {}
    for name, task in sorted(tasks.items()):
        if not task.suits(method.model):
            needs = " and ".join(task.needs)
            reasons[name] = f"it needs {needs}, which {type(method).__name__} does not give"
            log.info(
                "the task %s is left out: %s",
                name,
                reasons[name],
            )

    return reasons


def _check_monitor(
    monitor: str,
    tasks: Mapping[str, Task],
    left_out: Mapping[str, str],
) -> None:
    """Raise ConfigError if the key that chooses the best checkpoint is none of a dev score."""
    scores: list[str] = []
    reasons = dict(left_out)
    for name, task in tasks.items():
        if "dev" not in task.splits:
            reasons.setdefault(name, f"it has no dev side; {task.without_dev}")
        elif name not in left_out:
            scores += [f"val/{name}/{metric}" for metric in task.metrics]

    if monitor in scores:
        return

    task_name = "/".join(str(monitor).split("/")[1:2])
    why = did_you_mean(monitor, scores)
    if task_name in reasons:
        why = f" of {task_name}: {reasons[task_name]}"

    choices = ", ".join(scores) or "none"
    raise ConfigError([f"monitor: {monitor!r} is not a dev score{why} (choose from: {choices})"])


def resolve_automatic(cfg: DictConfig, *, under: str = "trainer") -> dict[str, Any]:
    """Replace ``auto`` by the values for this machine; return those that affect a result.

    ``under`` is the node that has ``accelerator`` and ``precision``; an empty string means the top
    level.
    """
    node = cfg[under] if under else cfg
    prefix = f"{under}." if under else ""
    if node.accelerator == "auto":
        node.accelerator = "gpu" if torch.cuda.is_available() else "cpu"

    if not has(node.accelerator):
        fault = f"accelerator: torch finds no {node.accelerator} on this machine; use auto"
        raise ConfigError([prefix + fault])

    on_gpu = node.accelerator in ("gpu", "cuda")
    if node.precision == "auto":
        node.precision = "bf16-mixed" if _has_fast_bfloat16(on_gpu) else "32-true"

    node.precision = PRECISIONS.get(str(node.precision), node.precision)
    if node.precision == "16-mixed" and not on_gpu:
        raise ConfigError([f"{prefix}precision: 16-mixed needs a GPU; use 32-true or bf16-mixed"])

    if isinstance(node.get("devices"), ListConfig) and not on_gpu:
        fault = f"a list names GPUs, but the accelerator is {node.accelerator}; give a number"
        raise ConfigError([f"{prefix}devices: {fault}"])

    return {f"{prefix}{key}": node[key] for key in ("accelerator", "precision")}


def _has_fast_bfloat16(on_gpu: bool) -> bool:
    """Whether the hardware multiplies bfloat16 fast."""
    if on_gpu:
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    # The check of the CPU is private to torch; where it is missing, float32 is always right.
    check = getattr(
        torch.cpu,
        "_is_avx512_bf16_supported",
        None,
    )
    return check is not None and bool(check())


def automatic_reading(cfg: DictConfig, encoder: SentenceEncoder) -> dict[str, Any]:
    """Return the values that the encoder's ``auto`` options resolved to, by dotted key."""
    values = {"encoder.pooling": encoder.pooling, "encoder.max_length": encoder.max_length}
    return {key: value for key, value in values.items() if OmegaConf.select(cfg, key) == "auto"}


def build_tasks(suite: DictConfig) -> tuple[dict[str, Task], dict[str, str]]:
    """Return the tasks of a suite by name, and the reason for each that cannot be run."""
    tasks: dict[str, Task] = {}
    left_out: dict[str, str] = {}
    for key, node in suite.items():
        task: Task = built(node)
        corpus, line, rest = str(key).partition("_")
        name = corpus + task.suffix + line + rest
        reason = task.lacking()

        if reason is None:
            tasks[name] = task
        else:
            left_out[name] = reason
            log.warning(
                "the task %s is left out: %s",
                name,
                reason,
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

        match = re.search(
            r"^full_key: (.+)$",
            str(error),
            re.MULTILINE,
        )
        key = match[1] if match else node._get_full_key(None)
        raise ConfigError([f"{key}: {cause}"]) from error


def plain(cfg: DictConfig) -> dict[str, Any]:
    """Return a config as plain values, resolved."""
    plain: dict[str, Any] = OmegaConf.to_container(cfg, resolve=True)  # type: ignore[assignment]  # a DictConfig's is
    return plain


# Nodes against signatures -------------------------------------------------------------------------


def check_nodes(cfg: DictConfig) -> None:
    """Check the arguments of every node with a ``_target_`` against its signature.

    Types are checked where the annotation is made of builtins, ``Literal``, unions and sequences of
    them. Raises ConfigError with all faults.
    """
    values: Any = OmegaConf.to_container(
        cfg,
        resolve=True,
        throw_on_missing=True,
    )
    faults: dict[str, str] = {}
    for group in ("suite", "baselines"):
        for name, node in (values.get(group) or {}).items():
            if not isinstance(node, list) and "_target_" not in (node or {}):
                key = f"{group}.{name}"
                faults[key] = f"{key}: has no _target_; leave it out with ~{key}"

    for key, node in _nodes(values, ""):
        for fault in _faults(node, key, GIVEN.get(key, ())):
            faults.setdefault(fault.partition(": ")[2], fault)  # a node may be referred to

    if faults:
        raise ConfigError(faults.values())


def _nodes(value: Any, key: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every node with a ``_target_``, with its dotted key."""
    if isinstance(value, dict) and "_target_" in value:
        yield key, value

    items = value.items() if isinstance(value, dict) else enumerate(value)
    for name, part in items:
        if isinstance(part, (dict, list)) and name != "hydra":
            yield from _nodes(part, f"{key}.{name}" if key else str(name))


def _faults(
    node: Mapping[str, Any],
    key: str,
    given: Collection[str],
) -> Iterator[str]:
    """Yield one line per unknown, mistyped or missing argument; ``given`` are added later."""
    try:
        target = pkgutil.resolve_name(node["_target_"])
        signature = _signature(target)
    except (ImportError, AttributeError, ValueError) as error:
        yield f"{key}._target_: {node['_target_']!r} cannot be used ({error})"
        return

    name = target.__name__
    parameters = signature.parameters
    arguments = {option: value for option, value in node.items() if not option.startswith("_")}
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())

    for option, value in arguments.items():
        if option in parameters:
            yield from _type_fault(
                value,
                f"{key}.{option}: {name}",
                parameters[option].annotation,
            )
        elif not takes_any:
            near = did_you_mean(option, parameters)
            yield f"{key}: {name} got an unexpected argument '{option}'{near}"

    known = dict.fromkeys(option for option in (*arguments, *given) if option in parameters)
    bind = signature.bind_partial if node.get("_partial_") else signature.bind
    try:
        bind(**known)
    except TypeError as error:
        yield f"{key}: {name}: {error}"


def _type_fault(
    value: Any,
    place: str,
    annotation: Any,
) -> Iterator[str]:
    """Yield a fault if a value does not fit an annotation."""
    if not _is(value, annotation):
        kind = inspect.formatannotation(annotation).replace("typing.", "")
        near = did_you_mean(str(value), re.findall(r"'([^']+)'", kind))
        yield f"{place} takes {kind}, got {value!r}{near}"


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
                    option,
                    inspect.Parameter.KEYWORD_ONLY,
                    default=None,
                    annotation=kind,
                )

    return signature.replace(parameters=list(parameters.values()))


def _is(value: Any, kind: Any) -> bool:
    """Whether a value fits an annotation; true where this cannot be decided."""
    origin = get_origin(kind)
    inner = get_args(kind)
    if isinstance(value, dict) and "_target_" in value:
        return True

    if origin in (Union, types.UnionType):
        return any(_is(value, option) for option in inner)

    if origin is Literal:
        return value in inner

    if origin in (list, tuple, Sequence):
        return isinstance(value, list) and all(_is(item, inner[0]) for item in value)

    if kind in (int, float) and isinstance(value, bool):
        return False

    if kind is float:
        return isinstance(value, int | float)

    if kind in (bool, int, str):
        return isinstance(value, kind)

    return value is None or kind is not types.NoneType
