"""Build the objects of a run from a config; each node is checked against its class first."""

import inspect
import json
import logging
import pkgutil
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, get_args, get_type_hints

import torch
from hydra.errors import InstantiationException
from hydra.utils import instantiate
from omegaconf import DictConfig, ListConfig, OmegaConf
from pydantic import PydanticUserError, TypeAdapter, ValidationError
from pytorch_lightning.utilities.exceptions import MisconfigurationException  # type: ignore[attr-defined]  # not theirs

from lightning_cse.callbacks import Diagnostics, build_diagnostics
from lightning_cse.data import ContrastiveDataModule
from lightning_cse.encoders import SentenceEncoder
from lightning_cse.errors import ConfigError, LightningCSEError, did_you_mean, extra_with
from lightning_cse.evaluation import Task, check_parts
from lightning_cse.methods import Method
from lightning_cse.runs.hashing import PRECISIONS
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
        encoder: SentenceEncoder = built(cfg.encoder, _convert_="all")

    method: Method = built(cfg.method, encoder=encoder)
    settings = built(cfg.data)
    kind = ContrastiveDataModule
    if settings.streaming:
        from lightning_cse.data.stream import StreamDataModule

        kind = StreamDataModule

    data = kind(
        settings,
        tokenize=encoder.tokenizer,
        seed=cfg.seed,
        roles=method.roles,
        optional=method.optional,
        instructed=encoder.instructed,
    )

    if settings.streaming and method.needs_all_rows:
        fault = "reads all training rows before its first step: set it to false"
        raise ConfigError([f"data.streaming: {type(method).__name__} {fault}"])

    tasks, left_out = build_tasks(cfg.suite)
    left_out |= unsuited(tasks, method.model, type(method).__name__)
    _check_monitor(cfg.monitor, tasks, left_out)
    diagnostics = build_diagnostics(method, data, cfg.diag, cfg.paths.data_dir)

    return Parts(encoder, data, tasks, diagnostics, method, left_out)


def unsuited(tasks: Mapping[str, Task], answers: object, name: str) -> dict[str, str]:
    """Return the reason for each task that does not suit a model, and log it."""
    reasons = {}
    for key, task in sorted(tasks.items()):
        if not task.suits(answers):
            needs = " and ".join(task.needs)
            reasons[key] = f"it needs {needs}, which {name} does not give"
            log.info("the task %s is left out: %s", key, reasons[key])

    return reasons


def _check_monitor(monitor: str, tasks: Mapping[str, Task], left_out: Mapping[str, str]) -> None:
    """Raise ConfigError if the key that chooses the best checkpoint is none of a dev score."""
    scores: list[str] = []
    reasons = dict(left_out)
    for name, task in tasks.items():
        if "dev" not in task.splits:
            reasons.setdefault(name, f"it has no dev side; {task.without_dev}")
        elif name not in left_out:
            scores += [f"val/{name}/{metric}" for metric in task.metrics]

    if monitor not in scores:
        reason = reasons.get(monitor.partition("/")[2].partition("/")[0])
        why = f": {reason}" if reason else did_you_mean(monitor, scores)
        choices = ", ".join(scores) or "none"
        fault = f"monitor: {monitor!r} is not a dev score{why} (choose from: {choices})"
        raise ConfigError([fault])


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
    check = getattr(torch.cpu, "_is_avx512_bf16_supported", None)

    return check is not None and bool(check())


def automatic_reading(cfg: DictConfig, encoder: SentenceEncoder) -> dict[str, Any]:
    """Return the values that the encoder's ``auto`` options resolved to, by dotted key."""
    values = {"encoder.pooling": encoder.pooling, "encoder.max_length": encoder.max_length}
    chosen: dict[str, Any] = {
        key: value for key, value in values.items() if OmegaConf.select(cfg, key) == "auto"
    }
    # With its pooling, an encoder also has its folder's instructions.
    if "encoder.pooling" in chosen and encoder.instructions:
        chosen["encoder.instructions"] = encoder.instructions

    return chosen


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
            log.warning("the task %s is left out: %s", name, reason)

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


# Nodes against signatures -------------------------------------------------------------------------


def check_nodes(cfg: DictConfig) -> None:
    """Check the arguments of every node with a ``_target_`` against its signature.

    Types are checked where the annotation is made of builtins, ``Literal``, unions and sequences of
    them. Raises ConfigError with all faults.
    """
    values: Any = OmegaConf.to_container(cfg, resolve=True, throw_on_missing=True)
    faults: dict[str, str] = {}
    for group in ("suite", "baselines"):
        for name, part in (values.get(group) or {}).items():
            if not isinstance(part, dict) or "_target_" not in part:
                fault = f"{group}.{name}: has no _target_; leave it out"
                faults[fault] = fault

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


def _faults(node: Mapping[str, Any], key: str, given: Collection[str]) -> Iterator[str]:
    """Yield one line per unknown, mistyped or missing argument; ``given`` are added later."""
    try:
        target = pkgutil.resolve_name(node["_target_"])
        signature = inspect.signature(target)
    except (ImportError, AttributeError, ValueError) as error:
        extra = extra_with(getattr(error, "name", None) or "")
        hint = f"; pip install 'lightning_cse[{extra}]'" if extra else ""
        yield f"{key}._target_: {node['_target_']!r} cannot be used ({error}){hint}"
        return

    name = target.__name__
    kinds, takes_any = _kinds(target, signature)
    known = kinds.keys()
    arguments = {option: value for option, value in node.items() if not option.startswith("_")}
    for option, value in arguments.items():
        if option not in known and not takes_any:
            near = did_you_mean(option, known)
            yield f"{key}: {name} got an unexpected argument '{option}'{near}"
        elif not _fits(value, kinds.get(option, Any)):
            kind = inspect.formatannotation(kinds[option]).replace("typing.", "")
            near = did_you_mean(str(value), re.findall(r"'([^']+)'", kind))
            yield f"{key}.{option}: {name} takes {kind}, got {value!r}{near}"

    bind = signature.bind_partial if node.get("_partial_") else signature.bind
    try:
        bind(**dict.fromkeys(option for option in (*arguments, *given) if option in known))
    except TypeError as error:
        yield f"{key}: {name}: {error}"


def _kinds(target: Any, signature: inspect.Signature) -> tuple[dict[str, Any], bool]:
    """Return the annotations of a callable's arguments, with the options of an unpacked TypedDict
    one by one, and whether it takes any others.
    """
    try:
        hints = get_type_hints(target if inspect.isfunction(target) else target.__init__)
    except NameError:  # a name imported for type checkers only
        hints = {}

    kinds: dict[str, Any] = {}
    takes_any = False
    for name, parameter in signature.parameters.items():
        kinds[name] = hints.get(name, Any)
        if parameter.kind is parameter.VAR_KEYWORD:
            options = get_args(kinds.pop(name))
            takes_any = not options
            for option in options:
                kinds |= get_type_hints(option)

    return kinds, takes_any


def _fits(value: Any, kind: Any) -> bool:
    """Whether a value of a config fits an annotation; true where pydantic cannot decide."""
    if isinstance(value, dict) and "_target_" in value:
        return True

    try:
        TypeAdapter(kind).validate_json(json.dumps(value), strict=True)
    except ValidationError:
        return False
    except PydanticUserError:  # of a class that pydantic does not know
        return True

    return True
