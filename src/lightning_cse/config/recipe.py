"""The resolver ``${recipe:KEY}``: the values of ``recipe`` for the encoder of a config."""

from typing import Any

from omegaconf import DictConfig, OmegaConf

from lightning_cse.encoders.find import is_sentence_encoder
from lightning_cse.errors import ConfigError

OWN = "own"
"""The recipe for training a sentence encoder on files of your own."""
OWN_ROWS = "lightning_cse.data.OwnRows"
"""The scheme of ``data=file``."""


def recipe_value(key: str, *, _root_: DictConfig) -> Any:
    """Return ``recipe.<recipe_name>.<key>``, else ``recipe.default.<key>``."""
    name = recipe_name(_root_)
    for values in (_root_.recipe.get(name), _root_.recipe.get("default")):
        if values and key in values:
            return values[key]

    raise ConfigError([f"${{recipe:{key}}}: recipe.{name} and recipe.default lack {key}"])


def recipe_name(cfg: DictConfig) -> str:
    """Return the name of a config's recipe: ``own`` for a sentence encoder on files of your own,
    its encoder's name, or ``default``.
    """
    encoder = OmegaConf.select(cfg, "encoder")
    if not isinstance(encoder, DictConfig):
        return "default"

    is_own = OmegaConf.select(cfg, "data.rows._target_") == OWN_ROWS
    names = [OWN] if is_own and _is_trained(cfg, encoder) else []
    recipes = cfg.get("recipe") or {}

    return next(
        (name for name in (*names, str(encoder.get("name"))) if recipes.get(name)), "default"
    )


def _is_trained(cfg: DictConfig, encoder: DictConfig) -> bool:
    """Whether training starts from a model that embeds sentences already: another run, or the whole
    of a sentence encoder.
    """
    if cfg.get("init_from") is not None:
        return True

    # As written: the value itself may depend on the recipe.
    written: Any = OmegaConf.to_container(encoder, resolve=False)
    if any(written.get(key) is not None for key in ("layers", "lstm", "vectors")):
        return False

    source = written.get("source")

    return bool(source) and is_sentence_encoder(
        str(written.get("name")), str(source), written.get("package")
    )
