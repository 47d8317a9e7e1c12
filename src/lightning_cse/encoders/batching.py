"""Cutting sentences of different lengths into few padded groups that waste little."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def cut_by_length(lengths: Sequence[int] | np.ndarray, overhead: int = 256, most: int | None = None) -> list[int]:
    r"""Cut sentences sorted by length into groups with the least total cost, and return the ends of the groups.

    .. math:: \text{cost} = \sum_{\text{groups}} (n_g \cdot \max_{i \in g} \ell_i + \text{overhead})

    with :math:`n_g` sentences of length :math:`\ell_i` in group g; ``overhead`` is what one more group costs, in
    tokens, and ``most`` the most padded tokens a group may hold (a single sentence may exceed it). Solved exactly by
    dynamic programming over the distinct lengths; groups over ``most`` are cut evenly into as few as fit.

    Example:
        >>> cut_by_length([5, 5, 6, 90], overhead=10)
        [3, 4]
        >>> cut_by_length([4, 4, 4, 4], most=8)
        [2, 4]
    """
    lengths = np.asarray(lengths)
    if len(lengths) == 0:
        return []
    distinct, counts = np.unique(lengths, return_counts=True)
    ends = np.concatenate([[0], np.cumsum(counts)])
    best = np.zeros(len(distinct) + 1)
    previous = np.zeros(len(distinct) + 1, dtype=int)
    for k in range(1, len(distinct) + 1):
        costs = best[:k] + (ends[k] - ends[:k]) * distinct[k - 1] + overhead
        previous[k] = int(np.argmin(costs))
        best[k] = costs[previous[k]]
    cuts = []
    k = len(distinct)
    while k > 0:
        cuts.append((int(ends[previous[k]]), int(ends[k])))
        k = int(previous[k])
    groups: list[int] = []
    for start, end in reversed(cuts):
        room = end - start if most is None else max(1, most // int(lengths[end - 1]))
        pieces = -(-(end - start) // room)
        groups += [start + (end - start) * piece // pieces for piece in range(1, pieces + 1)]
    return groups
