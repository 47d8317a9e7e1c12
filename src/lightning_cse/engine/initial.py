"""The weights that a training starts from, if they are those of another run."""

import logging

from lightning_cse.engine.load import find_run, read_run, read_weights
from lightning_cse.errors import ConfigError
from lightning_cse.methods import Method

log = logging.getLogger(__name__)

ENCODER = "model.encoder."


def initialise(method: Method, name: str) -> str:
    """Give a method the weights of a finished run; return the sha256 of its checkpoint.

    All weights of the encoder must fit. Weights of the method itself, such as a head, are taken
    where name and shape are the same; the others stay as they were drawn. Optimizer, schedule and
    order of the rows begin anew.

    Raises ConfigError if there is no such run, if its encoder is of another architecture, or if it
    has trained weights that are frozen in the method, and the errors of `read_weights`.
    """
    folder = find_run(name)
    if folder is None:
        raise ConfigError(
            [f"init_from: {name} is no run; to start from an encoder, set encoder={name}"]
        )

    record = read_run(folder)
    weights = read_weights(folder, record)
    initial = method.state_dict()
    shapes = {key: value.shape for key, value in initial.items()}
    fits = {key: value for key, value in weights.items() if shapes.get(key) == value.shape}
    encoder = method.model.encoder
    is_trained = any(f"{ENCODER}{key}" in weights for key in encoder.frozen)
    is_other = record["encoder"]["weights"] != encoder.digests["weights"]
    if encoder.frozen and (is_trained or is_other):
        raise ConfigError(
            [
                f"init_from: {name} has another {encoder.frozen[0]}, which is frozen here: export "
                "it and give encoder.source=FOLDER, or train all weights"
            ]
        )

    lacking = [key for key in initial if key.startswith(ENCODER) and key not in fits]
    if lacking:
        raise ConfigError(
            [
                f"init_from: {name} does not fit the encoder {encoder.name}: {len(lacking)} of its "
                f"weights are missing or have another shape, such as {lacking[0]}; choose the "
                "encoder that it was made with, or export it and give encoder.source=FOLDER"
            ]
        )

    method.load_state_dict(fits, strict=False)
    new = ", ".join(key for key in initial if key not in fits)
    log.info("starts from the weights of %s%s", name, f"; newly drawn: {new}" if new else "")

    return str(record["checkpoint"]["sha256"])
