"""Check every node that will be built against the signature of its target, before anything is built or loaded."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import sys
import types
import typing
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Literal, Union

from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import InterpolationToMissingValueError, OmegaConfBaseException

from lightning_cse.config.causes import user_error
from lightning_cse.config.secrets import without_secrets
from lightning_cse.config.tree import one_line
from lightning_cse.errors import ConfigError, did_you_mean

_HYDRA_KEYS = {"_target_", "_partial_", "_args_", "_recursive_", "_convert_"}
_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_LONG_SIGNATURE = 12  # beyond it the arguments are listed only where none is spelled alike


def validate(cfg: DictConfig, given: Mapping[str, Collection[str]] | None = None) -> None:
    """Bind every node with a ``_target_`` to its target's signature, and resolve every value.

    Told are: a target that cannot be imported, an unknown or a missing argument, a value that a plain annotation
    (builtins, ``Literal``, unions and containers of them) refuses, an interpolation without an answer, and ``???``.
    Targets are imported, so this takes as long as importing what the run needs anyway.

    Args:
        cfg: the composed config.
        given: arguments that the caller adds when it builds a node, by the node's key:
            ``{"method": {"encoder"}, "data": {"tokenize"}}``.

    Raises:
        ConfigError: with all faults found.
    """
    faults = list(_Walk(given or {}).mapping(cfg, ""))
    if faults:
        raise ConfigError(dict.fromkeys(faults))


class _Walk:
    def __init__(self, given: Mapping[str, Collection[str]]) -> None:
        self.given = given

    def mapping(self, node: DictConfig, path: str) -> Iterator[str]:
        values: dict[str, Any] = {}
        for key in node:
            below = f"{path}.{key!s}" if path else str(key)
            if below != "hydra":
                yield from self._value(node, key, below, values)
        if "_target_" in values:
            yield from self._target(node, values, path)

    def _sequence(self, node: ListConfig, path: str) -> Iterator[str]:
        for index in range(len(node)):
            yield from self._value(node, index, f"{path}.{index}", {})

    def _value(self, node: DictConfig | ListConfig, key: Any, path: str, values: dict[str, Any]) -> Iterator[str]:
        """Resolve one value, put it into ``values``, and go on below it."""
        if OmegaConf.is_missing(node, key):
            yield f"{path}: not set, and it has no default (???)"
            return
        try:
            value = node[key]
        except InterpolationToMissingValueError:
            return  # told where the value itself is missing
        except OmegaConfBaseException as error:
            mistake = user_error(error)
            for fault in mistake.faults if isinstance(mistake, ConfigError) else [one_line(error)]:
                yield f"{path}: {fault}"
            return
        values[str(key)] = value
        if OmegaConf.is_interpolation(node, key):
            return  # told where the node itself stands
        if isinstance(value, DictConfig):
            yield from self.mapping(value, path)
        elif isinstance(value, ListConfig):
            yield from self._sequence(value, path)

    def _target(self, node: DictConfig, values: dict[str, Any], path: str) -> Iterator[str]:
        target, fault = _locate(values["_target_"])
        if target is None:
            yield f"{path}._target_: {fault}"
            return
        try:
            signature = inspect.signature(target)
        except (TypeError, ValueError):
            return  # written in C, without a signature
        name = getattr(target, "__name__", str(values["_target_"]))
        positional = values.get("_args_") or ()
        parameters = list(signature.parameters.values())[len(positional) :]
        named = {parameter.name: parameter for parameter in parameters if parameter.kind in _NAMED}
        takes_any = any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters)
        keys = [str(key) for key in node if key not in _HYDRA_KEYS]
        yield from () if takes_any else _unexpected(path, name, keys, list(named))
        if not values.get("_partial_"):
            have = {*keys, *self.given.get(path, ())}
            for parameter in named.values():
                if parameter.default is inspect.Parameter.empty and parameter.name not in have:
                    yield f"{path}: {name} needs the argument '{parameter.name}', which the config does not give"
        for key, parameter in named.items():
            if key in values and not _is_default(values[key], parameter):
                annotation = _annotation(target, parameter)
                if not _fits(values[key], annotation):
                    told = without_secrets({key: values[key]})  # an environment variable may have given it
                    got = _show(values[key], annotation) if told else "a text that is not told, by its key a secret"
                    yield f"{path}.{key}: {name} takes {_name(annotation)}, got {got}"


def _unexpected(path: str, name: str, keys: list[str], known: list[str]) -> Iterator[str]:
    for key in keys:
        if key in known:
            continue
        meant = did_you_mean(key, known)
        takes = "" if meant and len(known) > _LONG_SIGNATURE else f" (it takes: {', '.join(known) or 'nothing'})"
        yield f"{path}: {name} got an unexpected argument '{key}'{meant}{takes}"


# Targets


def _locate(dotted: Any) -> tuple[Callable[..., Any] | None, str]:
    """Import a target; return it, or None and what is wrong with it."""
    if not isinstance(dotted, str) or not all(part.isidentifier() for part in dotted.split(".")):
        return None, f"{dotted!r} is not the dotted path of a class or function"
    parts = dotted.split(".")
    found: Any = None
    for depth, part in enumerate(parts):
        module = ".".join(parts[: depth + 1])
        if found is not None and hasattr(found, part):
            found = getattr(found, part)
            continue
        if found is None or isinstance(found, types.ModuleType):
            try:
                found = importlib.import_module(module)
                continue
            except ModuleNotFoundError as error:
                if error.name is not None and not f"{module}.".startswith(f"{error.name}."):
                    return None, f"importing {module} failed: {error}"
            except Exception as error:  # noqa: BLE001 - whatever a module does when imported
                return None, f"importing {module} failed: {type(error).__name__}: {error}"
        return None, _no_such_name(found, ".".join(parts[:depth]), part, dotted)
    return (
        (found, "") if callable(found) else (None, f"{dotted} is of type {type(found).__name__} and cannot be called")
    )


def _no_such_name(owner: Any, where: str, name: str, dotted: str) -> str:
    if owner is None:
        return f"there is no module '{name}' (in {dotted})"
    known = [known for known in dir(owner) if not known.startswith("_")]
    known += [module.name for module in pkgutil.iter_modules(getattr(owner, "__path__", []))]
    return f"{where} has no '{name}'{did_you_mean(name, known)}"


# Types


def _annotation(target: Callable[..., Any], parameter: inspect.Parameter) -> Any:
    """The parameter's annotation, evaluated; `Any` where there is none or it needs names that are not there."""
    if parameter.annotation is inspect.Parameter.empty:
        return Any
    function = inspect.unwrap(inspect.getattr_static(target, "__init__") if isinstance(target, type) else target)
    names = getattr(function, "__globals__", None) or vars(sys.modules.get(target.__module__, typing))

    def holder() -> None: ...

    holder.__annotations__ = {"it": parameter.annotation}
    try:
        return typing.get_type_hints(holder, globalns=names)["it"]
    except Exception:  # noqa: BLE001 - names imported for type checkers only, or no type at all
        return Any


def _is_default(value: Any, parameter: inspect.Parameter) -> bool:
    return type(value) is type(parameter.default) and bool(value == parameter.default)


def _fits(value: Any, annotation: Any) -> bool:
    """Whether a value of the config may go where the annotation stands; yes where that cannot be told simply."""
    if annotation is Any or _is_node(value):
        return True  # what the node becomes is seen when it is built
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (Union, types.UnionType):
        return any(_fits(value, option) for option in inner)
    if origin is Literal:
        return any(value == option and type(value) is type(option) for option in inner)
    kind = origin or annotation
    if value is None or kind in (None, type(None)):
        return _takes_none(value, kind)
    if kind in (bool, int, float, str):
        return _is_plain(value, kind)
    if kind in (list, tuple, set, frozenset):
        return isinstance(value, (ListConfig, list, tuple)) and _elements_fit(list(value), kind, inner)
    if kind in (dict, Mapping):
        return isinstance(value, (DictConfig, dict))
    if kind is Sequence and inner:
        return isinstance(value, (ListConfig, list, tuple, str)) and _elements_fit(list(value), list, inner)
    return True


def _takes_none(value: Any, kind: Any) -> bool:
    if kind in (None, type(None)):
        return value is None
    return not isinstance(kind, type) or kind is object or getattr(kind, "_is_protocol", False)


def _is_plain(value: Any, kind: type) -> bool:
    if isinstance(value, bool):
        return kind is bool
    return isinstance(value, (int, float) if kind is float else kind)


def _elements_fit(values: list[Any], kind: type, inner: tuple[Any, ...]) -> bool:
    if not inner:
        return True
    if kind is tuple and not (len(inner) == 2 and inner[1] is Ellipsis):
        return len(values) == len(inner) and all(map(_fits, values, inner))
    return all(_fits(value, inner[0]) for value in values)


def _is_node(value: Any) -> bool:
    return isinstance(value, DictConfig) and "_target_" in value


def _name(annotation: Any) -> str:
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (Union, types.UnionType):
        return " or ".join(_name(option) for option in inner)
    if origin is Literal:
        return " or ".join(map(_in_yaml, inner))
    if annotation in (None, type(None)):
        return "null"
    return annotation.__name__ if isinstance(annotation, type) and origin is None else str(annotation)


def _show(value: Any, annotation: Any) -> str:
    if isinstance(value, (DictConfig, ListConfig)):
        value = OmegaConf.to_container(value, resolve=False)
    literals = [option for option in _literals(annotation) if isinstance(option, str)]
    meant = did_you_mean(value, literals) if isinstance(value, str) else ""
    kind = "" if value is None or literals else f" ({type(value).__name__})"
    return f"{_in_yaml(value)}{kind}{meant}"


def _literals(annotation: Any) -> Iterator[Any]:
    if typing.get_origin(annotation) is Literal:
        yield from typing.get_args(annotation)
    elif typing.get_origin(annotation) in (Union, types.UnionType):
        for option in typing.get_args(annotation):
            yield from _literals(option)


def _in_yaml(value: Any) -> str:
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else repr(value)
