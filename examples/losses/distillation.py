"""Distillation: a small model learns the similarities that a trained one gives a batch."""

from typing import Any, Unpack

import torch
from torch import Tensor, nn
from torch.nn.functional import kl_div, log_softmax

import lightning_cse
from lightning_cse.encoders import SentenceEncoder
from lightning_cse.errors import ConfigError
from lightning_cse.methods import SimCSE
from lightning_cse.methods.base import Training
from lightning_cse.similarity import cosine_matrix


class SimilarityDistillation(nn.Module):
    r"""The divergence of the student's candidates from the teacher's.

    .. math:: \frac{1}{n} \sum_i \text{KL}\left( \text{softmax}(T_i/\tau) \,\Vert\,
              \text{softmax}(S_i/\tau) \right)

    with the cosines :math:`S` of the student's anchors and positives, and :math:`T` of the
    teacher's: (n, n).

    Source: ours, after Hinton et al. 2015, whose classes are the positives of the batch here.
    """

    def __init__(self, temperature: float) -> None:
        super().__init__()
        self.temperature = temperature

    def forward(self, student: Tensor, teacher: Tensor) -> Tensor:
        """Return the mean over the rows of two matrices of cosines."""
        logits = log_softmax(student / self.temperature, dim=1)
        targets = log_softmax(teacher / self.temperature, dim=1)
        return kl_div(logits, targets, reduction="batchmean", log_target=True)


class DistilledSimCSE(SimCSE):
    """SimCSE without a head and negatives, plus the distance to a teacher's similarities.

    Args:
        teacher: a run, folder or name that `load` takes; it must have the student's tokenizer.
        distillation: the loss of both matrices of cosines.
        weight: its weight beside ``loss``.
    """

    roles = ("anchor", "positive")
    optional = ()

    def __init__(
        self,
        encoder: SentenceEncoder,
        loss: nn.Module,
        *,
        teacher: str,
        distillation: nn.Module,
        weight: float,
        **training: Unpack[Training],
    ) -> None:
        super().__init__(encoder, loss, head=False, **training)
        model = lightning_cse.load(teacher, device="cpu").answers.eval().requires_grad_(False)
        if encoder.tokenizer.digest != model.encoder.tokenizer.digest:
            raise ConfigError([f"method.teacher: {teacher} has another tokenizer than the encoder"])

        self.teacher = [model]  # a list, so that checkpoints and the optimizer leave it out
        self.distillation = distillation
        self.weight = weight

    def on_fit_start(self) -> None:
        """Move the teacher to the student's device."""
        super().on_fit_start()
        self.teacher[0].to(self.device)

    def training_step(self, batch: dict[str, Any], batch_idx: int) -> dict[str, Any]:
        """Compare the pairs of a batch with each other, and their cosines with the teacher's."""
        embeddings = self.embed(batch)
        vectors = {role: embedding.vector for role, embedding in embeddings.items()}
        with torch.no_grad():
            anchor, positive = self.teacher[0].encode(*(batch["roles"][role] for role in vectors))

        distance = self.distillation(
            cosine_matrix(*vectors.values()), cosine_matrix(anchor.vector, positive.vector)
        )
        loss = self.loss(**vectors) + self.weight * distance
        return self.output(loss, batch["index"], {"distillation": distance}, **embeddings)
