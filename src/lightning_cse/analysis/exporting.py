"""Export a view of a model as a folder that sentence-transformers loads by itself, and upload
it.
"""

from __future__ import annotations

import contextlib
import copy
import ctypes
import glob
import itertools
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import replace
from inspect import signature
from pathlib import Path
from typing import Any, NamedTuple

import httpx2  # used by huggingface_hub
import torch
from filelock import FileLock, Timeout
from huggingface_hub import HfApi
from tokenizers.processors import TemplateProcessing
from torch import nn
from torch.nn import functional as F
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast
from transformers.utils import logging

from lightning_cse.analysis.card import exported_card
from lightning_cse.data import read_corpus, sample_dir
from lightning_cse.encoders import SentenceEncoder, Template
from lightning_cse.encoders.find import find_encoder
from lightning_cse.encoders.instructions import as_prompts
from lightning_cse.encoders.recurrent import Recurrent
from lightning_cse.engine.inference import SentenceModel
from lightning_cse.engine.load import CONFIG, read_config
from lightning_cse.errors import EncoderError, LightningCSEError, TaskError, one_line
from lightning_cse.models import Normalize, View
from lightning_cse.similarity import is_same

TOLERANCE = 1e-5
"""The largest distance of an exported vector from the model's own, relative to its length."""

_HERE = -100
_EXCHANGE = 2
"""Linux's AT_FDCWD and RENAME_EXCHANGE."""

INSTEAD = "Use lightning_cse.load with the model itself"
MASK = "[PROMPT MASK]"
ODD = (
    "",
    "  outer   and inner\twhite space \n",
    "Ça alors, naïve façade, Zoë: 20 €, ½ and “quotes” … これは文です。 Это предложение. هذه جملة. 🙃",
    "special tokens as text: [CLS] [SEP] [MASK] <s> </s> <mask> [UNK]",
    "very long " * 400,
)


def export(
    model: SentenceModel,
    to: Path,
    *,
    view: str | None = None,
    force: bool = False,
    repo: str | None = None,
    adapter: bool = False,
) -> str:
    """Write a view of a model, by default the primary one, for sentence-transformers; return what
    was checked.

    The folder gets its name once sentence-transformers has loaded it and given the model's vectors;
    otherwise, nothing is kept and an existing folder stays. With ``force``, it replaces a folder of
    sentence-transformers. ``repo`` is the hub id that the model card names.

    An adapter is merged into the weights. With ``adapter``, the folder has its weights alone, which
    sentence-transformers and peft's ``PeftModel`` load onto the encoder that it was trained on.

    Raises EncoderError if the model does not declare the view's layers, sentence-transformers has
    no such layer, or an adapter is asked for and cannot stand alone.
    """
    _check_target(to, force)
    base = _base(model) if adapter else None
    sentence_transformer = _sentence_transformer()
    sentences = _probes()
    embedding = model.embed(sentences)
    name = view or next(iter(embedding.views()))
    if name not in embedding.views():
        raise TaskError(f"--view: {model} has no view {name!r}")

    part = model.answers.view_layers().get(name)
    if part is None:
        raise EncoderError(
            f"{model.method_name} does not declare the layers of {name} (view_layers), "
            f"so it cannot be exported. {INSTEAD}"
        )

    with _scratch_folder(to) as scratch:
        folder = scratch / "exported"
        exported = sentence_transformer(
            modules=_modules(part, scratch / "parts", base and base.folder),
            device="cpu",
            similarity_fn_name="cosine",
            **as_prompts(part.encoder.instructions),
        )
        exported.save_pretrained(str(folder), create_model_card=False)
        # Loading would add a pooler with random weights.
        arguments = _without_pooler(part.encoder.backbone)
        _set(folder / "sentence_bert_config.json", "model_args", arguments)
        is_cosine = _is_cosine(model, embedding, name)
        exported_card(model, name, is_cosine, repo or to.name).save(folder / "README.md")
        loaded = sentence_transformer(str(folder), device="cpu")
        distance = _checked_distance(loaded, sentences, embedding.views()[name])
        if base is not None:  # which was checked with its folder on this machine
            _set(folder / "adapter_config.json", "base_model_name_or_path", base.name)

        _replace(folder, to)

    return f"{model.method_name}, view {name}: 64 vectors within {distance:.0e} of the model's"


@contextlib.contextmanager
def _scratch_folder(to: Path) -> Iterator[Path]:
    """Create a folder beside the target for the block, and remove what killed exports left there.

    Its lock file ends with this process, by which another export sees that it is in use.
    """
    prefix = f".{to.name}.export-"
    to.parent.mkdir(parents=True, exist_ok=True)
    for leftover in to.parent.glob(f"{glob.escape(prefix)}*"):
        with contextlib.suppress(OSError, Timeout), _lock(leftover):
            shutil.rmtree(leftover)

    with tempfile.TemporaryDirectory(dir=to.parent, prefix=prefix) as name, _lock(Path(name)):
        yield Path(name)


def _lock(folder: Path) -> FileLock:
    return FileLock(folder / "lock", fallback_to_soft=False, blocking=False)


def _replace(folder: Path, to: Path) -> None:
    """Give a folder the name of the target, which is missing at no time, if the system can swap
    folders, as Linux does on most disks.
    """
    if to.exists():
        rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
        paths = (_HERE, os.fsencode(folder.absolute()), _HERE, os.fsencode(to.absolute()))
        if rename is not None and rename(*paths, _EXCHANGE) == 0:
            return

        to.rename(folder.with_name("replaced"))

    folder.rename(to)


class Base(NamedTuple):
    """The encoder that an adapter was trained on: its folder here, and its name elsewhere."""

    folder: Path
    name: str


def _base(model: SentenceModel) -> Base:
    """Return the encoder under the adapter of a run; raise EncoderError if there is none."""
    encoder = model.encoder
    if model.run is None or encoder.adapter is None:
        raise EncoderError(f"--adapter: {model} has no adapter; leave it out")

    settings = read_config(model.run / CONFIG)["encoder"]
    reason = None
    if "source" not in settings:
        reason = f"{encoder.name} is in no folder"
    elif settings.get("layers") is not None:
        reason = "encoder.layers cuts the encoder"
    elif encoder.pooling == "prompt":
        reason = "pooling=prompt adds a row to the embeddings"

    if reason is not None:
        raise EncoderError(f"--adapter: the adapter cannot be loaded alone: {reason}; leave it out")

    source = str(settings["source"])

    return Base(find_encoder(encoder.name, source, settings.get("package")), source)


def _set(path: Path, key: str, value: Any) -> None:
    """Set a key of a JSON file."""
    settings = json.loads(path.read_text(encoding="utf-8"))
    settings[key] = value
    path.write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")


def _checked_distance(exported: Any, sentences: list[str], expected: torch.Tensor) -> float:
    """Return the largest distance of exported vectors from the model's; raise if it is large."""
    vectors = exported.encode(sentences, convert_to_tensor=True, show_progress_bar=False)
    lengths = expected.norm(dim=1).clamp(min=1e-12)
    distance = float(((vectors - expected).norm(dim=1) / lengths).max())
    if not distance <= TOLERANCE:
        raise LightningCSEError(
            f"the exported vectors differ from the model's by {distance:.1e}: "
            f"nothing was written. {INSTEAD}"
        )

    return distance


def _check_target(to: Path, force: bool) -> None:
    replaceable = force and (to / "modules.json").is_file()
    if to.exists() and any(to.iterdir()) and not replaceable:
        raise LightningCSEError(
            f"--to: {to} is not empty: give another folder; --force replaces only a "
            "sentence-transformers folder"
        )


def push(folder: Path, repo: str, *, private: bool) -> str:
    """Upload a folder with the token of ``hf auth login`` or ``HF_TOKEN``, and return the address
    of the commit. The repository is created if there is none.
    """
    api = HfApi()
    try:
        api.create_repo(repo, private=private or None, exist_ok=True)
        if private and not api.model_info(repo).private:
            raise ValueError("the repository is public already, and --private was given")

        commit = api.upload_folder(repo_id=repo, folder_path=folder)
    except (httpx2.HTTPError, OSError, ValueError) as error:
        raise LightningCSEError(
            f"--push: {repo}: {one_line(error).rstrip('.')}. {folder} is kept: log in with "
            f"`hf auth login` or set HF_TOKEN, then `hf upload {repo} {folder}`"
        ) from error

    return str(commit.commit_url)


def _sentence_transformer() -> Any:
    try:
        # Importing it prints a line to standard output if W&B is offline.
        with contextlib.redirect_stdout(sys.stderr):
            from sentence_transformers import SentenceTransformer
    except ImportError:
        raise LightningCSEError(
            "export needs sentence-transformers: pip install 'sentence-transformers>=6'"
        ) from None

    logging.disable_progress_bar()
    return SentenceTransformer


def _probes() -> list[str]:
    """Return 64 sentences on which the exported model is compared with the original."""
    premises = dict.fromkeys(read_corpus("inli", "train", sample_dir())["premise"])
    return [*itertools.islice(premises, 64 - len(ODD)), *ODD]


def _is_cosine(model: SentenceModel, embedding: Any, view: str) -> bool:
    """Whether the model's own similarity is the cosine of a view."""

    def cosine(a: Any, b: Any) -> torch.Tensor:
        return F.cosine_similarity(a.views()[view], b.views()[view])

    return is_same(model.answers.similarity, cosine, embedding)


def _modules(view: View, folder: Path, base: Path | None = None) -> list[nn.Module]:
    """Return the sentence-transformers modules of a view; tokenizer and backbone, or the adapter on
    the encoder ``base``, are saved to a folder.
    """
    from sentence_transformers.sentence_transformer import modules as st

    encoder = view.encoder
    template = view.template
    adapter = encoder.adapter
    backbone = adapter.merged() if adapter and base is None else encoder.backbone

    unsupported = _unsupported_option(encoder)
    if unsupported is not None:
        raise EncoderError(f"{unsupported} cannot be exported. {INSTEAD}")

    by_last = template.pooled == 1  # also that of a causal model's prompt
    mode = "lasttoken" if by_last else "cls" if encoder.pooling == "cls" else "mean"
    pooling = [st.Pooling(encoder.width, mode)]
    if template.pooled is not None and not by_last:
        backbone, template, weights = _with_mask(backbone, template)
        pooling.insert(0, weights)

    if adapter and base is not None:
        adapter.save(folder, str(base))
    else:
        backbone.save_pretrained(folder)

    tokenizer = copy.deepcopy(_with_template(encoder.tokenizer.tokenizer, template))
    if tokenizer.pad_token is None:  # sentence-transformers cannot pad without one
        tokenizer.pad_token = tokenizer.convert_ids_to_tokens(template.pad_id)

    tokenizer.save_pretrained(folder)
    transformer = st.Transformer(
        str(folder), max_seq_length=encoder.max_length, model_kwargs=_without_pooler(backbone)
    )

    return [transformer, *pooling, *_converted(view.layers)]


def _unsupported_option(encoder: SentenceEncoder) -> str | None:
    """Return what sentence-transformers has no module for."""
    if isinstance(encoder.backbone, Recurrent):
        return "encoder.lstm, encoder.vectors"
    if encoder.denoise:
        return "encoder.denoise"
    if encoder.pooling not in ("cls", "last_token", "mean", "prompt"):
        return f"pooling {encoder.pooling}"

    return None


def _converted(layers: Iterable[nn.Module]) -> list[nn.Module]:
    """Return sentence-transformers' modules for linear layers, each with the activation behind it,
    and Normalize.
    """
    from sentence_transformers.sentence_transformer import modules as st

    converted: list[nn.Module] = []
    for layer in nn.Sequential(*layers).modules():
        if isinstance(layer, nn.Sequential):
            continue
        if isinstance(layer, Normalize):
            converted.append(st.Normalize())
        elif isinstance(layer, nn.Linear):
            dense = st.Dense(
                layer.in_features,
                layer.out_features,
                layer.bias is not None,
                nn.Identity(),
                layer.weight.detach(),
                layer.bias,
            )
            converted.append(dense)
        elif converted and isinstance(converted[-1], st.Dense):
            converted[-1].activation_function = layer
        else:
            raise EncoderError(f"a layer {layer} cannot be exported. {INSTEAD}")

    return converted


def _with_mask(backbone: Any, template: Template) -> tuple[Any, Template, nn.Module]:
    """Return the backbone with a new id of the prompt's mask, and weights that pool only that."""
    from sentence_transformers.sentence_transformer import modules as st

    assert template.pooled is not None  # noqa: S101 - the caller has checked it
    index = len(template.suffix) - template.pooled
    mask = backbone.config.vocab_size
    backbone = copy.deepcopy(backbone)

    with torch.no_grad():
        table = backbone.resize_token_embeddings(mask + 1, mean_resizing=False).weight
        table[mask] = table[template.suffix[index]]

    suffix = (*template.suffix[:index], mask, *template.suffix[index + 1 :])
    weights = st.WordWeights([*[""] * mask, MASK], {MASK: 1.0}, unknown_word_weight=0.0)

    return backbone, replace(template, suffix=suffix), weights


def _without_pooler(backbone: nn.Module) -> dict[str, bool]:
    has_pooler = "add_pooling_layer" in signature(type(backbone)).parameters
    return {"add_pooling_layer": False} if has_pooler else {}


def _with_template(
    tokenizer: PreTrainedTokenizerBase, template: Template
) -> PreTrainedTokenizerBase:
    """Return a tokenizer that puts a template around every sentence."""
    if template == Template.from_tokenizer(tokenizer):
        return tokenizer

    if not isinstance(tokenizer, PreTrainedTokenizerFast):
        class_name = type(tokenizer).__name__
        raise EncoderError(
            f"the tokenizer {class_name} supports no template around a sentence. {INSTEAD}"
        )

    ids = [*template.prefix, *template.suffix]
    types = [*template.prefix_types, *template.suffix_types]
    texts = [str(text or MASK) for text in tokenizer.convert_ids_to_tokens(ids)]
    tokens = []
    pieces = []
    for number, token in enumerate(ids):
        name = f"piece-{number}"
        tokens.append({"id": name, "ids": [token], "tokens": [texts[number]]})
        pieces.append(f"{name}:{types[number]}")

    pieces.insert(len(template.prefix), "$A:0")
    backend = copy.deepcopy(tokenizer.backend_tokenizer)
    backend.post_processor = TemplateProcessing(single=pieces, pair=None, special_tokens=tokens)

    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        model_input_names=tokenizer.model_input_names,
        **tokenizer.special_tokens_map,
    )
