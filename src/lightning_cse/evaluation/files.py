"""Test sets in files of your own, with or without a dev set."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from datasets import Dataset

from lightning_cse.data.read import read_files
from lightning_cse.data.rows import files_of, names_of
from lightning_cse.errors import ConfigError, DataError


@dataclass(frozen=True, kw_only=True)
class OwnFiles:
    """The files of a task, in any form that `read_files` reads.

    Args:
        files: the test files: a path, a list of paths (their rows are concatenated), or
            ``{dev: ..., test: ...}``.
        key: the config key of the files, for messages.
        columns: the columns of the files that have other names, by the names that tasks read.

    Raises:
        ConfigError: if the files have another form.
    """

    files: Any
    key: str
    columns: Mapping[str, str] | None = None

    def __post_init__(self) -> None:
        sources = self.sources
        is_complete = all(isinstance(value, str | Sequence) and value for value in sources.values())
        if not is_complete or not {"test"} <= sources.keys() <= {"dev", "test"}:
            forms = "FILE, [FILE, ...] or {dev: FILE, test: FILE}"
            raise ConfigError([f"{self.key}: must be {forms}, got {sources}"])

    @property
    def sources(self) -> dict[Literal["dev", "test"], Any]:
        """The files by split."""
        return dict(self.files) if isinstance(self.files, Mapping) else {"test": self.files}

    def read(
        self, split: Literal["dev", "test"], columns: Sequence[str], optional: Collection[str] = ()
    ) -> Dataset:
        """Read the files of a split, or raise DataError if a column is missing that is not
        optional.
        """
        names = self.columns or {}
        renamed = {name: names[name] for name in names if name in {*columns, *optional}}
        rows = read_files(
            self.sources[split],
            key=self.key,
            columns=renamed,
            columns_key="own.columns",
            takes=f"{self.key} reads {', '.join(columns)}",
        )
        missing = [name for name in columns if name not in rows.column_names]
        if missing:
            mapping = ", ".join(f"{name}: COLUMN" for name in missing)
            raise DataError(
                f"{self.key}: {files_of(rows)[0].path}: no {' and no '.join(missing)}; columns "
                f'recognised: {", ".join(names_of(rows))}; set "own.columns={{{mapping}}}"'
            )

        return rows

    def digests(self, tables: Mapping[Literal["dev", "test"], Dataset]) -> dict[str, str]:
        """Return the sha256 of each file by key, split, number and name."""
        digests = {}
        for split, rows in tables.items():
            for number, file in enumerate(files_of(rows), 1):
                digests[f"{self.key}/{split}/{number}-{Path(file.path).name}"] = file.sha256

        return digests
