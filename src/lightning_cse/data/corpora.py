"""Read the sources of a data set: the user's own files, and the corpora that `corpora.yaml`
declares, from the data directory, else from the hub.
"""

import functools
import hashlib
import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import datasets
import numpy as np
from datasets import Dataset

from lightning_cse.data.declarations import (
    DATA_DIR_VARIABLE,
    SAMPLE,
    Corpus,
    CorpusFile,
    HubCopy,
    find_file,
    get_corpus,
)
from lightning_cse.data.files import lines_of
from lightning_cse.data.formats import rows_of
from lightning_cse.data.read import FORMS, fingerprint_sha256, is_file, read_files, read_rows
from lightning_cse.data.rows import (
    LINE,
    Account,
    beside,
    concatenate,
    count_dropped,
    files_of,
    names_of,
    origin_of,
    values,
    with_columns,
    with_constant,
    with_files,
)
from lightning_cse.errors import ConfigError, DataError, one_line

log = logging.getLogger(__name__)


def read_sources(
    sources: str | Iterable[str],
    data_dir: str | Path,
    *,
    key: str,
    columns: Mapping[str, str] | None = None,
    takes: str = "",
    cache_dir: Path | None = None,
    account: Account | None = None,
) -> list[Dataset]:
    """Read splits, such as ``snli/train``, and the user's own files (see `read_files`); those of
    large files are mapped from ``cache_dir``.

    Relative paths start at the working directory. Errors name the config key that the sources come
    from. A name of another form is a ConfigError, and so is no name.
    """
    tables = []

    for name in [sources] if isinstance(sources, str) else map(str, sources):
        corpus, _, split = name.partition("/")

        if is_file(name):
            table = read_files(
                name, columns=columns, key=key, takes=takes, cache_dir=cache_dir, account=account
            )
        elif not split or {"/", "."} & set(split):
            expected = f"is not of the form corpus/split, such as snli/train; {FORMS}"
            raise ConfigError([f"{key}: {name!r} {expected}"])
        else:
            try:
                table = read_corpus(corpus, split, data_dir, cache_dir, account)
            except DataError as error:
                raise DataError(f"{key}: {error}") from None

        tables.append(table)

    if not tables:
        raise ConfigError([f"{key}: give a file of your own, or corpus/split, such as snli/train"])

    return tables


def missing_file(source: str, data_dir: str | Path) -> str | None:
    """Return which file of ``corpus/split`` is missing, or None."""
    name, _, split = source.partition("/")

    if is_file(source):
        return None

    corpus = get_corpus(name)
    folder = Path(data_dir).expanduser().absolute()

    for file in corpus.split_files(split):
        if find_file(folder, file) is None:
            return f"{file.path} is not in paths.data_dir; prepare {name}: {corpus.prepare}"

    return None


def read_corpus(
    name: str,
    split: str,
    data_dir: str | Path,
    cache_dir: Path | None = None,
    account: Account | None = None,
) -> Dataset:
    """Read one split of a corpus.

    ``python -m lightning_cse.prepare`` lists the names and splits; ``corpora.yaml`` lists the
    columns. Files are plain or end in ``.gz``; a missing file is read from the corpus's copy on the
    Hugging Face hub, if it has one.

    Args:
        name: the corpus.
        split: the split, or an alias of it.
        data_dir: the folder of the official files. If it has a file named ``SAMPLE``, rows are not
            counted.
        cache_dir: the folder of the cache, which holds the rows of large files.
        account: adds how many rows were ``read`` and ``dropped: <reason>``.

    Raises:
        DataError: for a file that is nowhere, bad rows, or an official file without its declared
            number of rows.
    """
    folder = Path(data_dir).expanduser().absolute()
    counted = not (folder / SAMPLE).exists()
    corpus = get_corpus(name)
    parts: dict[str | None, list[CorpusFile]] = {}
    tables = []

    for file in corpus.split_files(split):
        parts.setdefault(file.part, []).append(file)

    for part, files in parts.items():
        rows, counts = _read_part(corpus, files, folder, cache_dir)
        if account is not None:
            account.update(counts)

        official = files[0].rows if counted else None

        if official not in (None, len(rows)):
            raise DataError(
                f"{files_of(rows)[0].path}: {len(rows):,} rows of split {split!r}, but the official "
                f"file has {official:,}: is it cut off?\n"
                f"  to fetch it again: {_command(corpus, folder)} --force\n"
                f"  if it differs on purpose: put an empty file named {SAMPLE} into {folder}"
            )

        tables.append(rows if part is None else with_constant(rows, corpus.part_column, part))

    return concatenate(tables)


def _read_part(
    corpus: Corpus, files: Sequence[CorpusFile], folder: Path, cache_dir: Path | None
) -> tuple[Dataset, Account]:
    """Join files line by line; a line that any of the files leaves out is left out."""
    tables: list[Dataset] = []
    lengths: dict[str, int] = {}
    total: Account = Counter()

    for file in files:
        account: Account = Counter()
        tables.append(_read_file(corpus, file, folder, cache_dir, account))
        lengths[files_of(tables[-1])[0].path] = account["read"]
        total |= account

    if files[0].anchors:
        sources = [source.split("/") for source in files[0].anchors]
        corpora = [read_corpus(name, split, folder, cache_dir) for name, split in sources]
        return with_anchors(tables[0], corpora, total), total

    if len(tables) == 1:
        return tables[0], total

    if len(set(lengths.values())) > 1:
        raise DataError(f"files that belong together differ in length: {lengths}")

    common = functools.reduce(np.intersect1d, [values(table, LINE) for table in tables])
    first, *joined = (
        table.select(np.flatnonzero(np.isin(values(table, LINE), common))) for table in tables
    )

    return beside(first, *(table.select_columns(names_of(table)) for table in joined)), total


def with_anchors(rows: Dataset, corpora: Sequence[Dataset], account: Account) -> Dataset:
    """Replace the digests in the column ``anchor`` by the sentences of corpora that have them: the
    first 16 hexadecimal digits of the sha256 of a sentence in UTF-8.

    Rows whose anchor is in none of the corpora are dropped, and counted.
    """
    requested = dict.fromkeys(rows["anchor"])
    anchors = {
        digest: sentence
        for table in corpora
        for name in names_of(table)
        for sentence in values(table, name).to_pylist()
        if (digest := hashlib.sha256(sentence.encode()).hexdigest()[:16]) in requested
    }
    sentences = list(map(anchors.get, rows["anchor"]))
    matched = np.flatnonzero([sentence is not None for sentence in sentences])
    missing = len(rows) - len(matched)
    if missing:
        log.warning("%s: %d of %d anchors are missing", origin_of(rows), missing, len(rows))
        count_dropped(account, {"anchor not in the corpora": missing})

    complete = with_columns(rows, anchor=sentences).select(matched)

    return with_files(complete, files_of(rows, *corpora))


def _command(corpus: Corpus, folder: Path) -> str:
    return f"python -m lightning_cse.prepare {corpus.name} --data-dir '{folder}'"


def _read_file(
    corpus: Corpus, file: CorpusFile, folder: Path, cache_dir: Path | None, account: Account
) -> Dataset:
    """Read one file of a corpus from a data directory, else from the hub, or raise DataError."""
    path = find_file(folder, file)
    if path is not None:
        return parse_file(corpus, file, path, cache_dir, account)

    hub = ""
    if corpus.hub is not None:
        try:
            return _read_hub(corpus.hub, file, account)
        except Exception as error:  # noqa: BLE001 - the hub's client raises what its layers raise
            hub = f"  the Hugging Face hub ({corpus.hub.id}): {one_line(error)}\n"

    fetch = f"the command that prepares corpora {corpus.prepare}"
    if corpus.sources:
        fetch = f"to fetch it: {_command(corpus, folder)}"

    raise DataError(
        f"corpus {corpus.name!r}, split {file.split!r} was not found\n"
        f"  looked for: {folder / file.path}, also with .gz\n{hub}  {fetch}\n"
        f"  if you have it: set {DATA_DIR_VARIABLE} (or paths.data_dir) to the folder that holds "
        f"{file.path}"
    )


def _read_hub(hub: HubCopy, file: CorpusFile, account: Account) -> Dataset:
    split = hub.splits[file.split]
    dataset = datasets.load_dataset(hub.id, split=split, revision=hub.revision)

    return read_rows(
        lambda _: (hub.columns, enumerate(dataset, start=1)),
        file.path,
        f"hf://datasets/{hub.id}@{hub.revision}/{split}",
        identity=hub.columns,
        sha256=fingerprint_sha256(dataset),
        account=account,
    )


def parse_file(
    corpus: Corpus,
    file: CorpusFile,
    path: Path,
    cache_dir: Path | None = None,
    account: Account | None = None,
) -> Dataset:
    """Read one file of a corpus from any path, or raise DataError with the file and line."""
    layout = file.layout or corpus.layout
    if layout is None:
        raise ConfigError([f"corpus {corpus.name!r}: no layout for {file.path}"])

    options: dict[str, Any] = layout.model_dump(exclude_unset=True)
    encoding = _encoding(path, corpus.encoding)

    return read_rows(
        lambda report: (layout.columns, rows_of(lines_of(path, encoding), report, **options)),
        file.path,
        str(path),
        identity=[encoding, options],
        only=file.only,
        size=path.stat().st_size,
        cache_dir=cache_dir,
        account=account,
    )


def _encoding(path: Path, otherwise: str | None) -> str | None:
    """Return the encoding that is declared for files that are not UTF-8 if this is one of them."""
    if otherwise is None:
        return None

    try:
        for _ in lines_of(path):
            pass
    except DataError:
        log.warning("%s is not UTF-8, and is read as %s", path, otherwise)
        return otherwise

    return None
