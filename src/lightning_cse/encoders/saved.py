"""What the folder of a sentence-transformers model says about how its sentences become vectors."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

from lightning_cse.errors import EncoderError

log = logging.getLogger(__name__)

_FLAGS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
"""How versions before 6 write a mode of pooling."""

_KNOWN = ("cls", "mean")

_HELP = "set encoder.pooling to load the backbone without it"


def read_pooling(folder: Path) -> str | None:
    """Return the pooling, ``cls`` or ``mean``, of a sentence-transformers folder; None for a folder of another kind.

    A module that scales vectors to length one is passed over, and logged: it changes no cosine.

    Raises:
        EncoderError: if the model does anything else between the backbone and the vector, or before the backbone, or
            a file of it cannot be read.
    """
    path = folder / "modules.json"
    if not path.is_file():
        return None
    modules = _read(path)
    if not isinstance(modules, list) or not all(
        isinstance(module, dict) and isinstance(module.get("type"), str) for module in modules
    ):
        raise EncoderError(f"{path} is not a list of modules with a type each; save the model again")
    pooling = None
    for module in modules:
        kind = module["type"].rpartition(".")[2]
        if kind == "Pooling":
            pooling = _pooling(folder / str(module.get("path", "")) / "config.json")
        elif kind == "Normalize":
            log.info("%s scales its vectors to length one, which is left out here: no cosine changes", path)
        elif kind != "Transformer":
            raise EncoderError(f"{path} has a module {module['type']}, which is not applied here: {_HELP}")
    if pooling is None:
        raise EncoderError(f"{path} has no module Pooling: {_HELP}")
    _refuse_default_prompt(folder / "config_sentence_transformers.json")
    return pooling


def read_max_length(folder: Path) -> int | None:
    """Return the ``max_seq_length`` of a sentence-transformers folder, special tokens included; None if it has none.

    Raises:
        EncoderError: if the file that would have it cannot be read, or it is no positive number.
    """
    path = folder / "sentence_bert_config.json"
    if not path.is_file():
        return None
    length = _read_object(path).get("max_seq_length")
    if length is not None and (type(length) is not int or length < 1):
        raise EncoderError(f"{path}: max_seq_length is {length!r}, not a positive number: set encoder.max_length")
    return length


def _pooling(path: Path) -> str:
    if not path.is_file():
        raise EncoderError(f"{path} is missing, which says how the model pools: {_HELP}")
    config = _read_object(path)
    modes = config.get("pooling_mode", [name for flag, name in _FLAGS.items() if config.get(flag)])
    modes = [modes] if isinstance(modes, str) else modes
    if not isinstance(modes, list) or len(modes) != 1 or modes[0] not in _KNOWN:
        raise EncoderError(f"{path} pools by {modes}; a model that pools by one of {list(_KNOWN)} is needed: {_HELP}")
    return str(modes[0])


def _refuse_default_prompt(path: Path) -> None:
    """Refuse a text that the model would put before every sentence."""
    name = _read_object(path).get("default_prompt_name") if path.is_file() else None
    if name is not None:
        raise EncoderError(f"{path} puts the prompt {name!r} before every sentence, which is not done here: {_HELP}")


def _read_object(path: Path) -> dict[str, Any]:
    content = _read(path)
    if not isinstance(content, dict):
        raise EncoderError(f"{path} is not a JSON object; save the model again")
    return content


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise EncoderError(f"{path} cannot be read: {error}") from error
