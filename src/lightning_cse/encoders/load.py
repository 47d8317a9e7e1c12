"""Loading an encoder: from a folder, a Python package that carries one, or the hub.

Or a small random one for tests.
"""

import contextlib
import hashlib
import inspect
import logging
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import as_file, files
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict, Unpack, cast

import torch
import transformers
from pydantic import Field
from safetensors import SafetensorError
from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import logging as transformers_logging

from lightning_cse.encoders.architecture import position_limit, refusal, set_dropout
from lightning_cse.encoders.encoder import SentenceEncoder
from lightning_cse.encoders.find import MODULES, find_encoder
from lightning_cse.encoders.folder import (
    SentenceTransformerFolder,
    read_folder,
    read_json,
    transformer_config,
)
from lightning_cse.encoders.instructions import read_instructions
from lightning_cse.errors import EncoderError

log = logging.getLogger(__name__)

TOKENIZER = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.txt",
    "vocab.json",
    "merges.txt",
    "sentencepiece.bpe.model",
    "spiece.model",
    "spm.model",
)
"""The files of a tokenizer's digest, before those of `OTHER_TOKENIZER_FILES`."""
OTHER_TOKENIZER_FILES = ("*.model", "*.codes", "vocab*", "tokenizer*")

TINY_POSITIONS = 256

Dropout = Annotated[float, Field(ge=0, lt=1)]


class EncoderOptions(TypedDict, total=False):
    """The options that `load_encoder` and `tiny_encoder` pass on; see `SentenceEncoder`."""

    prompts: Sequence[str] | None
    denoise: bool
    freeze_embeddings: bool
    instructions: Mapping[str, str] | None
    compile: bool
    adapter: Any  # peft is an extra, so its type is not named here
    gradient_checkpointing: bool


def load_encoder(
    *,
    name: str,
    source: str,
    package: str | None = None,
    layers: Annotated[int, Field(ge=1)] | None = None,
    pooling: str = "cls",
    max_length: int | Literal["auto"] = 128,
    dropout: Dropout | None = None,
    vectors: str | None = None,
    lstm: Annotated[int, Field(ge=1)] | None = None,
    **options: Unpack[EncoderOptions],
) -> SentenceEncoder:
    """Load an encoder in float32, from safetensors only, and without running code from a model's
    repository.

    ``layers`` keeps the first k layers; ``dropout`` replaces every dropout probability.
    ``auto`` takes the pooling and the length of a sentence-transformers folder, or the most
    that tokenizer and backbone allow if it gives no length. With its pooling, an encoder has the
    folder's instructions, unless others are given.

    ``vectors`` is a file of word vectors (`read_vectors`), which takes the place of the encoder.
    ``lstm`` puts a BiLSTM with that many units per direction over the word vectors or, without
    ``vectors``, over the encoder's own input embeddings, in place of its layers; see `recurrent`.
    """
    if vectors is not None:
        return _from_vectors(name, vectors, lstm, dropout, pooling, max_length, options)

    folder = find_encoder(name, source, package)
    _check_files(folder)
    if pooling == "auto":
        pooling = trained_pooling(folder)
        if options.get("instructions") is None:
            options["instructions"] = read_instructions(folder)

    backbone, tokenizer = _read(folder, layers, dropout, pooling)
    length = _max_length(folder, backbone, tokenizer) if max_length == "auto" else max_length
    _report_differences(folder, name, pooling, length, (backbone, tokenizer))
    if lstm is not None:
        from lightning_cse.encoders.recurrent import recurrent

        words = backbone.get_input_embeddings()
        backbone = recurrent(cast("torch.nn.Embedding", words), lstm, dropout)

    return SentenceEncoder(
        backbone,
        tokenizer,
        name=name,
        pooling=pooling,
        max_length=length,
        digests=digests(folder, layers),
        **options,
    )


def load_folder_encoder(
    folder: SentenceTransformerFolder, *, name: str, max_length: int | Literal["auto"] = "auto"
) -> SentenceEncoder:
    """Load the encoder of a sentence-transformers folder in float32: it tokenises and pools as the
    folder says, and adds no end token.
    """
    _check_files(folder.path)
    backbone, tokenizer = _read(folder.path, None, None, folder.pooling)
    pooling, template = folder.pooled_template(tokenizer)
    if max_length == "auto":
        max_length = _max_length(folder.path, backbone, tokenizer)

    sha256s = digests(folder.path)
    if layers := folder.digest():
        sha256s["layers"] = layers

    return SentenceEncoder(
        backbone,
        tokenizer,
        name=name,
        pooling=pooling,
        max_length=max_length,
        digests=sha256s,
        instructions=folder.instructions,
        template=template,
    )


def trained_pooling(folder: Path) -> str:
    """Return the pooling of a sentence-transformers folder for a training.

    Raises EncoderError if the folder has more than a training keeps.
    """
    content = read_folder(folder)
    names = [module.name for module in content.layers if module.name == "Dense"]
    if content.word_weights is not None:
        names.append(content.word_weights.name)
    if names:
        raise EncoderError(
            f"{folder} has the modules {', '.join(names)}, which a training would drop: begin with "
            "the run that it was exported from (init_from=RUN). Only an explicit encoder.pooling "
            "trains the bare encoder, which is another model"
        )

    return content.pooling


def _read(
    folder: Path, layers: int | None, dropout: float | None, pooling: str
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Return backbone and tokenizer; raise EncoderError if they are damaged or do not fit."""
    try:
        config = _config(folder, layers, dropout)
        tokenizer = transformers.AutoTokenizer.from_pretrained(
            folder, use_fast=True, trust_remote_code=False
        )
        backbone = _backbone(folder, config, pooling == "cls_pooler")
    except (OSError, ValueError, KeyError, SafetensorError) as error:
        raise EncoderError(
            f"the encoder in {folder} cannot be loaded: {' '.join(str(error).split())} "
            "(it needs what save_pretrained writes for a model and its tokenizer)"
        ) from error

    rows = cast("torch.nn.Embedding", backbone.get_input_embeddings()).num_embeddings
    if max(tokenizer.get_vocab().values()) >= rows:
        raise EncoderError(
            f"the tokenizer in {folder} has more ids than the {rows} rows of the embedding; "
            "save both from one model, after resize_token_embeddings"
        )

    return backbone, tokenizer


def _from_vectors(
    name: str,
    vectors: str,
    lstm: int | None,
    dropout: float | None,
    pooling: str,
    max_length: int | Literal["auto"],
    options: EncoderOptions,
) -> SentenceEncoder:
    from lightning_cse.encoders.recurrent import read_vectors, recurrent

    words, tokenizer, digests = read_vectors(vectors)
    return SentenceEncoder(
        recurrent(words, lstm, dropout),
        tokenizer,
        name=name,
        pooling="mean" if pooling == "auto" else pooling,
        max_length=128 if max_length == "auto" else max_length,
        digests=digests,
        **options,
    )


def _check_files(folder: Path) -> None:
    """Raise EncoderError for a folder of another kind: a run, or weights as a pickle."""
    if (folder / "record.json").is_file():
        raise EncoderError(
            f"{folder} is a run, not an encoder: python -m lightning_cse.export --model {folder} "
            "--to FOLDER, then use FOLDER"
        )

    if (folder / "adapter_config.json").is_file():
        raise EncoderError(
            f"{folder} has an adapter without its encoder: export the run again without --adapter, "
            "which merges it"
        )

    if (folder / "config.json").is_file() and not any(folder.glob("model*.safetensors")):
        raise EncoderError(
            f"{folder} has no model.safetensors, and weights as pytorch_model.bin are not read, "
            "since they can run code: load and save them with transformers if you trust them"
        )


def _config(folder: Path, layers: int | None, dropout: float | None) -> PreTrainedConfig:
    # Without the argument, transformers asks on a terminal whether to run a repository's code.
    config: PreTrainedConfig = transformers.AutoConfig.from_pretrained(
        folder, trust_remote_code=False
    )
    if reason := refusal(config):
        raise EncoderError(
            f"the {config.model_type} in {folder} {reason}; choose a masked language model such as "
            "BERT, or a causal one such as Qwen3"
        )

    set_dropout(config, dropout)
    if layers is None:
        return config

    depth = getattr(config, "num_hidden_layers", 1)
    if not 1 <= layers <= depth:
        raise EncoderError(
            f"encoder.layers: must be null or an integer from 1 to {depth}, got {layers}"
        )

    config.num_hidden_layers = layers
    if getattr(config, "layer_types", None):
        config.layer_types = config.layer_types[:layers]

    return config


def _backbone(folder: Path, config: PreTrainedConfig, has_pooler: bool) -> PreTrainedModel:
    model_class: Any = transformers.MODEL_MAPPING[type(config)]
    # Mismatched and missing parameters become random numbers; both are reported below.
    options: dict[str, Any] = {"ignore_mismatched_sizes": True, "output_loading_info": True}
    # An unused pooler would never get a gradient; not every architecture has the switch.
    if "add_pooling_layer" in inspect.signature(model_class).parameters:
        options["add_pooling_layer"] = has_pooler

    verbosity = transformers_logging.get_verbosity()
    transformers_logging.set_verbosity_error()  # no report of unused poolers and heads
    transformers_logging.disable_progress_bar()
    try:
        backbone, report = model_class.from_pretrained(
            folder,
            config=config,
            dtype=torch.float32,
            use_safetensors=True,
            trust_remote_code=False,
            **options,
        )
    finally:
        transformers_logging.set_verbosity(verbosity)

    names = {*report["missing_keys"], *(name for name, *_ in report["mismatched_keys"])}
    missing = sorted(name for name in names if has_pooler or "pooler" not in name)
    if missing:
        raise ValueError(
            f"parameters are missing from the weights or have another shape: {missing}"
        )

    return backbone  # type: ignore[no-any-return]


def _max_length(folder: Path, backbone: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> int:
    path = transformer_config(folder)
    length = read_json(path).get("max_seq_length") if path else None
    if length is None:
        limits = [position_limit(backbone), int(tokenizer.model_max_length)]
        # A tokenizer without a limit gives 1e30.
        length = min((limit for limit in limits if limit and limit < 10**9), default=None)

    if type(length) is not int or length < 1:
        raise EncoderError(f"encoder.max_length: {path or folder} has none, or {length!r}; set one")

    return length


def _report_differences(
    folder: Path,
    name: str,
    pooling: str,
    max_length: int,
    parts: tuple[PreTrainedModel, PreTrainedTokenizerBase],
) -> None:
    """Log where options are not those of a sentence-transformers folder."""
    if not (folder / MODULES).is_file():
        return

    differences = []
    with contextlib.suppress(EncoderError):  # the folder does not say it
        content = read_folder(folder)
        if content.pooling != pooling:
            differences.append(f"pooling {pooling} (its folder: {content.pooling})")
        if any(module.name == "Dense" for module in content.layers):
            differences.append("no layer behind its pooling (its folder: Dense)")

    with contextlib.suppress(EncoderError):
        if (length := _max_length(folder, *parts)) != max_length:
            differences.append(f"max_length {max_length} (its folder: {length})")

    if differences:
        log.info("the encoder %s has %s", name, ", ".join(differences))


def digests(folder: Path, layers: int | None = None) -> dict[str, str]:
    """Return the sha256 of the config, the weights and the layers kept, and that of the tokenizer's
    files.
    """
    shards = sorted(path.name for path in folder.glob("model*.safetensors"))
    weights = _digest(folder, ["config.json", *shards])
    config = read_json(folder / "config.json")
    depth = config.get("num_hidden_layers", config.get("n_layers"))  # DistilBERT's key
    if layers not in (None, depth):
        weights = hashlib.sha256(f"{weights}, {layers} layers".encode()).hexdigest()

    other_files = {path.name for pattern in OTHER_TOKENIZER_FILES for path in folder.glob(pattern)}
    tokenizer = _digest(folder, [*TOKENIZER, *sorted(other_files.difference(TOKENIZER))])

    return {"weights": weights, "tokenizer": tokenizer}


def _digest(folder: Path, names: Iterable[str]) -> str:
    """Return one sha256 of the names and contents of those files that exist."""
    digest = hashlib.sha256()
    for name in names:
        path = folder / name
        if path.is_file():
            with path.open("rb") as file:
                digest.update(name.encode() + hashlib.file_digest(file, "sha256").digest())

    return digest.hexdigest()


def tiny_encoder(
    *,
    name: str = "tiny",
    pooling: str = "cls",
    max_length: int | Literal["auto"] = 128,
    width: int = 32,
    layers: int = 2,
    dropout: Dropout | None = None,
    seed: int = 0,
    vectors: str | None = None,
    lstm: Annotated[int, Field(ge=1)] | None = None,
    **options: Unpack[EncoderOptions],
) -> SentenceEncoder:
    """Return a random BERT over the sample corpus's word pieces.

    ``seed`` alone decides its weights. ``vectors`` and ``lstm`` are those of `load_encoder`;
    ``auto`` takes as many tokens as there are positions.
    """
    if vectors is not None:
        return _from_vectors(name, vectors, lstm, dropout, pooling, max_length, options)

    with as_file(files("lightning_cse.encoders") / "tiny_vocab.txt") as path:
        vocabulary = path.read_bytes()
        tokenizer = transformers.BertTokenizer(vocab=str(path), do_lower_case=True)

    config = transformers.BertConfig(
        hidden_size=width,
        intermediate_size=2 * width,
        num_hidden_layers=layers,
        num_attention_heads=2,
        max_position_embeddings=TINY_POSITIONS,
        vocab_size=len(vocabulary.splitlines()),
        initializer_range=0.3,  # with BERT's 0.02 all sentences would get the same vector,
    )
    set_dropout(config, dropout)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        bert = transformers.BertModel(config, add_pooling_layer=pooling == "cls_pooler")
        backbone: PreTrainedModel = bert
        if lstm is not None:
            from lightning_cse.encoders.recurrent import recurrent

            words = cast("torch.nn.Embedding", bert.get_input_embeddings())
            backbone = recurrent(words, lstm, dropout)

    description = f"tiny BERT, width {width}, {layers} layers, seed {seed}"

    return SentenceEncoder(
        backbone,
        tokenizer,
        name=name,
        pooling=pooling,
        max_length=TINY_POSITIONS if max_length == "auto" else max_length,
        digests={
            "weights": hashlib.sha256(description.encode()).hexdigest(),
            "tokenizer": hashlib.sha256(vocabulary).hexdigest(),
        },
        **options,
    )
