"""The contrastive loss of SimCSE, and the softmax over in-batch candidates that its relatives share."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from lightning_cse.similarity import cosine_matrix

__all__ = ["InfoNCE", "check_temperature", "in_batch_cross_entropy"]


class InfoNCE(nn.Module):
    r"""In-batch contrastive loss of SimCSE, unsupervised (pairs) or supervised (triplets).

    .. math:: \ell_i = -\log \frac{e^{\cos(a_i, p_i)/\tau}}
              {\sum_{j=1}^{n} \left[ e^{\cos(a_i, p_j)/\tau} + e^{\cos(a_i, g_j)/\tau} \right]}

    with anchors :math:`a`, positives :math:`p` and hard negatives :math:`g`, all of shape ``(n, d)``, and temperature
    :math:`\tau`; without negatives the second term of the sum is absent. The result is the mean over the ``n`` rows.
    ``hard_negative_weight`` :math:`w` is added to the logit of a row's own hard negative, which becomes
    :math:`\cos(a_i, g_i)/\tau + w`.

    Source: Gao et al. 2021 (SimCSE), eq. 1 and 4 (pairs: two dropout passes) and eq. 5 (premise, entailment,
    contradiction); the weight is the authors' code's, 0 in all published runs.  Differs: nothing. One direction only,
    as there: anchors choose among positives, never the reverse.

    Args:
        temperature: :math:`\tau`, positive and finite.
        hard_negative_weight: :math:`w`, finite.

    Raises:
        ValueError: if the temperature is not positive and finite or the weight not finite, the shapes differ, ``n`` < 2
            (a batch of one has no negatives), or there is a weight and no hard negative.

    Example:
        >>> sentences = torch.eye(4)
        >>> round(InfoNCE(temperature=1.0)(sentences, sentences).item(), 4)  # log(1 + 3 / e)
        0.7437
    """

    def __init__(self, temperature: float = 0.05, hard_negative_weight: float = 0.0) -> None:
        """Check and keep temperature and weight."""
        super().__init__()
        self.temperature = check_temperature(temperature)
        if not math.isfinite(hard_negative_weight):
            raise ValueError(f"hard_negative_weight must be finite, got {hard_negative_weight}")
        self.hard_negative_weight = hard_negative_weight

    def forward(self, anchor: Tensor, positive: Tensor, negative: Tensor | None = None) -> Tensor:
        """Return the mean loss, a scalar of float32 or float64."""
        tensors = [anchor, positive] if negative is None else [anchor, positive, negative]
        if anchor.ndim != 2 or len(anchor) < 2 or any(tensor.shape != anchor.shape for tensor in tensors):
            got = " and ".join(str(tuple(tensor.shape)) for tensor in tensors)
            raise ValueError(f"need (n, d) tensors of one shape with n >= 2, got {got}")
        blocks = [cosine_matrix(anchor, candidates) for candidates in tensors[1:]]
        if self.hard_negative_weight:
            if negative is None:
                raise ValueError(f"hard_negative_weight is {self.hard_negative_weight}, but there is no hard negative")
            own = torch.eye(len(anchor), dtype=blocks[1].dtype, device=blocks[1].device)
            blocks[1] = blocks[1] + self.hard_negative_weight * self.temperature * own  # divided again below
        return in_batch_cross_entropy(*blocks, temperature=self.temperature)

    def extra_repr(self) -> str:
        """Show temperature and weight when the module is printed."""
        return f"temperature={self.temperature}, hard_negative_weight={self.hard_negative_weight}"


def in_batch_cross_entropy(*blocks: Tensor, temperature: float) -> Tensor:
    r"""Return the softmax cross-entropy of blocks set side by side, with the first block's diagonal as the target.

    .. math:: \frac{1}{n} \sum_{i=1}^{n} \left( \log \sum_{B} \sum_{j} e^{B_{ij}/\tau} - B^{(1)}_{ii}/\tau \right)

    with similarity blocks :math:`B` of shape ``(n, m)`` each, where the first has ``m >= n`` (usually ``n``).

    Example:
        >>> flat = torch.zeros(4, 4)
        >>> round(in_batch_cross_entropy(flat, flat, temperature=0.05).item(), 4)  # log 8
        2.0794
    """
    logits = torch.cat(blocks, dim=1) / temperature
    return nn.functional.cross_entropy(logits, torch.arange(len(logits), device=logits.device))


def check_temperature(temperature: float) -> float:
    """Return a temperature that is positive and finite.

    Raises:
        ValueError: for any other.

    Example:
        >>> check_temperature(0.05)
        0.05
    """
    if not 0 < temperature < math.inf:
        raise ValueError(f"temperature must be positive and finite, got {temperature}")
    return temperature
