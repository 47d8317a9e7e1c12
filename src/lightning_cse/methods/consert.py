"""ConSERT: the two views of a sentence are two changes of the matrix of its embeddings."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, ClassVar, Unpack

from torch import nn

from lightning_cse.encoders import AdversarialNoise, Augmentation, SentenceEncoder
from lightning_cse.errors import ConfigError
from lightning_cse.methods.base import Method, Training
from lightning_cse.methods.sbert import SBERT
from lightning_cse.models import Model, PointModel


@contextmanager
def augmented(model: Model, augment: Augmentation | None) -> Iterator[None]:
    """Augment the sentences that a model embeds, as long as the context lasts."""
    model.augment = augment
    try:
        yield
    finally:
        model.augment = None


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
        ConfigError: for `AdversarialNoise`, which needs the loss of a label (`JointConSERT`).
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
        check_augmentations(encoder, first, second)
        if AdversarialNoise in map(type, self.augmentations):
            raise ConfigError(
                [
                    "method.first, method.second: AdversarialNoise needs the gradient of a loss on "
                    "labels: choose another one, or +experiment=consert_joint_adversarial"
                ]
            )

        self.needs_dropout = self.augmentations == (None, None)

    def on_fit_start(self) -> None:
        """Check dropout only without augmentations, which need none beside them."""
        if self.needs_dropout:
            super().on_fit_start()

    def view(self, number: int) -> AbstractContextManager[None]:
        """Augment sentences as the first (0) or second (1) of a pair."""
        return augmented(self.model, self.augmentations[number])

    def training_step(self, batch: dict[str, Any], batch_idx: int) -> dict[str, Any]:
        """Embed the sentences of a batch in two views, and compare them."""
        tokens = batch["roles"]["anchor"]
        views = []
        for number in range(2):
            with self.view(number):
                views += self.model.encode(tokens)

        anchor, positive = views
        loss = self.loss(anchor.vector, positive.vector)

        return self.output(loss, batch["index"], anchor=anchor, positive=positive)


class JointConSERT(SBERT):
    r"""ConSERT with the labels of NLI: SBERT's classifier, and two views of both sentences.

    .. math:: L = L_{\mathrm{SBERT}} + \alpha \left(\mathrm{NTXent}(u, u') +
              \mathrm{NTXent}(v, v')\right)

    with the vectors :math:`u` and :math:`v` of premises and hypotheses in the first view, which the
    classifier sees too, and :math:`u'` and :math:`v'` in the second. The second view may be an
    attack on the classifier (`AdversarialNoise`). At test, nothing is augmented.

    Source: Yan et al. 2021, section 3, joint training, and the authors' code (which sentences are
    compared, the classifier's parts, :math:`\alpha`).  Differs: as `ConSERT`.

    Args:
        encoder: maps sentences to vectors.
        contrast: the loss of two views.
        weight: :math:`\alpha`.
        first: the augmentation of the first view; None for none.
        second: that of the second.

    Raises:
        EncoderError: if the encoder cannot augment sentences.
        ConfigError: for `AdversarialNoise` as the first view, beside one, or with ``chunk_size``.
    """

    papers = ("yan2021consert", "reimers2019sbert")

    def __init__(
        self,
        encoder: SentenceEncoder,
        contrast: nn.Module,
        *,
        weight: float,
        first: Augmentation | None = None,
        second: Augmentation | None = None,
        classes: int = 3,
        parts: Sequence[str] = ("first", "second", "difference", "larger_squared"),
        **training: Unpack[Training],
    ) -> None:
        super().__init__(encoder, classes=classes, parts=parts, **training)
        self.contrast = contrast
        self.weight = weight
        self.first = first
        self.second = second
        self.noise = second if isinstance(second, AdversarialNoise) else None
        check_augmentations(encoder, first, second)
        if isinstance(first, AdversarialNoise) or (self.noise is not None and first is not None):
            raise ConfigError(
                [
                    "method.first: must be null with AdversarialNoise, which is for method.second "
                    "and attacks the sentences as they are"
                ]
            )

        if self.noise is not None and encoder.chunk_size is not None:
            raise ConfigError(
                [
                    "method.second: AdversarialNoise needs the activations of all sentences at "
                    "once: set method.chunk_size=null, or choose another augmentation"
                ]
            )

    def training_step(self, batch: dict[str, Any], batch_idx: int) -> dict[str, Any]:
        """Embed both sentences of a batch's pairs in two views; classify the pairs, and compare the
        views.
        """
        with augmented(self.model, self.noise.watch() if self.noise else self.first):
            embeddings = self.embed(batch)

        classification = self.loss(*embeddings.values(), batch["targets"])
        attack = self.noise.attack(classification) if self.noise else nullcontext()
        with attack, augmented(self.model, self.second):
            second_view = self.embed(batch)

        contrast = sum(self.contrast(embeddings[role], second_view[role]) for role in self.roles)
        parts = {"classification": classification, "contrast": contrast}

        return self.output(
            classification + self.weight * contrast, batch["index"], parts, **embeddings
        )


def check_augmentations(encoder: SentenceEncoder, *augmentations: Augmentation | None) -> None:
    """Raise EncoderError if the encoder cannot augment sentences as a method asks."""
    for key, augment in zip(("first", "second"), augmentations, strict=True):
        if augment is not None:
            encoder.check_augmentation(f"method.{key}")
