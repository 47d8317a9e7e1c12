"""What follows in a composed config from files of your own: test sets, and values that replace the
experiment's.
"""

from collections.abc import Iterable
from typing import Any

from omegaconf import DictConfig, OmegaConf


def add_test_sets(cfg: DictConfig) -> None:
    """Add the tasks of ``own.tasks`` that have files to the suite, before those of the suite."""
    own_data = cfg.get("own")
    if not isinstance(own_data, DictConfig):
        return

    tasks = own_data.pop("tasks", {})
    added = {f"own_{name}": task for name, task in tasks.items() if own_data[name]}
    if added:
        cfg.suite = added | dict(cfg.get("suite") or {})


def replace_values(cfg: DictConfig, overrides: Iterable[str]) -> None:
    """Set the values of ``data.replaces`` that no override of the command line sets; the node is
    removed.
    """
    data = cfg.get("data")
    if not isinstance(data, DictConfig):
        return

    set_keys = {word.lstrip("+~").partition("=")[0] for word in overrides}
    for key, value in (data.pop("replaces", None) or {}).items():
        parent, _, name = key.rpartition(".")
        node = OmegaConf.select(cfg, parent)
        is_set = any(f"{set_key}.".startswith(f"{key}.") for set_key in set_keys)
        if isinstance(node, DictConfig) and name in node and not is_set:
            node[name] = _suite(cfg.suite, value) if key == "suite" else value


def _suite(suite: DictConfig, without_dev: DictConfig) -> dict[Any, Any]:
    """Return the tasks on files of your own, and those that stand in for a dev set if none of them
    has one.
    """
    on_files = {name: task for name, task in suite.items() if "own" in task}
    files = [task.own.files for task in on_files.values()]
    has_dev = any(isinstance(splits, DictConfig) and "dev" in splits for splits in files)

    return on_files if has_dev else on_files | dict(without_dev)
