"""The weights that a training starts from, if they are those of another model."""

import logging

from torch import Tensor

from lightning_cse.engine.load import load, read_weights
from lightning_cse.errors import ConfigError
from lightning_cse.methods import Method

log = logging.getLogger(__name__)

ENCODER = "model.encoder."


def initialise(method: Method, name: str) -> str:
    """Give a method the weights of a finished run or of an encoder; return their sha256.

    All weights of the encoder must fit. Weights of the method itself, such as a head, are taken
    where name and shape are the same; the others stay as they were drawn. Optimizer, schedule and
    order of the rows begin anew.

    Raises ConfigError if the encoder is of another architecture, or has other weights where the
    method's are frozen, and the errors of `load`.
    """
    weights, digest = _weights(name)
    initial = method.state_dict()
    shapes = {key: value.shape for key, value in initial.items()}
    fits = {key: value for key, value in weights.items() if shapes.get(key) == value.shape}
    for key in method.model.encoder.frozen:  # a checkpoint of the method would not hold it
        value = weights.get(f"{ENCODER}{key}")
        if value is not None and not value.equal(method.model.encoder.get_parameter(key).cpu()):
            raise ConfigError(
                [
                    f"init_from: {name} has another {key}, which is frozen here: export it and give "
                    "encoder.source=FOLDER, or train all weights"
                ]
            )

    lacking = [key for key in initial if key.startswith(ENCODER) and key not in fits]
    if lacking:
        encoder = method.model.encoder.name
        raise ConfigError(
            [
                f"init_from: {name} does not fit the encoder {encoder}: {len(lacking)} of its "
                f"weights are missing or have another shape, such as {lacking[0]}; choose the "
                "encoder that it was made with, or export it and give encoder.source=FOLDER"
            ]
        )

    method.load_state_dict(fits, strict=False)
    new = [key for key in initial if key not in fits]
    log.info(
        "starts from the weights of %s%s", name, f"; newly drawn: {', '.join(new)}" if new else ""
    )

    return digest


def _weights(name: str) -> tuple[dict[str, Tensor], str]:
    """Return weights under the names that they have in a method, and their sha256."""
    model = load(name, "cpu")
    encoder = model.encoder
    if "layers" in model.digests:
        log.info("init_from: %s gives its encoder, and not the layers behind its pooling", name)

    weights = {f"{ENCODER}{key}": value for key, value in encoder.state_dict().items()}
    # A state dict has no frozen weights.
    weights |= {f"{ENCODER}{key}": encoder.get_parameter(key).detach() for key in encoder.frozen}
    if model.run is not None:
        weights |= read_weights(model.run, model.record)

    return weights, model.digests["weights"]
