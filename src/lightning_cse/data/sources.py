"""The sources that a data set is read from, and the sentence pairs that must not be trained on."""

import functools
import logging
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from lightning_cse.data.corpora import CORPORA, find_file, get_corpus, read_corpus
from lightning_cse.data.own import FORMS, is_own, read_table
from lightning_cse.data.parsers import LLM_SENTENCES, PAIR_SENTENCES
from lightning_cse.data.rows import Rows
from lightning_cse.errors import ConfigError, DataError

# Columns that make a sentence pair together with ``premise``.
HYPOTHESES = (
    "hypothesis",
    "entailment",
    "explicit_entailment",
    "implied_entailment",
    "neutral",
    "contradiction",
)
log = logging.getLogger(__name__)

LEAK = "pair of a dev or test set"

_PAIRS = (
    *(("premise", name) for name in HYPOTHESES),
    ("sentence1", "sentence2"),
    *(("anchor", name) for name in LLM_SENTENCES[1:]),
    PAIR_SENTENCES[:2],
    PAIR_SENTENCES[2:],
)


def read_sources(
    sources: str | Iterable[str],
    data_dir: Path,
    *,
    key: str,
    may_be_empty: bool = False,
    columns: Mapping[str, str] | None = None,
    takes: str = "",
) -> list[Rows]:
    """Read splits, such as ``snli/train``, and the user's own files (see `read_table`).

    Relative paths start at the working directory. Errors name the config key that the sources come
    from. A name of another form is a ConfigError, and so is no name unless ``may_be_empty``.
    """
    names = [sources] if isinstance(sources, str) else [str(source) for source in sources]

    if not names and not may_be_empty:
        example = "give a file of your own, or corpus/split, such as snli/train"
        raise ConfigError([f"{key}: names no source; {example}"])

    wrong = [name for name in names if not is_own(name) and not all(_parts(name))]
    if wrong:
        expected = f"is not of the form corpus/split, such as snli/train; {FORMS}"
        raise ConfigError(f"{key}: {name!r} {expected}" for name in wrong)

    tables = []

    for name in names:
        if is_own(name):
            tables.append(
                read_table(
                    name,
                    columns=columns,
                    key=key,
                    takes=takes,
                )
            )
        else:
            tables.append(
                _read_split(
                    name,
                    data_dir,
                    key,
                )
            )

    return tables


def _read_split(
    name: str,
    data_dir: Path,
    key: str,
) -> Rows:
    corpus, split = _parts(name)
    try:
        return read_corpus(
            corpus,
            split,
            data_dir,
        )
    except DataError as error:
        unknown = "" if corpus in CORPORA else f"; and no file or folder is named {name}"
        raise DataError(f"{key}: {error}{unknown}") from None


def missing_file(source: str, data_dir: str | Path) -> str | None:
    """Return which file of ``corpus/split`` is missing; None if none is, or the hub may have it."""
    name, _, split = source.partition("/")

    if is_own(source):
        return None

    corpus = get_corpus(name)
    folder = Path(data_dir).expanduser().absolute()

    for file in corpus.split_files(split):
        if corpus.hub is None and find_file(folder, file) is None:
            return f"{file.path} is not in paths.data_dir; prepare {name}: {corpus.prepare}"

    return None


def pair_keys(rows: Rows) -> list[tuple[str, ...]]:
    """Return, for each row, a key for each of its sentence pairs.

    Two pairs have the same key if they differ only in case, white space, punctuation and order, as
    in a tokenised and a raw edition of one corpus. A pair with a missing sentence has an empty key.
    """
    pairs = _pairs_of(rows)

    if not pairs:
        return [()] * len(rows)

    if "premise" in rows.names:  # triplets also have the names of contrastive learning
        pairs = [pair for pair in pairs if pair[0] == "premise"]

    pairs += [(pairs[0][0], name) for name in rows.names if name.startswith("negative_")]
    columns = [
        zip(
            rows.column(first),
            rows.column(second),
            strict=True,
        )
        for first, second in pairs
    ]

    return [tuple(_key(*sentences) for sentences in row) for row in zip(*columns, strict=True)]


def without_pairs(rows: Rows, excluded: set[str]) -> Rows:
    """Return the rows that have none of these pairs; the account says how many were dropped."""
    clean = free_of(rows, excluded)

    return rows if clean.all() else rows.select(np.flatnonzero(clean), reason=LEAK)


def free_of(rows: Rows, excluded: set[str]) -> np.ndarray:
    """Return whether each row has none of these pairs: (rows,)."""
    if not excluded:
        return np.ones(len(rows), dtype=bool)

    return np.array([excluded.isdisjoint(keys) for keys in pair_keys(rows)], dtype=bool)


def all_pairs(tables: Sequence[Rows]) -> set[str]:
    """Return the keys of all sentence pairs of several tables."""
    return {key for rows in tables for keys in pair_keys(rows) for key in keys if key}


def _pairs_of(rows: Rows) -> list[tuple[str, str]]:
    return [pair for pair in _PAIRS if all(name in rows.names for name in pair)]


def _parts(name: str) -> tuple[str, str]:
    """Return corpus and split of a name; the split is empty if it looks like a file."""
    corpus, _, split = name.partition("/")

    return corpus, "" if {"/", "."} & set(split) else split


def _key(first: str, second: str | None) -> str:
    return "" if second is None else "\0".join(sorted((_letters(first), _letters(second))))


@functools.lru_cache(maxsize=1 << 18)  # premises occur in several pairs
def _letters(sentence: str) -> str:
    return "".join(filter(str.isalnum, sentence)).casefold()
