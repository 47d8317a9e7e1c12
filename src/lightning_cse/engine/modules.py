"""The modules after the transformer of a sentence-transformers folder, such as `lightning_cse.export` writes."""

import hashlib
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from lightning_cse.encoders import SentenceEncoder
from lightning_cse.encoders.load import read_json
from lightning_cse.errors import EncoderError
from lightning_cse.models import PointModel

log = logging.getLogger(__name__)

APPLIED: Final = ("Dense", "Normalize", "WordWeights")
ACTIVATIONS: Final = {kind.__name__: kind for kind in (nn.Identity, nn.Tanh, nn.ReLU, nn.GELU)}


class _Normalize(nn.Module):
    def forward(self, vector: Tensor) -> Tensor:
        return nn.functional.normalize(vector, dim=-1)


def with_modules(encoder: SentenceEncoder, folder: Path) -> tuple[PointModel, dict[str, str]]:
    """Return an encoder with the modules of its folder, and their digest.

    A Normalize at the end is left out, since it changes no cosine. Raises EncoderError for a module that cannot be
    applied as in sentence-transformers.
    """
    layers: list[nn.Module] = []
    digest = hashlib.sha256()
    for module in read_json(folder / "modules.json"):
        kind, path = module["type"].rpartition(".")[2], folder / module["path"]
        digest.update(kind.encode())
        if kind == "Normalize":
            layers.append(_Normalize())
        elif kind == "Dense":
            layers.append(_dense(path))
            digest.update(
                (path / "config.json").read_bytes() + (path / "model.safetensors").read_bytes()
            )
        elif kind == "WordWeights":
            _pool_mask(encoder, read_json(path / "config.json"), path)
    normalized = bool(layers) and isinstance(layers[-1], _Normalize)
    if normalized:
        log.info(
            "%s scales its vectors to length one, which is omitted here: no cosine changes", folder
        )
        layers.pop()
    settings = folder / "config_sentence_transformers.json"
    similarity = read_json(settings).get("similarity_fn_name") if settings.is_file() else None
    if similarity not in (None, "cosine", "dot" if normalized else "cosine"):
        log.warning(
            "%s compares its vectors with %s; here they are compared with the cosine",
            folder,
            similarity,
        )
    model = PointModel(encoder)
    model.head = nn.Sequential(*layers) if layers else None
    return model, {"modules": digest.hexdigest()} if layers else {}


def _dense(path: Path) -> nn.Sequential:
    config = read_json(path / "config.json")
    name = str(config.get("activation_function")).rpartition(".")[2]
    if (
        name not in ACTIVATIONS
        or config.get("module_input_name", "sentence_embedding") != "sentence_embedding"
    ):
        raise EncoderError(
            f"{path}: a Dense with {config} is not supported here: set pooling to leave it out"
        )
    layer = nn.Linear(config["in_features"], config["out_features"], bias=config.get("bias", True))
    try:
        weights = load_file(path / "model.safetensors")
        layer.load_state_dict(
            {key.removeprefix("linear."): value for key, value in weights.items()}
        )
    except (OSError, RuntimeError, SafetensorError) as error:
        raise EncoderError(
            f"{path}: {' '.join(str(error).split())} (a Dense needs model.safetensors)"
        ) from error
    return nn.Sequential(layer, ACTIVATIONS[name]())


def _pool_mask(encoder: SentenceEncoder, config: dict[str, Any], path: Path) -> None:
    """Pool the mask of an exported prompt: the token with the last id, the only one that has a weight."""
    mask, (template,) = len(config["vocab"]) - 1, encoder.templates
    alone = (
        config["word_weights"] == {config["vocab"][mask]: 1.0} and not config["unknown_word_weight"]
    )
    if not alone or template.suffix.count(mask) != 1:
        raise EncoderError(
            f"{path}: word weights are not supported here: set pooling to leave them out"
        )
    place = len(template.suffix) - template.suffix.index(mask)
    encoder.pooling, encoder.templates = "prompt", (replace(template, pooled=place),)
