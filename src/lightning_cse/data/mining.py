"""Hard negatives for pairs that have none: the nearest sentences of other rows."""

from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

Embed = Callable[[Sequence[str]], np.ndarray]
"""Maps n sentences to their vectors: (n, d)."""

_SCORES = 1 << 24  # in memory at once


def mine_negatives(
    anchors: Sequence[str],
    positives: Sequence[str],
    embed: Embed,
    *,
    count: int = 1,
    margin_share: float = 0.95,
) -> tuple[list[list[str | None]], int]:
    r"""Return ``count`` hard negatives of each pair: of the positives of other rows, those nearest
    to the anchor by cosine, nearest first, with None where there are fewer; and how many candidates
    were left out because they are too similar.

    A sentence is no negative of an anchor if it is the anchor, or a positive of it in any row, or
    if it is so similar that it may be a positive too:

    .. math:: \cos(a_i, x) > m \cos(a_i, p_i)

    with the share :math:`m` (``margin_share``). The result depends on the sentences and their
    vectors alone; of equal similarities, the first sentence counts.

    Source: ours, after `mine_hard_negatives` of sentence-transformers with ``relative_margin = 1 -
    margin_share``.  Differs: all sentences are searched, not the nearest hundred.

    Raises:
        ValueError: if ``count`` is below 1, ``margin_share`` outside of (0, 1], or the columns are
            not equally long.
    """
    if count < 1 or not 0 < margin_share <= 1:
        raise ValueError(f"needs count >= 1 and margin_share in (0, 1], got {count, margin_share}")

    # The number of each row's anchor and positive among the distinct ones.
    anchor_of, queries = pd.factorize(np.array(anchors, dtype=object))
    positive_of, sentences = pd.factorize(np.array(positives, dtype=object))
    positives_of = pd.Series(positive_of).groupby(anchor_of).unique()
    as_sentence = pd.Index(sentences).get_indexer(queries)  # -1 for an anchor that is no positive
    query_vectors = _unit(embed(list(queries)))
    candidates = _unit(embed(list(sentences)))
    negatives: list[list[str | None]] = []
    too_similar = 0
    size = max(1, _SCORES // max(1, len(sentences)))
    for start in range(0, len(anchors), size):
        block = anchor_of[start : start + size]
        scores = query_vectors[block] @ candidates.T
        positive_scores = scores[np.arange(len(block)), positive_of[start : start + size]]
        for anchor, row, limit in zip(block, scores, margin_share * positive_scores, strict=True):
            row[positives_of[anchor]] = -np.inf
            if as_sentence[anchor] >= 0:
                row[as_sentence[anchor]] = -np.inf

            is_near = row > limit
            too_similar += int(is_near.sum())
            row[is_near] = -np.inf
            chosen = [sentences[number] for number in _largest(row, count)]
            negatives.append([*chosen, *[None] * (count - len(chosen))])

    return negatives, too_similar


def _largest(scores: NDArray[np.floating], count: int) -> list[int]:
    """Return the numbers of the largest finite scores, largest first, then by number."""
    bound = np.partition(scores, -count)[-count] if count < len(scores) else -np.inf
    numbers = np.flatnonzero((scores >= bound) & np.isfinite(scores))
    order = np.argsort(-scores[numbers], kind="stable")

    return [int(number) for number in numbers[order][:count]]


def _unit(vectors: np.ndarray) -> NDArray[np.float32]:
    """Return vectors of length 1."""
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.maximum(norms, 1e-12), dtype=np.float32)
