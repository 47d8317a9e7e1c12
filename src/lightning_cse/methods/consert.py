"""ConSERT: the two views of a sentence are two changes of the matrix of its embeddings."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, Unpack

from torch import nn

from lightning_cse.encoders import Augmentation, SentenceEncoder
from lightning_cse.methods.base import Method, Training
from lightning_cse.models import PointModel


class ConSERT(Method):
    r"""Unsupervised ConSERT: the anchor and the positive are one sentence, augmented in two ways.

    .. math:: \ell = \mathrm{NTXent}\left(f(A_1(E_i)), f(A_2(E_i))\right)

    with the embeddings :math:`E_i` of a sentence (its tokens by their features, the input of the
    first layer), the augmentations :math:`A_1` and :math:`A_2` (`Augmentation`), and the layers and
    pooling :math:`f`. There is no head. At test, and for the dev score, nothing is augmented;
    with ``diag.dropout``, the pairs of the diagnostics are augmented as in training.

    Source: Yan et al. 2021, section 3, and the authors' code.  Differs: the authors' code trains
    the mean of the last layer and averages two layers at test only; the paper, and the experiment,
    do both with two layers. Its best pair, shuffled positions and feature cutoff, is trained
    without dropout in the code.

    Args:
        encoder: maps sentences to vectors.
        loss: of the two views.
        first: the augmentation of the anchor; None for none.
        second: that of the positive.

    Raises:
        EncoderError: if the encoder cannot augment sentences.
    """

    papers = ("yan2021consert",)
    model: PointModel
    roles = ("anchor",)
    pairs: ClassVar = {"primary": ("anchor", "anchor")}

    def __init__(
        self,
        encoder: SentenceEncoder,
        loss: nn.Module,
        *,
        first: Augmentation | None = None,
        second: Augmentation | None = None,
        **training: Unpack[Training],
    ) -> None:
        super().__init__(PointModel(encoder), loss, **training)
        self.augmentations = (first, second)
        for key, augment in zip(("first", "second"), self.augmentations, strict=True):
            if augment is not None:
                encoder.check_augmentation(f"method.{key}")

        self.needs_dropout = self.augmentations == (None, None)

    def on_fit_start(self) -> None:
        """Set training mode; augmentations need no dropout beside them."""
        if self.needs_dropout:
            super().on_fit_start()

        self.train()

    @contextmanager
    def view(self, number: int) -> Iterator[None]:
        """Augment sentences as the first (0) or second (1) of a pair."""
        self.model.augment = self.augmentations[number]
        try:
            yield
        finally:
            self.model.augment = None

    def training_step(
        self,
        batch: dict[str, Any],
        batch_idx: int,
    ) -> dict[str, Any]:
        """Embed the sentences of a batch in two views, and compare them."""
        tokens = batch["roles"]["anchor"]
        views = []
        for number in range(2):
            with self.view(number):
                views += self.model.encode(tokens)

        anchor, positive = views
        loss = self.loss(anchor.vector, positive.vector)

        return self.output(
            loss,
            batch["index"],
            anchor=anchor,
            positive=positive,
        )
