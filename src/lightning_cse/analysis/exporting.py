"""Export a model, with a model card, as a folder that sentence-transformers loads by itself, and upload it."""

from __future__ import annotations

import contextlib
import copy
import hashlib
import itertools
import json
import math
import re
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from inspect import signature
from pathlib import Path
from typing import Any, Final, NamedTuple

import httpx2  # used by huggingface_hub
import torch
from huggingface_hub import EvalResult, HfApi, ModelCard, ModelCardData, metadata_load
from omegaconf import OmegaConf
from tokenizers.processors import TemplateProcessing
from torch import nn
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast
from transformers.utils import logging
from yaml import YAMLError  # type: ignore[import-untyped,unused-ignore]

from lightning_cse import models
from lightning_cse.analysis.searching import checked_view, finite
from lightning_cse.config import encoder_configs, experiments_dir
from lightning_cse.data import read_corpus, sample_dir
from lightning_cse.data.corpora import CORPORA, Corpus
from lightning_cse.encoders import Template
from lightning_cse.engine.load import CONFIG, LoadedModel
from lightning_cse.errors import EncoderError, LightningCSEError
from lightning_cse.similarity import is_same

TOLERANCE: Final = (
    1e-5  # the largest distance of a vector from the model's own, relative to its length
)
INSTEAD: Final = (
    "Use lightning_cse.score, lightning_cse.search or lightning_cse.load with the model itself"
)
MASK: Final = "[PROMPT MASK]"
LICENCES: Final = {  # of encoders, by the beginning of their names on the hub
    **dict.fromkeys(
        ("google-bert/", "google/electra-", "distilbert/", "answerdotai/ModernBERT"), "apache-2.0"
    ),
    **dict.fromkeys(
        ("FacebookAI/roberta-", "FacebookAI/xlm-roberta-", "microsoft/deberta-v3-"), "mit"
    ),
    "sentence-transformers/all-": "apache-2.0",
}
PAPERS: Final = {  # of methods, in experiments/references.bib
    **dict.fromkeys(("SimCSE", "UnsupervisedSimCSE"), ("gao2021simcse",)),
    "GaussCSE": ("yoda2024gausscse",),
    "DualCSE": ("oda2026dualcse",),
    "DualGauss": ("oda2026dualcse", "yoda2024gausscse"),
    "NGCSE": ("li2024ngcse",),
    "ImpScore": ("wang2025impscore",),
}
TASK_TYPES: Final = {
    "spearman": "sentence-similarity",
    "ndcg": "text-ranking",
    "recall": "text-ranking",
}
SAMPLE: Final = (
    "> **Trained on the sample corpus**, a few hundred sentences shipped with lightning_cse for trying out the "
    "software: the vectors are of no practical use.\n\n"
)
INTRODUCTION: Final = (
    "One vector per sentence, exported by lightning_cse. The licences of encoder and corpora apply."
)
USAGE: Final = """\
```python
from sentence_transformers import SentenceTransformer

model = SentenceTransformer("{0}")
vectors = model.encode(["The ferry leaves at noon.", "At noon, the boat departs."])
```

`lightning_cse.load("{0}").encode(...)` gives the same vectors."""
ODD: Final = (
    "",
    "  outer   and inner\twhite space \n",
    "Ça alors, naïve façade, Zoë: 20 €, ½ and “quotes” … これは文です。 Это предложение. هذه جملة. 🙃",
    "special tokens as text: [CLS] [SEP] [MASK] <s> </s> <mask> [UNK]",
    "very long " * 400,
)


def export(
    model: LoadedModel,
    to: Path,
    *,
    view: str | None = None,
    force: bool = False,
    repo: str | None = None,
) -> str:
    """Write a view of a model, by default the primary one, for sentence-transformers; return what was checked.

    The folder gets its name once sentence-transformers has loaded it and given the model's vectors; otherwise, nothing
    is kept and an existing folder stays. With ``force``, it replaces a folder of sentence-transformers. ``repo`` is the
    hub id that the model card names.
    """
    used = [
        Path(each).resolve()
        for each in (model.run, str(model.encoder.backbone.name_or_path), Path.cwd())
        if each
    ]
    is_mine = (to / "modules.json").is_file() and not any(
        path.is_relative_to(to.resolve()) for path in used
    )
    if to.exists() and any(to.iterdir()) and not (force and is_mine):
        what = "give another folder; --force replaces only a sentence-transformers folder that is not in use"
        raise LightningCSEError(f"--to: {to} is not empty: {what}")
    try:
        with contextlib.redirect_stdout(
            sys.stderr
        ):  # importing this prints a line if W&B is offline
            from sentence_transformers import SentenceTransformer
    except ImportError:
        raise LightningCSEError(
            "export needs sentence-transformers: pip install 'sentence-transformers>=6'"
        ) from None
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
    own = (
        name
        for name, measure in measures.items()
        if is_same(model.answers.similarity, measure, embedding)
    )
    similarity = next(own, None)
    to.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=to.parent, prefix=f".{to.name}.") as place:
        made = Path(place) / "made"
        modules = _modules(model.answers, view, Path(place) / "parts")
        exported = SentenceTransformer(
            modules=modules, device="cpu", similarity_fn_name=similarity or "cosine"
        )
        exported.save_pretrained(str(made), create_model_card=False)
        settings = (
            made / "sentence_bert_config.json"
        )  # else loading adds a pooler of random weights
        content = json.loads(settings.read_text()) | {
            "model_args": _without_pooler(model.encoder.backbone)
        }
        settings.write_text(json.dumps(content, indent=2) + "\n")
        (made / "README.md").write_text(
            model_card(model, view, similarity, repo or to.name), encoding="utf-8"
        )
        loaded = SentenceTransformer(str(made), device="cpu", local_files_only=True)
        got = loaded.encode(sentences, convert_to_tensor=True, show_progress_bar=False)
        apart = float(
            ((got - views[view]).norm(dim=1) / views[view].norm(dim=1).clamp(min=1e-12)).max()
        )
        if not apart <= TOLERANCE:
            raise LightningCSEError(
                f"the exported vectors differ from the model's by {apart:.1e}: nothing was written. {INSTEAD}"
            )
        if to.exists():
            to.rename(Path(place) / "replaced")
        made.rename(to)
    return (
        f"{model.method}, view {view}: {len(sentences)} vectors within {apart:.0e} of the model's"
    )


def listing(folder: Path, repo: str, *, private: bool) -> str:
    """Return a list of what `push` would upload, without network: files, sizes and the head of the model card."""
    files = {
        path.relative_to(folder).as_posix(): path.stat().st_size
        for path in folder.rglob("*")
        if path.is_file()
    }
    width = max(map(len, files))
    lines = [f"  {name:{width}}  {size:>13,} bytes" for name, size in sorted(files.items())]
    head = (folder / "README.md").read_text(encoding="utf-8").splitlines()[:30]
    where = f"https://huggingface.co/{repo} ({'private' if private else 'public, or as the repository is'})"
    total = f"{len(files)} files, {sum(files.values()):,} bytes, would be uploaded to {where}"
    return "\n".join([total, *lines, "README.md begins with", *head])


def push(folder: Path, repo: str, *, private: bool) -> str:
    """Upload a folder with the token of ``hf auth login`` or ``HF_TOKEN``, and return the address of the commit.

    The repository is created if there is none. With ``private``, one that others can read is refused. The hub checks
    the card before anything is uploaded.
    """
    api = HfApi()
    try:
        ModelCard.load(folder / "README.md").validate()
        api.create_repo(repo, private=private or None, exist_ok=True)
        if private and not api.model_info(repo).private:
            raise LightningCSEError(
                f"--private: {repo} is public already: nothing is uploaded. Give another name"
            )
        commit = api.upload_folder(
            repo_id=repo, folder_path=folder, commit_message="Upload by lightning_cse.export"
        )
    except (
        httpx2.HTTPError,
        OSError,
        ValueError,
    ) as error:  # no token, no network, no permission, an invalid card
        why = " ".join(str(error).split())[:300]
        helps = f"{folder} is kept: log in with `hf auth login` or set HF_TOKEN, then `hf upload {repo} {folder}`"
        raise LightningCSEError(
            f"--push: {repo}: {type(error).__name__}: {why}. {helps}"
        ) from error
    return str(commit.commit_url)


def _modules(model: Any, view: str, folder: Path) -> list[nn.Module]:
    """Return the sentence-transformers modules that give a view; backbone and tokenizer are saved to a folder."""
    from sentence_transformers.sentence_transformer import modules as st

    encoder, template, layers = _parts(model, view)
    if encoder.denoise or encoder.pooling not in ("cls", "mean", "prompt"):
        what = "encoder.denoise" if encoder.denoise else f"pooling {encoder.pooling}"
        raise EncoderError(f"{what} cannot be exported. {INSTEAD}")
    backbone, pooling = (
        encoder.backbone,
        [st.Pooling(encoder.width, "cls" if encoder.pooling == "cls" else "mean")],
    )
    if (
        template.pooled is not None
    ):  # a mean over all tokens in which only the mask, with a new id, has a weight
        place, count = len(template.suffix) - template.pooled, backbone.config.vocab_size
        backbone = copy.deepcopy(backbone)
        with torch.no_grad():
            table = backbone.resize_token_embeddings(count + 1, mean_resizing=False).weight
            table[count] = table[template.suffix[place]]
        template = replace(
            template, suffix=(*template.suffix[:place], count, *template.suffix[place + 1 :])
        )
        pooling.insert(
            0, st.WordWeights([*[""] * count, MASK], {MASK: 1.0}, unknown_word_weight=0.0)
        )
    backbone.save_pretrained(folder)
    _with_template(encoder.tokenizer.tokenizer, template).save_pretrained(folder)
    dense, linear = [], None  # type: list[nn.Module], Any
    for layer in layers:
        linear, activation = layer if isinstance(layer, nn.Sequential) else (layer, nn.Identity())
        size, has_bias = (linear.in_features, linear.out_features), linear.bias is not None
        dense.append(st.Dense(*size, has_bias, activation, linear.weight.detach(), linear.bias))
    scaled = [st.Normalize()] if getattr(model, "normalize", False) else []
    transformer = st.Transformer(
        str(folder), max_seq_length=encoder.max_length, model_kwargs=_without_pooler(backbone)
    )
    return [transformer, *pooling, *scaled, *dense]


def _without_pooler(backbone: nn.Module) -> dict[str, bool]:
    return (
        {"add_pooling_layer": False}
        if "add_pooling_layer" in signature(type(backbone)).parameters
        else {}
    )


def _parts(model: Any, view: str) -> tuple[Any, Template, list[Any]]:
    """Return encoder, template and layers of a view, by exact class, since a subclass may embed differently."""
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
    raise EncoderError(
        f"{type(model).__name__} cannot be exported: its layers are not supported. {INSTEAD}"
    )


def _with_template(
    tokenizer: PreTrainedTokenizerBase, template: Template
) -> PreTrainedTokenizerBase:
    """Return a tokenizer that puts a template around every sentence."""
    if template == Template.from_tokenizer(tokenizer):
        return tokenizer
    if not isinstance(tokenizer, PreTrainedTokenizerFast):
        raise EncoderError(
            f"the tokenizer {type(tokenizer).__name__} does not support a template around a sentence. {INSTEAD}"
        )
    ids = (*template.prefix, *template.suffix)
    texts = [str(text or MASK) for text in tokenizer.convert_ids_to_tokens(list(ids))]
    tokens = [
        {"id": f"piece-{n}", "ids": [ids[n]], "tokens": [text]} for n, text in enumerate(texts)
    ]
    types = (*template.prefix_types, *template.suffix_types)
    pieces = [f"piece-{n}:{segment}" for n, segment in enumerate(types)]
    pieces.insert(len(template.prefix), "$A:0")
    backend = copy.deepcopy(tokenizer.backend_tokenizer)
    backend.post_processor = TemplateProcessing(single=pieces, pair=None, special_tokens=tokens)
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        model_input_names=tokenizer.model_input_names,
        **tokenizer.special_tokens_map,
    )


# The model card -------------------------------------------------------------------------------------------------------


class Source(NamedTuple):
    """A training or test set: a corpus, a data set of the hub, or a file."""

    title: str
    dataset: (
        str  # the id on the hub, else our name of the corpus; empty for a file and for the sample
    )
    licence: str  # as in `corpora.yaml`
    is_corpus: bool
    is_sample: bool

    @classmethod
    def of(cls, given: str, corpus: Corpus | None, files: Mapping[str, str]) -> Source:
        """Return the source that a config calls ``given``; the sample if a file, by name and sha256, is from it."""
        if corpus:
            title, dataset, licence = (
                corpus.title,
                str((corpus.hub or {}).get("id", corpus.name)),
                corpus.licence,
            )
        else:
            title, dataset, licence = Path(given).name, "", "not known here"  # without its folder
        if given.startswith("hub:"):
            title, dataset = given, "/".join(re.split("[/:]", given)[1:3])
        for name, digest in files.items():
            own = sample_dir() / name.lstrip("/")  # a user's own file has its path
            if own.is_file() and hashlib.sha256(own.read_bytes()).hexdigest() == digest:
                return cls(f"{title}, sample", "", "CC0", corpus is not None, True)
        return cls(title, dataset, licence, corpus is not None, False)


def model_card(model: LoadedModel, view: str, similarity: str | None, place: str) -> str:
    """Return the model card of a view; ``place`` is a folder's name or a hub id. The card has no local path."""
    record, name = model.record, Path(model.name).name
    config: Mapping[str, Any] = record.get("decisive", {}).get("config", {})
    base, licence = _known_encoder(model)
    sources, measured = list(_trained_on(record, config.get("data", {}))), list(_measured(record))
    data = ModelCardData(
        base_model=base,
        datasets=sorted({source.dataset for source in sources} - {""}) or None,
        eval_results=measured or None,
        language="en"
        if sources and all(source.is_corpus for source in sources)
        else None,  # every corpus is English
        library_name="sentence-transformers",
        license=licence or "other",
        license_name=None if licence else "that-of-the-encoder",
        model_name=name,
        pipeline_tag="sentence-similarity",
        tags=["sentence-transformers", "feature-extraction", "lightning_cse", model.method.lower()],
    )
    facts = {
        "method, view": f"{model.method}, {view}",
        "encoder": f"{Path(model.encoder.name).name}, pooling {model.encoder.pooling}, {licence or 'licence unknown'}",
        "weights, sha256": model.digests["weights"],
        "similarity": similarity
        or f"the cosine, which is not the similarity that {model.method} is evaluated by",
    }
    if record:
        facts["run"] = "{name}, config hash {config_hash}, seed {seed}".format(**record)
    scores = [(one.metric_name, f"{one.metric_value:.4f}", one.dataset_name) for one in measured]
    limits = {
        f"`limits.{k}={v}`"
        for node in config.get("suite", {}).values()
        for k, v in node.items()
        if k[:5] == "test_"
    }
    part = f"\n\nEvaluated on part of each test set: {', '.join(sorted(limits))}." if limits else ""
    sections = {
        f"# {name}": (SAMPLE if any(source.is_sample for source in sources) else "") + INTRODUCTION,
        "## Model": _markdown(("", ""), facts.items()),
        "## Usage": USAGE.format(place),
        "## Trained on": _markdown(
            ("source", "licence"), [(source.title, source.licence) for source in sources]
        ),
        "## Results of the whole model": _markdown(("metric", "value", "test set"), scores) + part,
        "## Citation": "```bibtex\n" + "\n\n".join(citations(model.method)) + "\n```"
        if model.method in PAPERS
        else "",
    }
    text = "\n\n".join(
        f"{heading}\n\n{section}" for heading, section in sections.items() if section
    )
    return f"---\n{data.to_yaml()}\n---\n\n{text}\n"


def citations(method: str) -> list[str]:
    """Return the BibTeX entries of a method's papers."""
    entries = (
        (experiments_dir() / "references.bib").read_text(encoding="utf-8").strip().split("\n\n")
    )
    return [entry for key in PAPERS[method] for entry in entries if f"{{{key}," in entry]


def _markdown(head: tuple[str, ...], rows: Iterable[tuple[object, ...]]) -> str:
    lines = ["| " + " | ".join(map(str, row)) + " |" for row in rows]
    return "\n".join([f"| {' | '.join(head)} |", "|---" * len(head) + "|", *lines]) if lines else ""


def _known_encoder(model: LoadedModel) -> tuple[str | None, str | None]:
    """Return the hub id and the licence of the encoder; each is None if it is unknown."""
    file = model.run / CONFIG if model.run else encoder_configs().get(model.name)
    node: Any = OmegaConf.load(file) if file else {"source": model.name}
    source, said = str((node["encoder"] if model.run else node).get("source", "")), {}  # type: str, Any
    with contextlib.suppress(OSError, ValueError, YAMLError):
        said = metadata_load(Path(str(model.encoder.backbone.name_or_path)) / "README.md") or {}
    is_id = re.fullmatch(r"(?!folder/)[\w.-]+/[\w.-]+", source) and not Path(source).is_dir()
    base = source if is_id else said.get("base_model")
    family = (licence for beginning, licence in LICENCES.items() if str(base).startswith(beginning))
    return base if isinstance(base, str) else None, said.get("license") or next(family, None)


def _trained_on(record: Mapping[str, Any], data: Mapping[str, Any]) -> Iterator[Source]:
    given = [data.get("train") or [], data.get("rows", {}).get("llm") or []]
    for name in dict.fromkeys(
        str(one) for some in given for one in ([some] if isinstance(some, str) else some)
    ):
        corpus, _, split = name.partition("/")
        known = CORPORA.get(corpus) if corpus in CORPORA and "." not in split else None
        files = {file.path for file in known.split_files(split)} if known else set()
        yield Source.of(
            name, known, {path: digest for path, digest in record["data"].items() if path in files}
        )


def _measured(record: Mapping[str, Any]) -> Iterator[EvalResult]:
    """Yield the metrics of a run on test sets; thresholds are left out."""
    corpora = {file.path: corpus for corpus in CORPORA.values() for file in corpus.files}
    every = {
        path: digest
        for files in record.get("task_data", {}).values()
        for path, digest in files.items()
    }
    for key, value in record.get("metrics", {}).items():
        split, task, metric = key.split("/", 2)
        if split == "test" and metric != "threshold" and math.isfinite(value):
            files = record["task_data"].get(task) or every  # an average of other tasks has none
            of = {corpora[path].name: corpora[path] for path in files if path in corpora}
            source = Source.of(task, next(iter(of.values())) if len(of) == 1 else None, files)
            kinds = (kind for beginning, kind in TASK_TYPES.items() if metric.startswith(beginning))
            yield EvalResult(
                task_type=next(kinds, "text-classification"),
                dataset_type=source.dataset or (f"{task}_sample" if source.is_sample else task),
                dataset_name=source.title,
                dataset_split="test",
                metric_type=metric,
                metric_value=value,
                metric_name=f"{task}, {metric}",
            )
