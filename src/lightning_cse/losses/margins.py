"""Margin losses: the hierarchical triplet loss of NGCSE, and the ranking loss of ImpScore."""

import torch
from torch import Tensor, nn

from lightning_cse.losses.checks import Vectors, check_margin, check_shapes, vector_of
from lightning_cse.similarity import cosine


class HierarchicalTriplet(nn.Module):
    r"""Margins that order the positive, intermediate and negative of an anchor by distance.

    .. math:: \ell_i = \frac{1}{2} \left[ \max(0, \cos(s_i, m_i) - \cos(s_i, p_i) + m_1)
              + \max(0, \cos(s_i, g_i) - \cos(s_i, m_i) + m_2) \right]

    with anchors :math:`s`, positives :math:`p`, intermediate sentences :math:`m` and negatives
    :math:`g`, all of shape ``(n, d)``. The loss is the mean over the ``n`` rows.

    Source: NGCSE, eq. 6, and the authors' code.  Differs: nothing. The default margins are the
    paper's; the authors' scripts have :math:`m_2` = 5e-2, and 1e-1 for the final model of the NLI
    domain.

    Args:
        margin_positive: :math:`m_1`, finite and not negative (otherwise ValueError).
        margin_negative: :math:`m_2`, likewise.

    Examples:
        >>> same = torch.ones(1, 8)
        >>> loss = HierarchicalTriplet()(same, positive=same, intermediate=same, negative=same)
        >>> round(loss.item(), 4)  # (5e-3 + 1e-2) / 2
        0.0075
    """

    def __init__(self, margin_positive: float = 5e-3, margin_negative: float = 1e-2) -> None:
        super().__init__()
        self.margin_positive = check_margin("margin_positive", margin_positive)
        self.margin_negative = check_margin("margin_negative", margin_negative)

    def extra_repr(self) -> str:
        """Return the margins."""
        return f"margin_positive={self.margin_positive}, margin_negative={self.margin_negative}"

    def forward(
        self, anchor: Vectors, positive: Vectors, intermediate: Vectors, negative: Vectors
    ) -> Tensor:
        """Return the mean loss, a scalar of float32 or float64."""
        anchor = vector_of("anchor", anchor)
        positive = vector_of("positive", positive)
        intermediate = vector_of("intermediate", intermediate)
        negative = vector_of("negative", negative)
        check_shapes(anchor, positive, intermediate, negative, shape="(n, d)")
        high = cosine(anchor, positive)
        middle = cosine(anchor, intermediate)
        low = cosine(anchor, negative)
        upper = nn.functional.relu(middle - high + self.margin_positive)
        lower = nn.functional.relu(low - middle + self.margin_negative)

        return (upper + lower).mean() / 2


class ImplicitnessRanking(nn.Module):
    r"""Margins between implicit and explicit sentences, and between positive and negative pairs.

    .. math:: \ell_i = [m - I(s_i) + I(e_i)]_+ + [m - I(s'_i) + I(e'_i)]_+
              + \alpha \, [m_p - D(s'_i, e'_i) + D(s_i, e_i)]_+, \qquad [x]_+ = \max(0, x)

    The positive pair is an implicit sentence :math:`s` and the explicit sentence :math:`e` that
    means the same. The negative pair is an implicit sentence :math:`s'` and an explicit sentence
    :math:`e'` that does not belong to it. The implicitness :math:`I` of the four sentences and the
    pragmatic distance :math:`D` of the two pairs have shape ``(n,)``. The loss is the mean over the
    ``n`` rows.

    Source: ImpScore (Wang et al. 2025), method, and the authors' code.  Differs: nothing.

    Args:
        margin: :math:`m`; like ``pragmatic_margin`` :math:`m_p` and ``alpha``, finite, not negative
            (else ValueError).

    Examples:
        >>> high, low, far = torch.tensor([0.75]), torch.tensor([0.5]), torch.tensor([2.0])
        >>> loss = ImplicitnessRanking()(high, low, high, low, pos_distance=low, neg_distance=far)
        >>> loss.item()  # 0.25 short of the margin twice, and the distances are 1.5 apart
        0.5
    """

    def __init__(
        self, margin: float = 0.5, pragmatic_margin: float = 0.7, alpha: float = 1.0
    ) -> None:
        super().__init__()
        self.margin = check_margin("margin", margin)
        self.pragmatic_margin = check_margin("pragmatic_margin", pragmatic_margin)
        self.alpha = check_margin("alpha", alpha)

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
        scores = [pos_implicit, pos_explicit, neg_implicit, neg_explicit]
        distances = [pos_distance, neg_distance]
        check_shapes(*scores, *distances, shape="(n,)")
        s, e, other_s, other_e = (_at_least_float32(score) for score in scores)
        near, far = (_at_least_float32(distance) for distance in distances)
        relu = nn.functional.relu
        ranks = relu(self.margin - (s - e)) + relu(self.margin - (other_s - other_e))

        return (ranks + self.alpha * relu(self.pragmatic_margin - (far - near))).mean()


def _at_least_float32(value: Tensor) -> Tensor:
    return value.to(torch.promote_types(value.dtype, torch.float32))
