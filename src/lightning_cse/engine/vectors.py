"""Vectors of a large corpus: a folder of Arrow shards, written in constant memory and continued
after a kill.

The folder is one of `datasets` (``datasets.load_from_disk``), once it is complete. Shard k has the
vectors of the same rows of the input whatever process writes it, and is put in place as a whole.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped, unused-ignore]
import torch
from torch import Tensor

from lightning_cse.embeddings import Embedding
from lightning_cse.errors import ConfigError, EncoderError
from lightning_cse.runs import atomic_file, write_json

MANIFEST = "vectors.json"
_STATE = "state.json"  # of datasets; it is written last
_DIGEST = b"sentences"
DTYPES = {"float32": np.float32, "float16": np.float16}


@dataclass(frozen=True)
class VectorFolder:
    """A folder of shards with the vectors of sentences, and what they were made with."""

    path: Path
    manifest: Mapping[str, Any]

    @classmethod
    def claim(cls, path: Path, manifest: Mapping[str, Any]) -> VectorFolder:
        """Return a folder without shards, or with the same manifest, which is continued; else raise
        ConfigError.
        """
        if path.suffix == ".npy" or path.is_file():
            raise ConfigError(
                [
                    f"path: {path} would be a folder of Arrow shards, so give a folder's name; "
                    "numpy.save(file, model.encode(sentences)) writes a .npy file"
                ]
            )

        # In this order: another process writes the manifest before any shard.
        others = [file.name for file in path.glob("[!.]*")]
        found = _read(path)
        if found is None and others:
            raise ConfigError([f"path: {path} is not empty and has no {MANIFEST}"])

        known = found or {}
        changed = [key for key in manifest if known.get(key) != manifest[key]]
        if changed and any(name.startswith("data-") for name in others):
            faults = ", ".join(
                f"{key} {known.get(key)!r}, not {manifest[key]!r}" for key in changed
            )
            raise ConfigError(
                [f"path: the vectors in {path} have {faults}; remove it or give another folder"]
            )
        if changed:
            write_json(path / MANIFEST, dict(manifest))

        return cls(path, manifest)

    @classmethod
    def open(cls, path: Path) -> VectorFolder:
        """Return a complete folder; raise ConfigError for any other."""
        manifest = _read(path)
        if manifest is None:
            raise ConfigError([f"corpus: {path} has no {MANIFEST}: encode_to writes such a folder"])
        if not (path / _STATE).is_file():
            raise ConfigError(
                [f"corpus: {path} is not complete: call encode_to with the same arguments again"]
            )

        return cls(path, manifest)

    def shard(self, number: int) -> Path:
        """Return the path of a shard."""
        return self.path / f"data-{number:05d}.arrow"

    def has(self, number: int, sentences: Iterable[str]) -> bool:
        """Return whether a shard is there; raise ConfigError if it is of other sentences."""
        file = self.shard(number)
        if not file.is_file():
            return False

        if _schema(file).metadata[_DIGEST].decode() != _digest(sentences):
            raise ConfigError(
                [
                    f"path: {file} has the vectors of other sentences: the input changed; remove "
                    f"{self.path} or give another folder"
                ]
            )

        return True

    def write(self, number: int, sentences: Iterable[str], columns: Mapping[str, Tensor]) -> None:
        """Write the vectors (n, d) of sentences as a shard, in the dtype of the manifest."""
        file = self.shard(number)
        for left in self.path.glob(f".{file.name}.*.tmp"):  # by a process that was killed
            left.unlink(missing_ok=True)

        arrays = {name: self._array(name, value) for name, value in columns.items()}
        table = pa.table(arrays).replace_schema_metadata({_DIGEST: _digest(sentences)})
        with atomic_file(file) as target, pa.ipc.new_stream(target, table.schema) as writer:
            writer.write_table(table)

    def _array(self, name: str, vectors: Tensor) -> pa.Array:
        """Return vectors (n, d) as an Arrow array of n lists."""
        dtype = self.manifest["dtype"]
        with np.errstate(over="ignore"):  # it is an error below
            values = vectors.numpy().astype(DTYPES[dtype], copy=False)

        if not np.isfinite(values).all():
            raise EncoderError(f"dtype: {dtype} cannot hold the numbers of {name}; use float32")

        return pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), values.shape[1])

    def complete(self, shards: int) -> None:
        """Make the folder one that `datasets` loads, if all shards are there.

        Raises ConfigError if there are more of them: the input was longer before.
        """
        files = [self.shard(number) for number in range(shards)]
        if beyond := sorted({*self.path.glob("data-*.arrow")} - {*files}):
            raise ConfigError(
                [
                    f"path: {beyond[0]} is beyond the input: it was longer before; give another "
                    "folder"
                ]
            )
        if not all(file.is_file() for file in files):
            return

        import datasets

        schemas = [_schema(file) for file in files]
        digests = [schema.metadata[_DIGEST].decode() for schema in schemas]
        features = datasets.Features.from_arrow_schema(schemas[0].remove_metadata())
        datasets.DatasetInfo(features=features).write_to_directory(str(self.path))
        write_json(
            self.path / _STATE,
            {
                "_data_files": [{"filename": file.name} for file in files],
                "_fingerprint": _digest([json.dumps(self.manifest), *digests]),
                "_format_columns": None,
                "_format_kwargs": {"dtype": self.manifest["dtype"]},  # float32 by default
                "_format_type": "numpy",
                "_output_all_columns": False,
                "_split": None,
            },
        )

    def blocks(self, kind: type[Embedding]) -> Iterator[Embedding]:
        """Yield the vectors of each shard in float32, as an embedding with the columns as its
        fields.
        """
        state = json.loads((self.path / _STATE).read_text(encoding="utf-8"))
        for entry in state["_data_files"]:
            with pa.memory_map(str(self.path / entry["filename"])) as source:
                table = pa.ipc.open_stream(source).read_all()

            yield kind(**{name: _tensor(table.column(name)) for name in table.column_names})


def in_shards(sentences: Iterable[str], size: int) -> Iterator[list[str]]:
    """Yield lists of sentences, one at least: an empty corpus has one empty shard."""
    remaining = iter(sentences)
    yield list(itertools.islice(remaining, size))
    while shard := list(itertools.islice(remaining, size)):
        yield shard


def _read(path: Path) -> dict[str, Any] | None:
    """Return the manifest of a folder, if it has one."""
    file = path / MANIFEST
    if not file.is_file():
        return None

    manifest: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))

    return manifest


def _schema(file: Path) -> pa.Schema:
    """Return the schema of a shard, which has the digest of its sentences."""
    with pa.memory_map(str(file)) as source:
        return pa.ipc.open_stream(source).schema


def _tensor(column: pa.ChunkedArray) -> Tensor:
    lists = column.combine_chunks()
    values = lists.flatten().to_numpy().reshape(-1, lists.type.list_size)

    return torch.from_numpy(np.array(values, dtype=np.float32))


def _digest(sentences: Iterable[str]) -> str:
    """Return the sha256 of sentences."""
    digest = hashlib.sha256()
    for sentence in sentences:
        data = sentence.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8, "little") + data)

    return digest.hexdigest()
