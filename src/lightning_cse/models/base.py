"""What every model shares: embedding sentences a bounded number at a time, and being built again from settings."""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn

from lightning_cse import models
from lightning_cse.embeddings import Embedding
from lightning_cse.encoders import SentenceEncoder, Template
from lightning_cse.errors import EncoderError
from lightning_cse.tokens import Tokens, TokenTable

EVALUATION_TOKENS = 16_384
"""Padded tokens through the encoder at once when nothing is learned; bounds memory, changes no value."""

SENTENCES_AT_ONCE = 16_384


class Model(nn.Module, ABC):
    """An encoder, the layers on it, and the questions that evaluation asks.

    A model defines ``encode`` (tokens to embeddings, all roles in one pass) and ``similarity``, which is symmetric;
    ``entailment_score``, ``implicitness``, ``direction`` and ``log_determinant`` where it has them. It keeps every
    constructor argument as an attribute of the same name, from which `settings` reads them.
    """

    encoder: SentenceEncoder
    table: TokenTable | None = None
    """Tokens of sentences that will be embedded, perhaps many times; others are tokenised when they are."""

    def __init__(self, encoder: SentenceEncoder) -> None:
        super().__init__()
        self.encoder = encoder

    @property
    def templates(self) -> tuple[Template, ...]:
        """What is put around a sentence, for each time it is encoded."""
        return (self.encoder.template(),)

    @abstractmethod
    def encode(self, *roles: Tokens) -> Sequence[Embedding]:
        """Embed every role's sentences in one pass through the encoder."""

    @abstractmethod
    def similarity(self, a: Any, b: Any) -> Tensor:
        """Return how close each row of ``a`` is to the same row of ``b``, symmetric: (n,)."""

    def features(self, embedding: Any) -> Tensor:
        """Return the vectors of the primary view, for classifiers on top: (n, d)."""
        return cast(Tensor, next(iter(embedding.views().values())))

    @torch.no_grad()
    def embed(self, sentences: Sequence[str]) -> Embedding:
        """Embed sentences, in float32 and in main memory, in the present mode (with dropout unless ``eval()``)."""
        table = self.table
        if table is None or not table.has(sentences):
            table = TokenTable.of(sentences, self.encoder.tokenizer)
        parts = []
        for start in range(0, len(sentences), SENTENCES_AT_ONCE):
            # Cut to what the encoder reads: one broken row of 14,000 tokens would pad all others to its length.
            tokens = table.tokens(sentences[start : start + SENTENCES_AT_ONCE], self.encoder.max_length)
            (embedding,) = self.encode(tokens.to(self.device))
            parts.append(embedding.to("cpu", torch.float32))
        return Embedding.cat(parts)

    def pooled(self, *roles: Tokens) -> list[Tensor]:
        """Return the encoder's vectors of every role's sentences, from one pass."""
        template = self.templates[0]
        vectors: list[Tensor] = self.encoder([(tokens, template) for tokens in roles], most=self.tokens_at_once)
        return vectors

    @property
    def tokens_at_once(self) -> int | None:
        """The most padded tokens through the encoder at once; no bound while gradients are kept."""
        return None if torch.is_grad_enabled() else EVALUATION_TOKENS

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(self.parameters()).device

    def settings(self) -> dict[str, Any]:
        """Return the name of the class and its constructor arguments but the encoder, all plain values."""
        names = list(inspect.signature(type(self)).parameters)[1:]
        return {"class": type(self).__name__} | {name: getattr(self, name) for name in names}


def build(encoder: SentenceEncoder, settings: Mapping[str, Any]) -> Model:
    """Build the model that some `Model.settings` describe, its own layers freshly initialised."""
    options = dict(settings)
    try:
        model: Model = getattr(models, options.pop("class"))(encoder, **options)
    except (KeyError, AttributeError, TypeError) as error:
        raise EncoderError(f"no model has the settings {dict(settings)} ({error})") from error
    return model


def in_float32(layer: nn.Module, vector: Tensor) -> Tensor:
    """Apply a layer in float32 also under autocast: a vector rounded to bfloat16 makes ties between scores."""
    with torch.autocast(vector.device.type, enabled=False):
        return cast(Tensor, layer(vector))
