"""What is known about a corpus: its splits, files, digests, licence and sources."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

from lightning_cse.errors import DataError, did_you_mean

PAIR_SENTENCES = ("pos_implicit", "pos_explicit", "neg_implicit", "neg_explicit")
"""The columns of a pair file: the implicit sentence with its own explicit sentence, and with one of another row."""

LLM_SENTENCES = ("anchor", "positive", "intermediate", "negative")
"""The columns of LLM rows of the STS pattern."""


class Table(NamedTuple):
    """The columns of one parsed file, the line that each row starts on, and how many lines were left out, by reason."""

    columns: dict[str, list[str] | list[float] | list[str | None]]
    lines: list[int]
    dropped: Mapping[str, int] = MappingProxyType({})


Parse = Callable[[str, str], Table]
"""Turns the text of a file (second argument: its path, for errors) into a table."""


@dataclass(frozen=True)
class CorpusFile:
    """An official file of one split. Files of one split, or of one part, stand side by side, one row a line in each.

    What each of them holds are columns of the same rows. A line that one of them leaves out is left out of all, as a
    pair without a gold score is; no two of them leave lines out.

    Attributes:
        split: Name of the split.
        path: Its place below the data directory, such as ``INLI/train.csv``; a ``.gz`` beside it is read as well.
        rows: Number of rows of the split, or of the part; lines that are left out do not count.
        sha256: Digest of the official file's uncompressed bytes; ``None`` where it is not known, then rows are counted.
        remote: Its name below a source that is downloaded from: below each of :attr:`Corpus.sources`, or a mirror.
        member: Its name inside ``remote``, where that is a zip archive.
        parse: In place of the corpus's own, for a file that holds some of a split's columns.
        only: A column and its value in the rows of this split, where one file holds several splits.
        part: Which part of the split the file belongs to, where the split has several: their rows follow one another,
            and the column :attr:`Corpus.part_column` tells them apart.
    """

    split: str
    path: str
    rows: int
    sha256: str | None
    remote: str
    member: str | None = None
    parse: Parse | None = None
    only: tuple[str, str] | None = None
    part: str | None = None


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
        part_column: The column that names the part of a row, where splits have parts.
        encoding: How files are read that are not UTF-8; ``None`` makes such a file an error.
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
    part_column: str = "subset"
    encoding: str | None = None

    @property
    def splits(self) -> tuple[str, ...]:
        """The names of the splits, in order."""
        return tuple(dict.fromkeys(file.split for file in self.files))

    def rows(self, split: str) -> int:
        """Return the number of rows of a split, those of all its parts together."""
        return sum({file.part: file.rows for file in self.split_files(split)}.values())

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
