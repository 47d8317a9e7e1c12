"""Pooling: from the vectors of a sequence's tokens to one vector."""

import torch
from torch import Tensor
from transformers import PreTrainedModel

from lightning_cse.errors import EncoderError, did_you_mean

POOLINGS = (
    "cls",
    "cls_pooler",
    "embedding_last",
    "first_last",
    "last_token",
    "max",
    "last_two",
    "mean",
    "prompt",
)

EARLIER_STATES = {"first_last": 1, "embedding_last": 0, "last_two": -2}
r"""Poolings that average the states of the last layer and an earlier one, and its index k in
``hidden_states``.

.. math:: x = \frac{1}{\ell} \sum_{t=1}^{\ell} \frac{h^{(k)}_t + h^{(L)}_t}{2}

Source: SimCSE, authors' code, ``avg_first_last``, with k = 1 since January 2022. This gives
BERT-base an average of 60.73 on the seven STS tasks (their issue 285). The paper's 56.70 for
"first-last avg." is from k = 0, the embeddings. ``last_two`` is from ConSERT (Yan et al. 2021).
"""


def pool(pooling: str, hidden: Tensor, mask: Tensor, positions: Tensor) -> Tensor:
    """Pool padded token vectors (n, length, d) to (n, d) in float32.

    The result is the first vector, the one at ``positions`` (n,), or the mean or the largest
    numbers over ``mask``.
    """
    hidden = hidden.float()  # a mean that is stored in bfloat16 makes ties between scores
    if pooling in ("cls", "cls_pooler"):
        return hidden[:, 0]
    if pooling in ("prompt", "last_token"):
        return hidden[torch.arange(len(hidden), device=hidden.device), positions]

    if pooling == "max":
        return hidden.masked_fill(~mask[:, :, None].bool(), -torch.inf).amax(1)

    weights = mask.to(hidden.dtype)[:, :, None]

    return torch.sum(hidden * weights, 1) / weights.sum(1).clamp(min=1)


def check_pooling(pooling: str, backbone: PreTrainedModel, name: str, is_causal: bool) -> None:
    """Raise EncoderError if there is no such pooling, or none for this backbone."""
    if pooling not in POOLINGS:
        near = did_you_mean(pooling, POOLINGS)
        raise EncoderError(
            f"encoder.pooling: must be one of {', '.join(POOLINGS)}, got {pooling!r}{near}"
        )

    model_type = backbone.config.model_type
    if pooling == "cls" and is_causal:
        raise EncoderError(
            f"encoder.pooling: the first token of {name} ({model_type}, causal) sees no other "
            "token; choose last_token, mean or prompt"
        )

    if pooling == "cls_pooler" and not hasattr(getattr(backbone, "pooler", None), "dense"):
        instead = "last_token or mean" if is_causal else "cls or mean"
        raise EncoderError(
            f"encoder.pooling: {name} ({model_type}) has no pooler (a dense layer "
            f"and tanh on [CLS]); choose {instead}"
        )
