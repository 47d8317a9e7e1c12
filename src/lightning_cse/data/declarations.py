"""The corpora that `corpora.yaml` declares, and where their files are; nothing is read."""

import os
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, Field, field_validator

from lightning_cse.data.columns import converters
from lightning_cse.data.formats import READERS
from lightning_cse.errors import ConfigError, DataError, did_you_mean, one_line
from lightning_cse.paths import SAMPLE_DIR, experiments_dir

DATA_DIR_VARIABLE = "LIGHTNING_CSE_DATA"
DECLARATIONS = "corpora.yaml"
SAMPLE = "SAMPLE"  # in a data directory with a file of this name, rows are not counted


class Layout(BaseModel, frozen=True, extra="forbid"):
    """How a file is read: a reader of `layouts.READERS`, the columns, and options of the reader."""

    reader: str
    columns: list[str] | dict[str, str | dict[str, Any]] = Field(min_length=1)
    header: list[str] = []
    width: list[int] = []
    blank: str = ""
    pattern: str = ""

    @field_validator("reader")
    @classmethod
    def _is_known(cls, reader: str) -> str:
        if reader not in READERS:
            raise ValueError(f"no reader {reader!r}; choose from: {', '.join(READERS)}")

        return reader

    @field_validator("columns")
    @classmethod
    def _are_known(cls, columns: Any) -> Any:
        list(converters(columns))
        return columns


class CorpusFile(BaseModel, frozen=True, extra="forbid"):
    """An official file of one split; the fields are those of `corpora.yaml`."""

    split: str
    path: str
    rows: int | None = None
    sha256: str | None = None
    remote: str = ""
    member: str | None = None
    layout: Layout | None = None
    only: tuple[str, str] | None = None
    part: str | None = None
    anchors: tuple[str, ...] = ()


class HubCopy(BaseModel, frozen=True, extra="forbid"):
    """A copy of a corpus on the Hugging Face hub; ``splits`` has its names of our splits."""

    id: str
    revision: str | None = None
    splits: dict[str, str]
    columns: dict[str, str | dict[str, Any]]


class Corpus(BaseModel, frozen=True, extra="forbid"):
    """One corpus in its official layout; the fields are those of `corpora.yaml`."""

    name: str
    title: str
    licence: str = "not stated"
    prepare: str = "fetches nothing: put the files there"
    files: tuple[CorpusFile, ...] = Field(min_length=1)
    layout: Layout | None = None
    sources: tuple[str, ...] = ()
    aliases: dict[str, str] = {}
    part_column: str = "subset"
    encoding: str | None = None
    hub: HubCopy | None = None

    def __hash__(self) -> int:
        """Return the hash of the name: equal corpora have equal names."""
        return hash(self.name)

    @property
    def splits(self) -> tuple[str, ...]:
        """The names of the splits, in order."""
        return tuple(dict.fromkeys(file.split for file in self.files))

    def rows(self, split: str) -> int | None:
        """Return the number of rows of a split, over all its parts; None if it is not fixed."""
        counts = {file.part: file.rows for file in self.split_files(split)}.values()

        return None if None in counts else sum(filter(None, counts))

    def split_files(self, split: str) -> tuple[CorpusFile, ...]:
        """Return the files of a split, or raise DataError, which lists the known splits."""
        name = self.aliases.get(split, split)
        files = tuple(file for file in self.files if file.split == name)

        if not files:
            choices = ", ".join([*self.splits, *self.aliases])
            raise DataError(f"corpus {self.name!r} has no split {split!r}; choose from: {choices}")

        return files


def _declared(path: Path) -> dict[str, Corpus]:
    """Return the corpora that a file declares, or raise ConfigError."""
    corpora: dict[str, Corpus] = {}
    name = ""

    try:
        entries = yaml.load(path.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)
        for name, entry in entries.items():
            corpora[name] = Corpus.model_validate({"title": name, **entry, "name": name})
    except (OSError, ValueError, TypeError, AttributeError, yaml.YAMLError) as error:
        raise ConfigError([f"{path}: {name}: {one_line(error)}"]) from None

    return corpora


CORPORA = _declared(Path(__file__).with_name(DECLARATIONS))
_BUILT_IN = frozenset(CORPORA)


def register_corpora(folder: str | Path) -> None:
    """Add the corpora that a file ``corpora.yaml`` in this folder declares, if there is one.

    A later declaration of a name replaces an earlier one. The name of a corpus of the package is a
    ConfigError.
    """
    path = Path(folder).expanduser().absolute() / DECLARATIONS

    if not path.exists():
        return

    corpora = _declared(path)
    duplicates = ", ".join(sorted(_BUILT_IN & corpora.keys()))

    if duplicates:
        raise ConfigError([f"{path}: {duplicates}: corpora of lightning_cse; choose other names"])

    CORPORA.update(corpora)


def get_corpus(name: str) -> Corpus:
    """Return a corpus by name, or raise DataError, which lists the known corpora."""
    if name not in CORPORA:
        near = did_you_mean(name, CORPORA)
        raise DataError(f"unknown corpus {name!r}{near}; choose from: {', '.join(CORPORA)}")

    return CORPORA[name]


def sample_dir() -> Path:
    """Return the folder of the sample corpus in the package, in the official layout."""
    return SAMPLE_DIR


def default_data_dir() -> Path:
    """Return the folder of the corpora: ``LIGHTNING_CSE_DATA``, else ``./data``."""
    return Path(os.environ.get(DATA_DIR_VARIABLE) or "data").expanduser()


def find_file(folder: Path, file: CorpusFile) -> Path | None:
    """Return the path of a file in the data directory, plain before ``.gz``, or None.

    Rows without anchors are beside the tables of the papers.
    """
    folder = experiments_dir() if file.anchors else folder
    paths = (folder / file.path, folder / f"{file.path}.gz")

    return next(filter(Path.exists, paths), None)
