"""The tokens of sentences on their way from the data to an encoder."""

import hashlib
import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, Self

import numpy as np
import torch
from torch import Tensor

from lightning_cse.devices import to_device

_AT_ONCE = 1024  # sentences that are tokenised at once


class Tokenize(Protocol):
    """The tokenizer that the data code calls: sentences in, bare token ids out (no special tokens,
    no truncation).
    """

    @property
    def digest(self) -> str:
        """A digest of everything that decides the ids."""

    def __call__(self, sentences: Sequence[str]) -> list[list[int]]:
        """Return the bare token ids of each sentence."""

    def decode(self, ids: Sequence[Sequence[int]]) -> list[str]:
        """Return the text of each list of ids."""


@dataclass(frozen=True)
class Tokens:
    """Bare token ids of n sentences, right-padded: ``ids`` (n, length); ``lengths``, ``rows`` (n,).

    ``rows[k]`` is the row of the batch that sentence k belongs to; a role may cover fewer rows than
    the batch. An encoder's template adds special tokens. Lengths and rows stay in main memory: a
    step that reads them need not wait for a GPU, which has only the ids. ``is_shared`` says that
    all processes of torch's group have these tokens: each then encodes a share of them, and gets
    the vectors of all.
    """

    ids: Tensor
    lengths: np.ndarray
    rows: np.ndarray
    is_shared: bool = False

    def __len__(self) -> int:
        return len(self.ids)

    @classmethod
    def pad(cls, sentences: Sequence[Sequence[int]], rows: Sequence[int] | None = None) -> Self:
        """Build tokens from ragged lists of ids; ``rows`` defaults to 0, 1, 2, ..."""
        ids, lengths = _flat(sentences)
        numbers = range(len(sentences)) if rows is None else rows
        starts = np.cumsum(lengths) - lengths

        return cls.cut(ids, starts, lengths, np.array(numbers, dtype=np.int64))

    @classmethod
    def cut(
        cls, ids: np.ndarray, starts: np.ndarray, lengths: np.ndarray, rows: np.ndarray
    ) -> Self:
        """Cut sentences out of concatenated ids.

        Args:
            ids: the ids of all sentences, one after the other.
            starts: the place of each sentence's first token: (n,).
            lengths: the number of tokens to take of each sentence: (n,).
            rows: the row of the batch that each sentence belongs to: (n,).
        """
        position = np.arange(lengths.max(initial=0))
        mask = position < lengths[:, None]
        padded = np.zeros(mask.shape, dtype=np.int64)
        padded[mask] = ids[(starts[:, None] + position)[mask]]

        return cls(torch.from_numpy(padded), lengths.astype(np.int64), rows)

    def select(self, chosen: np.ndarray) -> Self:
        """Return the sentences chosen by a boolean mask or by numbers, with their rows."""
        numbers = np.arange(len(self))[chosen]
        ids = self.ids[to_device(numbers, self.ids.device)]

        return replace(self, ids=ids, lengths=self.lengths[numbers], rows=self.rows[numbers])

    def digest(self, text: str) -> bytes:
        """Return a digest of the ids and of a text."""
        digest = hashlib.sha256(f"{text} {tuple(self.ids.shape)}".encode())
        for array in (self.ids.cpu().numpy(), self.lengths):
            digest.update(array.tobytes())

        return digest.digest()

    def to(self, device: torch.device | str) -> Self:
        """Return the same tokens with the ids on another device."""
        return replace(self, ids=to_device(self.ids, device))


class TokenTable:
    """The bare token ids of many sentences, some of which are looked up again and again;
    ``lengths`` is (sentences,).

    Args:
        sentences: the sentences; if one is repeated, the last one counts.
        lengths: the number of tokens of each sentence.
        ids: the ids of all sentences, concatenated.
    """

    def __init__(self, sentences: Sequence[str], lengths: np.ndarray, ids: np.ndarray) -> None:
        self._row = {sentence: row for row, sentence in enumerate(sentences)}
        self._starts = np.cumsum(lengths) - lengths
        self._ids = ids
        self.lengths = lengths

    @classmethod
    def of(
        cls, sentences: Sequence[str], tokenize: Callable[[Sequence[str]], Sequence[Sequence[int]]]
    ) -> Self:
        """Build a table by tokenising sentences."""
        # In parts: a tokenizer's own results take a hundred times the memory of the ids.
        starts = range(0, max(len(sentences), 1), _AT_ONCE)
        parts = [_flat(tokenize(sentences[start : start + _AT_ONCE])) for start in starts]

        return cls(
            sentences,
            np.concatenate([lengths for _, lengths in parts]),
            np.concatenate([ids for ids, _ in parts]),
        )

    def has(self, sentences: Iterable[str]) -> bool:
        """Return whether the table has all these sentences."""
        return self._row.keys() >= set(sentences)

    def lengths_of(self, sentences: Iterable[str]) -> np.ndarray:
        """Return the numbers of tokens of sentences that the table has: (n,)."""
        rows = np.array([self._row[sentence] for sentence in sentences], dtype=np.int64)
        return self.lengths[rows]

    def tokens(self, sentences: Iterable[str], most: int) -> Tokens:
        """Return the tokens of sentences that the table has, each cut to ``most`` tokens."""
        rows = np.array([self._row[sentence] for sentence in sentences], dtype=np.int64)
        return Tokens.cut(
            self._ids,
            self._starts[rows],
            np.minimum(self.lengths[rows], most),
            np.arange(len(rows)),
        )


def _flat(sentences: Sequence[Sequence[int]]) -> tuple[np.ndarray, np.ndarray]:
    """Return the ids of all sentences, concatenated, and the number of tokens of each."""
    lengths = np.fromiter(map(len, sentences), np.int64, len(sentences))
    ids = np.fromiter(itertools.chain.from_iterable(sentences), np.int32, lengths.sum())

    return ids, lengths
