"""An index on disk: what it was made of, its sentences, and one file a field of their embeddings."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch

from lightning_cse import embeddings
from lightning_cse.embeddings import Embedding
from lightning_cse.errors import LightningCSEError
from lightning_cse.runs import write_atomic

__all__ = ["FORMAT", "IndexFolder", "IndexFolderError", "differences", "embedding_kind"]

FORMAT: Final = 1
"""The version of the layout: raised with every change that an older reader would get wrong."""

ABOUT: Final = "index.json"
SENTENCES: Final = "sentences.txt"
ENDS: Final = "ends.i8"
LINES: Final = "lines.i8"
TIMES: Final = "times.i8"

_BLOCK: Final = 8192


class IndexFolderError(LightningCSEError):
    """An index is not there, not whole, or not of the model and the corpus it is asked about."""


@dataclass(frozen=True)
class IndexFolder:
    """An index on disk; its vectors and its sentences are read where they lie and never held as a whole.

    The folder holds

    - ``index.json``: the format, the model and the corpus with their digests, the kind of embedding, count and width,
      and for each kind of faiss index that was built its file, effort and measured recall;
    - ``sentences.txt``: each distinct sentence once, each followed by a line end; ``ends.i8``: the byte each ends at;
    - ``lines.i8``, ``times.i8``: the line of the corpus where a sentence first stands, and how often it stands there;
    - ``<field>.f4`` for each field of the embedding, (n, d) in float32; all numbers are little-endian.

    Attributes:
        path: the folder.
        about: what ``index.json`` says.
    """

    path: Path
    about: Mapping[str, Any]

    @classmethod
    def open(cls, path: Path) -> IndexFolder:
        """Open an index and check that its files have the sizes they must have.

        Raises:
            IndexFolderError: if there is none, it is of another format, or it is not whole.
        """
        if not path.is_dir():
            raise IndexFolderError(f"{path}: no index there; give --corpus to build one")
        about = read_about(path)
        folder = cls(path, about)
        sizes = {f"{name}.f4": folder.count * folder.width * 4 for name in about["fields"]}
        for name, size in (sizes | dict.fromkeys((ENDS, LINES, TIMES), folder.count * 8)).items():
            found = (path / name).stat().st_size if (path / name).is_file() else None
            if found != size:
                told = "is missing" if found is None else f"has {found} bytes and not {size}"
                raise IndexFolderError(f"{path / name} {told}: the index is damaged; build it again with --rebuild")
        if not (path / SENTENCES).is_file():
            raise IndexFolderError(
                f"{path / SENTENCES} is missing: the index is damaged; build it again with --rebuild"
            )
        return folder

    @property
    def count(self) -> int:
        """How many sentences there are, each counted once."""
        return int(self.about["count"])

    @property
    def width(self) -> int:
        """How many numbers a vector has."""
        return int(self.about["width"])

    @property
    def primary(self) -> str:
        """The name of the view that neighbours are sought by."""
        return next(iter(self.embedding(slice(0, 1)).views()))

    def vectors(self, field: str) -> npt.NDArray[np.float32]:
        """Return one field of all embeddings, mapped into memory: (n, d)."""
        return self._fields[field]

    def embedding(self, rows: slice | npt.NDArray[np.int64]) -> Embedding:
        """Return the embeddings of some sentences, read from disk."""
        kind = embedding_kind(str(self.about["embedding"]))
        # np.array copies: torch wants memory that it may write to, and the map is read-only.
        return kind(**{name: torch.from_numpy(np.array(self.vectors(name)[rows])) for name in self.about["fields"]})

    def blocks(self, size: int = _BLOCK) -> Iterator[Embedding]:
        """Yield all embeddings in order, so many at a time."""
        for start in range(0, self.count, size):
            yield self.embedding(slice(start, start + size))

    def sentence(self, row: int) -> str:
        """Return a sentence."""
        ends = self._numbers[ENDS]
        start = int(ends[row - 1]) + 1 if row else 0
        with (self.path / SENTENCES).open("rb") as file:
            file.seek(start)
            return file.read(int(ends[row]) - start).decode()

    def line(self, row: int) -> int:
        """Return the line of the corpus where a sentence first stands, from 1."""
        return int(self._numbers[LINES][row])

    def times(self, row: int) -> int:
        """Return how often a sentence stands in the corpus."""
        return int(self._numbers[TIMES][row])

    def noted(self, kind: str, facts: Mapping[str, Any]) -> IndexFolder:
        """Note a faiss index that was built, and return the folder that knows of it."""
        about = {**self.about, "kinds": {**self.about.get("kinds", {}), kind: dict(facts)}}
        write_about(self.path, about)
        return IndexFolder(self.path, about)

    @cached_property
    def _fields(self) -> dict[str, npt.NDArray[np.float32]]:
        shape = (self.count, self.width)
        return {
            name: np.memmap(self.path / f"{name}.f4", "<f4", mode="r", shape=shape) for name in self.about["fields"]
        }

    @cached_property
    def _numbers(self) -> dict[str, npt.NDArray[np.int64]]:
        return {
            name: np.memmap(self.path / name, "<i8", mode="r", shape=(self.count,)) for name in (ENDS, LINES, TIMES)
        }


def embedding_kind(name: str) -> type[Embedding]:
    """Return the class of an embedding by its name.

    Raises:
        IndexFolderError: if there is no such class.
    """
    kind = getattr(embeddings, name, None)
    if not (isinstance(kind, type) and issubclass(kind, Embedding)):
        raise IndexFolderError(f"the index holds embeddings of the kind {name!r}, which is not known here")
    return kind


def read_about(path: Path) -> dict[str, Any]:
    """Return what ``index.json`` of a folder says.

    Raises:
        IndexFolderError: if it is not there, no such file, or of another format.
    """
    file = path / ABOUT
    try:
        about = json.loads(file.read_text(encoding="utf-8"))
        version = about["format"]
    except FileNotFoundError:
        raise IndexFolderError(f"{path} is no index, as it has no {ABOUT}; give another folder") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise IndexFolderError(f"{file} cannot be read ({error}); build the index again with --rebuild") from error
    if version != FORMAT:
        raise IndexFolderError(
            f"{path}: an index of format {version}, and this version reads format {FORMAT}; build it again with "
            "--rebuild, or give another folder"
        )
    lacking = {"model", "corpus", "embedding", "fields", "count", "width"} - about.keys()
    if lacking:
        raise IndexFolderError(f"{file} lacks {', '.join(sorted(lacking))}; build the index again with --rebuild")
    return dict(about)


def write_about(path: Path, about: Mapping[str, Any]) -> None:
    """Write ``index.json`` of a folder, whole or not at all."""
    write_atomic(path / ABOUT, json.dumps(about, indent=2, ensure_ascii=False) + "\n")


def differences(about: Mapping[str, Any], wanted: Mapping[str, Any]) -> list[str]:
    """Return what an index was made of that is not what is wanted now, one line each.

    Only what decides a vector is compared, the ``decides`` of model and corpus; the names of files are not.

    Args:
        about: what ``index.json`` says.
        wanted: ``{"model": ..., "corpus": ...}`` as it was given to `lightning_cse.index.build_index`.
    """
    found = []
    for side in wanted:
        old, new = about[side].get("decides", {}), wanted[side]["decides"]
        found += [
            f"{side}: {key} was {_short(old.get(key))} and is {_short(new.get(key))}"
            for key in dict.fromkeys([*new, *old])
            if old.get(key) != new.get(key)
        ]
    return found


def _short(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    with contextlib.suppress(ValueError):
        int(text, 16)
        return text[:12]  # a digest
    return text
