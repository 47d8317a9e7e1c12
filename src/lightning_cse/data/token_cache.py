"""Tokenise sentences once, into memory-mapped files that runs, seeds and processes share."""

import contextlib
import functools
import hashlib
import itertools
import logging
import os
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
import xxhash
from datasets import Dataset
from datasets.table import InMemoryTable
from filelock import FileLock

from lightning_cse.data.cells import AT_ONCE
from lightning_cse.data.mapped import digest_of, gather, in_file, row_type, usable
from lightning_cse.tokens import Tokenize, TokenTable

log = logging.getLogger(__name__)

VERSION = 3  # of the files in the token cache
SHARD = 1_000_000  # sentences in a file; a finished file is not made again
TOKENISED_AT_ONCE = 256  # sentences whose tokens, as objects, fit into a processor's cache
PARALLELISM = "TOKENIZERS_PARALLELISM"  # the variable of the package tokenizers
FEATURES = datasets.Features({"ids": datasets.List(datasets.Value("int32"))})


def tokenise(
    sentences: pa.ChunkedArray,
    tokenize: Tokenize,
    cache_dir: Path | None,
    *,
    numbers: np.ndarray | None = None,
    num_proc: int | None = None,
) -> Dataset:
    """Return a dataset whose column ``ids`` holds the bare token ids of each sentence, with an
    empty list for a null.

    If it is stopped, the files of a million sentences that are finished are kept.

    Args:
        sentences: the sentences of a role.
        tokenize: the tokenizer.
        cache_dir: the folder of the memory-mapped files, which are named after a digest of the
            sentences and the tokenizer; None keeps the ids in memory.
        numbers: the sentences to tokenise, in order; None: all of them.
        num_proc: the number of processes, with one thread each; None: one process, with a thread
            for each core.

    Raises:
        DataError: if a file of the cache cannot be read or written.
    """
    count = len(sentences) if numbers is None else len(numbers)

    if not count:
        return Dataset.from_dict({"ids": []}, features=FEATURES)

    if numbers is None:
        numbers = in_file(range(count), row_type(count), cache_dir)

    name = _digest(sentences, numbers, tokenize)
    folder = None if cache_dir is None else cache_dir / "tokens"
    shards = [
        _Shard(f"{name}-{start // SHARD:05}", sentences, numbers[start : start + SHARD], folder)
        for start in range(0, count, SHARD)
    ]

    with usable(folder):
        if missing := sum(len(shard) for shard in shards if not shard.files()):
            threads = _threads() if num_proc is None else contextlib.nullcontext()
            with _one_at_a_time(cache_dir, name), _bar(missing) as advance, threads:
                for shard in shards:
                    shard.make(tokenize, num_proc or 1, advance)

        return datasets.concatenate_datasets([shard.tokens() for shard in shards])


class _Shard:
    """A file's worth of sentences, and the file, or files, of their ids."""

    def __init__(
        self, name: str, sentences: pa.ChunkedArray, numbers: np.ndarray, folder: Path | None
    ) -> None:
        self.name = name
        self._sentences = sentences
        self._numbers = numbers
        self._folder = folder
        self._in_memory: Dataset | None = None

    def __len__(self) -> int:
        return len(self._numbers)

    def files(self) -> list[Path]:
        """Return the files if all are there: one, or one for each process that wrote them."""
        if self._folder is None:
            return []

        whole = self._folder / f"{self.name}.arrow"
        if whole.exists():
            return [whole]

        pieces = sorted(self._folder.glob(f"{self.name}_*_of_*.arrow"))
        counts = Counter(piece.stem.rpartition("_of_")[2] for piece in pieces)
        complete = [of for of, count in counts.items() if int(of) == count]

        return [piece for piece in pieces if piece.stem.rpartition("_of_")[2] in complete[:1]]

    def make(self, tokenize: Tokenize, num_proc: int, advance: Callable[[int], None]) -> None:
        """Tokenise the sentences, unless this is done; ``advance`` is called with the number of
        finished ones.
        """
        if self.files():
            return

        datasets.disable_progress_bars()
        tokenised = functools.partial(_tokenised, tokenize=tokenize, new_fingerprint=self.name)

        if self._folder is None:
            texts = gather(self._sentences, self._numbers)
            data = Dataset(InMemoryTable(pa.table({"text": texts})), fingerprint=self.name)
            self._in_memory = tokenised(data, advance=advance, keep_in_memory=True)
            return

        # `datasets` writes here under other names first. The lock is held, so what there is of this
        # folder was left by a process that was killed.
        scratch = self._folder / f"tmp-{self.name}"
        shutil.rmtree(scratch, ignore_errors=True)
        (scratch / "ids").mkdir(parents=True)
        file = str(scratch / "ids" / f"{self.name}.arrow")
        try:
            data = self._written(scratch / "texts.arrow")
            if num_proc == 1:
                tokenised(data, advance=advance, cache_file_name=file)
            else:
                tokenised(data, advance=None, cache_file_name=file, num_proc=num_proc)
                advance(len(self))

            for piece in sorted((scratch / "ids").glob("*.arrow")):
                piece.replace(self._folder / piece.name)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)

    def _written(self, file: Path) -> Dataset:
        """Return the sentences from a file: other processes are sent its name, not the content."""
        schema = pa.schema({"text": self._sentences.type})

        with pa.ipc.new_stream(str(file), schema) as writer:
            for start in range(0, len(self), AT_ONCE):
                texts = gather(self._sentences, self._numbers[start : start + AT_ONCE])
                batch = pa.record_batch([pa.concat_arrays(texts.chunks)], schema=schema)
                writer.write_batch(batch)

        return Dataset.from_file(str(file))

    def tokens(self) -> Dataset:
        """Return the ids."""
        if self._in_memory is not None:
            return self._in_memory

        parts = []

        for file in self.files():
            with usable(file):
                parts.append(Dataset.from_file(str(file)))

        return datasets.concatenate_datasets(parts)


def _tokenised(
    texts: Dataset, tokenize: Tokenize, advance: Callable[[int], None] | None, **options: Any
) -> Dataset:
    """Tokenise with `Dataset.map`, which writes a file under another name first."""
    return texts.map(
        functools.partial(_ids, tokenize=tokenize, advance=advance),
        batched=True,
        batch_size=AT_ONCE,
        writer_batch_size=AT_ONCE,
        input_columns="text",
        remove_columns="text",
        features=FEATURES,
        **options,
    )


def _ids(
    texts: list[str | None], tokenize: Tokenize, advance: Callable[[int], None] | None
) -> dict[str, list[list[int]]]:
    ids = ids_of(texts, tokenize)

    if advance is not None:
        advance(len(texts))

    return {"ids": ids}


def ids_of(texts: Sequence[str | None], tokenize: Tokenize) -> list[list[int]]:
    """Return the bare token ids of each sentence, and an empty list for None."""
    present = [text for text in texts if text is not None]
    starts = range(0, len(present), TOKENISED_AT_ONCE)
    parts = (tokenize(present[start : start + TOKENISED_AT_ONCE]) for start in starts)
    ids = itertools.chain.from_iterable(parts)

    return [[] if text is None else next(ids) for text in texts]


@contextlib.contextmanager
def _threads() -> Iterator[None]:
    """Let the tokenizer of this process use a thread for each core."""
    before = os.environ.get(PARALLELISM)
    os.environ[PARALLELISM] = "true"

    try:
        yield
    finally:
        os.environ.pop(PARALLELISM)
        if before is not None:
            os.environ[PARALLELISM] = before


def _one_at_a_time(cache_dir: Path | None, name: str) -> contextlib.AbstractContextManager[Any]:
    """Let the other processes of a training wait for the first one."""
    if cache_dir is None:
        return contextlib.nullcontext()

    folder = cache_dir / "locks"
    folder.mkdir(parents=True, exist_ok=True)

    return FileLock(folder / f"{name}.lock")


@contextlib.contextmanager
def _bar(total: int) -> Iterator[Callable[[int], None]]:
    """Show a progress bar on a terminal; the function advances it."""
    from rich.progress import TextColumn

    from lightning_cse.progress import progress

    start = time.monotonic()
    done = 0

    def speed() -> str:
        return f"{3600 * done / max(time.monotonic() - start, 1e-9):,.0f}"

    with progress(TextColumn("{task.fields[speed]}")) as bar:
        task = bar.add_task("tokenising", total=total, speed="")

        def advance(count: int) -> None:
            nonlocal done
            done += count
            bar.update(task, completed=done, speed=f"{speed()} sentences an hour")

        yield advance

    if total >= AT_ONCE:
        seconds = time.monotonic() - start
        log.info("tokenised %s sentences in %.0f s: %s an hour", f"{total:,}", seconds, speed())


def token_table(sentences: Sequence[str], tokenize: Tokenize, cache_dir: Path | None) -> TokenTable:
    """Return the tokens of sentences, from the cache if it has them; raises like `tokenise`."""
    texts = pa.chunked_array([sentences], pa.string())
    tokens = tokenise(texts, tokenize, cache_dir)
    ids = tokens.data.column("ids").combine_chunks()
    lengths = ids.value_lengths().to_numpy().astype(np.int64)

    return TokenTable(sentences, lengths, ids.flatten().to_numpy())


def lengths_of(tokens: Dataset, column: str) -> Iterator[np.ndarray]:
    """Yield the numbers of tokens of some sentences after the others in a column of ids."""
    for chunk in tokens.data.column(column).chunks:
        yield np.diff(chunk.offsets.to_numpy())


def _digest(sentences: pa.ChunkedArray, numbers: np.ndarray, tokenize: Tokenize) -> str:
    chosen = xxhash.xxh3_128_hexdigest(np.ascontiguousarray(numbers).data)
    identity = f"{VERSION} {tokenize.digest}\0{digest_of(sentences)}{chosen}"

    return hashlib.sha256(identity.encode()).hexdigest()[:32]
