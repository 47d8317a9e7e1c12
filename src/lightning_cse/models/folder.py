"""A folder of sentence-transformers as a model: the pooled vector, and the layers behind it."""

from collections.abc import Iterable, Sequence
from typing import Any

from torch import nn

from lightning_cse.embeddings import PointEmbedding
from lightning_cse.encoders import SentenceEncoder
from lightning_cse.encoders.folder import Module, read_json, read_tensors
from lightning_cse.errors import EncoderError
from lightning_cse.models.base import Normalize, View, in_float32
from lightning_cse.models.point import PointModel
from lightning_cse.tokens import Tokens

DENSE = {"in_features": int, "out_features": int, "bias": bool, "activation_function": str}
"""The keys of a Dense, and the types of their values."""

DEFAULTS = {
    "module_input_name": "sentence_embedding",
    "module_output_name": "sentence_embedding",
    "use_residual": False,
}
"""The keys of Dense and Normalize that must have their default."""


class FolderModel(PointModel):
    """The pooled vector through ``layers`` (Dense and Normalize), compared by cosine."""

    def __init__(self, encoder: SentenceEncoder, *, layers: Sequence[nn.Module]) -> None:
        super().__init__(encoder)
        self.layers = nn.Sequential(*layers)

    def encode(self, *roles: Tokens) -> list[PointEmbedding]:
        """Embed every role's sentences in one pass."""
        return [PointEmbedding(in_float32(self.layers, vector)) for vector in self.pooled(*roles)]

    def view_layers(self) -> dict[str, View]:
        """Return how the only view is computed."""
        return {"primary": View(self.encoder, self.templates[0], (self.layers,))}


def read_layers(modules: Iterable[Module], width: int) -> list[nn.Module]:
    """Return the layers of a folder behind its pooling, which gives vectors (n, width).

    Raises EncoderError if a file is damaged or asks for what is not supported.
    """
    layers: list[nn.Module] = []
    for module in modules:
        config = _config(module)
        if module.name == "Normalize":
            layers.append(Normalize())
            continue

        if config["in_features"] != width:
            raise EncoderError(
                f"{module.path} takes vectors of {config['in_features']} numbers, and gets "
                f"{width}: restore the folder"
            )

        layers.append(_dense(module, config))
        width = config["out_features"]

    return layers


def _config(module: Module) -> dict[str, Any]:
    """Return the settings of a layer, complete; raise EncoderError for unsupported ones."""
    path = module.path / "config.json"
    types = DENSE if module.name == "Dense" else {}
    try:
        written = read_json(path) if path.is_file() else {}
        # The defaults of sentence-transformers.
        config = {"bias": True, "activation_function": "torch.nn.modules.activation.Tanh"}
        config |= {key: value for key, value in written.items() if value is not None}
        wrong = [key for key, expected in types.items() if type(config[key]) is not expected]
        wrong += [key for key in written if key not in types and config.get(key) != DEFAULTS[key]]
    except (OSError, ValueError, LookupError, AttributeError) as error:
        raise EncoderError(f"{path}: {error!r} is missing or not supported") from error

    if wrong:
        raise EncoderError(f"{path}: {wrong[0]}={config[wrong[0]]!r} is not supported")

    return config


def _dense(module: Module, config: dict[str, Any]) -> nn.Module:
    linear = nn.Linear(config["in_features"], config["out_features"], bias=config["bias"])
    tensors = read_tensors(module)
    try:
        linear.load_state_dict({key.removeprefix("linear."): tensors[key] for key in tensors})
    except RuntimeError as error:
        raise EncoderError(
            f"{module.path}: the weights are not those of its config.json: restore the folder "
            f"({' '.join(str(error).split())})"
        ) from error

    return nn.Sequential(linear, _activation(module, config["activation_function"]))


def _activation(module: Module, name: str) -> nn.Module:
    """Return an activation of torch by its qualified name; nothing else is imported or called."""
    library, _, class_name = name.rpartition(".")
    activation: Any = getattr(nn, class_name, None)
    is_module = isinstance(activation, type) and issubclass(activation, nn.Module)
    if not is_module or activation.__module__ != library:
        raise EncoderError(
            f"{module.path / 'config.json'}: the activation {name} is none of torch.nn"
        )

    try:
        layer: nn.Module = activation()
    except TypeError as error:
        raise EncoderError(f"{module.path / 'config.json'}: {name}: {error}") from error

    return layer
