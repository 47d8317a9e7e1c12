"""The nodes of a config with a ``_target_``: each is checked against the class or function that it
names, before any of them is called.
"""

import inspect
import json
import math
import pkgutil
import re
from collections.abc import Collection, Iterator, Mapping
from types import UnionType
from typing import Annotated, Any, NotRequired, Union, get_args, get_origin, get_type_hints

from pydantic import ConfigDict, PydanticUserError, TypeAdapter, ValidationError
from pydantic_core import SchemaError

from lightning_cse.errors import did_you_mean, extra_with

BASES = {
    "method": "lightning_cse.methods.Method",
    "method.optimizer": "torch.optim.Optimizer",
    "encoder": "lightning_cse.encoders.SentenceEncoder",
    "encoder.adapter": "peft.PeftConfig",
    "data": "lightning_cse.data.ContrastiveData",
    "suite.*": "lightning_cse.evaluation.Task",
    "baselines.*": "torch.nn.Module",
    "callbacks.*": "pytorch_lightning.Callback",
    "logger.*": "pytorch_lightning.loggers.Logger",
    "trainer": "pytorch_lightning.Trainer",
}
"""What a node must build, by its key; below these, the annotation of the argument says it."""

ADDED: Mapping[str, Collection[str]] = {"method": {"encoder"}, "logger.*": {"save_dir"}}
"""Arguments that are added when a node is built, by the node's key."""

_OPTIONS = {"_partial_": bool, "_recursive_": bool, "_convert_": str}
"""The options of Hydra's ``instantiate`` that a node may have."""

_TERMS = {"Input should": "should", "a valid array": "a list", "an object": "a mapping"}
"""Terms of pydantic, which speaks of JSON, and ours."""

_NODE = "should be a class and its arguments, {_target_: ...}"
_CONFIG = ConfigDict(strict=True, allow_inf_nan=False, arbitrary_types_allowed=True)


def node_faults(values: Mapping[str, Any], checked: Collection[str] = ()) -> list[str]:
    """Return a line for each fault of a resolved config's nodes: unknown, missing and mistyped
    arguments, and classes of another kind than their place needs.

    The values of ``checked`` keys have been checked already.
    """
    faults = [fault for key, value in values.items() for fault in _faults(value, key, Any)]

    return [fault for fault in faults if fault.partition(": ")[0] not in checked]


def _faults(value: Any, key: str, annotation: Any) -> Iterator[str]:
    """Yield the faults of a value that an argument of this annotation takes."""
    if isinstance(value, dict) and "_target_" in value:
        yield from _node_faults(value, key, annotation)
    elif annotation is not Any and "_target_" not in json.dumps(value):
        yield from value_faults(value, key, annotation)
    elif isinstance(value, dict | list):
        for name, part in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _faults(part, f"{key}.{name}", Any)
    elif isinstance(value, float) and not math.isfinite(value):
        yield f"{key}: should be a finite number, got {value}"


def _node_faults(node: Mapping[str, Any], key: str, annotation: Any) -> Iterator[str]:
    name = node["_target_"]
    try:
        target = pkgutil.resolve_name(name)
        signature = inspect.signature(target)
    except (ImportError, AttributeError, ValueError, TypeError) as error:
        extra = extra_with(getattr(error, "name", None) or "")
        hint = f"; pip install 'lightning_cse[{extra}]'" if extra else ""
        yield f"{key}._target_: {name!r} cannot be used ({error}){hint}"
        return

    if wrong := _wrong_kind(target, key, annotation, is_partial=bool(node.get("_partial_"))):
        yield f"{key}._target_: {name} {wrong}"
        return

    if key == "callbacks.early_stopping" and node.get("patience") is None:
        return  # left out

    defaults = signature.parameters
    annotations, takes_any = _annotations(target, signature)
    arguments = {option: value for option, value in node.items() if not option.startswith("_")}
    for option, value in node.items():
        if option in _OPTIONS and not isinstance(value, _OPTIONS[option]):
            yield f"{key}.{option}: should be a {_OPTIONS[option].__name__}, got {value!r}"
        elif value is None and option in defaults and defaults[option].default is None:
            continue
        elif option in arguments and (option in annotations or takes_any):
            yield from _faults(value, f"{key}.{option}", annotations.get(option, Any))
        elif option not in {"_target_", *_OPTIONS}:
            near = did_you_mean(option, annotations)
            yield f"{key}: {target.__name__} got an unexpected argument '{option}'{near}"

    bind = signature.bind_partial if node.get("_partial_") else signature.bind
    parent = key.rpartition(".")[0]
    names = [*arguments, *ADDED.get(key, ()), *ADDED.get(f"{parent}.*", ())]
    try:
        bind(**dict.fromkeys(option for option in names if option in annotations))
    except TypeError as error:
        yield f"{key}: {target.__name__}: {error}"


def _wrong_kind(target: Any, key: str, annotation: Any, *, is_partial: bool) -> str:
    """Return why a node with this target must not be built; an empty string if it may be."""
    built = target if inspect.isclass(target) else _hints(target).get("return")
    if not inspect.isclass(built):
        return "is not a class, or a function that declares which class it returns"

    parent = key.rpartition(".")[0]
    name = BASES.get(key) or BASES.get(f"{parent}.*")
    bases = [pkgutil.resolve_name(name)] if name else [] if is_partial else _classes(annotation)
    if not bases and annotation is not Any and not is_partial:
        return "is not needed: the argument takes a plain value"

    if bases and not issubclass(built, tuple(bases)):
        return f"is not a {' or '.join(base.__name__ for base in bases)}"

    if parent == "baselines" and not hasattr(built, "embed"):
        return "has no method embed"

    return ""


def _classes(annotation: Any) -> list[type]:
    """Return the classes of which an annotation accepts instances; instead of a module, any other
    module may be built.
    """
    if isinstance(annotation, UnionType) or get_origin(annotation) in (Union, Annotated):
        return [base for part in get_args(annotation) for base in _classes(part)]

    base = get_origin(annotation) or annotation
    if not inspect.isclass(base) or base is type(None):
        return []

    if base is Any or getattr(base, "_is_protocol", False):
        return [object]

    modules = [part for part in base.__mro__ if part.__module__ == "torch.nn.modules.module"]

    return [*modules, base][:1]


def _hints(target: Any) -> dict[str, Any]:
    """Return the annotations of a class's or function's arguments."""
    try:
        function = target.__init__ if inspect.isclass(target) else target
        return get_type_hints(function, include_extras=True)
    except (NameError, TypeError):  # a name imported for type checkers only
        return {}


def _annotations(target: Any, signature: inspect.Signature) -> tuple[dict[str, Any], bool]:
    """Return the annotations of a callable's arguments, with the options of an unpacked TypedDict
    one by one, and whether it takes any others.
    """
    hints = _hints(target)
    annotations: dict[str, Any] = {}
    takes_any = False
    for name, parameter in signature.parameters.items():
        annotation = hints.get(name, Any)
        if parameter.kind is parameter.VAR_KEYWORD:
            options = get_args(annotation)
            takes_any = not options
            for option in options:
                for key, hint in get_type_hints(option, include_extras=True).items():
                    annotations[key] = (
                        get_args(hint)[0] if get_origin(hint) is NotRequired else hint
                    )
        elif parameter.kind is not parameter.VAR_POSITIONAL:
            annotations[name] = annotation

    return annotations, takes_any


# Values --------------------------------------------------------------------------------------


def value_faults(value: Any, key: str, annotation: Any) -> Iterator[str]:
    """Yield a line for each part of a value that does not fit an annotation: its dotted key, what
    it should be, and the nearest name; nothing where pydantic cannot decide.
    """
    try:
        try:
            adapter = TypeAdapter(annotation, config=_CONFIG)
        except PydanticUserError:  # a dataclass or model has its own
            adapter = TypeAdapter(annotation)

        adapter.validate_json(json.dumps(value))
    except ValidationError as error:
        yield from _lines(error, value, key)
    except SchemaError:  # of a protocol
        yield f"{key}: {_NODE}, got {value!r}"
    except PydanticUserError:
        return


def _lines(error: ValidationError, value: Any, key: str) -> Iterator[str]:
    """Yield a line for each wrong key of a value, with what all its alternatives say of it."""
    messages: dict[str, dict[str, str]] = {}
    for detail in error.errors(include_url=False):
        names, owner, inner = [key] if key else [], value, value
        for name in detail["loc"]:  # pydantic adds the names of alternatives
            if _has(inner, name):
                names.append(str(name))
                owner, inner = inner, inner[name]

        text, end = detail["msg"], f", got {inner!r}"
        if detail["type"] == "missing":
            names.append(str(detail["loc"][-1]))
            text, end = "is missing, and cannot be left out", ""
        elif detail["type"] == "extra_forbidden":
            text, end = "unknown key", did_you_mean(names[-1], set(owner) - {names[-1]})
        elif detail["type"] == "needs_python_object":
            text = _NODE
        elif detail["type"] == "literal_error":
            end += did_you_mean(str(inner), re.findall(r"'([^']+)'", text))

        for term, plain in _TERMS.items():
            text = text.replace(term, plain)

        messages.setdefault(".".join(names), {})[text] = end

    for dotted, ends in messages.items():
        texts = [text for text in ends if text != _NODE] or list(ends)
        yield f"{dotted}: {' or '.join(texts)}{ends[texts[-1]]}"


def _has(value: Any, name: str | int) -> bool:
    """Whether a value is a mapping or list with a key or index."""
    if isinstance(value, list):
        return isinstance(name, int)

    return isinstance(value, dict) and name in value
