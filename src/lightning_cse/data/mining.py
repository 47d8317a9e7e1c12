"""Hard negatives for pairs that have none: the nearest sentences of other rows."""

from collections.abc import Callable, Sequence

import numpy as np
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

    sentences = list(dict.fromkeys(positives))
    numbers = {sentence: number for number, sentence in enumerate(sentences)}
    positive_numbers = np.array([numbers[positive] for positive in positives], dtype=np.int64)
    excluded: dict[str, set[int]] = {}
    for anchor, number in zip(anchors, positive_numbers.tolist(), strict=True):
        numbers_of_row = {number, numbers[anchor]} if anchor in numbers else {number}
        excluded.setdefault(anchor, set()).update(numbers_of_row)

    distinct = list(excluded)
    rows = {anchor: row for row, anchor in enumerate(distinct)}
    queries = _unit(embed(distinct))
    candidates = _unit(embed(sentences))
    negatives: list[list[str | None]] = []
    too_similar = 0
    size = max(1, _SCORES // max(1, len(sentences)))
    for start in range(0, len(anchors), size):
        block = anchors[start : start + size]
        scores = queries[[rows[anchor] for anchor in block]] @ candidates.T
        limits = (
            margin_share * scores[np.arange(len(block)), positive_numbers[start : start + size]]
        )
        for anchor, row, limit in zip(block, scores, limits, strict=True):
            row[list(excluded[anchor])] = -np.inf
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
