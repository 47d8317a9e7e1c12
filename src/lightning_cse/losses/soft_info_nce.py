"""InfoNCE whose targets are scores: a pair of half the similarity counts half as positive."""

import torch
from torch import Tensor, nn

from lightning_cse.losses.checks import (
    Vectors,
    check_shapes,
    check_targets,
    check_temperature,
    vector_of,
)
from lightning_cse.similarity import cosine_matrix


class SoftInfoNCE(nn.Module):
    r"""InfoNCE with a soft label for each positive, its similarity to the anchor.

    .. math:: \ell_i = -y_i \log p_{ii}
              - \frac{1 - y_i}{C - 1} \sum_{c \ne i} \log p_{ic}, \qquad
              p_{ic} = \frac{e^{\cos(a_i, c)/\tau}}{\sum_{c'} e^{\cos(a_i, c')/\tau}}

    with anchors :math:`a` and positives of shape ``(n, d)``, hard negatives of shape ``(k, d)``
    (optional, shared by all rows), scores :math:`y` of shape ``(n,)`` from 0 to 1, and
    :math:`C = n + k` candidates :math:`c`, the positives first. The loss is the mean over the
    ``n`` rows. Without ``smooth_others``, the second term is left out. With scores of 1, it is
    `InfoNCE`.

    Source: CLHAIF (Cheng et al. 2023), soft InfoNCE, and the authors' code, where the two forms are
    ``smooth_positive``, which their script trains with, and ``smooth_all``.  Differs: nothing.

    Args:
        temperature: :math:`\tau`, positive and finite (else ValueError).
        smooth_others: whether the other candidates share the rest of the label.

    Examples:
        >>> same = torch.ones(4, 8)
        >>> loss = SoftInfoNCE()(same, same, torch.full((4,), 0.5))
        >>> round(loss.item(), 4)  # half of log 4
        0.6931
    """

    def __init__(self, temperature: float = 0.05, *, smooth_others: bool = False) -> None:
        super().__init__()
        self.temperature = check_temperature(temperature)
        self.smooth_others = smooth_others

    def extra_repr(self) -> str:
        """Return the options."""
        return f"temperature={self.temperature}, smooth_others={self.smooth_others}"

    def forward(
        self, anchor: Vectors, positive: Vectors, scores: Tensor, negative: Vectors | None = None
    ) -> Tensor:
        """Return the mean loss, a scalar of float32 or float64."""
        anchor = vector_of("anchor", anchor)
        positive = vector_of("positive", positive)
        check_shapes(anchor, positive, shape="(n, d)", least=2 if negative is None else 1)
        check_targets(scores, len(anchor))
        blocks = [cosine_matrix(anchor, positive)]
        if negative is not None:
            blocks.append(cosine_matrix(anchor, vector_of("negative", negative)))

        logits = torch.cat(blocks, dim=1) / self.temperature
        log_shares = nn.functional.log_softmax(logits, dim=1)
        positive_log_shares = log_shares.diagonal()
        likelihood = scores * positive_log_shares
        if self.smooth_others:
            mean_of_others = (log_shares.sum(dim=1) - positive_log_shares) / (
                log_shares.shape[1] - 1
            )
            likelihood = likelihood + (1 - scores) * mean_of_others

        return -likelihood.mean()
