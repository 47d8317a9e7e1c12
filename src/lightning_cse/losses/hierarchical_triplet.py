"""The hierarchical triplet loss of NGCSE over sentences of three degrees of closeness."""

from __future__ import annotations

import math

from torch import Tensor, nn

from lightning_cse.similarity import cosine

__all__ = ["HierarchicalTriplet"]


class HierarchicalTriplet(nn.Module):
    r"""Margins that keep a positive closer to its anchor than an intermediate sentence, and that than a negative.

    .. math:: \ell_i = \frac{1}{2} \left[ \max(0, \cos(s_i, m_i) - \cos(s_i, p_i) + m_1)
              + \max(0, \cos(s_i, g_i) - \cos(s_i, m_i) + m_2) \right]

    with anchors :math:`s`, positives :math:`p`, intermediate sentences :math:`m` and negatives :math:`g`, all of shape
    ``(n, d)``. The result is the mean over the ``n`` rows. A row meets its own sentences only, so one row is enough.

    Source: NGCSE, eq. 6, and the authors' code.  Differs: nothing. The default margins are the paper's; the authors'
    scripts have :math:`m_2` = 5e-2, and 1e-1 for the final model of the NLI domain.

    Args:
        margin_positive: :math:`m_1`, not negative and finite.
        margin_negative: :math:`m_2`, not negative and finite.

    Raises:
        ValueError: if a margin is negative or not finite, the shapes differ, or ``n`` < 1.

    Example:
        >>> import torch
        >>> same = torch.ones(1, 8)
        >>> loss = HierarchicalTriplet()(same, positive=same, intermediate=same, negative=same)
        >>> round(loss.item(), 4)  # (5e-3 + 1e-2) / 2
        0.0075
    """

    def __init__(self, margin_positive: float = 5e-3, margin_negative: float = 1e-2) -> None:
        """Check and keep the margins."""
        super().__init__()
        for name, margin in (("margin_positive", margin_positive), ("margin_negative", margin_negative)):
            if not 0 <= margin < math.inf:
                raise ValueError(f"{name} must be finite and not negative, got {margin}")
        self.margin_positive = margin_positive
        self.margin_negative = margin_negative

    def forward(self, anchor: Tensor, positive: Tensor, intermediate: Tensor, negative: Tensor) -> Tensor:
        """Return the mean loss, a scalar of float32 or float64."""
        tensors = (anchor, positive, intermediate, negative)
        if anchor.ndim != 2 or len(anchor) < 1 or any(tensor.shape != anchor.shape for tensor in tensors):
            got = ", ".join(str(tuple(tensor.shape)) for tensor in tensors)
            raise ValueError(f"need four tensors of one shape (n, d) with n >= 1, got {got}")
        high, middle, low = (cosine(anchor, other) for other in (positive, intermediate, negative))
        upper = nn.functional.relu(middle - high + self.margin_positive)
        lower = nn.functional.relu(low - middle + self.margin_negative)
        return (upper + lower).mean() / 2

    def extra_repr(self) -> str:
        """Show the margins when the module is printed."""
        return f"margin_positive={self.margin_positive}, margin_negative={self.margin_negative}"
