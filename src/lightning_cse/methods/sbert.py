"""SBERT: one encoder for both sentences of a pair, trained on the pair's label or score."""

from collections.abc import Sequence
from typing import Any, ClassVar, Unpack

import torch
from torch import nn

from lightning_cse.data.roles import TARGET
from lightning_cse.encoders import SentenceEncoder
from lightning_cse.methods.base import Method, Training
from lightning_cse.models import PairModel, PointModel


class SBERT(Method):
    r"""Classification objective: a softmax classifier predicts the label of a pair.

    .. math:: o = \text{softmax}(W (u, v, |u - v|) + b)

    The loss is `SoftmaxClassification`, whose classifier has ``classes``, ``parts``, ``hidden`` and
    ``tanh``. At test, sentences are compared by the cosine of their pooled vectors; the classifier
    only answers which label a pair has (`PairLabels`). Alignment is measured over entailed pairs.

    Source: SBERT (Reimers and Gurevych 2019), section 3, and the authors' code.  Differs: weight
    decay also acts on biases and norms.
    """

    papers: tuple[str, ...] = ("reimers2019sbert",)
    model: PairModel
    roles: tuple[str, ...] = ("premise", "hypothesis")
    pairs: ClassVar = {"primary": ("premise", "entailment")}

    def __init__(
        self,
        encoder: SentenceEncoder,
        *,
        classes: int = 3,
        parts: Sequence[str] = ("first", "second", "difference"),
        hidden: Sequence[int] = (),
        tanh: bool = False,
        **training: Unpack[Training],
    ) -> None:
        model = PairModel(encoder, classes=classes, parts=parts, hidden=hidden, tanh=tanh)
        super().__init__(model, model.classifier, **training)

    def on_fit_start(self) -> None:
        """Check the labels of all rows: a step would have to wait for those on a GPU."""
        super().on_fit_start()
        rows = getattr(self.trainer.datamodule, "train", None)  # type: ignore[attr-defined]
        if rows is not None and TARGET in rows.column_names:
            self.model.classifier.check_labels(torch.tensor(rows[TARGET][:]))

    def training_step(self, batch: dict[str, Any], batch_idx: int) -> dict[str, Any]:
        """Embed both sentences of a batch's pairs, and classify the pairs."""
        embeddings = self.embed(batch)
        loss = self.loss(*embeddings.values(), batch["targets"])

        return self.output(loss, batch["index"], **embeddings)


class SBERTRegression(Method):
    r"""Regression objective: the cosine of two vectors is to be the score of their pair.

    The loss takes both vectors and the scores, as `CosineRegression` and `SoftInfoNCE` do.
    Alignment is measured over pairs with a high score (`ScoredPairs`).

    Source: SBERT (Reimers and Gurevych 2019), section 3, and the authors' code.  Differs: as
    `SBERT`.
    """

    papers = ("reimers2019sbert",)
    model: PointModel
    roles = ("sentence1", "sentence2")
    pairs: ClassVar = {"primary": ("sentence1", "positive")}

    def __init__(
        self, encoder: SentenceEncoder, loss: nn.Module, **training: Unpack[Training]
    ) -> None:
        super().__init__(PointModel(encoder), loss, **training)

    def training_step(self, batch: dict[str, Any], batch_idx: int) -> dict[str, Any]:
        """Embed both sentences of a batch's pairs, and compare their cosines with the scores."""
        embeddings = self.embed(batch)
        loss = self.loss(*embeddings.values(), batch["targets"])

        return self.output(loss, batch["index"], **embeddings)
