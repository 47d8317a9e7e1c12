"""Exports a model as a folder that sentence-transformers loads by itself, with the model's own vectors; uploads it."""

from __future__ import annotations

import contextlib
import copy
import itertools
import json
import sys
import tempfile
from dataclasses import replace
from inspect import signature
from pathlib import Path
from typing import Any, Final

import httpx2  # of huggingface_hub
import torch
from huggingface_hub import HfApi, ModelCard
from tokenizers.processors import TemplateProcessing
from torch import nn
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast
from transformers.utils import logging

from lightning_cse import models
from lightning_cse.analysis.card import model_card
from lightning_cse.analysis.searching import checked_view, finite
from lightning_cse.data import read_corpus, sample_dir
from lightning_cse.encoders import Template
from lightning_cse.engine.load import LoadedModel
from lightning_cse.errors import EncoderError, LightningCSEError
from lightning_cse.similarity import is_same

TOLERANCE: Final = 1e-5  # how far a vector may be from the model's own, relative to its length
INSTEAD: Final = "lightning_cse.score, lightning_cse.search and lightning_cse.load take the model itself"
MASK: Final = "[PROMPT MASK]"
ODD: Final = (
    "",
    "  outer   and inner\twhite space \n",
    "Ça alors, naïve façade, Zoë: 20 €, ½ and “quotes” … これは文です。 Это предложение. هذه جملة. 🙃",
    "special tokens as text: [CLS] [SEP] [MASK] <s> </s> <mask> [UNK]",
    "very long " * 400,
)


def export(
    model: LoadedModel, to: Path, *, view: str | None = None, force: bool = False, repo: str | None = None
) -> str:
    """Write a view of a model, by default the primary one, for sentence-transformers; return what was checked.

    The folder gets its name when sentence-transformers has loaded it and given the model's vectors; else nothing is
    kept, and what was there stays. With ``force`` it replaces a folder of sentence-transformers. ``repo`` is the hub id
    that its model card names.
    """
    used = [Path(each).resolve() for each in (model.run, str(model.encoder.backbone.name_or_path), Path.cwd()) if each]
    is_mine = (to / "modules.json").is_file() and not any(path.is_relative_to(to.resolve()) for path in used)
    if to.exists() and any(to.iterdir()) and not (force and is_mine):
        what = "give another folder, or with --force one of sentence-transformers, not in use"
        raise LightningCSEError(f"--to: {to} is not empty: {what}")
    try:
        with contextlib.redirect_stdout(sys.stderr):  # where W&B is offline, importing this says so
            from sentence_transformers import SentenceTransformer
    except ImportError:
        raise LightningCSEError("export needs sentence-transformers: pip install 'sentence-transformers>=6'") from None
    logging.disable_progress_bar()
    premises = dict.fromkeys(read_corpus("inli", "train", sample_dir()).column("premise"))
    sentences = [*itertools.islice(premises, 64 - len(ODD)), *ODD]
    embedding = finite(model.answers.embed(sentences))
    views = embedding.views()
    view = checked_view(f"--view: {model.name} ({model.method})", view, list(views))
    measures: dict[Any, Any] = {
        "euclidean": lambda a, b: -(a.views()[view] - b.views()[view]).norm(dim=1),
        "cosine": lambda a, b: torch.cosine_similarity(a.views()[view], b.views()[view]),
    }
    own = (name for name, measure in measures.items() if is_same(model.answers.similarity, measure, embedding))
    similarity = next(own, None)
    to.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=to.parent, prefix=f".{to.name}.") as place:
        made = Path(place) / "made"
        modules = _modules(model.answers, view, Path(place) / "parts")
        exported = SentenceTransformer(modules=modules, device="cpu", similarity_fn_name=similarity or "cosine")
        exported.save_pretrained(str(made), create_model_card=False)
        settings = made / "sentence_bert_config.json"  # a pooler of random weights would be added on loading
        content = json.loads(settings.read_text()) | {"model_args": _without_pooler(model.encoder.backbone)}
        settings.write_text(json.dumps(content, indent=2) + "\n")
        (made / "README.md").write_text(model_card(model, view, similarity, repo or to.name), encoding="utf-8")
        loaded = SentenceTransformer(str(made), device="cpu", local_files_only=True)
        got = loaded.encode(sentences, convert_to_tensor=True, show_progress_bar=False)
        apart = float(((got - views[view]).norm(dim=1) / views[view].norm(dim=1).clamp(min=1e-12)).max())
        if not apart <= TOLERANCE:
            raise LightningCSEError(f"the exported vectors would differ by {apart:.1e}: nothing is kept. {INSTEAD}")
        if to.exists():
            to.rename(Path(place) / "replaced")
        made.rename(to)
    return f"{model.method}, view {view}: {len(sentences)} vectors within {apart:.0e} of the model's"


def listing(folder: Path, repo: str, *, private: bool) -> str:
    """Return what `push` would upload: the files with their sizes, and the head of the model card. Asks no network."""
    files = {path.relative_to(folder).as_posix(): path.stat().st_size for path in folder.rglob("*") if path.is_file()}
    width = max(map(len, files))
    lines = [f"  {name:{width}}  {size:>13,} bytes" for name, size in sorted(files.items())]
    head = (folder / "README.md").read_text(encoding="utf-8").splitlines()[:30]
    where = f"https://huggingface.co/{repo} ({'private' if private else 'public, or as the repository is'})"
    total = f"{len(files)} files, {sum(files.values()):,} bytes, would be uploaded to {where}"
    return "\n".join([total, *lines, "README.md begins with", *head])


def push(folder: Path, repo: str, *, private: bool) -> str:
    """Upload a folder with the token of ``hf auth login`` or ``HF_TOKEN``, and return the address of the commit.

    The repository is made if there is none. With ``private`` one that others can read is refused. The hub checks the
    card before anything is uploaded.
    """
    api = HfApi()
    try:
        ModelCard.load(folder / "README.md").validate()
        api.create_repo(repo, private=private or None, exist_ok=True)
        if private and not api.model_info(repo).private:
            raise LightningCSEError(f"--private: {repo} is public already: nothing is uploaded. Give another name")
        commit = api.upload_folder(repo_id=repo, folder_path=folder, commit_message="Upload by lightning_cse.export")
    except (httpx2.HTTPError, OSError, ValueError) as error:  # no token, no network, no permission, a wrong card
        why = " ".join(str(error).split())[:300]
        helps = f"{folder} is kept: log in with `hf auth login` or set HF_TOKEN, then `hf upload {repo} {folder}`"
        raise LightningCSEError(f"--push: {repo}: {type(error).__name__}: {why}. {helps}") from error
    return str(commit.commit_url)


def _modules(model: Any, view: str, folder: Path) -> list[nn.Module]:
    """Return the modules of sentence-transformers that give a view; backbone and tokenizer go through a folder."""
    from sentence_transformers.sentence_transformer import modules as st

    encoder, template, layers = _parts(model, view)
    if encoder.denoise or encoder.pooling not in ("cls", "mean", "prompt"):
        what = "encoder.denoise" if encoder.denoise else f"pooling {encoder.pooling}"
        raise EncoderError(f"{what} cannot be exported. {INSTEAD}")
    backbone, pooling = encoder.backbone, [st.Pooling(encoder.width, "cls" if encoder.pooling == "cls" else "mean")]
    if template.pooled is not None:  # the mean of all tokens, of which only the mask, with an id of its own, has weight
        place, count = len(template.suffix) - template.pooled, backbone.config.vocab_size
        backbone = copy.deepcopy(backbone)
        with torch.no_grad():
            table = backbone.resize_token_embeddings(count + 1, mean_resizing=False).weight
            table[count] = table[template.suffix[place]]
        template = replace(template, suffix=(*template.suffix[:place], count, *template.suffix[place + 1 :]))
        pooling.insert(0, st.WordWeights([*[""] * count, MASK], {MASK: 1.0}, unknown_word_weight=0.0))
    backbone.save_pretrained(folder)
    _with_template(encoder.tokenizer.tokenizer, template).save_pretrained(folder)
    dense, linear = [], None  # type: list[nn.Module], Any
    for layer in layers:
        linear, activation = layer if isinstance(layer, nn.Sequential) else (layer, nn.Identity())
        size, has_bias = (linear.in_features, linear.out_features), linear.bias is not None
        dense.append(st.Dense(*size, has_bias, activation, linear.weight.detach(), linear.bias))
    scaled = [st.Normalize()] if getattr(model, "normalize", False) else []
    transformer = st.Transformer(str(folder), max_seq_length=encoder.max_length, model_kwargs=_without_pooler(backbone))
    return [transformer, *pooling, *scaled, *dense]


def _without_pooler(backbone: nn.Module) -> dict[str, bool]:
    return {"add_pooling_layer": False} if "add_pooling_layer" in signature(type(backbone)).parameters else {}


def _parts(model: Any, view: str) -> tuple[Any, Template, list[Any]]:
    """Return encoder, template and layers of a view; by the class itself, since a subclass may embed differently."""
    encoder, template = model.encoder, model.templates[0]
    match type(model):
        case models.PointModel:
            return encoder, template, [model.head] if model.has_head else []
        case models.GaussianModel:
            return encoder, template, [model.heads.mean]
        case models.ImpScoreModel:
            return encoder, template, [getattr(model, view)]
        case models.DualModel | models.DualGaussianModel:
            implicit = view == "implicit"
            prefix = "implicit_" if implicit and model.architecture == "bi" else ""
            heads = [getattr(model, f"{prefix}heads").mean] if hasattr(model, "heads") else []
            return getattr(model, f"{prefix}encoder"), model.templates[int(implicit)], heads
    raise EncoderError(f"{type(model).__name__} cannot be exported: its layers are not known here. {INSTEAD}")


def _with_template(tokenizer: PreTrainedTokenizerBase, template: Template) -> PreTrainedTokenizerBase:
    """Return a tokenizer that puts a template around every sentence."""
    if template == Template.from_tokenizer(tokenizer):
        return tokenizer
    if not isinstance(tokenizer, PreTrainedTokenizerFast):
        raise EncoderError(f"the tokenizer {type(tokenizer).__name__} takes no template around a sentence. {INSTEAD}")
    ids = (*template.prefix, *template.suffix)
    texts = [str(text or MASK) for text in tokenizer.convert_ids_to_tokens(list(ids))]
    tokens = [{"id": f"piece-{n}", "ids": [ids[n]], "tokens": [text]} for n, text in enumerate(texts)]
    types = (*template.prefix_types, *template.suffix_types)
    pieces = [f"piece-{n}:{segment}" for n, segment in enumerate(types)]
    pieces.insert(len(template.prefix), "$A:0")
    backend = copy.deepcopy(tokenizer.backend_tokenizer)
    backend.post_processor = TemplateProcessing(single=pieces, pair=None, special_tokens=tokens)
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, model_input_names=tokenizer.model_input_names, **tokenizer.special_tokens_map
    )
