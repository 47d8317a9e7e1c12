"""What is known about a corpus: its splits, files, digests, licence and sources."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

from lightning_cse.errors import DataError, did_you_mean


class Table(NamedTuple):
    """The columns of one parsed file, the line that each row starts on, and how many lines were left out, by reason."""

    columns: dict[str, list[str] | list[float]]
    lines: list[int]
    dropped: Mapping[str, int] = MappingProxyType({})


Parse = Callable[[str, str], Table]
"""Turns the text of a file (second argument: its path, for errors) into a table."""


@dataclass(frozen=True)
class CorpusFile:
    """An official file of one split. Files of one split hold its columns side by side, one row a line in each.

    Attributes:
        split: Name of the split.
        path: Its place below the data directory, such as ``INLI/train.csv``; a ``.gz`` beside it is read as well.
        rows: Number of rows of the split.
        sha256: Digest of the official file's uncompressed bytes; ``None`` where it is not known, then rows are counted.
        remote: Its name below a source that is downloaded from: below each of :attr:`Corpus.sources`, or a mirror.
        member: Its name inside ``remote``, where that is a zip archive.
        parse: In place of the corpus's own, for a file that holds some of a split's columns.
        only: A column and its value in the rows of this split, where one file holds several splits.
    """

    split: str
    path: str
    rows: int
    sha256: str | None
    remote: str
    member: str | None = None
    parse: Parse | None = None
    only: tuple[str, str] | None = None


@dataclass(frozen=True)
class Hub:
    """Where the Hugging Face hub has the corpus.

    Attributes:
        id: The hub's id of the data set.
        revision: The commit of the data set.
        splits: Our split name to the hub's.
        to_official: Turns the hub's rows into the bytes of a file in the official layout; the second argument is what
            to call the rows in an error.
    """

    id: str
    revision: str
    splits: Mapping[str, str]
    to_official: Callable[[Iterable[Mapping[str, object]], str], bytes]


@dataclass(frozen=True)
class Corpus:
    """One corpus in its official layout.

    Attributes:
        name: The name that configs and commands use.
        title: What people call it.
        files: The official files, split after split.
        parse: How a file is read.
        licence: The licence of the text.
        prepare: What ``python -m lightning_cse.prepare`` does for it, in one line.
        sources: Base addresses of the plain official files, the next tried where one has no such file; all give the
            same bytes, or the digest tells. Empty if the corpus has no stable one.
        hub: The data set on the Hugging Face hub, if one is known.
        aliases: Other names of splits.
    """

    name: str
    title: str
    files: tuple[CorpusFile, ...]
    parse: Parse
    licence: str
    prepare: str
    sources: tuple[str, ...] = ()
    hub: Hub | None = None
    aliases: Mapping[str, str] = field(default_factory=dict)

    @property
    def splits(self) -> tuple[str, ...]:
        """The names of the splits, in order."""
        return tuple(dict.fromkeys(file.split for file in self.files))

    def split_files(self, split: str) -> tuple[CorpusFile, ...]:
        """Return the files of a split, or raise DataError with the splits there are."""
        name = self.aliases.get(split, split)
        found = tuple(file for file in self.files if file.split == name)
        if found:
            return found
        known = self.splits
        also = "".join(f"; {alias!r} means {name!r}" for alias, name in self.aliases.items())
        raise DataError(
            f"corpus {self.name!r} has no split {split!r}{did_you_mean(split, [*known, *self.aliases])}; "
            f"its splits: {', '.join(known)}{also}"
        )
