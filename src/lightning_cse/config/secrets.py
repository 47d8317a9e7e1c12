"""Settings as they may be shown to others: plain values, without what stands under keys that look like secrets."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

__all__ = ["without_secrets"]

# `tokenizer` and its kin name no secret.
_SECRET: Final = re.compile(r"key|token(?!i[sz])|secret|password", re.IGNORECASE)


def without_secrets(config: Any) -> Any:
    """Return plain containers without the strings that stand under keys which look like secrets.

    Only strings, and lists with strings, are secrets: ``max_tokens: 5`` stays. What is no plain value becomes its text.

    Args:
        config: Mappings, lists and plain values, in one another as deep as they are.

    Example:
        >>> without_secrets({"llm": {"api_key": "hush", "model": "m", "max_tokens": 5}})
        {'llm': {'model': 'm', 'max_tokens': 5}}
    """
    if isinstance(config, Mapping):
        kept = {}
        for key, value in config.items():
            strings = value if isinstance(value, list | tuple) else [value]
            if _SECRET.search(str(key)) and any(isinstance(item, str) for item in strings):
                continue
            kept[str(key)] = without_secrets(value)
        return kept
    if isinstance(config, list | tuple):
        return [without_secrets(item) for item in config]
    return config if config is None or isinstance(config, bool | int | float | str) else str(config)
