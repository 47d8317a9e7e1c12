"""Builds an index: reads, embeds and appends, holds no more than a chunk, and goes on where it was stopped."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np
import torch

from lightning_cse.embeddings import Embedding
from lightning_cse.errors import DataError, EncoderError
from lightning_cse.index.folder import (
    ENDS,
    FORMAT,
    LINES,
    SENTENCES,
    TIMES,
    IndexFolder,
    IndexFolderError,
    write_about,
)
from lightning_cse.index.sentences import SentenceFile
from lightning_cse.runs import disk_errors, locked, write_atomic

__all__ = ["CHUNK", "build_index"]

CHUNK: Final = 2048
"""Sentences that are embedded and brought to the disk together: what a build that is killed has to do again at most."""

PROGRESS: Final = "progress.json"

Embed = Callable[[Sequence[str]], Embedding]
Advance = Callable[[int, int], None]


@dataclass(frozen=True)
class _Progress:
    """What is on the disk for certain: so many sentences, and so many bytes of them."""

    wanted: dict[str, Any]
    count: int = 0
    size: int = 0
    embedding: str = ""
    fields: tuple[str, ...] = ()
    width: int = 0


def build_index(
    path: Path,
    corpus: SentenceFile,
    embed: Embed,
    *,
    model: Mapping[str, Any],
    advance: Advance = lambda done, total: None,
    replace: bool = False,
) -> IndexFolder:
    """Embed the sentences of a file into an index on disk.

    Each distinct sentence is embedded and kept once, in the order of the file, with the line where it first stands and
    how often it does. The work goes to a hidden folder beside ``path``, `CHUNK` sentences at a time, brought to the
    disk before they count; when all is there the folder takes its name in one step. The same call after a kill goes on
    after the last whole chunk, if model and corpus are the same.

    Args:
        path: the folder to be.
        corpus: the sentences.
        embed: sentences to embeddings.
        model: ``{"name": ..., "decides": {...}}``; a vector must depend on nothing but ``decides`` and its sentence.
        advance: is told of how many sentences out of how many are there, at the start and after every chunk.
        replace: whether an index that is there gives way to the new one.

    Raises:
        IndexFolderError: if something is at ``path`` and ``replace`` is not set, or it is no index.
        DataError: if the corpus cannot be read or changes meanwhile.
        EncoderError: if an embedding is not finite.
        Busy: if another process builds it.
        LightningCSEError: if the disk is full.
    """
    if is_taken(path) and not (replace and (path / "index.json").is_file()):
        raise IndexFolderError(f"{path} is there already; give another folder, or --rebuild if it is an index")
    part = path.with_name(f".{path.name}.building")
    with locked(path.with_name(f".{path.name}.lock"), f"the index {path}"):
        wanted = {"format": FORMAT, "model": dict(model), "corpus": corpus_identity(corpus)}
        survey = corpus.survey()
        progress = _resumed(part, wanted)
        total = len(survey.first)
        advance(progress.count, total)
        lines = _lines(corpus, survey.first)
        firsts = [line for line, _ in islice(lines, progress.count)]
        while chunk := list(islice(lines, CHUNK)):
            firsts += [line for line, _ in chunk]
            progress = _append(part, progress, [sentence for _, sentence in chunk], embed)
            advance(progress.count, total)
        if progress.count != total or SentenceFile(corpus.path).sha256 != corpus.sha256:
            raise DataError(f"{corpus.path} changed while it was read; give the same command again")
        with disk_errors(part):
            np.asarray(firsts, dtype="<i8").tofile(part / LINES)
            survey.times.astype("<i8").tofile(part / TIMES)
        about = {
            **wanted,
            "embedding": progress.embedding,
            "fields": list(progress.fields),
            "count": total,
            "width": progress.width,
            "lines": survey.lines,
            "empty": survey.empty,
            "kinds": {},
        }
        write_about(part, about)
        _put(part, path)
    return IndexFolder.open(path)


def is_taken(path: Path) -> bool:
    """Say whether something is there that is more than an empty folder."""
    return path.exists() and (not path.is_dir() or any(path.iterdir()))


def corpus_identity(corpus: SentenceFile) -> dict[str, Any]:
    """Return the name of a corpus and what decides its sentences."""
    return {"name": corpus.path.name, "decides": {"sha256": corpus.sha256, "column": corpus.column}}


def _lines(corpus: SentenceFile, first: Sequence[int] | np.ndarray[Any, Any]) -> Iterator[tuple[int, str]]:
    """Yield the line and the sentence of the rows that are kept."""
    places = iter(first)
    place = next(places, None)
    for row, (line, sentence) in enumerate(corpus):
        if row == place:
            yield line, sentence
            place = next(places, None)


def _resumed(part: Path, wanted: dict[str, Any]) -> _Progress:
    """Return how far a build of the same has come, with what it had begun and not finished cut off; else start anew."""
    try:
        told = json.loads((part / PROGRESS).read_text(encoding="utf-8"))
        progress = _Progress(**{**told, "fields": tuple(told["fields"])})
        sizes = {SENTENCES: progress.size, ENDS: 8 * progress.count}
        sizes |= {f"{name}.f4": 4 * progress.count * progress.width for name in progress.fields}
        fits = progress.wanted == wanted and all((part / name).stat().st_size >= n for name, n in sizes.items())
    except (OSError, ValueError, TypeError, KeyError):
        fits = False
    if not fits:
        shutil.rmtree(part, ignore_errors=True)
        with disk_errors(part):
            part.mkdir(parents=True)
        return _Progress(wanted)
    for name, size in sizes.items():
        os.truncate(part / name, size)
    return progress


def _append(part: Path, progress: _Progress, sentences: list[str], embed: Embed) -> _Progress:
    embedding = embed(sentences)
    fields = {name: value.float().cpu() for name, value in embedding.fields().items()}
    if not all(bool(torch.isfinite(value).all()) for value in fields.values()):
        raise EncoderError(
            "some embeddings are not finite numbers: the weights of the model are broken; train it again"
        )
    encoded = [sentence.encode() for sentence in sentences]
    ends = progress.size - 1 + np.cumsum([len(one) + 1 for one in encoded])
    with disk_errors(part):
        _write(part / SENTENCES, b"".join(one + b"\n" for one in encoded))
        _write(part / ENDS, ends.astype("<i8").tobytes())
        for name, value in fields.items():
            _write(part / f"{name}.f4", value.numpy().astype("<f4", copy=False).tobytes())
    now = _Progress(
        progress.wanted,
        progress.count + len(sentences),
        int(ends[-1]) + 1,
        type(embedding).__name__,
        tuple(fields),
        next(iter(fields.values())).shape[1],
    )
    write_atomic(part / PROGRESS, json.dumps(vars(now)))
    return now


def _write(path: Path, content: bytes) -> None:
    with path.open("ab") as file:
        file.write(content)
        _sync(file)


def _sync(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())


def _put(part: Path, path: Path) -> None:
    """Give the finished folder its name; an older index is out of the way for no longer than two renames take."""
    for name in (LINES, TIMES):
        with (part / name).open("rb+") as file:
            _sync(file)
    old = path.with_name(f".{path.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    if path.exists():
        path.rename(old)
    part.rename(path)
    (path / PROGRESS).unlink()  # not before: who is killed between the renames need not embed again
    shutil.rmtree(old, ignore_errors=True)
