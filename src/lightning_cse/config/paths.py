"""Where ``conf/`` and ``experiments/`` are: packaged copy first, then the repository root."""

from __future__ import annotations

from pathlib import Path

from lightning_cse.errors import ConfigError

_PACKAGE = Path(__file__).resolve().parent.parent
_REPOSITORY = _PACKAGE.parent.parent


def conf_dir() -> Path:
    """Return the absolute path of the folder that holds the Hydra configs.

    Raises:
        ConfigError: neither the installed package nor the repository holds it.
    """
    return _find("conf", marker="train.yaml")


def experiments_dir() -> Path:
    """Return the absolute path of the folder that holds one folder a paper: its tables, figures and numbers.

    Raises:
        ConfigError: neither the installed package nor the repository holds it.
    """
    return _find("experiments", marker="")


def _find(name: str, marker: str) -> Path:
    places = [_PACKAGE / name, _REPOSITORY / name]
    for place in places:
        # `marker` keeps a stray folder of the same name (src/lightning_cse/conf left empty, say) from winning.
        if place.is_dir() and (place / marker).exists():
            return place
    looked = " and ".join(str(place) for place in places)
    advice = "install from a checkout with `pip install -e .`, or install a wheel that carries it"
    raise ConfigError([f"{name}/: not found (looked for {looked}) - {advice}"])
