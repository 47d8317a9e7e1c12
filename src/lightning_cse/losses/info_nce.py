"""The contrastive loss of SimCSE, and the softmax over in-batch candidates."""

import torch
from torch import Tensor, nn

from lightning_cse.errors import ConfigError
from lightning_cse.losses.checks import Vectors, check_shapes, check_temperature, vector_of
from lightning_cse.similarity import cosine_matrix


class InfoNCE(nn.Module):
    r"""In-batch contrastive loss of SimCSE, unsupervised (pairs) or supervised (triplets).

    .. math:: \ell_i = -\log \frac{e^{\cos(a_i, p_i)/\tau}}
              {\sum_{j=1}^{n} e^{\cos(a_i, p_j)/\tau} + \sum_{j=1}^{k} e^{\cos(a_i, g_j)/\tau}}

    with anchors :math:`a` and positives :math:`p` of shape ``(n, d)``, hard negatives :math:`g` of
    shape ``(k, d)``, and temperature :math:`\tau`. The loss is the mean over the ``n`` rows. Hard
    negatives are optional and shared by all rows. ``hard_negative_weight`` :math:`w` is added to
    the logit of a row's own hard negative, which becomes :math:`\cos(a_i, g_i)/\tau + w`; it needs
    one hard negative per row, in the order of the rows.

    Source: Gao et al. 2021 (SimCSE), eq. 1 and 4 (pairs: two dropout passes) and eq. 5 (premise,
    entailment, contradiction); the weight is from the authors' code, 0 in all published runs; hard
    negatives of some rows only are from NGCSE (the authors' code).  Differs: nothing; as there,
    anchors choose among positives, never the reverse.

    Args:
        temperature: :math:`\tau`, positive and finite.
        hard_negative_weight: :math:`w`.

    Examples:
        >>> sentences = torch.eye(4)
        >>> round(InfoNCE(temperature=1.0)(sentences, sentences).item(), 4)  # log(1 + 3 / e)
        0.7437
    """

    def __init__(self, temperature: float = 0.05, hard_negative_weight: float = 0.0) -> None:
        super().__init__()
        self.temperature = check_temperature(temperature)
        self.hard_negative_weight = hard_negative_weight

    def forward(
        self, anchor: Vectors, positive: Vectors, negative: Vectors | None = None
    ) -> Tensor:
        """Return the mean loss, a scalar of float32 or float64."""
        anchor = vector_of("anchor", anchor)
        positive = vector_of("positive", positive)
        check_shapes(anchor, positive, shape="(n, d)", least=2 if negative is None else 1)
        blocks = [cosine_matrix(anchor, positive)]
        if negative is not None:
            blocks.append(cosine_matrix(anchor, vector_of("negative", negative)))
        if self.hard_negative_weight:
            blocks[1:] = [self._weighted(blocks)]

        return in_batch_cross_entropy(*blocks, temperature=self.temperature)

    def _weighted(self, blocks: list[Tensor]) -> Tensor:
        """Return the block of the hard negatives with the weight on each row's own one."""
        count = len(blocks[0])
        negatives = blocks[1].shape[1] if len(blocks) > 1 else 0
        if negatives != count:
            raise ConfigError(
                [
                    f"method.loss.hard_negative_weight: {self.hard_negative_weight} needs one hard "
                    f"negative per row, got {negatives} for {count} rows; set it to 0"
                ]
            )

        diagonal = torch.eye(count, dtype=blocks[1].dtype, device=blocks[1].device)

        # The softmax divides by the temperature.
        return blocks[1] + self.hard_negative_weight * self.temperature * diagonal


def in_batch_cross_entropy(*blocks: Tensor, temperature: float) -> Tensor:
    r"""Return the softmax cross-entropy of blocks side by side, with the first diagonal as target.

    .. math:: \frac{1}{n} \sum_{i=1}^{n} \left( \log \sum_{B} \sum_{j} e^{B_{ij}/\tau}
              - B^{(1)}_{ii}/\tau \right)

    with similarity blocks :math:`B` of shape ``(n, m)`` each, where the first has ``m >= n``
    (usually ``n``).
    """
    logits = torch.cat(blocks, dim=1) / temperature
    return nn.functional.cross_entropy(logits, torch.arange(len(logits), device=logits.device))
