"""The sources that a data set is read from, and the sentence pairs that must not be trained on."""

import functools
import hashlib
import itertools
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from lightning_cse.data.corpora import find_file, get_corpus, read_corpus
from lightning_cse.data.mapped import digest_of, hashed, kept_array, true_rows
from lightning_cse.data.own import FORMS, OwnFormat, is_own, read_table
from lightning_cse.data.parsers import LLM_SENTENCES, PAIR_SENTENCES
from lightning_cse.data.rows import Rows
from lightning_cse.errors import ConfigError, DataError

# Columns that make a sentence pair together with ``premise``.
SECOND_SENTENCES = (
    "hypothesis",
    "entailment",
    "explicit_entailment",
    "implied_entailment",
    "neutral",
    "contradiction",
)

PAIRS_VERSION = 1  # of the keys of pairs, for files of the cache
LEAK = "pair of a dev or test set"

_PAIRS = (
    *(("premise", name) for name in SECOND_SENTENCES),
    ("sentence1", "sentence2"),
    *(("anchor", name) for name in LLM_SENTENCES[1:]),
    PAIR_SENTENCES[:2],
    PAIR_SENTENCES[2:],
)


def read_sources(
    sources: str | Iterable[str],
    data_dir: str | Path,
    *,
    key: str,
    form: OwnFormat | None = None,
    takes: str = "",
    cache_dir: Path | None = None,
) -> list[Rows]:
    """Read splits, such as ``snli/train``, and the user's own files in a form (see `read_table`);
    those of large files are mapped from ``cache_dir``.

    Relative paths start at the working directory. Errors name the config key that the sources come
    from. A name of another form is a ConfigError, and so is no name.
    """
    tables = []

    for name in [sources] if isinstance(sources, str) else map(str, sources):
        corpus, _, split = name.partition("/")

        if is_own(name):
            tables.append(read_table(name, form=form, key=key, takes=takes, cache_dir=cache_dir))
        elif not split or {"/", "."} & set(split):
            expected = f"is not of the form corpus/split, such as snli/train; {FORMS}"
            raise ConfigError([f"{key}: {name!r} {expected}"])
        else:
            try:
                tables.append(read_corpus(corpus, split, data_dir, cache_dir))
            except DataError as error:
                raise DataError(f"{key}: {error}") from None

    if not tables:
        raise ConfigError([f"{key}: give a file of your own, or corpus/split, such as snli/train"])

    return tables


def missing_file(source: str, data_dir: str | Path) -> str | None:
    """Return which file of ``corpus/split`` is missing, or None."""
    name, _, split = source.partition("/")

    if is_own(source):
        return None

    corpus = get_corpus(name)
    folder = Path(data_dir).expanduser().absolute()

    for file in corpus.split_files(split):
        if find_file(folder, file) is None:
            return f"{file.path} is not in paths.data_dir; prepare {name}: {corpus.prepare}"

    return None


def _pairs(names: Sequence[str]) -> list[tuple[str, str]]:
    """Return the columns that make sentence pairs."""
    pairs = [pair for pair in _PAIRS if set(pair) <= set(names)]

    if "premise" in names:  # triplets also have the names of contrastive learning
        pairs = [pair for pair in pairs if pair[0] == "premise"]

    if pairs:
        pairs += [(pairs[0][0], name) for name in names if name.startswith("negative_")]

    return pairs


def without_pairs(rows: Rows, excluded: np.ndarray) -> Rows:
    """Return the rows that have none of these pairs; the account says how many were dropped."""
    clean = free_of(rows, excluded)

    if clean.all():
        return rows

    return rows.select(true_rows(clean, rows.cache_dir), reason=LEAK)


def free_of(rows: Rows, excluded: np.ndarray) -> np.ndarray:
    """Return whether each row has none of these pairs, which are given by hashes: (rows,)."""
    if not len(excluded):
        return np.ones(len(rows), dtype=bool)

    whole = rows.whole

    def name() -> str:
        digest = hashlib.sha256(f"{PAIRS_VERSION}".encode())
        digest.update(np.ascontiguousarray(excluded).tobytes())
        for column in itertools.chain.from_iterable(_pairs(rows.names)):
            digest.update(f"{column} {digest_of(rows.data.column(column))}".encode())

        return f"computed/free-{digest.hexdigest()[:32]}.bool"

    free = (np.asarray(~np.isin(some, excluded).any(axis=1)) for some in _hashes(whole))

    return rows.chosen(kept_array(rows.cache_dir, name, np.bool_, len(whole), free))


def all_pairs(tables: Sequence[Rows]) -> np.ndarray:
    """Return the hashes of the keys of all sentence pairs of several tables, sorted: (pairs,)."""
    hashes = [part.ravel() for rows in tables for part in _hashes(rows)]
    distinct = np.unique(np.concatenate(hashes)) if hashes else np.empty(0, np.uint64)

    return np.asarray(distinct[distinct != 0])


def pair_hash(first: str, second: str | None) -> int:
    """Return a hash of a sentence pair, or 0 if it lacks its second sentence.

    Two pairs have the same hash if they differ only in case, white space, punctuation and order, as
    in a tokenised and a raw edition of one corpus.
    """
    if second is None:
        return 0

    return hashed("\0".join(sorted((_letters(first), _letters(second)))).encode())


def _hashes(rows: Rows) -> Iterator[np.ndarray]:
    """Yield the hashes of the sentence pairs of some rows after the others: (some rows, pairs)."""
    pairs = _pairs(rows.names)

    for part in rows.parts():
        hashes = np.zeros((len(part), len(pairs)), np.uint64)

        for number, pair in enumerate(pairs):
            hashes[:, number] = list(map(pair_hash, *map(part.column, pair)))

        yield hashes


@functools.lru_cache(maxsize=1 << 15)  # premises occur in several pairs
def _letters(sentence: str) -> str:
    return "".join(filter(str.isalnum, sentence)).casefold()
