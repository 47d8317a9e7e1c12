"""The sources that a data set is read from."""

from collections.abc import Iterable
from pathlib import Path

from datasets import Dataset

from lightning_cse.data.corpora import read_corpus
from lightning_cse.data.declarations import find_file, get_corpus
from lightning_cse.data.read import FORMS, FileFormat, is_file, read_files
from lightning_cse.data.rows import Account
from lightning_cse.errors import ConfigError, DataError


def read_sources(
    sources: str | Iterable[str],
    data_dir: str | Path,
    *,
    key: str,
    form: FileFormat | None = None,
    takes: str = "",
    cache_dir: Path | None = None,
    account: Account | None = None,
) -> list[Dataset]:
    """Read splits, such as ``snli/train``, and the user's own files in a form (see `read_files`);
    those of large files are mapped from ``cache_dir``.

    Relative paths start at the working directory. Errors name the config key that the sources come
    from. A name of another form is a ConfigError, and so is no name.
    """
    tables = []

    for name in [sources] if isinstance(sources, str) else map(str, sources):
        corpus, _, split = name.partition("/")

        if is_file(name):
            table = read_files(
                name, form=form, key=key, takes=takes, cache_dir=cache_dir, account=account
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
