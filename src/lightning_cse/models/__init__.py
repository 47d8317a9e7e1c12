"""Models: plain modules that embed sentences and answer questions about them; `methods` train them.

`settings` of a model and its encoder are all it takes to build it again: ``build(encoder, model.settings())``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from lightning_cse.encoders import SentenceEncoder
from lightning_cse.errors import EncoderError
from lightning_cse.models.base import Model
from lightning_cse.models.dual import DualModel
from lightning_cse.models.dual_gaussian import DualGaussianModel
from lightning_cse.models.gaussian import GaussianModel
from lightning_cse.models.impscore import ImpScoreModel
from lightning_cse.models.point import PointModel

__all__ = ["DualGaussianModel", "DualModel", "GaussianModel", "ImpScoreModel", "Model", "PointModel", "build"]

_CLASSES: Final[dict[str, type[Model]]] = {
    model.__name__: model for model in (PointModel, GaussianModel, DualModel, DualGaussianModel, ImpScoreModel)
}


def build(encoder: SentenceEncoder, settings: Mapping[str, Any]) -> Model:
    """Build the model that these settings describe, its own layers freshly initialised.

    Raises:
        EncoderError: if there is no such model, or it does not take these settings.
    """
    options = {key: value for key, value in settings.items() if key != "class"}
    try:
        return _CLASSES[settings["class"]](encoder, **options)
    except (KeyError, TypeError) as error:
        raise EncoderError(f"no model has the settings {dict(settings)} ({error}); known: {list(_CLASSES)}") from error
