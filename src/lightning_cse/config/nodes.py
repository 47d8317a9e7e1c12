"""The faults of a resolved config: every value is checked against the annotation of what takes it,
a key of the schema or an argument of the class that a ``_target_`` names, before any is called.
"""

import contextlib
import inspect
import json
import pkgutil
from collections.abc import Iterator, Mapping
from types import UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    NotRequired,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from pydantic import ConfigDict, PydanticUserError, TypeAdapter, ValidationError
from pydantic_core import SchemaError

from lightning_cse.config.schema import Builds
from lightning_cse.errors import did_you_mean, install_hint

Fault = tuple[str, str]
"""A dotted key, and what is wrong with its value."""

_OPTIONS = {
    "_target_": str,
    "_partial_": NotRequired[bool],
    "_recursive_": NotRequired[bool],
    "_convert_": NotRequired[Literal["none", "partial", "object", "all"]],
}
"""The options of Hydra's ``instantiate`` that a node may have."""

_TERMS = {"Input should": "should", "a valid array": "a list", "an object": "a mapping"}
"""Terms of pydantic, which speaks of JSON, and ours."""

_NODE = "should be a class and its arguments, {_target_: ...}"
_CONFIG = ConfigDict(strict=True, allow_inf_nan=False, arbitrary_types_allowed=True)


def faults(value: Any, key: str, annotation: Any) -> Iterator[Fault]:
    """Yield the faults of a value that should fit an annotation, with those of its parts."""
    if is_typeddict(annotation):
        if isinstance(value, dict):
            yield from _key_faults(value, key, get_type_hints(annotation, include_extras=True))
        else:
            yield key, f"should be a mapping, got {value!r}"
    elif isinstance(value, dict) and "_target_" in value:
        yield from _node_faults(value, key, annotation)
    elif isinstance(value, dict | list) and "_target_" in json.dumps(value):
        parts = _alternatives(annotation)
        generics = [part for part in parts if get_origin(part) not in (None, Annotated, Literal)]
        if not generics and annotation is not Any:
            yield from _value_faults(value, key, annotation)

        inner = get_args(generics[0])[-1] if generics else Any
        for name, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from faults(item, f"{key}.{name}", inner)
    else:
        yield from _value_faults(value, key, annotation)


def _alternatives(annotation: Any) -> list[Any]:
    """Return the parts of a union."""
    is_union = get_origin(annotation) in (Union, UnionType)
    return list(get_args(annotation)) if is_union else [annotation]


# Mappings ------------------------------------------------------------------------------------


def _key_faults(
    values: Mapping[str, Any], key: str, annotations: Mapping[str, Any], *, is_open: bool = False
) -> Iterator[Fault]:
    """Yield the faults of a mapping: unknown and missing keys, and those of its values."""
    prefix = f"{key}." if key else ""
    for name, annotation in annotations.items():
        is_optional = get_origin(annotation) is NotRequired
        if name in values:
            inner = get_args(annotation)[0] if is_optional else annotation
            yield from faults(values[name], f"{prefix}{name}", inner)
        elif not is_optional:
            yield f"{prefix}{name}", "is missing, and cannot be left out"

    for name, value in values.items():
        if name not in annotations and is_open:
            yield from faults(value, f"{prefix}{name}", Any)
        elif name not in annotations:
            yield f"{prefix}{name}", f"unknown key{did_you_mean(name, annotations)}"


def _node_faults(node: Mapping[str, Any], key: str, annotation: Any) -> Iterator[Fault]:
    """Yield the faults of a node: a class of another kind than its place needs, and arguments that
    do not fit.
    """
    marks = [getattr(part, "__metadata__", ()) for part in _alternatives(annotation)]
    builds = next((mark for mark in sum(marks, ()) if isinstance(mark, Builds)), Builds())
    name = node["_target_"]
    is_partial = bool(node.get("_partial_"))
    try:
        target = pkgutil.resolve_name(name)
        annotations, is_open = _arguments(target, is_partial=is_partial)
    except (ImportError, AttributeError, ValueError, TypeError) as error:
        hint = install_hint(getattr(error, "name", None))
        yield f"{key}._target_", f"{name!r} cannot be used ({error}){hint}"
        return

    if builds.base:
        annotation = pkgutil.resolve_name(builds.base)

    if text := _wrong_class(target, Any if is_partial and not builds.base else annotation):
        yield f"{key}._target_", f"{text}, got {name}"
        return

    if builds.options:
        narrower = get_type_hints(builds.options, include_extras=True)
        annotations |= {option: narrower[option] for option in annotations.keys() & narrower}

    yield from _key_faults(node, key, annotations, is_open=is_open)


def _arguments(target: Any, *, is_partial: bool) -> tuple[dict[str, Any], bool]:
    """Return the annotations of a callable's arguments, with the options of an unpacked TypedDict
    one by one, and whether it takes any others.
    """
    hints = _hints(target)
    annotations: dict[str, Any] = dict(_OPTIONS)
    is_open = False
    for name, parameter in inspect.signature(target).parameters.items():
        annotation = hints.get(name, Any)
        if parameter.kind is parameter.VAR_KEYWORD:
            is_open = not get_args(annotation)
            for options in get_args(annotation):
                annotations |= get_type_hints(options, include_extras=True)
        elif parameter.kind is not parameter.VAR_POSITIONAL:
            if parameter.default is None:
                annotation = annotation | None
            if parameter.default is not parameter.empty or is_partial:
                annotation = NotRequired[annotation]
            annotations[name] = annotation

    return annotations, is_open


def _hints(target: Any) -> dict[str, Any]:
    """Return the annotations of a class's arguments, or of a function's and of what it returns."""
    try:
        function = target.__init__ if inspect.isclass(target) else target
        return get_type_hints(function, include_extras=True)
    except (NameError, TypeError):  # a name imported for type checkers only
        return {}


def _wrong_class(target: Any, annotation: Any) -> str:
    """Return what a target should be, or an empty string if it is that."""
    built = target if inspect.isclass(target) else _hints(target).get("return")
    if not inspect.isclass(built):
        return "should be a class, or a function that declares which class it returns"

    classes = [get_origin(part) or part for part in _alternatives(annotation)]
    bases = [base for base in classes if inspect.isclass(base) and base is not type(None)]
    if Any in classes or any(_is_a(built, base) for base in bases):
        return ""

    return f"should be {' or '.join(base.__name__ for base in bases) or 'a plain value'}"


def _is_a(built: type, base: type) -> bool:
    """Whether a class is another, or has the members of a protocol."""
    if getattr(base, "_is_protocol", False):
        return all(hasattr(built, name) for name in vars(base) if not name.startswith("_"))

    return issubclass(built, base)


# Values --------------------------------------------------------------------------------------


def _value_faults(value: Any, key: str, annotation: Any) -> Iterator[Fault]:
    """Yield the faults of a value without nodes; where pydantic cannot decide, of its numbers."""
    try:
        # In a list, a dataclass or model of its own takes the config.
        adapter = TypeAdapter(list[annotation], config=_CONFIG)
        adapter.validate_json(json.dumps([value]))
    except ValidationError as error:
        yield from _of_pydantic(error, value, key)
        return
    except SchemaError:  # of a protocol
        yield key, f"{_NODE}, got {value!r}"
        return
    except PydanticUserError:
        pass

    try:
        json.dumps(value, allow_nan=False)
    except ValueError:
        yield key, f"should be a finite number, got {value!r}"


def _of_pydantic(error: ValidationError, value: Any, key: str) -> Iterator[Fault]:
    """Yield a fault for each wrong part of a value, with what all its alternatives say of it."""
    texts: dict[tuple[str, str], dict[str, None]] = {}
    for detail in error.errors(include_url=False):
        names = [key]
        inner: Any = value
        for name in detail["loc"][1:]:
            with contextlib.suppress(LookupError, TypeError):  # pydantic names alternatives, too
                inner = inner[name]
                names.append(str(name))

        text = _NODE if detail["type"] == "needs_python_object" else detail["msg"]
        for term, plain in _TERMS.items():
            text = text.replace(term, plain)

        texts.setdefault((".".join(names), repr(inner)), {})[text] = None

    for (dotted, got), alternatives in texts.items():
        yield dotted, f"{' or '.join(alternatives)}, got {got}"
