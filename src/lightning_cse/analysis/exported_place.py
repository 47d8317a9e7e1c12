"""Where an exported folder goes: whether it may, and how it takes its name whole or not at all."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import secrets
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from lightning_cse.errors import LightningCSEError

__all__ = ["check_place", "taking_its_place", "told_disk"]

log = logging.getLogger(__name__)

_FILE: Final = re.compile(r"README\.md|vocab\.txt|merges\.txt|\w.*\.(?:json|safetensors|model|jinja)")
_MODULE: Final = re.compile(r"\d+_[A-Za-z]+")


def check_place(to: Path, used: Iterable[Path], *, force: bool) -> None:
    """Raise what keeps a folder from being written, as far as it is to be seen.

    Args:
        to: where the folder is to be.
        used: what the model is read from, which is not written over.
        force: whether a folder of sentence-transformers that is there gives way, if there is nothing else in it.

    Raises:
        LightningCSEError: if something else is there, or the place cannot be written.
    """
    with told_disk(to):
        target = to.expanduser().resolve()
        if target.exists() and not target.is_dir():
            raise LightningCSEError(f"--to: {to} is a file; give the name of a folder")
        if target.is_dir() and any(target.iterdir()):
            _check_taken(target, to, used, force=force)
        if Path.cwd().is_relative_to(target):
            raise LightningCSEError(f"--to: {to} holds the working directory, which would be gone; give another folder")
        parent = next(folder for folder in target.parents if folder.exists())
        if not parent.is_dir() or not os.access(parent, os.W_OK | os.X_OK):
            why = "cannot be written to" if parent.is_dir() else "is a file"
            raise LightningCSEError(f"--to: {to} cannot be made: {parent} {why}; give another folder")


def _check_taken(target: Path, to: Path, used: Iterable[Path], *, force: bool) -> None:
    if not force:
        raise LightningCSEError(f"--to: {to} is there and is not empty; give another folder, or --force to replace it")
    if not (target / "modules.json").is_file():
        raise LightningCSEError(
            f"--to: --force replaces a folder of sentence-transformers, and {to} has no modules.json; give another"
        )
    if any(path.expanduser().resolve().is_relative_to(target) for path in used):
        raise LightningCSEError(f"--to: {to} holds the model itself; give another folder")
    others = sorted(entry.name for entry in target.iterdir() if not _is_of_a_model(entry))
    if others:
        raise LightningCSEError(
            f"--to: --force replaces the files of a model alone, and {to} has {', '.join(others[:3])}"
            f"{', ...' if others[3:] else ''} too, which would be lost; move that away, or give another folder"
        )


def _is_of_a_model(entry: Path) -> bool:
    """Tell whether a folder of sentence-transformers, in safetensors, has a file or a module's folder so called."""
    if not entry.is_dir():
        return bool(_FILE.fullmatch(entry.name))
    files = all(_FILE.fullmatch(file.name) and not file.is_dir() for file in entry.iterdir())
    return bool(_MODULE.fullmatch(entry.name)) and files


@contextlib.contextmanager
def taking_its_place(target: Path) -> Iterator[Path]:
    """Give a folder to write to that takes the name ``target`` at the end of the block, or is removed."""
    made = [folder for folder in target.parents if not folder.exists()]
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
    try:
        temporary.mkdir(parents=True)
        yield temporary
        _replace(target, temporary)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        for folder in made:
            with contextlib.suppress(OSError):
                folder.rmdir()
        raise


def _replace(target: Path, new: Path) -> None:
    """Give a folder its name; what has it steps aside first, and comes back if that fails."""
    if not (target.is_dir() and any(target.iterdir())):
        new.replace(target)
        return
    old = new.with_suffix(".old")
    target.replace(old)
    try:
        new.replace(target)
    except BaseException:
        old.replace(target)
        raise
    # The new folder is there and whole: what is left of the old one is no failure.
    shutil.rmtree(old, ignore_errors=True)
    if old.exists():
        log.warning("%s is what was there before, and cannot be removed", old)


@contextlib.contextmanager
def told_disk(target: Path) -> Iterator[None]:
    """Turn what keeps files from being written into the project's error."""
    from safetensors import SafetensorError

    try:
        yield
    except (OSError, SafetensorError) as error:
        why = getattr(error, "strerror", None) or " ".join(str(error).split())
        raise LightningCSEError(f"--to: {target} cannot be written: {why}; nothing is kept") from error
