"""Values for a record or a log: without secrets in URLs, and without folders of a machine."""

import re
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar, cast

Value = TypeVar("Value")

_USER = re.compile(r"(?<=://)[^/?#\s]*@")
# A query ends at white space, or at the next URL of a list; brackets and quotes around it stay.
_QUERY = re.compile(
    r"""(://[^?#\s]*)[?#]\S*?(?=['")\]}:;.,]*(?:,['"]?[A-Za-z][A-Za-z0-9+.-]*://|\s|$))"""
)


def portable(overrides: Iterable[Any]) -> list[str]:
    """Return overrides for a record: without ``paths``, which decide no result, without secrets in
    URLs, and with the names of models and encoders in place of their folders.
    """
    folder = re.compile(r"^((?:model|encoder\.source)=['\"]?)[/~].*/(?=[^/])")
    words = [word for word in map(str, overrides) if not word.lstrip("+").startswith("paths.")]

    return public([folder.sub(r"\1", word) for word in words])


def public(value: Value) -> Value:
    """Return a text, or a container of plain values, whose URLs have no user, no password, no query
    and no fragment.

    Examples:
        >>> public({"train": ["https://me:secret@host/a.csv?X-Amz-Signature=1f"], "size": 2})
        {'train': ['https://host/a.csv'], 'size': 2}
    """
    result: Any = value
    if isinstance(value, str):
        result = _QUERY.sub(r"\1", _USER.sub("", value)) if "://" in value else value
    elif isinstance(value, Mapping):
        result = {public(key): public(item) for key, item in value.items()}
    elif isinstance(value, list | tuple):
        result = type(value)(public(item) for item in value)

    return cast(Value, result)
