"""The files of sentence-transformers that a recipe becomes: weights, tokenizer, a folder for each module."""

from __future__ import annotations

import contextlib
import copy
import inspect
import io
import itertools
import json
import logging
import shutil
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from lightning_cse.analysis.exported_recipe import OTHERWISE, Module, Recipe
from lightning_cse.errors import EncoderError

if TYPE_CHECKING:  # heavy, and what is wrong with a command line is told without
    from tokenizers.processors import TemplateProcessing
    from torch import Tensor, nn
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from lightning_cse.encoders import SentenceEncoder, Template

__all__ = ["LIBRARY", "quiet", "write_files"]

LIBRARY: Final = "sentence_transformers"

_OF_ITS_MAKER: Final = ("auto_map", "is_local", "local_files_only")
_PLACES: Final = ("name_or_path", "_file", "_dir")


def write_files(folder: Path, recipe: Recipe, similarity: str) -> None:
    """Write all but the card, in the layout of the hub's older folders, which versions 5 and 6 read alike.

    A template of more than the tokenizer's own tokens (a word behind the sentence, a prompt) becomes the tokenizer's:
    it is what ``tokenizer.json`` puts around every sentence, beside which sentences are cut.

    Args:
        folder: an empty folder.
        recipe: what the vectors are made of.
        similarity: what ``model.similarity`` shall be, ``cosine`` or ``euclidean``.

    Raises:
        EncoderError: if the tokenizer has no file in which the template could stand.
    """
    encoder, template = recipe.encoder, recipe.template
    backbone = encoder.backbone
    extra: list[Module] = []
    if template.pooled is not None:
        backbone, template, weights = _with_own_mask(backbone, template)
        extra.append(weights)
    has_types = getattr(backbone.config, "type_vocab_size", 0) > 1
    tokenizer = _with_template(encoder.tokenizer.tokenizer, template, has_types)
    tokenizer.model_max_length = encoder.max_length
    tokenizer.truncation_side = tokenizer.padding_side = "right"
    layers = _layers(encoder)
    extra += [layers] if layers else []
    with quiet():
        backbone.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    _amend(folder / "config.json", {"output_hidden_states": True} if layers else {})
    # Version 5 of transformers alone knows the other name of the class without an architecture.
    plain = type(tokenizer).__name__ in ("PreTrainedTokenizerFast", "TokenizersBackend")
    _amend(folder / "tokenizer_config.json", {"tokenizer_class": "PreTrainedTokenizerFast"} if plain else {})
    modules = [*extra, _pooling(encoder), *recipe.layers]
    _write_json(
        folder / "sentence_bert_config.json",
        {
            "max_seq_length": encoder.max_length,
            "do_lower_case": False,
            **({"model_args": {"add_pooling_layer": False}} if _has_pooler_switch(backbone) else {}),
        },
    )
    names = [("Transformer", ""), *((module.kind, f"{k}_{module.kind}") for k, module in enumerate(modules, 1))]
    _write_json(
        folder / "modules.json",
        [
            {"idx": k, "name": str(k), "path": path, "type": f"{LIBRARY}.models.{kind}"}
            for k, (kind, path) in enumerate(names)
        ],
    )
    versions = {"sentence_transformers": "sentence-transformers", "transformers": "transformers", "pytorch": "torch"}
    _write_json(
        folder / "config_sentence_transformers.json",
        {
            "__version__": {name: version(package) for name, package in versions.items()},
            "model_type": "SentenceTransformer",
            "prompts": {},
            "default_prompt_name": None,
            "similarity_fn_name": similarity,
        },
    )
    for module, (_, path) in zip(modules, names[1:], strict=True):
        _write_module(folder / path, module)
    for file in folder.rglob("*.safetensors"):  # the library makes them readable to their owner alone
        shutil.copymode(folder / "modules.json", file)


def _write_module(folder: Path, module: Module) -> None:
    from safetensors.torch import save_file

    folder.mkdir()
    _write_json(folder / "config.json", dict(module.config))
    if module.weights:
        tensors = {name: value.detach().cpu().contiguous() for name, value in module.weights.items()}
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def _pooling(encoder: SentenceEncoder) -> Module:
    mode = "cls" if encoder.pooling == "cls" else "mean"  # of a prompt: its mask alone has a weight
    flags = {
        f"pooling_mode_{name}": name == f"{mode}_token{'s' if mode == 'mean' else ''}"
        for name in ("cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens")
    }
    return Module("Pooling", {"word_embedding_dimension": encoder.width, **flags}, {})


def _layers(encoder: SentenceEncoder) -> Module | None:
    """Return the average of the last layer's states with earlier ones, where these are pooled."""
    import torch

    from lightning_cse.encoders.encoder import EARLIER_STATES

    earlier = EARLIER_STATES.get(encoder.pooling)
    if earlier is None:
        return None
    count = int(encoder.backbone.config.num_hidden_layers)
    weights = torch.zeros(count + 1)
    weights[[earlier, count]] = 1.0
    config = {"word_embedding_dimension": encoder.width, "layer_start": 0, "num_hidden_layers": count}
    return Module("WeightedLayerPooling", config, {"layer_weights": weights})


def _with_own_mask(backbone: PreTrainedModel, template: Template) -> tuple[PreTrainedModel, Template, Module]:
    """Give a prompt's mask an id of its own, and return what pools it: every other token has the weight 0.

    Its embedding is the mask's. With the mask's own id a sentence in which the mask token is written out would be
    pooled there too.
    """
    import torch

    table: Tensor = cast("nn.Embedding", backbone.get_input_embeddings()).weight
    count = len(table)
    place = len(template.suffix) - (template.pooled or 0)
    changed = copy.deepcopy(backbone)
    with torch.no_grad():
        grown = changed.resize_token_embeddings(count + 1, mean_resizing=False)
        grown.weight[count] = table[template.suffix[place]]
    suffix = (*template.suffix[:place], count, *template.suffix[place + 1 :])
    name = "[PROMPT MASK]"
    config = {"vocab": [*[""] * count, name], "word_weights": {name: 1.0}, "unknown_word_weight": 0.0}
    return changed, replace(template, suffix=suffix), Module("WordWeights", config, {})


def _with_template(tokenizer: PreTrainedTokenizerBase, template: Template, has_types: bool) -> PreTrainedTokenizerBase:
    """Return a tokenizer that puts a template around every sentence.

    One of no architecture, where the template is not the tokenizer's own: the others make their own again when loaded.
    """
    from transformers import PreTrainedTokenizerFast

    from lightning_cse.encoders import Template

    if template == Template.from_tokenizer(tokenizer):
        return copy.deepcopy(tokenizer)
    if not isinstance(tokenizer, PreTrainedTokenizerFast):
        raise EncoderError(
            f"the tokenizer {type(tokenizer).__name__} has no file in which a template around every sentence could "
            f"stand, so this model cannot be exported. {OTHERWISE}"
        )
    backend = copy.deepcopy(tokenizer.backend_tokenizer)
    backend.post_processor = _as_processor(tokenizer, template)
    names = ["input_ids", *(["token_type_ids"] if has_types else []), "attention_mask"]
    return PreTrainedTokenizerFast(tokenizer_object=backend, model_input_names=names, **tokenizer.special_tokens_map)


def _as_processor(tokenizer: PreTrainedTokenizerBase, template: Template) -> TemplateProcessing:
    """Return a template as the tokenizers library has it: tokens of one segment in a row are one piece."""
    from tokenizers.processors import TemplateProcessing

    pieces, tokens = [], []
    for side, ids, types in (
        ("before", template.prefix, template.prefix_types),
        ("after", template.suffix, template.suffix_types),
    ):
        if side == "after":
            pieces.append("$A:0")
        for segment, run in itertools.groupby(zip(types, ids, strict=True), key=lambda pair: pair[0]):
            chosen = [token for _, token in run]
            name = f"{side}-{len(pieces)}"
            texts = [str(text or "[PROMPT MASK]") for text in tokenizer.convert_ids_to_tokens(chosen)]
            pieces.append(f"{name}:{segment}")
            tokens.append({"id": name, "ids": chosen, "tokens": texts})
    return TemplateProcessing(single=pieces, pair=None, special_tokens=tokens)


def _has_pooler_switch(backbone: PreTrainedModel) -> bool:
    """Whether the architecture would make up weights of a pooler, and warn of them, where nothing is said."""
    return "add_pooling_layer" in inspect.signature(type(backbone)).parameters


def _amend(path: Path, settings: Mapping[str, Any]) -> None:
    """Add settings to a file, and take from it where its maker had the model, and code of theirs."""
    content = json.loads(path.read_text(encoding="utf-8"))
    kept = {key: value for key, value in content.items() if key not in _OF_ITS_MAKER and not key.endswith(_PLACES)}
    _write_json(path, {**kept, **settings})


def _write_json(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keep what the libraries say of files that nobody has seen yet off the screen."""
    from transformers.utils import logging as transformers_logging

    own = logging.getLogger(LIBRARY)
    level, verbosity = own.level, transformers_logging.get_verbosity()
    bars = transformers_logging.is_progress_bar_enabled()
    own.setLevel(logging.ERROR)
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    try:
        # Where W&B is offline, transformers prints so when its trainer is imported.
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        own.setLevel(level)
        transformers_logging.set_verbosity(verbosity)
        if bars:
            transformers_logging.enable_progress_bar()
