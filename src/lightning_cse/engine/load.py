"""Load a model by its name: a kept model, a run's folder, an encoder of ``conf/encoder``, another
folder, or a name on the hub.

Importing this module is cheap, and names are checked before anything heavy is imported. Loading
needs neither Lightning nor Hydra.
"""

from __future__ import annotations

import hashlib
import inspect
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lightning_cse.errors import ConfigError, DataError, EncoderError, did_you_mean, one_line
from lightning_cse.paths import conf_dir, encoder_configs, encoder_name, kept_models
from lightning_cse.runs import disk_errors, read_checkpoint
from lightning_cse.runs.machine import device_of, has

if TYPE_CHECKING:
    import torch

    from lightning_cse.encoders import SentenceEncoder
    from lightning_cse.engine.inference import SentenceModel
    from lightning_cse.methods import Method
    from lightning_cse.models import PointModel

log = logging.getLogger(__name__)

LENGTH, LLM = WITHOUT_ENCODER = ("length", "llm")
"""Models without an encoder that an evaluation accepts; these names take precedence over those of
encoders.
"""

RECORD = "record.json"
CONFIG = "config.yaml"
CHECKPOINT = "checkpoints/best.ckpt"
ENCODER_PREFIX = "model.encoder."
"""What the names of an encoder's weights in a checkpoint begin with."""
DTYPES = {
    "auto": "float32",
    "float32": "float32",
    "bfloat16": "bfloat16",
    "32-true": "float32",
    "bf16-mixed": "bfloat16",
}


def load(
    path_or_name: str | Path,
    device: str | torch.device = "auto",
    dtype: str | torch.dtype = "auto",
    *,
    pooling: str = "auto",
    prompt: str | None = None,
    max_length: int | str = "auto",
) -> SentenceModel:
    """Load a model: a kept model, a run's folder, an encoder of ``conf/encoder``, another folder,
    or a name on the hub.

    The name is tried in this order, so ``./bert_base`` is a folder and ``bert_base`` is not.
    ``device="auto"`` is a CUDA GPU, else the CPU. ``dtype="auto"`` is float32, in which
    `lightning_cse.evaluate` measures; ``"bfloat16"`` is faster on hardware that multiplies it fast.
    Results are always float32.

    For an encoder, ``pooling="auto"`` is its own, and a ``prompt`` is a template of your own, which
    implies ``pooling="prompt"``. ``max_length`` includes the template; ``auto`` is the length that
    a run was trained with, or the longest that an encoder can read. A folder that
    sentence-transformers or `export` wrote has its own pooling, layers and prompts; an explicit
    ``pooling`` or ``prompt`` takes its bare encoder.

    Raises EncoderError if there is no such model or the run is not finished, and ConfigError if
    this machine has no such device or a run is given a pooling or a prompt.
    """
    name = str(path_or_name)
    folder = find_run(name)  # before anything heavy is imported
    dtype_name = str(dtype).removeprefix("torch.")
    if dtype_name not in DTYPES:
        raise ConfigError([f"dtype: must be float32 or bfloat16, got {dtype_name!r}"])
    if not has(str(device)):
        raise ConfigError([f"device: torch finds no {device} on this machine; leave it out"])

    options: dict[str, Any] = {} if max_length == "auto" else {"max_length": max_length}
    if prompt is not None:
        options |= {"pooling": "prompt", "prompts": [prompt]}
    if pooling != "auto":
        options["pooling"] = pooling

    if folder is None:
        model = _load_encoder(name, options)
    elif "pooling" in options:
        fault = f"{folder} is a run, which is evaluated as it was trained; leave it out"
        raise ConfigError([f"pooling, prompt: {fault}"])
    else:
        model = _load_run(folder, options)

    import torch

    model.device = device_of(str(device))
    model.dtype = getattr(torch, DTYPES[dtype_name])
    model.answers.to(model.device)

    return model


def find_run(name: str) -> Path | None:
    """Return the folder of the run that a name refers to, or None for an encoder.

    A model that comes with the package is a folder of that form, too.

    Raises EncoderError if the folder does not exist.
    """
    if name in WITHOUT_ENCODER:
        raise EncoderError(f"model: {name} has no encoder, and this command needs one")

    packaged = kept_models()
    if name in packaged:
        return packaged[name]

    folder = Path(name).expanduser()
    if not folder.is_dir():
        # A name on the hub has at most one slash, and no name starts like a path.
        if name.startswith((".", "/", "~")) or name.rstrip("/").count("/") > 1:
            raise EncoderError(
                f"model: there is no folder {folder.absolute()}; give one of a run or of an encoder"
            )

        return None

    if (folder / "config.json").is_file():  # an encoder's
        return None
    if (folder / RECORD).is_file() or (folder / CONFIG).is_file():
        return folder.resolve()

    if runs := sorted(path.parent for path in folder.rglob(RECORD) if "evaluate" not in path.parts):
        lines = "".join(f"\n  model={run}" for run in runs[:8])
        raise EncoderError(f"model: {folder} contains runs; give one of them:{lines}")

    return None


def read_run(folder: Path) -> dict[str, Any]:
    """Return the record of a finished run; raise EncoderError if a file is missing."""
    for part in (RECORD, CONFIG, CHECKPOINT):
        if not (folder / part).is_file():
            raise EncoderError(
                f"model: the run {folder} has no {part}: finish it with the command that trained it"
            )

    from lightning_cse.runs import read_record  # pydantic

    return read_record(folder / RECORD)


def read_weights(folder: Path, record: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """Return the weights of a run's best checkpoint.

    Raises EncoderError if it is not that of the record, and as `read_checkpoint`.
    """
    best = folder / CHECKPOINT
    checkpoint = read_checkpoint(best)
    with best.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()

    if digest != record["checkpoint"]["sha256"]:
        raise EncoderError(
            f"{best} is not the checkpoint of {RECORD} (another sha256): restore the one that "
            "belongs to it, or train the run again with force=true"
        )

    weights: dict[str, torch.Tensor] = checkpoint["state_dict"]

    return weights


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
    is_trained = any(f"{ENCODER_PREFIX}{key}" in weights for key in encoder.frozen)
    is_other = record["encoder"]["weights"] != encoder.digests["weights"]
    if encoder.frozen and (is_trained or is_other):
        raise ConfigError(
            [
                f"init_from: {name} has another {encoder.frozen[0]}, which is frozen here: export "
                "it and give encoder.source=FOLDER, or train all weights"
            ]
        )

    lacking = [key for key in initial if key.startswith(ENCODER_PREFIX) and key not in fits]
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


def _load_run(folder: Path, options: Mapping[str, Any]) -> SentenceModel:
    record = read_run(folder)
    state = read_weights(folder, record)

    from lightning_cse.engine.inference import SentenceModel
    from lightning_cse.models import build

    config = read_config(folder / CONFIG)
    encoder = _build_encoder(config["encoder"], options)
    model = build(encoder, record["model"])
    weights = {key.removeprefix("model."): state[key] for key in state if key.startswith("model.")}
    # The checkpoint contains neither the tokenizer nor weights that were frozen.
    lacks_weights = any(f"encoder.{name}" not in weights for name in encoder.frozen)
    for part in ("tokenizer", "weights") if lacks_weights else ("tokenizer",):
        if encoder.digests[part] != record["encoder"][part]:
            raise EncoderError(
                f"the {part} of the encoder {encoder.name} changed since {folder} was trained"
            )

    model.load_state_dict(weights)

    return SentenceModel(
        model,
        name=folder.name if folder in kept_models().values() else str(record["name"]),
        method=config["method"]["_target_"],
        digests={
            "weights": record["checkpoint"]["sha256"],
            "tokenizer": encoder.digests["tokenizer"],
        },
        run=folder,
        record=record,
    )


def _load_encoder(name: str, options: Mapping[str, Any]) -> SentenceModel:
    from lightning_cse.models import PointModel

    configs = encoder_configs()
    try:
        if name in configs:
            settings = read_yaml(configs[name])
        elif options.keys() <= {"max_length"} and (folder := _sentence_transformer(name)):
            return _load_folder(encoder_name(name), folder, options)
        else:
            settings = read_yaml(conf_dir() / "encoder" / "custom.yaml")
            settings |= {"name": encoder_name(name), "source": name}

        if not settings["_target_"].endswith("tiny_encoder"):
            # conf/encoder has the length for training; an evaluation reads all that an encoder can.
            settings["max_length"] = "auto"

        model = PointModel(_build_encoder(settings, options))
    except EncoderError as error:
        if name in configs or Path(name).expanduser().is_dir():
            raise

        near = did_you_mean(name, [*WITHOUT_ENCODER, *kept_models(), *configs])
        raise EncoderError(f"there is no model {name!r}{near}\n{error}") from error

    return _sentence_model(model, str(settings["name"]))


def _sentence_transformer(name: str) -> Path | None:
    """Return the folder of an encoder if sentence-transformers wrote it."""
    from lightning_cse.encoders.find import MODULES, find_encoder

    folder = find_encoder(encoder_name(name), name)

    return folder if (folder / MODULES).is_file() else None


def _load_folder(name: str, folder: Path, options: Mapping[str, Any]) -> SentenceModel:
    """Load all that a folder of sentence-transformers has: encoder, layers and prompts."""
    from lightning_cse.encoders.folder import read_folder
    from lightning_cse.encoders.load import load_folder_encoder
    from lightning_cse.models import FolderModel, PointModel, read_layers

    content = read_folder(folder)
    encoder = load_folder_encoder(content, name=name, **options)
    layers = read_layers(content.layers, encoder.width)
    model = FolderModel(encoder, layers=layers) if layers else PointModel(encoder)
    loaded = _sentence_model(model, name)
    loaded.prompts = content.prompts

    return loaded


def _sentence_model(model: PointModel, name: str) -> SentenceModel:
    from lightning_cse.engine.inference import SentenceModel

    return SentenceModel(
        model, name=name, method=model.settings()["_target_"], digests=model.encoder.digests
    )


def read_config(path: Path) -> dict[str, Any]:
    """Return the config of a run as plain values.

    It was resolved when it was written, so what looks like an interpolation is a text. Raises
    DataError, which names the file, if it is damaged, and DiskError if it cannot be read.
    """
    import yaml  # type: ignore[import-untyped,unused-ignore]

    advice = "restore it, or make the run again with force=true"
    with disk_errors(path):
        content = path.read_bytes()

    try:
        settings = yaml.safe_load(content)
        targets = [settings[part]["_target_"] for part in ("method", "encoder")]
        if not all(isinstance(target, str) for target in targets):
            raise TypeError("a _target_ is not a name")
    except (ValueError, TypeError, LookupError, RecursionError, yaml.YAMLError) as error:
        raise DataError(f"{path} is damaged ({one_line(error)}): {advice}") from None

    return dict(settings)


def read_yaml(path: Path) -> dict[str, Any]:
    """Return a config file of the package as plain values, resolved."""
    from omegaconf import OmegaConf

    settings: dict[str, Any] = OmegaConf.to_container(OmegaConf.load(path), resolve=True)  # type: ignore[assignment]

    return settings


def _build_encoder(settings: Mapping[str, Any], options: Mapping[str, Any]) -> SentenceEncoder:
    from lightning_cse.encoders import load_encoder, tiny_encoder

    arguments = {**settings, **options}
    if arguments.pop("bidirectional", False):  # a key of version 0.1
        raise EncoderError("encoder.bidirectional: only version 0.1 loads such a model")

    tiny = arguments.pop("_target_").endswith("tiny_encoder")
    make: Callable[..., SentenceEncoder] = tiny_encoder if tiny else load_encoder
    try:
        inspect.signature(make).bind(**arguments)
    except TypeError as error:
        raise EncoderError(f"the encoder {arguments.get('name')!r}: {error}") from None

    return make(**arguments)
