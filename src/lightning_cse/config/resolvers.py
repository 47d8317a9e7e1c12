"""OmegaConf resolvers of the project: ``${recipe:lr}`` is a number of the paper's recipe for the chosen encoder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from lightning_cse.errors import ConfigError, did_you_mean


def register() -> None:
    """Register the project's resolvers; calling it again changes nothing."""
    OmegaConf.register_new_resolver("recipe", _recipe, replace=True)
    OmegaConf.register_new_resolver("sample_dir", _sample_dir, replace=True)


def _recipe(key: str, *, _root_: DictConfig) -> Any:
    """Return ``recipe.<encoder.name>.<key>`` if it is there, else ``recipe.default.<key>``.

    So ``encoder=bert_base`` on the command line brings the paper's learning rate for BERT with it.

    Raises:
        ConfigError: the recipe has the key for neither; OmegaConf wraps it in an exception of its own.
    """
    encoder = OmegaConf.select(_root_, "encoder.name", default="default")
    recipe: Any = OmegaConf.to_container(_root_.get("recipe") or OmegaConf.create(), resolve=True)
    for name in (encoder, "default"):
        if isinstance(numbers := recipe.get(name), dict) and key in numbers:
            return numbers[key]
    near = did_you_mean(key, {str(known) for node in recipe.values() for known in node or ()})
    raise ConfigError([f"${{recipe:{key}}}: neither recipe.{encoder}.{key} nor recipe.default.{key} exists{near}"])


def _sample_dir() -> str:
    """Return the folder of the sample corpus in the package."""
    return str(Path(__file__).resolve().parents[1] / "data" / "sample")
