"""GaussCSE: a sentence is a Gaussian, and one that entails another is the wider of the two."""

from typing import Any, ClassVar

from lightning_cse.encoders import SentenceEncoder
from lightning_cse.losses import GaussianContrastive, InfoNCE
from lightning_cse.methods.base import MakeOptimizer, Method
from lightning_cse.methods.schedules import Schedule
from lightning_cse.models import GaussianModel
from lightning_cse.models.gaussian import StsSimilarity


class GaussCSE(Method):
    r"""A Gaussian a sentence, trained so that a premise is close to what it entails, measured from the hypothesis.

    A pair is scored by sim(hypothesis || premise), large where the hypothesis's Gaussian lies under the premise's; the
    reversed score is small where the premise is the wider, which the reversed set of the loss teaches.

    Source: GaussCSE (Yoda et al. 2024), sections 2 and 3, and the authors' code.  Differs from the paper, as the code
    does: the tanh on the mean, and a second head that gives the log variance.  Differs from the code: a contradiction
    that the loss does not use is not encoded (which changes nothing but the draws of dropout).

    The sets of the loss say whether there is a third role; ``sts_similarity`` is as in `GaussianModel`; ``simcse``, if
    given, is a loss on the means that is added (authors' code, off there too).
    """

    model: GaussianModel
    pairs: ClassVar = {"mean": ("premise", "entailment")}

    def __init__(
        self,
        encoder: SentenceEncoder,
        loss: GaussianContrastive,
        *,
        optimizer: MakeOptimizer,
        schedule: Schedule,
        chunk_size: int | None = None,
        sts_similarity: StsSimilarity = "cosine_of_means",
        simcse: InfoNCE | None = None,
    ) -> None:
        model = GaussianModel(encoder, reduce=loss.reduce, sts_similarity=sts_similarity)
        super().__init__(model, loss, optimizer=optimizer, schedule=schedule, chunk_size=chunk_size)
        self.simcse = simcse
        self.roles = ("premise", "entailment", "contradiction")[: 3 if "con" in loss.sets or simcse is not None else 2]

    def training_step(self, batch: dict[str, Any], batch_idx: int) -> dict[str, Any]:
        """Embed the roles of a batch and compare them."""
        gaussians = self.model.encode(*(batch["roles"][role] for role in self.roles))
        loss = self.loss(*gaussians)
        if self.simcse is not None:
            loss = loss + self.simcse(*(gaussian.mean for gaussian in gaussians))
        return self.output(loss, batch["index"], **dict(zip(self.roles, gaussians, strict=True)))
