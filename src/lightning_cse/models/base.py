"""The base class of every model: embeds sentences in chunks of bounded size, and is built again
from its settings.
"""

from __future__ import annotations

import ast
import importlib.util
import inspect
import pkgutil
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import torch
from torch import Tensor, nn

from lightning_cse.embeddings import Embedding
from lightning_cse.encoders import SentenceEncoder, Template
from lightning_cse.errors import EncoderError
from lightning_cse.tokens import Tokens, TokenTable

if TYPE_CHECKING:
    from lightning_cse.encoders import Augmentation

Kind = TypeVar("Kind", bound=Embedding)

EVALUATION_TOKENS = 16_384
"""Padded tokens that the encoder takes at once without gradients; this bounds memory and changes no
value.
"""

SENTENCES_AT_ONCE = 16_384


@dataclass(frozen=True)
class View:
    """The way from a sentence to one of its vectors: template, encoder with pooling, then layers.

    ``layers`` are linear layers, activations, `Normalize`, and sequences of them, applied in order.
    """

    encoder: SentenceEncoder
    template: Template
    layers: tuple[nn.Module, ...] = ()


class Normalize(nn.Module):
    """Scales vectors to length one."""

    def forward(self, vector: Tensor) -> Tensor:
        """Return vectors (n, d) divided by their lengths."""
        return nn.functional.normalize(vector, dim=-1)


class Model(nn.Module, ABC):
    """An encoder, the layers on it, and the questions that evaluation asks.

    A model defines ``encode`` (tokens to embeddings, all roles in one pass) and ``similarity``,
    which is symmetric. It may define ``entailment_score``, ``implicitness``, ``direction`` and
    ``log_determinant``, and `view_layers`, so that it can be exported. It keeps every constructor
    argument as an attribute of the same name, which `settings` reads.
    """

    encoder: SentenceEncoder
    augment: Augmentation | None = None
    """How the sentences of `pooled` are augmented; a method sets it in training (`Method.view`)."""

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

    def view_layers(self) -> Mapping[str, View]:
        """Return how each view is computed, by its name; a view that is missing here cannot be
        exported.
        """
        return {}

    def features(self, embedding: Any) -> Tensor:
        """Return the vectors of the primary view, for classifiers on top: (n, d)."""
        return cast(Tensor, next(iter(embedding.views().values())))

    @torch.no_grad()
    def embed(self, sentences: Sequence[str], tokens: Tokens | None = None) -> Embedding:
        """Embed sentences in the current mode (with dropout unless ``eval()``), as float32 in main
        memory; ``tokens`` are theirs, if they are tokenised already.
        """
        if tokens is not None:
            return self._embed_tokens(tokens)

        table = TokenTable.of(sentences, self.encoder.instructed["default"])
        parts = []
        for start in range(0, len(sentences), SENTENCES_AT_ONCE):
            # Truncate to what the encoder reads: one broken row of 14,000 tokens would pad all
            # others to its length.
            part = sentences[start : start + SENTENCES_AT_ONCE]
            parts.append(self._embed_tokens(table.tokens(part, self.encoder.max_length)))

        return Embedding.cat(parts)

    def _embed_tokens(self, tokens: Tokens) -> Embedding:
        (embedding,) = self.encode(tokens.to(self.device))
        return embedding.to("cpu", torch.float32)

    def pooled(self, *roles: Tokens) -> list[Tensor]:
        """Return the encoder's vectors of every role's sentences, from one pass."""
        template = self.templates[0]
        vectors: list[Tensor] = self.encoder(
            [(tokens, template) for tokens in roles], most=self.tokens_at_once, augment=self.augment
        )

        return vectors

    @property
    def tokens_at_once(self) -> int | None:
        """The most padded tokens that the encoder takes at once; None, no bound, while gradients
        are enabled.
        """
        return None if torch.is_grad_enabled() else EVALUATION_TOKENS

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return next(self.parameters()).device

    def settings(self) -> dict[str, Any]:
        """Return the qualified class (``_target_``) and its constructor arguments except the
        encoder.
        """
        model_class = type(self)
        names = list(inspect.signature(model_class).parameters)[1:]
        settings = {name: getattr(self, name) for name in names}

        return {"_target_": f"{model_class.__module__}.{model_class.__qualname__}", **settings}


def build(encoder: SentenceEncoder, settings: Mapping[str, Any]) -> Model:
    """Build the model that `Model.settings` describe, with freshly initialised layers on the
    encoder.

    Raises EncoderError if the class cannot be imported or takes other arguments.
    """
    check_class(settings)
    options = dict(settings)
    target = options.pop("_target_", None) or f"lightning_cse.models.{options.pop('class', '')}"
    try:
        model_class = pkgutil.resolve_name(target)
        if not issubclass(model_class, Model):  # a record must not have any other code called
            raise TypeError("it is not a subclass of lightning_cse.models.Model")

        model: Model = model_class(encoder, **options)
    except (ImportError, AttributeError, ValueError, TypeError) as error:
        raise EncoderError(
            f"the model {target} cannot be imported or built ({error}): run the command where its "
            "file is, or add the file's folder to PYTHONPATH"
        ) from error

    return model


def check_class(settings: Mapping[str, Any]) -> None:
    """Raise EncoderError if a module would be imported that is no model's.

    The settings may be those of a foreign run, and importing a module runs its code. So outside the
    package, a class must be in an imported module, or in the source of a module that can be found;
    the source is read, not run.
    """
    target = str(settings.get("_target_") or "lightning_cse.models")
    if not target.startswith("lightning_cse.") and not _defines(target):
        raise EncoderError(
            f"the model {target} is in no module that can be found: run the command where its file "
            "is, or add the file's folder to PYTHONPATH"
        )


def _defines(target: str) -> bool:
    """Whether an imported module has a class, or the source of a module defines it."""
    path, _, name = target.rpartition(".")
    if path in sys.modules:
        return isinstance(getattr(sys.modules[path], name, None), type)

    top, *inner = path.split(".")
    try:
        spec = importlib.util.find_spec(top)  # of the outermost package: nothing is run
        modules = [Path(spec.origin)] if spec and spec.origin and not inner else []
        if spec and inner:
            stems = [Path(folder, *inner) for folder in spec.submodule_search_locations or ()]
            modules = [
                path for stem in stems for path in (stem.with_suffix(".py"), stem / "__init__.py")
            ]

        trees = [ast.parse(module.read_bytes()) for module in modules if module.is_file()]
    except (OSError, SyntaxError, ValueError, ImportError):
        return False

    classes = [node for tree in trees for node in tree.body if isinstance(node, ast.ClassDef)]

    return any(node.name == name and node.bases for node in classes)


def finite(embedding: Kind) -> Kind:
    """Return an embedding unchanged; raise EncoderError if a number in it is not finite."""
    if not embedding.is_finite:
        raise EncoderError("some embeddings are not finite: the weights of the model are broken")

    return embedding


def in_float32(layer: nn.Module, vector: Tensor) -> Tensor:
    """Apply a layer in float32 even under autocast, since vectors rounded to bfloat16 make scores
    tie.
    """
    with torch.autocast(vector.device.type, enabled=False):
        return cast(Tensor, layer(vector))
