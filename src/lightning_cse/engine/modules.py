"""The modules after the transformer of a sentence-transformers folder, such as
`lightning_cse.export` writes.
"""

import hashlib
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn

from lightning_cse.encoders import SentenceEncoder
from lightning_cse.encoders.load import read_json
from lightning_cse.errors import EncoderError
from lightning_cse.models import Normalize, PointModel

log = logging.getLogger(__name__)

APPLIED: Final = ("Dense", "Normalize", "WordWeights")
ACTIVATIONS: Final = {
    kind.__name__: kind
    for kind in (
        nn.Identity,
        nn.Tanh,
        nn.ReLU,
        nn.GELU,
    )
}


def with_modules(encoder: SentenceEncoder, folder: Path) -> tuple[PointModel, dict[str, str]]:
    """Return an encoder with the modules of its folder, and their digest.

    A Normalize at the end is left out, since it changes no cosine. Raises EncoderError for a module
    that cannot be applied as in sentence-transformers.
    """
    layers: list[nn.Module] = []
    digest = hashlib.sha256()
    for module in read_json(folder / "modules.json"):
        kind = module["type"].rpartition(".")[2]
        path = folder / module["path"]
        digest.update(kind.encode())
        if kind == "Normalize":
            layers.append(Normalize())
        elif kind == "Dense":
            layers.append(_dense(path))
            digest.update((path / "config.json").read_bytes())
            digest.update((path / "model.safetensors").read_bytes())
        elif kind == "WordWeights":
            _pool_mask(
                encoder,
                read_json(path / "config.json"),
                path,
            )
    normalized = bool(layers) and isinstance(layers[-1], Normalize)
    if normalized:
        layers.pop()
        log.info("%s scales its vectors to length one; here it does not: no cosine changes", folder)
    _check_similarity(folder, normalized)
    model = PointModel(encoder)
    if not layers:
        return model, {}
    model.head = nn.Sequential(*layers)
    return model, {"modules": digest.hexdigest()}


def _check_similarity(folder: Path, normalized: bool) -> None:
    """Warn if the folder says that its vectors are not compared by the cosine."""
    settings = folder / "config_sentence_transformers.json"
    similarity = read_json(settings).get("similarity_fn_name") if settings.is_file() else None
    same = ("dot", "cosine", None) if normalized else ("cosine", None)
    if similarity not in same:
        log.warning(
            "%s compares its vectors by %s; here, it is the cosine",
            folder,
            similarity,
        )


def _dense(path: Path) -> nn.Sequential:
    config = read_json(path / "config.json")
    name = str(config.get("activation_function")).rpartition(".")[2]
    reads = config.get("module_input_name", "sentence_embedding")
    if name not in ACTIVATIONS or reads != "sentence_embedding":
        raise EncoderError(
            f"{path}: a Dense with {config} is not supported here: set pooling to leave it out"
        )
    layer = nn.Linear(
        config["in_features"],
        config["out_features"],
        bias=config.get("bias", True),
    )
    try:
        weights = load_file(path / "model.safetensors")
        layer.load_state_dict({key.removeprefix("linear."): weights[key] for key in weights})
    except (OSError, RuntimeError, SafetensorError) as error:
        raise EncoderError(
            f"{path}: {' '.join(str(error).split())} (a Dense needs model.safetensors)"
        ) from error
    return nn.Sequential(layer, ACTIVATIONS[name]())


def _pool_mask(
    encoder: SentenceEncoder,
    config: dict[str, Any],
    path: Path,
) -> None:
    """Pool the mask of an exported prompt: the token with the last id, the only one that has a
    weight.
    """
    mask = len(config["vocab"]) - 1
    (template,) = encoder.templates
    only_mask = config["word_weights"] == {config["vocab"][mask]: 1.0}
    if not only_mask or config["unknown_word_weight"] or template.suffix.count(mask) != 1:
        raise EncoderError(
            f"{path}: word weights are not supported here: set pooling to leave them out"
        )
    encoder.pooling = "prompt"
    place = len(template.suffix) - template.suffix.index(mask)
    encoder.templates = (replace(template, pooled=place),)
