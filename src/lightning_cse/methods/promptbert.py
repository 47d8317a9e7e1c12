"""PromptBERT: the two views of a sentence are two prompts, each without what it says alone."""

from typing import Any, ClassVar, Unpack

from torch import nn

from lightning_cse.embeddings import PointEmbedding
from lightning_cse.encoders import SentenceEncoder, Template
from lightning_cse.errors import EncoderError
from lightning_cse.methods.base import Method, Training
from lightning_cse.models import PointModel
from lightning_cse.models.base import in_float32


class PromptBERT(Method):
    r"""Unsupervised PromptBERT: the positive is the anchor itself in another prompt.

    .. math:: z_i = \tanh\left(W (h_i - \hat h_i) + b\right), \qquad
              \ell_i = -\log \frac{e^{\cos(z_i, z'_i)/\tau}}
              {\sum_{j=1}^{n} e^{\cos(z_i, z'_j)/\tau}}

    with the vector :math:`h` of the mask in the first prompt around a sentence, and :math:`\hat h`
    of the same prompt without the sentence, with the positions it has around it (template
    denoising); :math:`z'` is the same of the second prompt. Denoising and the head are used in
    training only: at test, the embedding of a sentence is :math:`h` of the first prompt.

    Source: Jiang et al. 2022, section 3.3, and the authors' code (denoising and head in training
    only).  Differs: the initialisation of the head, as in `SimCSE`; the prompt alone has one
    dropout mask per length, as in `SentenceEncoder`; at test, the authors add a full stop to a
    sentence without one.

    Args:
        encoder: maps sentences to vectors, by two prompts.
        loss: of anchors and positives.
        denoise: whether training subtracts the vector of the prompt alone.

    Raises:
        EncoderError: if the encoder has not two prompts, or cannot set positions.
    """

    papers = ("jiang2022promptbert",)
    model: PointModel
    roles = ("anchor",)
    pairs: ClassVar = {"primary": ("anchor", "anchor")}

    def __init__(
        self,
        encoder: SentenceEncoder,
        loss: nn.Module,
        *,
        denoise: bool = True,
        **training: Unpack[Training],
    ) -> None:
        if len(encoder.templates) != 2:
            raise EncoderError(
                "encoder.prompts: PromptBERT compares two prompts around one sentence, got "
                f"{len(encoder.templates)}; set encoder.pooling=prompt and two encoder.prompts"
            )

        if denoise:
            encoder.check_positions("method.denoise")

        super().__init__(PointModel(encoder), loss, **training)
        self.denoise = denoise
        self.head = nn.Sequential(nn.Linear(encoder.width, encoder.width), nn.Tanh())

    @property
    def templates(self) -> tuple[Template, ...]:
        """The two prompts; the first is that of a sentence at test."""
        return self.model.encoder.templates

    def training_step(self, batch: dict[str, Any], batch_idx: int) -> dict[str, Any]:
        """Embed the sentences of a batch in both prompts, and compare the two embeddings."""
        tokens = batch["roles"]["anchor"]
        views = [(tokens, template) for template in self.templates]
        denoised = self.model.encoder(views, denoise=self.denoise)
        anchor, positive = (PointEmbedding(in_float32(self.head, vector)) for vector in denoised)
        loss = self.loss(anchor.vector, positive.vector)

        return self.output(loss, batch["index"], anchor=anchor, positive=positive)
