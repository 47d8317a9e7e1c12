"""GaussCSE: a sentence is a Gaussian, and one that entails another is the wider of the two."""

from typing import Any, ClassVar, Unpack

from lightning_cse.encoders import SentenceEncoder
from lightning_cse.losses import GaussianContrastive, InfoNCE
from lightning_cse.methods.base import Method, Training
from lightning_cse.models import GaussianModel
from lightning_cse.models.gaussian import StsSimilarity


class GaussCSE(Method):
    r"""One Gaussian per sentence, trained so that a hypothesis lies under its premise.

    A pair is scored by sim(hypothesis || premise), which is large if the Gaussian of the premise
    covers that of the hypothesis. The reversed score is small if the premise is the wider; the
    reversed set of the loss teaches this.

    Source: GaussCSE (Yoda et al. 2024), sections 2 and 3, and the authors' code.  Differs from the
    paper, as the code does: the tanh on the mean, and a second head that gives the log
    variance.  Differs from the code: a contradiction that the loss does not use is not encoded
    (which changes only the dropout masks).

    Contradictions are a role if the loss has the set ``con`` or ``simcse`` is given.
    ``sts_similarity`` is that of `GaussianModel`. ``simcse`` is an optional loss on the means,
    which is added (authors' code, off there too).
    """

    papers = ("yoda2024gausscse",)
    model: GaussianModel
    pairs: ClassVar = {"mean": ("premise", "entailment")}

    def __init__(
        self,
        encoder: SentenceEncoder,
        loss: GaussianContrastive,
        *,
        sts_similarity: StsSimilarity = "cosine_of_means",
        simcse: InfoNCE | None = None,
        **training: Unpack[Training],
    ) -> None:
        model = GaussianModel(encoder, reduce=loss.reduce, sts_similarity=sts_similarity)
        super().__init__(model, loss, **training)
        self.simcse = simcse
        self.roles: tuple[str, ...] = ("premise", "entailment")
        if "con" in loss.sets or simcse is not None:
            self.roles += ("contradiction",)

    def training_step(self, batch: dict[str, Any], batch_idx: int) -> dict[str, Any]:
        """Embed the roles of a batch and compare them."""
        embeddings = self.embed(batch)
        loss = self.loss(*embeddings.values())
        if self.simcse is not None:
            loss = loss + self.simcse(*(gaussian.mean for gaussian in embeddings.values()))

        return self.output(loss, batch["index"], **embeddings)
