"""Where an encoder's files are: a folder, a Python package that carries them, or the Hugging Face hub."""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import os
from pathlib import Path

from lightning_cse.errors import EncoderError

_WEIGHTS = ("model.safetensors", "model.safetensors.index.json")
_VOCABULARY = ("tokenizer.json", "vocab.txt", "vocab.json")
_TOKENIZER = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.txt",
    "vocab.json",
    "merges.txt",
    "sentencepiece.bpe.model",
    "spiece.model",
)


def find_encoder(source: str, package: str | None = None) -> Path:
    """Return the folder that holds the encoder's config, tokenizer and safetensors weights.

    ``package`` (``name/subfolder``) is an installed Python package that carries the same files and is looked at first,
    so that nothing is fetched; then ``source`` as a local folder; then ``source`` as a name on the hub.

    Raises:
        EncoderError: if none is in reach, naming all that was tried and the command that helps.
    """
    tried = []
    if package is not None:
        name, _, subfolder = package.partition("/")
        locations = _package_folders(name)
        for location in locations:
            folder = Path(location) / subfolder
            if (folder / "config.json").is_file():
                return _checked(folder)
        reason = f"it has no {subfolder}/config.json" if locations else "not installed"
        tried.append(f"the Python package {name} ({reason}: pip install 'lightning_cse[offline]')")
    folder = Path(source).expanduser()
    if (folder / "config.json").is_file():
        return _checked(folder)
    if folder.is_dir():
        raise EncoderError(
            f"{folder.resolve()} is a folder without a config.json: it holds {_holds(folder)}. "
            "Point encoder.source to a folder saved with save_pretrained, or to a name on the hub."
        )
    tried.append(f"the folder {folder.resolve()}")
    return _checked(_from_hub(source, tried))


def _package_folders(name: str) -> list[str]:
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):  # what it raises for a name with a dot or a slash in an odd place
        return []
    return list(spec.submodule_search_locations or []) if spec else []


def _checked(folder: Path) -> Path:
    """Refuse a folder whose weights or tokenizer would not be what is on disk.

    Weights in other formats than safetensors can run code when they are read, and transformers makes up an empty
    vocabulary where there is none.
    """
    if not any((folder / name).is_file() for name in _WEIGHTS):
        raise EncoderError(
            f"{folder} has no safetensors weights (it holds {_holds(folder)}), and no other format is loaded. Models "
            "saved by a recent save_pretrained have them; https://huggingface.co/spaces/safetensors/convert converts."
        )
    if not any((folder / name).is_file() for name in _VOCABULARY):
        raise EncoderError(
            f"{folder} has no tokenizer (it holds {_holds(folder)}): one of {', '.join(_VOCABULARY)} is needed. "
            "Save it beside the weights with tokenizer.save_pretrained."
        )
    return folder


def _holds(folder: Path) -> str:
    return ", ".join(sorted(entry.name for entry in folder.iterdir())[:8]) or "nothing"


def _from_hub(source: str, tried: list[str]) -> Path:
    from huggingface_hub import snapshot_download  # heavy, and not needed for local folders
    from huggingface_hub.errors import HFValidationError

    patterns = ["*.json", "*.txt", "model*.safetensors", "1_Pooling/*"]
    helps = ["encoder=minilm_l6 (pip install 'lightning_cse[offline]')", "encoder.source=<folder>"]
    try:
        return Path(snapshot_download(source, allow_patterns=patterns))
    except HFValidationError:
        pass  # not a possible name on the hub, so the folder was meant
    except Exception as error:  # noqa: BLE001 - the hub raises dozens of kinds, of three libraries
        offline = os.environ.get("HF_HUB_OFFLINE", "").upper() in {"1", "ON", "YES", "TRUE"}
        reason = "HF_HUB_OFFLINE is set and the cache lacks it" if offline else f"{type(error).__name__}: {error}"
        tried.append(f"the Hugging Face hub ({' '.join(reason.split())[:300]})")
        helps = [f"with a network: hf download {source}", f"without: {helps[0]}", helps[1]]
    lines = "".join(f"\n  - {place}" for place in tried)
    raise EncoderError(
        f"no encoder {source!r} in reach. Tried:{lines}\nWhat helps: {'; '.join(helps[:-1])}; or {helps[-1]}"
    )


def digest_of(folder: Path, names: tuple[str, ...]) -> str:
    """Return one sha256 over those of the named files that exist, by name and content."""
    digest = hashlib.sha256()
    for name in names:
        path = folder / name
        if path.is_file():
            digest.update(name.encode())
            state = path.stat()
            digest.update(_file_digest(path, state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns))
    return digest.hexdigest()


@functools.lru_cache(maxsize=256)  # points of a sweep start from the same weights, of gigabytes
def _file_digest(path: Path, *_: int) -> bytes:
    """Return the sha256 of a file in the state that the other arguments tell: a file that has changed has another."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").digest()


def weights_digest(folder: Path) -> str:
    """Return the sha256 over config and weights of an encoder's folder."""
    shards = tuple(sorted(path.name for path in folder.glob("model*.safetensors")))
    return digest_of(folder, ("config.json", *shards))


def tokenizer_digest(folder: Path) -> str:
    """Return the sha256 over the tokenizer's files in an encoder's folder."""
    return digest_of(folder, _TOKENIZER)
