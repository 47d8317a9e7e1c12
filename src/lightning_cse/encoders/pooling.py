"""From token vectors to one sentence vector."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def cls_pooling(hidden: Tensor, mask: Tensor, pooled: Tensor) -> Tensor:
    """Take the first token's vector: (n, length, d), (n, length), (n,) -> (n, d)."""
    return hidden[:, 0]


def mean_pooling(hidden: Tensor, mask: Tensor, pooled: Tensor) -> Tensor:
    """Average the vectors of all real tokens, special ones included: (n, length, d), (n, length), (n,) -> (n, d)."""
    weights = mask.to(hidden.dtype)[:, :, None]
    return torch.sum(hidden * weights, 1) / weights.sum(1).clamp(min=1)


def prompt_pooling(hidden: Tensor, mask: Tensor, pooled: Tensor) -> Tensor:
    """Take the vector of the prompt's mask token, at place ``pooled``: (n, length, d), (n, length), (n,) -> (n, d)."""
    return hidden[torch.arange(len(hidden), device=hidden.device), pooled]


POOLINGS: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "cls": cls_pooling,
    "mean": mean_pooling,
    "prompt": prompt_pooling,
    "first_last": mean_pooling,
    "embedding_last": mean_pooling,
}

EARLIER_STATES = {"first_last": 1, "embedding_last": 0}
r"""Poolings of the average of the last layer's states and of earlier ones, and which of ``hidden_states`` these are.

.. math:: x = \frac{1}{\ell} \sum_{t=1}^{\ell} \frac{h^{(k)}_t + h^{(L)}_t}{2}

over the :math:`\ell` real tokens, special ones included, with :math:`h^{(L)}` the last layer's states: k = 1, the first
layer's, for ``first_last``; k = 0, the embedding layer's, for ``embedding_last``.

Source: SimCSE, authors' code, ``avg_first_last``. It has k = 1 since January 2022, which gives BERT-base an average of
60.73 on the seven STS tasks (their issue 285); the 56.70 their paper has for "first-last avg." is older, from k = 0.
"""
