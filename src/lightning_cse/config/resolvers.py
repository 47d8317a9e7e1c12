"""OmegaConf resolvers of the project: ``${recipe:lr}`` is a number of the paper's recipe for the chosen encoder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from lightning_cse.errors import ConfigError, did_you_mean

_ABSENT = object()


def register() -> None:
    """Register the project's resolvers; calling it again changes nothing."""
    OmegaConf.register_new_resolver("recipe", _recipe, replace=True)
    OmegaConf.register_new_resolver("sample_dir", _sample_dir, replace=True)


def _recipe(key: str, *, _root_: DictConfig) -> Any:
    """Return ``recipe.<encoder.name>.<key>`` if it is there, else ``recipe.default.<key>``.

    A paper states some numbers by encoder; an experiment holds them side by side and reads them with ``${recipe:lr}``,
    so that ``encoder=bert_base`` on the command line brings the paper's learning rate for BERT with it.

    Raises:
        ConfigError: the recipe has the key neither for the encoder nor under ``default`` (OmegaConf wraps it in its
            own exception; `lightning_cse.config.causes.user_error` finds it again).
    """
    encoder = OmegaConf.select(_root_, "encoder.name", default=None)
    recipe = OmegaConf.select(_root_, "recipe", default=None)
    if not isinstance(recipe, DictConfig):
        raise ConfigError([f"${{recipe:{key}}}: the config has no `recipe` - it comes with an experiment"])
    for name in (encoder, "default"):
        value = _ABSENT if name is None or name not in recipe else OmegaConf.select(recipe[name], key, default=_ABSENT)
        if value is not _ABSENT:
            return value
    known = sorted({str(k) for node in recipe.values() if isinstance(node, DictConfig) for k in node})
    which = f"`recipe.{encoder}.{key}` nor `recipe.default.{key}` exists"
    raise ConfigError([f"${{recipe:{key}}}: neither {which} (the encoder is '{encoder}'){did_you_mean(key, known)}"])


def _sample_dir() -> str:
    """Return the folder of the sample corpus in the package (what `lightning_cse.data.sample_dir` returns)."""
    return str(Path(__file__).resolve().parents[1] / "data" / "sample")
