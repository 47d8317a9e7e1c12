"""The base class of every model: embeds sentences in chunks of bounded size, and is built again from its settings."""

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
"""Padded tokens that the encoder takes at once without gradients; this bounds memory and changes no value."""

SENTENCES_AT_ONCE = 16_384


class Model(nn.Module, ABC):
    """An encoder, the layers on it, and the questions that evaluation asks.

    A model defines ``encode`` (tokens to embeddings, all roles in one pass) and ``similarity``, which is symmetric. It
    may define ``entailment_score``, ``implicitness``, ``direction`` and ``log_determinant``. It keeps every constructor
    argument as an attribute of the same name, which `settings` reads.
    """

    encoder: SentenceEncoder
    table: TokenTable | None = None
    """Tokens of sentences that are embedded repeatedly; other sentences are tokenised when they are embedded."""

    def __init__(self, encoder: SentenceEncoder) -> None:
        super().__init__()
        self.encoder = encoder

    @property
    def templates(self) -> tuple[Template, ...]:
        """The templates put around a sentence, one for each time it is encoded."""
        return (self.encoder.template(),)

    @abstractmethod
    def encode(self, *roles: Tokens) -> Sequence[Embedding]:
        """Embed every role's sentences in one pass through the encoder."""

    @abstractmethod
    def similarity(self, a: Any, b: Any) -> Tensor:
        """Return the symmetric similarity of each row of ``a`` to the same row of ``b``: (n,)."""

    def features(self, embedding: Any) -> Tensor:
        """Return the vectors of the primary view, for classifiers on top: (n, d)."""
        return cast(Tensor, next(iter(embedding.views().values())))

    @torch.no_grad()
    def embed(self, sentences: Sequence[str]) -> Embedding:
        """Embed sentences in the current mode (with dropout unless ``eval()``), as float32 in main memory."""
        table = self.table
        if table is None or not table.has(sentences):
            table = TokenTable.of(sentences, self.encoder.tokenizer)
        parts = []
        for start in range(0, len(sentences), SENTENCES_AT_ONCE):
            # Truncate to what the encoder reads: one broken row of 14,000 tokens would pad all others to its length.
            tokens = table.tokens(
                sentences[start : start + SENTENCES_AT_ONCE], self.encoder.max_length
            )
            (embedding,) = self.encode(tokens.to(self.device))
            parts.append(embedding.to("cpu", torch.float32))
        return Embedding.cat(parts)

    def pooled(self, *roles: Tokens) -> list[Tensor]:
        """Return the encoder's vectors of every role's sentences, from one pass."""
        template = self.templates[0]
        vectors: list[Tensor] = self.encoder(
            [(tokens, template) for tokens in roles], most=self.tokens_at_once
        )
        return vectors

    @property
    def tokens_at_once(self) -> int | None:
        """The most padded tokens that the encoder takes at once; None, no bound, while gradients are enabled."""
        return None if torch.is_grad_enabled() else EVALUATION_TOKENS

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return next(self.parameters()).device

    def settings(self) -> dict[str, Any]:
        """Return the name of the class and its constructor arguments except the encoder, as plain values."""
        names = list(inspect.signature(type(self)).parameters)[1:]
        return {"class": type(self).__name__} | {name: getattr(self, name) for name in names}


def build(encoder: SentenceEncoder, settings: Mapping[str, Any]) -> Model:
    """Build the model that `Model.settings` describe, with freshly initialised layers on the encoder."""
    options = dict(settings)
    try:
        model: Model = getattr(models, options.pop("class"))(encoder, **options)
    except (KeyError, AttributeError, TypeError) as error:
        raise EncoderError(f"no model has the settings {dict(settings)} ({error})") from error
    return model


def in_float32(layer: nn.Module, vector: Tensor) -> Tensor:
    """Apply a layer in float32 even under autocast, since vectors rounded to bfloat16 make scores tie."""
    with torch.autocast(vector.device.type, enabled=False):
        return cast(Tensor, layer(vector))
