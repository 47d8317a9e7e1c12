"""Pooling: from the vectors of a sentence's tokens to one vector."""

import torch
from torch import Tensor

POOLINGS = ("cls", "cls_pooler", "embedding_last", "first_last", "mean", "prompt")

EARLIER_STATES = {"first_last": 1, "embedding_last": 0}
r"""Poolings that average the states of the last layer and an earlier one, and its index k in
``hidden_states``.

.. math:: x = \frac{1}{\ell} \sum_{t=1}^{\ell} \frac{h^{(k)}_t + h^{(L)}_t}{2}

Source: SimCSE, authors' code, ``avg_first_last``, with k = 1 since January 2022. This gives
BERT-base an average of 60.73 on the seven STS tasks (their issue 285). The paper's 56.70 for
"first-last avg." is from k = 0, the embeddings.
"""


def pool(pooling: str, hidden: Tensor, mask: Tensor, place: Tensor) -> Tensor:
    """Pool padded token vectors (n, length, d) to (n, d) in float32.

    The result is the first vector, the one at ``place`` (n,), or the mean over ``mask``.
    """
    hidden = hidden.float()  # a mean that is stored in bfloat16 makes ties between scores
    if pooling in ("cls", "cls_pooler"):
        return hidden[:, 0]
    if pooling == "prompt":
        return hidden[torch.arange(len(hidden), device=hidden.device), place]
    weights = mask.to(hidden.dtype)[:, :, None]
    return torch.sum(hidden * weights, 1) / weights.sum(1).clamp(min=1)
