"""The ranking loss of ImpScore over implicitness and pragmatic distance."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

__all__ = ["ImplicitnessRanking"]


class ImplicitnessRanking(nn.Module):
    r"""Margins that keep implicit sentences above explicit ones, and pairs of one meaning closer than other pairs.

    .. math:: \ell_i = [m - I(s_i) + I(e_i)]_+ + [m - I(s'_i) + I(e'_i)]_+
              + \alpha \, [m_p - D(s'_i, e'_i) + D(s_i, e_i)]_+, \qquad [x]_+ = \max(0, x)

    with an implicit sentence :math:`s` and the explicit one :math:`e` that means the same (the positive pair), an
    implicit sentence :math:`s'` and an explicit one :math:`e'` that does not belong to it (the negative pair), the
    implicitness :math:`I` of each of the four and the pragmatic distance :math:`D` of each pair, all of shape ``(n,)``.
    The result is the mean over the ``n`` rows. A row meets its own sentences only, so one row is enough.

    Source: ImpScore (Wang et al. 2025), method, and the authors' code.  Differs: nothing.

    Args:
        margin: :math:`m`, not negative and finite.
        pragmatic_margin: :math:`m_p`, not negative and finite.
        alpha: :math:`\alpha`, not negative and finite.

    Raises:
        ValueError: if a margin or the weight is negative or not finite, the shapes differ, or ``n`` < 1.

    Example:
        >>> high, low, far = torch.tensor([0.75]), torch.tensor([0.5]), torch.tensor([2.0])
        >>> loss = ImplicitnessRanking()(high, low, high, low, pos_distance=low, neg_distance=far)
        >>> loss.item()  # 0.25 short of the margin twice, and the distances are 1.5 apart
        0.5
    """

    def __init__(self, margin: float = 0.5, pragmatic_margin: float = 0.7, alpha: float = 1.0) -> None:
        """Check and keep margins and weight."""
        super().__init__()
        for name, value in (("margin", margin), ("pragmatic_margin", pragmatic_margin), ("alpha", alpha)):
            if not 0 <= value < math.inf:
                raise ValueError(f"{name} must be finite and not negative, got {value}")
        self.margin = margin
        self.pragmatic_margin = pragmatic_margin
        self.alpha = alpha

    def forward(
        self,
        pos_implicit: Tensor,
        pos_explicit: Tensor,
        neg_implicit: Tensor,
        neg_explicit: Tensor,
        pos_distance: Tensor,
        neg_distance: Tensor,
    ) -> Tensor:
        """Return the mean loss, a scalar of float32 or float64."""
        given = (pos_implicit, pos_explicit, neg_implicit, neg_explicit, pos_distance, neg_distance)
        if pos_implicit.ndim != 1 or len(pos_implicit) < 1 or any(some.shape != pos_implicit.shape for some in given):
            got = ", ".join(str(tuple(some.shape)) for some in given)
            raise ValueError(f"need six tensors of one shape (n,) with n >= 1, got {got}")
        implicit, explicit, other_implicit, other_explicit, near, far = (
            some.to(torch.promote_types(some.dtype, torch.float32)) for some in given
        )
        relu = nn.functional.relu
        ranks = relu(self.margin - (implicit - explicit)) + relu(self.margin - (other_implicit - other_explicit))
        return (ranks + self.alpha * relu(self.pragmatic_margin - (far - near))).mean()

    def extra_repr(self) -> str:
        """Show margins and weight when the module is printed."""
        return f"margin={self.margin}, pragmatic_margin={self.pragmatic_margin}, alpha={self.alpha}"
