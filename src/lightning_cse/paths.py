"""Where ``conf/``, ``experiments/``, encoders, kept models and the sample corpora are."""

from pathlib import Path

from lightning_cse.errors import ConfigError

_PACKAGE = Path(__file__).resolve().parent
_REPOSITORY = _PACKAGE.parents[1]
SAMPLE_DIR = _PACKAGE / "data" / "sample"
"""The folder of the sample corpora, as ``${sample_dir:}`` in a config."""


def conf_dir() -> Path:
    """Return the folder of the Hydra configs, in the package or at the top of the repository."""
    return _find("conf/train.yaml").parent


def experiments_dir() -> Path:
    """Return the folder with one folder per paper, which has its tables, figures and numbers."""
    return _find("experiments")


def encoder_configs() -> dict[str, Path]:
    """Return the config files of the named encoders, by name."""
    return {
        path.stem: path for path in (conf_dir() / "encoder").glob("*.yaml") if path.stem != "custom"
    }


def kept_models() -> dict[str, Path]:
    """Return the folders of the trained models that come with the package, by name."""
    return {path.parent.name: path.parent for path in experiments_dir().glob("*/kept/*/README.md")}


def encoder_name(source: str) -> str:
    """Return the name of an encoder: that of its folder, or its name on the hub."""
    folder = Path(source).expanduser()
    name = folder.resolve().name if folder.is_dir() else source

    return f"folder/{name}" if name in encoder_configs() else name


def _find(name: str) -> Path:
    """Return a file or folder of the package or, in a checkout, of the repository."""
    for root in (_PACKAGE, _REPOSITORY):
        if (root / name).exists():
            return root / name

    raise ConfigError(
        [f"{name}: not found in {_PACKAGE} and {_REPOSITORY}; install with `pip install -e .`"]
    )
