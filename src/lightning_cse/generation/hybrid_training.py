"""The command that trains on rows which a language model has just written."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from lightning_cse.data.hybrid import PATTERNS
from lightning_cse.generation import ANCHOR

__all__ = ["how_to_train"]

_USUAL: Final = {"corpora": "full", "paths": "default"}
"""The groups that training and generating share, and what is chosen of each if nothing is said."""

_SHARED: Final = ("paths.data_dir=", "corpora.")
"""Keys that mean the same to both, where the command line sets them."""

_PLAIN: Final = re.compile(r"[\w/.-]+")
"""Names that Hydra's grammar takes without quotes."""

_OF_SENTENCES: Final = "lightning_cse.data.Sentences"
_OF_TRIPLETS: Final = "lightning_cse.data.NLITriplets"


def how_to_train(cfg: DictConfig, roles: Sequence[str], rows: Path, overrides: Sequence[str]) -> list[str]:
    """Return lines that say how to train on rows.

    Sentences alone are those of NGCSE's Wikipedia domain, and all other data sets stand in its NLI domain.

    Args:
        cfg: The config of ``generate``.
        roles: What was written for each sentence.
        rows: Where it is.
        overrides: The command line that made it.
    """
    there = {ANCHOR, *roles}
    kind = next((name for name, columns in PATTERNS.items() if there.issuperset(columns)), None)
    if kind is None:
        known = " or ".join(", ".join(columns[1:]) for columns in PATTERNS.values())
        return [f"No experiment trains on the roles {', '.join(roles)}: those there are train on {known}"]
    words = ["python", "-m", "lightning_cse.train", *_overrides(cfg, kind, rows, overrides), *_own_configs()]
    return ["to train on them:", f"  {shlex.join(words)}"]


def _overrides(cfg: DictConfig, kind: str, rows: Path, given: Sequence[str]) -> Iterator[str]:
    builder = str(cfg.data.rows._target_)
    domain, corpus = ("wiki", "ngcse_wiki") if builder == _OF_SENTENCES else ("nli", "nli_train")
    yield f"+experiment=ngcse_{domain}_{'sts_ht' if kind == 'sts' else 'nli'}"
    choices = HydraConfig.get().runtime.choices if HydraConfig.initialized() else {}
    yield from (f"{group}={choices[group]}" for group, usual in _USUAL.items() if choices.get(group, usual) != usual)
    yield from (override for override in given if override.startswith(_SHARED))
    train = OmegaConf.to_container(cfg.data.train, resolve=True)
    if train != OmegaConf.to_container(cfg.corpora[corpus], resolve=True):
        yield f"corpora.{corpus}={_listed(train)}"
    if builder not in (_OF_SENTENCES, _OF_TRIPLETS):
        yield f"data.rows.corpus._target_={builder}"
    yield f"corpora.llm_{domain}_{kind}={_listed([_short(rows)])}"


def _own_configs() -> list[str]:
    """Return the flag that names a folder of configs of the user's own, if a group that is shared may be from there."""
    if not HydraConfig.initialized():
        return []
    hydra = HydraConfig.get()
    folders = [source.path for source in hydra.runtime.config_sources if source.provider == "command-line"]
    shared = any(hydra.runtime.choices.get(group, usual) != usual for group, usual in _USUAL.items())
    return ["--config-dir", _short(Path(folders[0]))] if folders and shared else []


def _short(path: Path) -> str:
    """Return a path as it is read from the working directory."""
    absolute = path.absolute()
    return str(absolute.relative_to(Path.cwd())) if absolute.is_relative_to(Path.cwd()) else str(absolute)


def _listed(names: Any) -> str:
    """Return names as a list of Hydra's grammar."""
    quoted = [name if _PLAIN.fullmatch(name) else json.dumps(name, ensure_ascii=False) for name in names]
    return f"[{','.join(quoted)}]"
