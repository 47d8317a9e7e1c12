"""InferSent: a BiLSTM with max pooling over word vectors, trained on the labels of NLI."""

from collections.abc import Sequence
from typing import Unpack

from lightning_cse.encoders import SentenceEncoder
from lightning_cse.methods.base import Training
from lightning_cse.methods.sbert import SBERT


class InferSent(SBERT):
    r"""A classifier with hidden layers predicts the label of a pair from the vectors of both.

    .. math:: o = \text{softmax}(\text{MLP}(u, v, |u - v|, u * v))

    The encoder decides how a sentence becomes a vector; the paper's is a BiLSTM over word vectors
    with ``pooling=max`` (``encoder.lstm``, ``encoder.vectors``). Everything else is as in `SBERT`,
    which took the classifier on pairs from here.

    Source: InferSent (Conneau et al. 2017), section 3, and the authors' code.  Differs: nothing
    here; of the word vectors, see `lightning_cse.encoders.recurrent`.
    """

    papers = ("conneau2017infersent",)

    def __init__(
        self,
        encoder: SentenceEncoder,
        *,
        classes: int = 3,
        parts: Sequence[str] = ("first", "second", "difference", "product"),
        hidden: Sequence[int] = (512, 512),
        tanh: bool = False,
        **training: Unpack[Training],
    ) -> None:
        super().__init__(
            encoder, classes=classes, parts=parts, hidden=hidden, tanh=tanh, **training
        )
