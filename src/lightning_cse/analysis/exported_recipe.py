"""What the vectors of a model's view are made of, as modules of sentence-transformers, or why these cannot say it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from lightning_cse.errors import EncoderError

if TYPE_CHECKING:  # heavy, and what is wrong with a command line is told without
    from torch import Tensor, nn

    from lightning_cse.encoders import SentenceEncoder, Template

__all__ = ["OTHERWISE", "Module", "Recipe", "recipe_of"]

OTHERWISE: Final = (
    "lightning_cse.score and lightning_cse.search take the model itself, and in Python "
    "lightning_cse.engine.load.load_model"
)
"""What to do with a model that is not exported."""

_DENSE: Final = ("linear.weight", "linear.bias")


@dataclass(frozen=True)
class Module:
    """A module of sentence-transformers: its class, what its ``config.json`` says, its weights."""

    kind: str
    config: Mapping[str, Any]
    weights: Mapping[str, Tensor]


@dataclass(frozen=True)
class Recipe:
    """What a view's vector is made of.

    Attributes:
        encoder: sentences to pooled vectors.
        template: what stands around a sentence.
        layers: what is put on the pooled vector, as it is when the model is tested.
    """

    encoder: SentenceEncoder
    template: Template
    layers: tuple[Module, ...] = ()


def recipe_of(answers: Any, view: str) -> Recipe:
    """Return what the vectors of a view are made of.

    Args:
        answers: a model, as in `LoadedModel.answers`.
        view: one of its embeddings' views.

    Raises:
        EncoderError: if modules of sentence-transformers cannot give exactly these vectors.
    """
    from lightning_cse import models

    # By the class itself: what derives from a model may embed in its own way.
    known: dict[type, Callable[[Any, str], Recipe]] = {
        models.PointModel: lambda model, _: _on(model, model.head),
        models.GaussianModel: lambda model, _: _on(model, model.heads.mean),
        models.DualModel: _dual,
        models.DualGaussianModel: _dual_gaussian,
        models.ImpScoreModel: _pragmatic,
    }
    kind = type(answers)
    if kind not in known:
        raise EncoderError(
            f"{kind.__name__} cannot be exported: nothing here says what its vectors are made of (known are "
            f"{', '.join(one.__name__ for one in known)}). {OTHERWISE}"
        )
    recipe = known[kind](answers, view)
    if recipe.encoder.denoise:
        raise EncoderError(
            "encoder.denoise: what is taken from a vector depends on the length of its sentence, which no module of "
            f"sentence-transformers does, so this model cannot be exported. {OTHERWISE}"
        )
    return recipe


def _on(model: Any, head: nn.Module | None) -> Recipe:
    return Recipe(model.encoder, model.templates[0], () if head is None else (_dense(head),))


def _dual(model: Any, view: str) -> Recipe:
    implicit = view == "implicit"
    encoder = model.implicit_encoder if implicit and model.implicit_encoder is not None else model.encoder
    return Recipe(encoder, model.implicit_template if implicit else model.explicit_template)


def _dual_gaussian(model: Any, view: str) -> Recipe:
    recipe = _dual(model, view)
    own = view == "implicit" and model.implicit_heads is not None
    heads = model.implicit_heads if own else model.heads
    return Recipe(recipe.encoder, recipe.template, (_dense(heads.mean),))


def _pragmatic(model: Any, view: str) -> Recipe:
    scaled = (Module("Normalize", {}, {}),) if model.normalize else ()
    return Recipe(model.encoder, model.templates[0], (*scaled, _dense(getattr(model, view))))


def _dense(layer: nn.Module) -> Module:
    """Return a linear layer, or one with an activation behind it, as sentence-transformers' ``Dense``."""
    from torch import nn

    linear, activation = layer if isinstance(layer, nn.Sequential) else (layer, nn.Identity())
    if not isinstance(linear, nn.Linear):
        raise TypeError(f"need a linear layer, got {type(linear).__name__}")
    config = {
        "in_features": linear.in_features,
        "out_features": linear.out_features,
        "bias": linear.bias is not None,
        "activation_function": f"{type(activation).__module__}.{type(activation).__qualname__}",
    }
    weights = (value for value in (linear.weight, linear.bias) if value is not None)
    return Module("Dense", config, {name: value.detach() for name, value in zip(_DENSE, weights, strict=False)})
