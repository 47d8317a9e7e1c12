"""GaussCSE: a sentence is a Gaussian, and one that entails another is the wider of the two."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from torch import Tensor, nn

from lightning_cse.embeddings import GaussianEmbedding
from lightning_cse.encoders import SentenceEncoder, Template
from lightning_cse.errors import ConfigError, did_you_mean
from lightning_cse.losses import GaussianContrastive, InfoNCE
from lightning_cse.methods.base import MakeOptimizer, Method
from lightning_cse.methods.heads import GaussianHeads
from lightning_cse.methods.schedules import Schedule
from lightning_cse.similarity import cosine, gaussian_similarity, symmetric_gaussian_similarity
from lightning_cse.tokens import Tokens

STS_SIMILARITIES = ("cosine_of_means", "symmetric")


class GaussCSE(Method):
    r"""A Gaussian a sentence, trained so that a premise is close to what it entails, measured from the hypothesis.

    Two heads on the pooled vector v give the mean and the variance of each dimension:

    .. math:: \mu = \tanh(W_\mu v + b_\mu), \qquad \log \sigma^2 = W_\sigma v + b_\sigma

    A pair is scored by sim(hypothesis || premise), large where the hypothesis's Gaussian lies under the premise's; the
    reversed score is small where the premise is the wider, which the reversed set of the loss teaches.

    Source: GaussCSE (Yoda et al. 2024), sections 2 and 3, and the authors' code.  Differs from the paper, as the code
    does: the tanh on the mean, and a second head that gives the log variance.  Differs from the code: a contradiction
    that the loss does not use is not encoded (which changes nothing but the draws of dropout).

    Args:
        encoder: sentences to vectors.
        loss: Gaussians of premise, entailment and contradiction to a scalar; its sets say whether there is a third.
        optimizer: as in `Method`.
        schedule: as in `Method`.
        sts_similarity: what ``similarity`` is: ``cosine_of_means``, or ``symmetric``, the similarity of the two
            directions' mean divergence. (Authors' code, neither is in the paper.)
        simcse: if given, this loss on the means is added (authors' code, off there too).

    Raises:
        ConfigError: for any other ``sts_similarity``.
    """

    pairs: ClassVar = {"mean": ("premise", "entailment")}

    def __init__(
        self,
        encoder: SentenceEncoder,
        loss: GaussianContrastive,
        *,
        optimizer: MakeOptimizer,
        schedule: Schedule,
        sts_similarity: Literal["cosine_of_means", "symmetric"] = "cosine_of_means",
        simcse: InfoNCE | None = None,
    ) -> None:
        super().__init__(encoder, loss, optimizer=optimizer, schedule=schedule)
        if sts_similarity not in STS_SIMILARITIES:
            near = did_you_mean(sts_similarity, STS_SIMILARITIES)
            raise ConfigError([f"method.sts_similarity: {sts_similarity!r} is not one of {STS_SIMILARITIES}{near}"])
        self.reduce = loss.reduce
        self.sts_similarity = sts_similarity
        self.simcse = simcse
        self.roles = ("premise", "entailment", "contradiction")[: 3 if "con" in loss.sets or simcse is not None else 2]
        self.heads = GaussianHeads(encoder.width)
        self.register_load_state_dict_pre_hook(_heads_of_before)  # type: ignore[no-untyped-call]
        self.template = encoder.template()

    @property
    def templates(self) -> tuple[Template, ...]:
        """The only one."""
        return (self.template,)

    def encode(self, *roles: Tokens) -> list[GaussianEmbedding]:
        """Embed every role's sentences in one pass."""
        vectors = self.encoder([(tokens, self.template) for tokens in roles], most=self.tokens_at_once)
        return [self.heads(vector) for vector in vectors]

    def training_step(self, batch: dict[str, Any], batch_idx: int) -> dict[str, Any]:
        """Embed the roles of a batch and compare them."""
        gaussians = self.encode(*(batch["roles"][role] for role in self.roles))
        loss = self.loss(*gaussians)
        if self.simcse is not None:
            loss = loss + self.simcse(*(gaussian.mean for gaussian in gaussians))
        return self.output(loss, batch["index"], **dict(zip(self.roles, gaussians, strict=True)))

    def similarity(self, a: GaussianEmbedding, b: GaussianEmbedding) -> Tensor:
        """Return the cosine of the means, or the symmetric similarity, row by row."""
        if self.sts_similarity == "symmetric":
            return symmetric_gaussian_similarity(a, b, reduce=self.reduce)
        return cosine(a.mean, b.mean)

    def entailment_score(self, premise: GaussianEmbedding, hypothesis: GaussianEmbedding) -> Tensor:
        """Return sim(hypothesis || premise) row by row."""
        return gaussian_similarity(hypothesis, premise, reduce=self.reduce)

    def log_determinant(self, sentence: GaussianEmbedding) -> Tensor:
        r"""Return :math:`\sum_d \log \sigma_d^2`, how wide a sentence's Gaussian is."""
        return sentence.log_variance.sum(dim=-1)


def _heads_of_before(module: nn.Module, state: dict[str, Tensor], prefix: str, *_: Any) -> None:
    """Rename the heads in a checkpoint from when they stood in the method itself."""
    for name in [name for name in state if name.startswith((f"{prefix}mean.", f"{prefix}log_variance."))]:
        state[f"{prefix}heads.{name.removeprefix(prefix)}"] = state.pop(name)
