"""Cutting sentences that are sorted by length into groups that pass through the backbone
together.
"""

import numpy as np


def cut_by_length(
    lengths: np.ndarray,
    overhead: int = 256,
    most: int | None = None,
) -> list[int]:
    """Cut sentences sorted by length into groups to pad, and return the ends of the groups.

    A group ends where one more sentence would bring its padding above ``overhead`` tokens, the cost
    of another group, or its padded size above ``most`` tokens. Lengths 5, 5, 6, 90 with overhead 10
    give 3, 4.
    """
    ends = []
    start = 0
    real = 0
    for end, length in enumerate(lengths.tolist()):
        padded = (end + 1 - start) * length
        is_wasteful = padded - real - length > overhead
        is_large = most is not None and padded > most
        if end > start and (is_wasteful or is_large):
            ends.append(end)
            start = end
            real = 0
        real += length
    return [*ends, len(lengths)]


def cut_evenly(lengths: np.ndarray, most: int | None) -> list[int]:
    """Cut sentences into groups of nearly equal numbers of tokens, about ``most``.

    Return their ends.
    """
    ends = np.cumsum(lengths)
    total = int(ends[-1])
    pieces = -(-total // most) if most else 1
    # A sequence longer than a piece leaves some pieces empty, which unique() drops.
    _, sizes = np.unique((ends - 1) * pieces // total, return_counts=True)
    groups: list[int] = np.cumsum(sizes).tolist()
    return groups
