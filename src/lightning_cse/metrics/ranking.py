"""Metrics of retrieval: how many of the documents relevant to a query are found, and how early."""

from collections.abc import Sequence

import numpy as np


def ndcg(
    ranked: Sequence[float],
    judged: Sequence[float],
    k: int = 10,
) -> float:
    r"""Return the normalised discounted cumulative gain of the first ``k`` documents of one query.

    .. math:: \frac{\sum_{i=1}^{k} g_i / \log_2 (i + 1)}{\sum_{i=1}^{k} g^*_i / \log_2 (i + 1)}

    with the relevance :math:`g` of the documents in the order of the ranking (``ranked``), and the
    relevance :math:`g^*` of all judged documents (``judged``, in any order), the most relevant
    first. A negative relevance counts as 0. The result is 0 if no document is relevant.

    Source: Jarvelin and Kekalainen 2002, as in trec_eval's ``ndcg_cut``, which BEIR
    reports.  Differs: nothing.

    Example:
        >>> round(ndcg([0, 2, 1], judged=[1, 2, 0]), 4)
        0.6697
    """
    ideal = _gain(sorted(judged, reverse=True)[:k])
    return _gain(ranked[:k]) / ideal if ideal else 0.0


def recall(
    ranked: Sequence[float],
    judged: Sequence[float],
    k: int = 10,
) -> float:
    """Return the share of a query's relevant documents among the first ``k``; 0 if there is none.

    ``ranked`` and ``judged`` are as in `ndcg`; a document is relevant if its relevance is positive.

    Source: trec_eval, ``recall``, which BEIR reports.  Differs: nothing.

    Example:
        >>> recall([0, 2, 1], judged=[1, 2, 0], k=2)
        0.5
    """
    relevant = sum(value > 0 for value in judged)
    return sum(value > 0 for value in ranked[:k]) / relevant if relevant else 0.0


def _gain(relevance: Sequence[float]) -> float:
    gains = np.maximum(np.asarray(relevance, dtype=np.float64), 0)
    return float(np.sum(gains / np.log2(np.arange(2, len(gains) + 2))))
