"""Tokenise sentences once, into memory-mapped files that runs, seeds and processes share."""

import contextlib
import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import datasets
import numpy as np
import pyarrow as pa
from datasets import Dataset
from datasets.fingerprint import Hasher
from filelock import FileLock

from lightning_cse.data.rows import BATCH, dataset_of
from lightning_cse.errors import DataError, one_line
from lightning_cse.tokens import Tokenize, TokenTable

VERSION = 4  # of the files in the token cache
TOKENISED_AT_ONCE = 256  # sentences whose tokens, as objects, fit into a processor's cache


def tokenise(
    rows: Dataset,
    tokenizers: Mapping[str, Tokenize],
    cache_dir: Path | None,
    *,
    num_proc: int | None = None,
) -> Dataset:
    """Return a dataset of the bare token ids of columns of sentences, under their names, with an
    empty list for a null.

    Args:
        rows: the rows.
        tokenizers: the tokenizer of each column.
        cache_dir: the folder of the memory-mapped files, which are named after a digest of the
            rows and the tokenizers; None keeps the ids in memory.
        num_proc: the number of processes, with one thread each; None: one process, with a thread
            for each core.

    Raises:
        DataError: if a file of the cache cannot be read or written.
    """
    columns = list(tokenizers)
    features = datasets.Features({name: datasets.List(datasets.Value("int32")) for name in columns})
    digests = {name: tokenize.digest for name, tokenize in tokenizers.items()}
    fingerprint = Hasher.hash((VERSION, rows._fingerprint, digests))  # no public name
    run = functools.partial(
        rows.select_columns(columns).map,
        _ids_of_batch,
        batched=True,
        batch_size=BATCH,
        writer_batch_size=BATCH,
        remove_columns=columns,
        fn_kwargs={"tokenizers": dict(tokenizers)},
        features=features,
        new_fingerprint=fingerprint,
        num_proc=num_proc,
        desc="Tokenising",
    )

    if not len(rows):
        return Dataset.from_dict({name: [] for name in columns}, features=features)

    if cache_dir is None:
        return run(keep_in_memory=True)

    folder = cache_dir / "tokens" / fingerprint

    with usable(folder):
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / "lock"):  # the processes of a training wait for the first one
            for unfinished in folder.glob("tmp*"):  # of a process that was killed
                unfinished.unlink()

            return run(cache_file_name=str(folder / "ids.arrow"))


def _ids_of_batch(
    batch: Mapping[str, Sequence[str | None]], tokenizers: Mapping[str, Tokenize]
) -> dict[str, list[list[int]]]:
    return {name: ids_of(batch[name], tokenize) for name, tokenize in tokenizers.items()}


def ids_of(texts: Sequence[str | None], tokenize: Tokenize) -> list[list[int]]:
    """Return the bare token ids of each sentence, and an empty list for None."""
    present = [text for text in texts if text is not None]
    starts = range(0, len(present), TOKENISED_AT_ONCE)
    parts = (tokenize(present[start : start + TOKENISED_AT_ONCE]) for start in starts)
    ids = itertools.chain.from_iterable(parts)

    return [[] if text is None else next(ids) for text in texts]


def token_table(sentences: Sequence[str], tokenize: Tokenize, cache_dir: Path | None) -> TokenTable:
    """Return the tokens of sentences, from the cache if it has them; raises like `tokenise`."""
    texts = dataset_of({"text": pa.array(sentences, pa.string())})
    tokens = tokenise(texts, {"text": tokenize}, cache_dir)
    ids = tokens.data.column("text").combine_chunks()
    lengths = ids.value_lengths().to_numpy().astype(np.int64)

    return TokenTable(sentences, lengths, ids.flatten().to_numpy())


def lengths_of(tokens: Dataset, column: str) -> Iterator[np.ndarray]:
    """Yield the numbers of tokens of some sentences after the others in a column of ids."""
    for chunk in tokens.data.column(column).chunks:
        yield np.diff(chunk.offsets.to_numpy())


@contextlib.contextmanager
def usable(file: Path) -> Iterator[None]:
    """Replace the errors of a file of the cache that cannot be read or written by a DataError."""
    try:
        yield
    except (OSError, pa.ArrowException, datasets.exceptions.DatasetsError) as error:
        do = "remove it, or set paths.cache_dir to another folder, or to null"
        raise DataError(f"the cache {file} cannot be used ({one_line(error)}): {do}") from error
