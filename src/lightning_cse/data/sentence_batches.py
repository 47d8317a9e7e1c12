"""Distinct sentences in batches, sorted by length, for validation and test."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np

from lightning_cse.tokens import Tokens

TOKENS_AT_ONCE = 16_384
"""The most tokens of a batch, padding included; this bounds memory and changes no value."""


class EvaluationTask(Protocol):
    """What the data module asks of a task (`lightning_cse.evaluation.Task`)."""

    @property
    def splits(self) -> Sequence[Any]:
        """The splits it evaluates."""

    def sentences(self, split: Any) -> list[str]:
        """Return the sentences of a split."""

    def suits(self, answers: object) -> bool:
        """Whether a model answers its questions."""


class SentenceBatches:
    """Yields ``{"sentences": [...], "tokens": Tokens}``, each distinct sentence once, in order of
    length.

    All processes of a training get the same batches; the encoder shares each one among them.

    Args:
        sentences: distinct sentences.
        lengths: the number of tokens that are read of each sentence: (n,).
        tokens_of: returns the tokens of some of the sentences.
    """

    def __init__(
        self,
        sentences: Sequence[str],
        lengths: np.ndarray,
        tokens_of: Callable[[Sequence[str]], Tokens],
    ) -> None:
        self.sentences = sentences
        self.tokens_of = tokens_of
        self._order = np.argsort(lengths, kind="stable")
        self._ends = _ends(lengths[self._order])

    def __len__(self) -> int:
        """Return the number of batches."""
        return len(self._ends)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield the batches, the shortest sentences first."""
        start = 0
        for end in self._ends:
            sentences = [self.sentences[row] for row in self._order[start:end]]
            yield {"sentences": sentences, "tokens": self.tokens_of(sentences)}
            start = end


def _ends(lengths: np.ndarray) -> list[int]:
    """Return the ends of the batches of sentences sorted by length."""
    ends = []
    start = 0
    for end in range(1, len(lengths) + 1):
        is_full = end == len(lengths) or (end + 1 - start) * max(1, lengths[end]) > TOKENS_AT_ONCE
        if is_full:
            ends.append(end)
            start = end

    return ends
