"""From a model to a folder that sentence-transformers loads by itself: what it is made of, its files, their check."""

from __future__ import annotations

import contextlib
import copy
import importlib.util
import inspect
import io
import itertools
import json
import logging
import os
import secrets
import shutil
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from lightning_cse.errors import EncoderError, LightningCSEError, TaskError, did_you_mean
from lightning_cse.running.early import check_model

if TYPE_CHECKING:  # heavy, and what is wrong with a command line is told without
    from tokenizers.processors import TemplateProcessing
    from torch import Tensor, nn
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from lightning_cse.encoders import SentenceEncoder, Template
    from lightning_cse.running.loading import LoadedModel

__all__ = [
    "TOLERANCE",
    "Exported",
    "Module",
    "Recipe",
    "Request",
    "check_library",
    "check_place",
    "export",
    "recipe_of",
    "run",
    "write",
]

TOLERANCE: Final = 1e-5
"""How far a vector may be from the model's own, relative to its length, and a cosine of two from theirs."""

LIBRARY: Final = "sentence_transformers"

_OTHERWISE: Final = (
    "lightning_cse.score and lightning_cse.search take the model itself, and in Python "
    "lightning_cse.running.loading.load_model"
)
_DENSE: Final = ("linear.weight", "linear.bias")
_SENTENCES: Final = 54  # of the sample corpus, beside those that are written here
_MOST_WORDS: Final = 4096  # of the sentence that is longer than most models read
_ODD: Final = (
    "",
    " ",
    "?",
    "Hi",
    "  outer   and inner\twhite space \n",
    "Ça alors, naïve façade, Zoë: 20 €, ½ and “quotes” …",
    "これは文です。 Это предложение. هذه جملة.",
    "Nobody laughed 🙃, nobody 👩‍👩‍👧.",
    "special tokens as text: [CLS] [SEP] [MASK] <s> </s> <mask> [UNK]",
)


# --------------------------------------------------------------------------------------------------------- the command


@dataclass(frozen=True)
class Request:
    """What the command line asks for."""

    model: str
    to: Path
    view: str | None = None
    pooling: str = "auto"
    force: bool = False


@dataclass(frozen=True)
class Exported:
    """What was exported, for whoever asked for it.

    Attributes:
        folder: what sentence-transformers loads.
        method: the class of the model.
        view: the view of its embeddings that the vectors are.
        others: the other views.
        compared: ``cosine`` or ``euclidean`` where that is the model's own similarity; None where it is another.
        sentences: how many were compared.
        vectors: the largest difference of two vectors, relative to the length of the model's.
        cosines: the largest difference of two cosines.
    """

    folder: Path
    method: str
    view: str
    others: tuple[str, ...]
    compared: str | None
    sentences: int
    vectors: float
    cosines: float


def run(request: Request) -> None:
    """Do what a command line asks for; the folder is told on standard output, all else on standard error.

    Raises:
        LightningCSEError: for whatever is the user's to mend.
    """
    done = export(request)
    for line in _told(done):
        sys.stderr.write(f"{line}\n")
    sys.stdout.write(f"{done.folder}\n")


def _told(done: Exported) -> Iterator[str]:
    others = f" (--view {' or '.join(done.others)} exports another)" if done.others else ""
    yield f"{done.method}: the view {done.view}{others}"
    if done.compared is None:
        yield "the cosine of these vectors is not the model's own similarity: README.md says what is left out"
    yield (
        f"checked with sentence-transformers {version('sentence-transformers')}: {done.sentences} sentences, vectors "
        f"within {done.vectors:.0e}, cosines within {done.cosines:.0e} of the model's"
    )


def export(request: Request) -> Exported:
    """Load a model and write it as a folder of sentence-transformers, as `write` does.

    Raises:
        LightningCSEError: if the place is taken or cannot be written, or as `write`.
        EncoderError: as `check_model`, `load_model` and `write`.
        ConfigError: as `check_model`.
        TaskError: as `write`.
    """
    check_place(request.to, request.model, force=request.force)
    check_library()
    check_model(request.model, pooling=request.pooling)

    from lightning_cse.running.loading import load_model

    model = load_model(request.model, pooling=request.pooling)
    return write(model, request.to, view=request.view, force=request.force)


def write(model: LoadedModel, to: Path, *, view: str | None = None, force: bool = False) -> Exported:
    """Write a model as a folder of sentence-transformers, and compare what that gives with the model.

    The folder holds safetensors, JSON and a model card, and needs neither this package nor ``trust_remote_code``. It
    gets its name when sentence-transformers has loaded it and given the model's vectors; if it does not, nothing is
    kept, and what was there is as it was.

    Args:
        model: the model, on the CPU and in evaluation mode as `load_model` gives it.
        to: the folder.
        view: of the model's embeddings; None for the primary one.
        force: as in `check_place`.

    Raises:
        LightningCSEError: if the place is taken or cannot be written, or sentence-transformers cannot load the folder
            or gives other vectors.
        EncoderError: as `recipe_of`, or if an embedding is not finite.
        TaskError: if the model has no such view.
    """
    from lightning_cse.running.searching import finite

    check_place(to, str(model.run or model.name), force=force)
    sentences = _check_sentences(model.encoder.max_length)
    embedding = finite(model.answers.embed(sentences))
    views = embedding.views()
    view = _chosen(model, list(views), view)
    recipe, vectors = recipe_of(model.answers, view), views[view]
    compared = _compared_by(model.answers, embedding, vectors)
    left_out = [name for name, value in embedding.fields().items() if value is not vectors]
    target = to.expanduser().resolve()
    with _told_disk(to), _taking_its_place(target) as folder:
        _write_model(folder, recipe, compared or "cosine")
        card = _card(model, recipe, view=view, compared=compared, left_out=left_out, width=vectors.shape[1])
        (folder / "README.md").write_text(card, encoding="utf-8")
        apart = _differences(folder, sentences, vectors)
        if not all(value <= TOLERANCE for value in apart):  # also where one is no number
            raise LightningCSEError(
                f"what was written gives other vectors than the model: they are {apart[0]:.1e} apart (relative), and "
                f"their cosines {apart[1]:.1e}, where {TOLERANCE:.0e} is allowed; nothing is kept. {_OTHERWISE}"
            )
    others = tuple(name for name in views if name != view)
    return Exported(to, type(model.answers).__name__, view, others, compared, len(sentences), *apart)


# ------------------------------------------------------------------------------------------- what is told at once


def check_place(to: Path, model: str, *, force: bool) -> None:
    """Raise what keeps a folder from being written, as far as it is to be seen.

    Args:
        to: where the folder is to be.
        model: the model, which is not written over.
        force: whether a folder of sentence-transformers that is there gives way.

    Raises:
        LightningCSEError: if something else is there, or the place cannot be written.
    """
    target = to.expanduser().resolve()
    if target.exists() and not target.is_dir():
        raise LightningCSEError(f"--to: {to} is a file; give the name of a folder")
    if target.is_dir() and any(target.iterdir()):
        if not force:
            raise LightningCSEError(
                f"--to: {to} is there and is not empty; give another folder, or --force to replace it"
            )
        if not (target / "modules.json").is_file():
            raise LightningCSEError(
                f"--to: --force replaces a folder of sentence-transformers, and {to} has no modules.json; give another"
            )
        if Path(model).expanduser().resolve().is_relative_to(target):
            raise LightningCSEError(f"--to: {to} holds the model itself; give another folder")
    parent = next(folder for folder in target.parents if folder.exists())
    if not parent.is_dir() or not os.access(parent, os.W_OK | os.X_OK):
        why = "cannot be written to" if parent.is_dir() else "is a file"
        raise LightningCSEError(f"--to: {to} cannot be made: {parent} {why}; give another folder")


def check_library() -> None:
    """Raise what is to be done where sentence-transformers is not installed.

    Raises:
        LightningCSEError: if it is not.
    """
    if importlib.util.find_spec(LIBRARY) is None:
        raise LightningCSEError(
            "what is exported is checked with sentence-transformers, which is not installed: "
            "pip install 'sentence-transformers>=6'"
        )


def _chosen(model: LoadedModel, views: Sequence[str], asked: str | None) -> str:
    if asked is None:
        return views[0]
    if asked not in views:
        raise TaskError(
            f"--view: {model.name} ({type(model.answers).__name__}) has no view {asked!r}{did_you_mean(asked, views)} "
            f"(it has: {', '.join(views)})"
        )
    return asked


# --------------------------------------------------------------------------------------------- what a vector is made of


@dataclass(frozen=True)
class Module:
    """A module of sentence-transformers: its class, what its ``config.json`` says, its weights."""

    kind: str
    config: Mapping[str, Any]
    weights: Mapping[str, Tensor]


@dataclass(frozen=True)
class Recipe:
    """What a view's vector is made of.

    Attributes:
        encoder: sentences to pooled vectors.
        template: what stands around a sentence.
        layers: what is put on the pooled vector, as it is when the model is tested.
    """

    encoder: SentenceEncoder
    template: Template
    layers: tuple[Module, ...] = ()


def recipe_of(answers: Any, view: str) -> Recipe:
    """Return what the vectors of a view are made of.

    Args:
        answers: a method or a plain encoder, as in `LoadedModel.answers`.
        view: one of its embeddings' views.

    Raises:
        EncoderError: if modules of sentence-transformers cannot give exactly these vectors.
    """
    from lightning_cse import methods
    from lightning_cse.baselines import PlainEncoder

    # By the class itself: what derives from a method may embed in its own way.
    known: dict[type, Callable[[Any, str], Recipe]] = {
        PlainEncoder: _pooled,
        methods.SimCSE: lambda method, _: Recipe(method.encoder, method.template, (_dense(method.head),)),
        methods.UnsupervisedSimCSE: _pooled,
        methods.NGCSE: lambda method, _: Recipe(method.encoder, method.templates[0]),
        methods.GaussCSE: lambda method, _: Recipe(method.encoder, method.template, (_dense(method.heads.mean),)),
        methods.DualCSE: _dual,
        methods.DualGauss: _dual_gauss,
        methods.ImpScore: _pragmatic,
    }
    kind = type(answers)
    if kind not in known:
        raise EncoderError(
            f"{kind.__name__} cannot be exported: nothing here says what its vectors are made of (known are "
            f"{', '.join(one.__name__ for one in known)}). {_OTHERWISE}"
        )
    recipe = known[kind](answers, view)
    if recipe.encoder.denoise:
        raise EncoderError(
            "encoder.denoise: what is taken from a vector depends on the length of its sentence, which no module of "
            f"sentence-transformers does, so this model cannot be exported. {_OTHERWISE}"
        )
    return recipe


def _pooled(answers: Any, view: str) -> Recipe:
    return Recipe(answers.encoder, answers.template)


def _dual(method: Any, view: str) -> Recipe:
    implicit = view == "implicit"
    encoder = method.implicit_encoder if implicit and method.implicit_encoder is not None else method.encoder
    return Recipe(encoder, method.implicit_template if implicit else method.explicit_template)


def _dual_gauss(method: Any, view: str) -> Recipe:
    recipe = _dual(method, view)
    own = view == "implicit" and method.implicit_heads is not None
    heads = method.implicit_heads if own else method.heads
    return Recipe(recipe.encoder, recipe.template, (_dense(heads.mean),))


def _pragmatic(method: Any, view: str) -> Recipe:
    scaled = (Module("Normalize", {}, {}),) if method.normalize else ()
    return Recipe(method.encoder, method.template, (*scaled, _dense(getattr(method, view))))


def _dense(layer: nn.Module) -> Module:
    """Return a linear layer, or one with an activation behind it, as sentence-transformers' ``Dense``."""
    from torch import nn

    linear, activation = layer if isinstance(layer, nn.Sequential) else (layer, nn.Identity())
    if not isinstance(linear, nn.Linear):
        raise TypeError(f"need a linear layer, got {type(linear).__name__}")
    config = {
        "in_features": linear.in_features,
        "out_features": linear.out_features,
        "bias": linear.bias is not None,
        "activation_function": f"{type(activation).__module__}.{type(activation).__qualname__}",
    }
    weights = (value for value in (linear.weight, linear.bias) if value is not None)
    return Module("Dense", config, {name: value.detach() for name, value in zip(_DENSE, weights, strict=False)})


# ----------------------------------------------------------------------------------------------------------- its files


def _write_model(folder: Path, recipe: Recipe, similarity: str) -> None:
    """Write all but the card, in the layout of the hub's older folders, which versions 5 and 6 read alike.

    A template of more than the tokenizer's own tokens (a word behind the sentence, a prompt) becomes the tokenizer's:
    it is what ``tokenizer.json`` puts around every sentence, beside which sentences are cut.
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
    with _quiet():
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

    from lightning_cse.encoders.pooling import EARLIER_STATES

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
            f"stand, so this model cannot be exported. {_OTHERWISE}"
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
    """Add settings to a file, and take from it where its maker had the model."""
    content = json.loads(path.read_text(encoding="utf-8"))
    for key in ("_name_or_path", "name_or_path", "vocab_file", "merges_file", "tokenizer_file"):
        content.pop(key, None)
    _write_json(path, {**content, **settings})


def _write_json(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


# --------------------------------------------------------------------------------------------------------- their check


def _check_sentences(max_length: int) -> list[str]:
    """Return sentences to compare by: ordinary ones, and what may be read in two ways."""
    from lightning_cse.data import read_corpus, sample_dir

    plain = list(dict.fromkeys(read_corpus("inli", "train", sample_dir()).column("premise")))[:_SENTENCES]
    words = itertools.islice(itertools.cycle(" ".join(plain).split()), min(2 * max_length, _MOST_WORDS))
    return [*plain, *_ODD, " ".join(words)]


def _compared_by(answers: Any, embedding: Any, vectors: Tensor) -> str | None:
    """Return the function of the vectors that is the model's own similarity, asked and not known by its name."""
    import torch

    from lightning_cse.similarity import cosine

    a, b = vectors[:-1].double(), vectors[1:].double()
    with torch.no_grad():
        want = answers.similarity(embedding[:-1], embedding[1:]).double()
    for name, got in (("cosine", cosine(a, b)), ("euclidean", -torch.linalg.vector_norm(a - b, dim=-1))):
        if torch.allclose(got, want, rtol=1e-4, atol=1e-5):
            return name
    return None


def _differences(folder: Path, sentences: Sequence[str], vectors: Tensor) -> tuple[float, float]:
    """Return how far the vectors of a folder, relative to their length, and their cosines are from those given.

    Raises:
        LightningCSEError: if sentence-transformers cannot load it.
    """
    from lightning_cse.similarity import cosine_matrix

    with _quiet():
        try:
            from sentence_transformers import SentenceTransformer

            loaded = SentenceTransformer(str(folder), device="cpu", trust_remote_code=False, local_files_only=True)
            got = loaded.encode(list(sentences), convert_to_tensor=True, show_progress_bar=False).double()
        except Exception as error:  # whatever a library raises of a folder that it cannot read
            what = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
            raise LightningCSEError(
                f"sentence-transformers {version('sentence-transformers')} cannot load what was written ({what}); "
                f"nothing is kept. {_OTHERWISE}"
            ) from error
    want = vectors.double()
    if got.shape != want.shape:
        return float("inf"), float("inf")
    apart = (got - want).norm(dim=1) / want.norm(dim=1).clamp(min=1e-12)
    return float(apart.max()), float((cosine_matrix(got, got) - cosine_matrix(want, want)).abs().max())


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
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


# ----------------------------------------------------------------------------------------------------------- its place


@contextlib.contextmanager
def _taking_its_place(target: Path) -> Iterator[Path]:
    """Give a folder to write to that takes the name ``target`` at the end of the block, or is removed."""
    made = [folder for folder in target.parents if not folder.exists()]
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
    try:
        temporary.mkdir(parents=True)
        yield temporary
        _replace(target, temporary)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        for folder in made:
            with contextlib.suppress(OSError):
                folder.rmdir()
        raise


def _replace(target: Path, new: Path) -> None:
    """Give a folder its name; what has it steps aside first, and comes back if that fails."""
    if not (target.is_dir() and any(target.iterdir())):
        new.replace(target)
        return
    old = new.with_suffix(".old")
    target.replace(old)
    try:
        new.replace(target)
    except BaseException:
        old.replace(target)
        raise
    shutil.rmtree(old)


@contextlib.contextmanager
def _told_disk(target: Path) -> Iterator[None]:
    """Turn what keeps files from being written into the project's error."""
    from safetensors import SafetensorError

    try:
        yield
    except (OSError, SafetensorError) as error:
        why = getattr(error, "strerror", None) or " ".join(str(error).split())
        raise LightningCSEError(f"--to: {target} cannot be written: {why}; nothing is kept") from error


# ------------------------------------------------------------------------------------------------------------ its card


def _card(
    model: LoadedModel, recipe: Recipe, *, view: str, compared: str | None, left_out: Sequence[str], width: int
) -> str:
    """Return the model card: what it is, how it is used, how good it is, what it was made from.

    It has no path of the machine and no setting that is not named here.
    """
    from lightning_cse.config.secrets import without_secrets

    record: dict[str, Any] = without_secrets(model.record)
    method = type(model.answers).__name__
    parts = [
        "---\nlibrary_name: sentence-transformers\npipeline_tag: sentence-similarity\n"
        "tags: [sentence-transformers, sentence-similarity, feature-extraction, lightning_cse]\n---",
        f"# {model.name}: {method}, {view}",
        "Sentence embeddings, exported by lightning_cse. This folder needs sentence-transformers alone, and runs no "
        "code of its own.",
        _table(_about(model, record, recipe, view, width), ("", "")),
        "## Use",
        "```python\nfrom sentence_transformers import SentenceTransformer\n\n"
        'model = SentenceTransformer("<this folder>")\n'
        'vectors = model.encode(["The kettle is on.", "Would you like to stay?"])\n'
        "print(model.similarity(vectors, vectors))\n```",
        _how_compared(method, compared),
    ]
    if left_out:
        parts.append(
            f"Of the model's embeddings this folder has {view} alone; left out: {', '.join(left_out)}. What needs them "
            "(entailment, its direction, implicitness, as far as the method answers) is asked of the model itself:"
        )
    else:
        parts.append("Files of sentences or pairs are scored by the model itself:")
    asked = "<run folder>" if record else _no_path(model.name)
    parts.append(f"```bash\npython -m lightning_cse.score --model {asked} --input pairs.tsv\n```")
    if scores := {name: value for name, value in record.get("metrics", {}).items() if name.startswith("test/")}:
        rows = [(name.removeprefix("test/"), f"{value:.4f}") for name, value in scores.items()]
        parts += [
            "## Scores",
            "Of the whole model, on test splits, from the run's record.",
            _table(rows, ("", "score")),
        ]
    parts += _data(record)
    parts += [
        "## Licences",
        "This card gives none: that of the encoder's weights applies, and the corpora's own licences apply.",
    ]
    return "\n\n".join(parts) + "\n"


def _about(
    model: LoadedModel, record: Mapping[str, Any], recipe: Recipe, view: str, width: int
) -> Iterator[tuple[str, str]]:
    yield "method", type(model.answers).__name__
    yield "view", view
    encoder = recipe.encoder
    yield "encoder", f"{_no_path(encoder.name)}, pooling {encoder.pooling}, {encoder.max_length} tokens at most"
    yield "vectors", f"{width} dimensions, float32"
    if record:
        yield "run", f"{record['name']}, identity {record['identity']}, seed {record['seed']}"
        yield "commit", str(record.get("environment", {}).get("commit") or "unknown")
        yield "started from weights", f"sha256 {record['encoder'].get('weights', 'unknown')}"
    yield f"made from {'the checkpoint' if record else 'weights'}", f"sha256 {model.digests['weights']}"
    yield "lightning_cse", version("lightning_cse")


def _how_compared(method: str, compared: str | None) -> str:
    if compared is None:
        return (
            f"The cosine of these vectors, which `model.similarity` gives, is not the similarity that {method} is "
            "evaluated by."
        )
    name = {"cosine": "the cosine", "euclidean": "minus the Euclidean distance"}[compared]
    return f"The similarity of two vectors is {name}, as in the evaluation of {method}."


def _data(record: Mapping[str, Any]) -> Iterator[str]:
    """Yield what the run was trained and chosen on: names and digests, no path."""
    if not record.get("data"):
        return
    from lightning_cse.data.readers import is_own

    data = record.get("identity_document", {}).get("config", {}).get("data", {})
    sources = [str(source) for source in data.get("train") or []]
    own = {
        str(source).removesuffix(".gz")
        for sources in (data.get("train"), data.get("held_out"), data.get("excluded"))
        for source in sources or []
        if is_own(str(source))
    }

    def named(name: str) -> str:
        return Path(name).name if name in own else _no_path(name)

    yield "## Data"
    trained = ", ".join(named(source.removesuffix(".gz")) for source in sources)
    yield (
        f"{f'Trained on {trained}. ' if trained else ''}Files that were read, also to choose the best step and to "
        "leave out what must not be trained on:"
    )
    yield _table(((named(name), digest) for name, digest in record["data"].items()), ("file", "sha256"))
    for name, document in record.get("provenance", {}).items():
        pattern = (document.get("pattern") or {}).get("name", "unknown")
        writer = document.get("model") or "a language model"
        yield f"Sentences of {named(name)} were written by {writer}, pattern {pattern}."


def _table(rows: Any, header: tuple[str, str]) -> str:
    lines = [header, ("---", "---"), *rows]
    return "\n".join(
        "| {} | {} |".format(*(" ".join(cell.replace("|", "\\|").split()) for cell in row)) for row in lines
    )


def _no_path(name: str) -> str:
    """Return a name as it is, and of a path of this machine its end."""
    return Path(name).name if name.startswith(("/", "~", ".")) or "\\" in name else name
