"""What follows in a composed config from files of your own: test sets, values that replace the
experiment's, and the recipe.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from omegaconf import DictConfig, OmegaConf

from lightning_cse.encoders.find import is_sentence_encoder

OWN_ROWS = "lightning_cse.data.OwnRows"
"""The scheme of ``data=file``."""
RECIPE = "own"
"""The recipe for training a sentence encoder on files of your own."""


def add_test_sets(cfg: DictConfig) -> None:
    """Add the tasks of ``own.tasks`` that have files to the suite, before those of the suite."""
    own_data = cfg.get("own")
    tasks = own_data.pop("tasks", {}) if _is_node(own_data) else {}
    added = {f"own_{name}": task for name, task in tasks.items() if own_data[name]}
    if added:
        suite = {} if OmegaConf.is_missing(cfg, "suite") else cfg.get("suite") or {}
        cfg.suite = added | {str(name): task for name, task in suite.items()}


def replace_values(cfg: DictConfig, overrides: Iterable[str]) -> None:
    """Set the values of ``data.replaces`` that no override of the command line sets; the node is
    removed.
    """
    values = cfg.data.pop("replaces", {}) or {} if _is_node(cfg.get("data")) else {}
    overridden = {word.lstrip("+~").partition("=")[0] for word in overrides}
    for key, value in values.items():
        *parents, name = key.split(".")
        node = OmegaConf.select(cfg, ".".join(parents)) if parents else cfg
        is_set = any(f"{word}.".startswith(f"{key}.") for word in overridden)
        if _is_node(node) and name in node and not is_set:
            node[name] = _suite(cfg.suite, value) if key == "suite" else value


def _suite(suite: DictConfig, without_dev: DictConfig) -> dict[str, Any]:
    """Return the tasks on files of your own, and those that stand in for a dev set if none of them
    has one.
    """
    on_files = {str(name): node for name, node in suite.items() if "own" in node}
    has_dev = any(
        _is_node(node.own.files) and "dev" in node.own.files for node in on_files.values()
    )
    dev_tasks = {} if has_dev else {str(name): node for name, node in without_dev.items()}

    return on_files | dev_tasks


def recipe_names(cfg: DictConfig) -> Iterator[str]:
    """Yield the names of the recipes that a config takes if it has them, best first."""
    encoder = OmegaConf.select(cfg, "encoder")
    if not _is_node(encoder):
        return

    is_own = OmegaConf.select(cfg, "data.rows._target_") == OWN_ROWS
    if is_own and RECIPE in (cfg.get("recipe") or ()) and _is_trained(cfg, encoder):
        yield RECIPE

    yield str(encoder.get("name"))


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


def _is_node(value: Any) -> bool:
    return isinstance(value, DictConfig) and not value._is_missing() and not value._is_none()
