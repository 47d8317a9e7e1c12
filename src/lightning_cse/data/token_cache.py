"""Tokenise sentences once, into memory-mapped files that runs, seeds and processes share."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from datasets import Dataset
from datasets.table import InMemoryTable

from lightning_cse.errors import DataError
from lightning_cse.tokens import Tokenize, TokenTable

VERSION = 2  # of the files in the token cache
AT_ONCE = 10_000  # sentences that are tokenised at once
FEATURES = datasets.Features({"ids": datasets.List(datasets.Value("int32"))})


def tokenise(
    sentences: pa.ChunkedArray,
    tokenize: Tokenize,
    cache_dir: Path | None,
) -> Dataset:
    """Return a dataset whose column ``ids`` holds the bare token ids of each sentence, with an
    empty list for a null.

    Args:
        sentences: the sentences of a role.
        tokenize: the tokenizer.
        cache_dir: the folder of the memory-mapped files, which are named after a digest of the
            sentences and the tokenizer; None keeps the ids in memory.

    Raises:
        DataError: if a file of the cache cannot be read or written.
    """
    if not len(sentences):
        return Dataset.from_dict({"ids": []}, features=FEATURES)

    def ids(texts: list[str | None]) -> dict[str, list[list[int]]]:
        tokenised = iter(tokenize([text for text in texts if text is not None]))
        return {"ids": [[] if text is None else next(tokenised) for text in texts]}

    fingerprint = _digest(sentences, tokenize)
    file = None if cache_dir is None else cache_dir / "tokens" / f"{fingerprint}.arrow"
    texts = Dataset(InMemoryTable(pa.table({"text": sentences})), fingerprint=fingerprint)

    try:
        if file is not None:
            file.parent.mkdir(parents=True, exist_ok=True)

        datasets.disable_progress_bars()  # most would only flash up
        # The file is written under another name first, and then renamed.
        return texts.map(
            ids,
            batched=True,
            batch_size=AT_ONCE,
            input_columns="text",
            remove_columns="text",
            features=FEATURES,
            new_fingerprint=fingerprint,
            cache_file_name=None if file is None else str(file),
            keep_in_memory=file is None,
        )
    except (OSError, pa.ArrowException) as error:
        why = " ".join(str(error).split())[:200]
        do = "remove the file, or set paths.cache_dir to another folder, or to null"
        raise DataError(f"the token cache {file} cannot be used ({why}): {do}") from error


def token_table(
    sentences: Sequence[str],
    tokenize: Tokenize,
    cache_dir: Path | None,
) -> TokenTable:
    """Return the tokens of sentences, from the cache if it has them; raises like `tokenise`."""
    texts = pa.chunked_array([sentences], pa.string())
    tokens = tokenise(texts, tokenize, cache_dir)
    ids = tokens.data.column("ids").combine_chunks()

    return TokenTable(
        sentences,
        lengths_of(tokens, "ids").astype(np.int64),
        ids.flatten().to_numpy(),
    )


def lengths_of(tokens: Dataset, column: str) -> np.ndarray:
    """Return the number of tokens of each sentence in a column of ids: (sentences,)."""
    return np.asarray(pc.list_value_length(tokens.data.column(column)).to_numpy())


def slices(sentences: pa.ChunkedArray) -> Iterator[list[str]]:
    """Yield sentences as lists of a size that memory holds."""
    for start in range(0, len(sentences), AT_ONCE):
        yield sentences.slice(start, AT_ONCE).to_pylist()


def _digest(sentences: pa.ChunkedArray, tokenize: Tokenize) -> str:
    digest = hashlib.sha256(f"{VERSION} {tokenize.digest}\0".encode())
    for some in slices(sentences):
        digest.update(json.dumps(some).encode())

    return digest.hexdigest()[:32]
