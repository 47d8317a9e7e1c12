"""The normalised temperature-scaled cross-entropy of SimCLR, as ConSERT uses it on two views."""

import torch
from torch import Tensor, nn

from lightning_cse.losses.checks import Vectors, check_shapes, check_temperature, vector_of
from lightning_cse.losses.info_nce import in_batch_cross_entropy
from lightning_cse.similarity import cosine_matrix


class NTXent(nn.Module):
    r"""In-batch contrastive loss of two views, in which both views are anchors.

    .. math:: \ell_i = -\log \frac{e^{\cos(v_i, v_{j(i)})/\tau}}
              {\sum_{k=1}^{2n} [k \ne i] \, e^{\cos(v_i, v_k)/\tau}}

    with the vectors :math:`v` of all views, ``anchor`` above ``positive`` (both of shape
    ``(n, d)``), the place :math:`j(i)` of the other view of the same sentence, and temperature
    :math:`\tau`. A vector has :math:`2n - 1` candidates: all but itself. The loss is the mean over
    the :math:`2n` vectors.

    Source: Chen et al. 2020 (SimCLR), eq. 1; ConSERT (Yan et al. 2021), eq. 1 and 2.  Differs:
    ConSERT's code adds the means of both views, which is twice this loss.

    Args:
        temperature: :math:`\tau`, positive and finite.

    Raises:
        ValueError: if the two shapes differ or ``n`` < 2.

    Examples:
        >>> sentences = torch.eye(4)
        >>> round(NTXent(temperature=1.0)(sentences, sentences).item(), 4)  # log(1 + 6 / e)
        1.1654
    """

    def __init__(self, temperature: float = 0.1) -> None:
        super().__init__()
        self.temperature = check_temperature(temperature)

    def forward(self, anchor: Vectors, positive: Vectors) -> Tensor:
        """Return the mean loss, a scalar of float32 or float64."""
        anchor = vector_of("anchor", anchor)
        positive = vector_of("positive", positive)
        check_shapes(anchor, positive, shape="(n, d)", least=2)
        across = cosine_matrix(anchor, positive)
        itself = torch.eye(len(anchor), dtype=torch.bool, device=anchor.device)
        losses = []
        for similarity, view in ((across, anchor), (across.T, positive)):
            within = cosine_matrix(view, view).masked_fill(itself, -torch.inf)
            loss = in_batch_cross_entropy(similarity, within, temperature=self.temperature)
            losses.append(loss)

        return torch.stack(losses).mean()
