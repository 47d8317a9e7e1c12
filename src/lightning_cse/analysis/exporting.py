"""Exports a model as a folder that sentence-transformers loads by itself, and that gives the model's own vectors."""

from __future__ import annotations

import contextlib
import copy
import itertools
import sys
import tempfile
from dataclasses import replace
from importlib.metadata import version
from inspect import signature
from pathlib import Path
from typing import Any, Final

import torch
from tokenizers.processors import TemplateProcessing
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast
from transformers.utils import logging

import lightning_cse
from lightning_cse import models
from lightning_cse.analysis.searching import finite, is_same
from lightning_cse.data import read_corpus, sample_dir
from lightning_cse.encoders import SentenceEncoder, Template
from lightning_cse.encoders.encoder import EARLIER_STATES
from lightning_cse.engine.load import LoadedModel
from lightning_cse.errors import EncoderError, LightningCSEError, TaskError, did_you_mean

TOLERANCE: Final = 1e-5
"""How far a vector may be from the model's own, relative to its length."""

INSTEAD: Final = "lightning_cse.score, lightning_cse.search and lightning_cse.load take the model itself"
PROMPT_MASK: Final = "[PROMPT MASK]"
ODD: Final = (
    "",
    "  outer   and inner\twhite space \n",
    "Ça alors, naïve façade, Zoë: 20 €, ½ and “quotes” …",
    "これは文です。 Это предложение. هذه جملة. 🙃",
    "special tokens as text: [CLS] [SEP] [MASK] <s> </s> <mask> [UNK]",
    "very long " * 400,
)


def export(model: LoadedModel, to: Path, *, view: str | None = None, force: bool = False) -> str:
    """Write a model as a folder of sentence-transformers, and return what was checked.

    The folder gets its name when sentence-transformers has loaded it and given the model's vectors; else nothing is
    kept, and what was there stays. It needs neither this package nor ``trust_remote_code``.

    Args:
        model: the model, on the CPU.
        to: the folder: new or empty, or with ``force`` a folder of sentence-transformers.
        view: of the model's embeddings; None for the primary one.
        force: whether a folder of sentence-transformers that is there is replaced.

    Raises:
        LightningCSEError: if the place is taken, sentence-transformers is not installed or cannot load the folder, the
            model has no such view, or the vectors are not the model's.
    """
    check_place(model, to, force=force)
    try:
        with contextlib.redirect_stdout(sys.stderr):  # where W&B is offline, it says so when this imports it
            from sentence_transformers import SentenceTransformer
    except ImportError:
        raise LightningCSEError("export needs sentence-transformers: pip install 'sentence-transformers>=6'") from None
    sentences = [*dict.fromkeys(read_corpus("inli", "train", sample_dir()).column("premise"))][: 64 - len(ODD)] + [*ODD]
    embedding = finite(model.answers.embed(sentences))
    views = embedding.views()
    view = view or next(iter(views))
    if view not in views:
        near = did_you_mean(view, views)
        raise TaskError(
            f"--view: {model.name} ({model.method}) has no view {view!r}{near} (it has: {', '.join(views)})"
        )
    similarity = similarity_of(model.answers, embedding, view)
    to.parent.mkdir(parents=True, exist_ok=True)
    logging.disable_progress_bar()
    with tempfile.TemporaryDirectory(dir=to.parent, prefix=f".{to.name}.") as place:
        made, parts = Path(place) / "made", Path(place) / "parts"
        modules = modules_of(model.answers, view, parts)
        SentenceTransformer(modules=modules, device="cpu", similarity_fn_name=similarity or "cosine").save_pretrained(
            str(made), create_model_card=False
        )
        settings = made / "sentence_bert_config.json"
        pooler = "add_pooling_layer" in signature(type(model.encoder.backbone)).parameters
        ...
        (made / "README.md").write_text(card(model, view, similarity, views[view].shape[1]), encoding="utf-8")
        loaded = SentenceTransformer(str(made), device="cpu", local_files_only=True)
        got = loaded.encode(sentences, convert_to_tensor=True, show_progress_bar=False).double()
        want = views[view].double()
        apart = float(((got - want).norm(dim=1) / want.norm(dim=1).clamp(min=1e-12)).max())
        if not apart <= TOLERANCE:
            raise LightningCSEError(
                f"the exported vectors differ from the model's by {apart:.1e}, so nothing is kept. {INSTEAD}"
            )
        if to.exists():
            to.rename(Path(place) / "replaced")
        made.rename(to)
    return f"{len(sentences)} vectors within {apart:.0e} of the model's"


def check_place(model: LoadedModel, to: Path, *, force: bool) -> None:
    """Raise LightningCSEError if a folder cannot be written there: only ``force`` replaces, and only an exported one."""
    if not to.exists() or (to.is_dir() and not any(to.iterdir())):
        return
    if not force:
        raise LightningCSEError(f"--to: {to} exists and is not empty; give another folder, or --force to replace it")
    used = [
        Path(place).resolve() for place in (model.run, str(model.encoder.backbone.name_or_path), Path.cwd()) if place
    ]
    if not (to / "modules.json").is_file() or any(path.is_relative_to(to.resolve()) for path in used):
        raise LightningCSEError(
            f"--to: --force replaces only a folder of sentence-transformers that is not in use: {to}"
        )


def similarity_of(model: Any, like: Any, view: str) -> str | None:
    """Return which similarity of the vectors of a view is the model's own: ``cosine``, ``euclidean`` or neither."""

    def by(name: str) -> Any:
        return lambda a, b: pairwise[name](a.views()[view], b.views()[view])

    pairwise = {
        "cosine": lambda a, b: torch.cosine_similarity(a, b),
        "euclidean": lambda a, b: -torch.linalg.vector_norm(a - b, dim=1),
    }
    return next((name for name in pairwise if is_same(model.similarity, by(name), like)), None)


def modules_of(model: nn.Module, view: str, folder: Path) -> list[nn.Module]:
    """Return the modules of sentence-transformers whose output is a view; backbone and tokenizer go through a folder.

    A template of more than the tokenizer's own tokens (a word behind the sentence, a prompt) becomes the tokenizer's.
    Raises EncoderError if no modules give exactly these vectors.
    """
    from sentence_transformers.sentence_transformer import modules as st

    encoder, template, layers = _parts(model, view)
    if encoder.denoise:
        raise EncoderError(f"encoder.denoise: no module of sentence-transformers does that. {INSTEAD}")
    backbone, tokenizer = encoder.backbone, encoder.tokenizer.tokenizer
    made: list[nn.Module] = []
    if template.pooled is not None:  # the mask gets an id of its own; all other tokens have the weight 0
        place, count = len(template.suffix) - template.pooled, len(backbone.get_input_embeddings().weight)
        mask = template.suffix[place]
        backbone = copy.deepcopy(backbone)
        with torch.no_grad():
            table = backbone.resize_token_embeddings(count + 1, mean_resizing=False).weight
            table[count] = table[mask]
        template = replace(template, suffix=(*template.suffix[:place], count, *template.suffix[place + 1 :]))
        made.append(st.WordWeights([*[""] * count, PROMPT_MASK], {PROMPT_MASK: 1.0}, unknown_word_weight=0.0))
    backbone.save_pretrained(folder)
    with_template(tokenizer, template).save_pretrained(folder)
    pooler = {"add_pooling_layer": False} if "add_pooling_layer" in signature(type(backbone)).parameters else {}
    earlier = EARLIER_STATES.get(encoder.pooling)
    transformer = st.Transformer(
        str(folder),
        max_seq_length=encoder.max_length,
        config_kwargs={} if earlier is None else {"output_hidden_states": True},
        model_kwargs=pooler,
    )
    if earlier is not None:
        depth = int(backbone.config.num_hidden_layers)
        weights = torch.zeros(depth + 1).index_fill(0, torch.tensor([earlier, depth]), 1.0)
        made.append(st.WeightedLayerPooling(encoder.width, depth, 0, nn.Parameter(weights)))
    made.append(st.Pooling(encoder.width, "cls" if encoder.pooling == "cls" else "mean"))
    for layer in layers:
        linear, activation = layer if isinstance(layer, nn.Sequential) else (layer, nn.Identity())
        if isinstance(linear, nn.Linear):
            bias = linear.bias is not None
            size = linear.in_features, linear.out_features
            made.append(
                st.Dense(*size, bias, activation, linear.weight.detach(), linear.bias.detach() if bias else None)
            )
        else:
            made.append(st.Normalize())
    return [transformer, *made]


def _parts(model: Any, view: str) -> tuple[SentenceEncoder, Template, list[nn.Module]]:
    """Return encoder, template and layers of a view; by the class itself, since a subclass may embed differently."""
    kind, implicit = type(model), view == "implicit"
    if kind is models.PointModel:
        return model.encoder, model.templates[0], [model.head] if model.has_head else []
    if kind is models.GaussianModel:
        return model.encoder, model.templates[0], [model.heads.mean]
    if kind is models.ImpScoreModel:
        return model.encoder, model.templates[0], [nn.Identity()] * model.normalize + [getattr(model, view)]
    if kind not in (models.DualModel, models.DualGaussianModel):
        raise EncoderError(f"{kind.__name__} cannot be exported: its layers are not known here. {INSTEAD}")
    bi = implicit and model.architecture == "bi"
    encoder = model.implicit_encoder if bi else model.encoder
    heads = [] if kind is models.DualModel else [(model.implicit_heads if bi else model.heads).mean]
    return encoder, model.templates[int(implicit)], heads


def with_template(tokenizer: PreTrainedTokenizerBase, template: Template) -> PreTrainedTokenizerBase:
    """Return a tokenizer that puts a template around every sentence."""
    if template == Template.from_tokenizer(tokenizer):
        return tokenizer
    if not isinstance(tokenizer, PreTrainedTokenizerFast):
        raise EncoderError(f"the tokenizer {type(tokenizer).__name__} takes no template around a sentence. {INSTEAD}")
    pieces, tokens = [], []
    for ids, types in ((template.prefix, template.prefix_types), (template.suffix, template.suffix_types)):
        for segment, run in itertools.groupby(zip(types, ids, strict=True), key=lambda pair: pair[0]):
            name, chosen = f"piece-{len(pieces)}", [token for _, token in run]
            texts = [str(text or PROMPT_MASK) for text in tokenizer.convert_ids_to_tokens(chosen)]
            pieces.append(f"{name}:{segment}")
            tokens.append({"id": name, "ids": chosen, "tokens": texts})
        pieces += ["$A:0"] if ids is template.prefix else []
    backend = copy.deepcopy(tokenizer.backend_tokenizer)
    backend.post_processor = TemplateProcessing(single=pieces, pair=None, special_tokens=tokens)
    names = ["input_ids", "token_type_ids", "attention_mask"]
    return PreTrainedTokenizerFast(tokenizer_object=backend, model_input_names=names, **tokenizer.special_tokens_map)


def card(model: LoadedModel, view: str, similarity: str | None, width: int) -> str:
    """Return the model card: what the vectors are, how they are compared, and the run's scores; no path."""
    record: dict[str, Any] = model.record
    encoder = Path(model.encoder.name).name
    lines = [
        "---\nlibrary_name: sentence-transformers\npipeline_tag: sentence-similarity\ntags: [lightning_cse]\n---",
        f"# {Path(model.name).name}: {model.method}, {view}\n",
        f"Sentence vectors of {width} dimensions (view `{view}` of {model.method} on `{encoder}`, pooling "
        f"{model.encoder.pooling}), exported by lightning_cse {lightning_cse.__version__} and checked with "
        f"sentence-transformers {version('sentence-transformers')}.\n",
        f"Their similarity, as {model.method} is evaluated: {similarity or 'no function of these vectors alone'}.",
        "What needs more than one vector a sentence (entailment, its direction, implicitness) needs the run itself.\n",
        "The licences of the encoder's weights and of the corpora apply.\n",
        "| | |\n|---|---|",
        f"| weights | sha256 {model.digests['weights']} |",
    ]
    if record:
        lines.append(f"| run | {record['name']}, config hash {record['config_hash']}, seed {record['seed']} |")
        lines.append(f"| commit | {record.get('environment', {}).get('commit') or 'unknown'} |")
        lines += [f"| {Path(file).name} | sha256 {digest} |" for file, digest in record.get("data", {}).items()]
        scores = {name: value for name, value in record.get("metrics", {}).items() if name.startswith("test/")}
        lines += [f"| {name} (of the whole model) | {value:.4f} |" for name, value in scores.items()]
    return "\n".join(lines) + "\n"
