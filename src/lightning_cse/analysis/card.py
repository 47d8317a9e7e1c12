"""The model card of an exported model: metadata as the Hugging Face hub reads them, measured scores, how to cite."""

from __future__ import annotations

import contextlib
import hashlib
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from huggingface_hub import EvalResult, ModelCardData, metadata_load
from omegaconf import OmegaConf
from yaml import YAMLError  # type: ignore[import-untyped,unused-ignore]

from lightning_cse.config import encoder_configs, experiments_dir
from lightning_cse.data import sample_dir
from lightning_cse.data.corpora import CORPORA, Corpus
from lightning_cse.engine.load import CONFIG, LoadedModel

LICENCES: Final = {  # of encoders, by the beginning of their names on the hub
    **dict.fromkeys(("google-bert/", "google/electra-", "distilbert/", "answerdotai/ModernBERT"), "apache-2.0"),
    **dict.fromkeys(("FacebookAI/roberta-", "FacebookAI/xlm-roberta-", "microsoft/deberta-v3-"), "mit"),
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
TASK_TYPES: Final = {"spearman": "sentence-similarity", "ndcg": "text-ranking", "recall": "text-ranking"}
SAMPLE: Final = (
    "> **Trained on the sample corpus**, some hundred sentences shipped with lightning_cse to try the software with: "
    "the vectors are of no use.\n\n"
)
INTRODUCTION: Final = "One vector a sentence, exported by lightning_cse. The licences of encoder and corpora apply."
USAGE: Final = """\
```python
from sentence_transformers import SentenceTransformer

model = SentenceTransformer("{0}")
vectors = model.encode(["The ferry leaves at noon.", "At noon, the boat departs."])
```

`lightning_cse.load("{0}").encode(...)` gives the same vectors."""


class Source(NamedTuple):
    """A training or test set: a corpus, a data set of the hub, or a file."""

    title: str
    dataset: str  # the id on the hub, else our name of a corpus; empty for a file and for the sample
    licence: str  # as `corpora.yaml` has it
    is_corpus: bool
    is_sample: bool

    @classmethod
    def of(cls, given: str, corpus: Corpus | None, files: Mapping[str, str]) -> Source:
        """Return what a config names ``given``; it is the sample if some file, given by name and sha256, is."""
        if corpus:
            title, dataset, licence = corpus.title, str((corpus.hub or {}).get("id", corpus.name)), corpus.licence
        else:
            title, dataset, licence = Path(given).name, "", "not known here"  # without its folder
        if given.startswith("hub:"):
            title, dataset = given, "/".join(re.split("[/:]", given)[1:3])
        for name, digest in files.items():
            own = sample_dir() / name.lstrip("/")  # a file of one's own has its path
            if own.is_file() and hashlib.sha256(own.read_bytes()).hexdigest() == digest:
                return cls(f"{title}, sample", "", "CC0", corpus is not None, True)
        return cls(title, dataset, licence, corpus is not None, False)


def model_card(model: LoadedModel, view: str, similarity: str | None, place: str) -> str:
    """Return the card of a view of a model that will be in ``place``, a folder's name or a hub id; without a path."""
    record, name = model.record, Path(model.name).name
    config: Mapping[str, Any] = record.get("decisive", {}).get("config", {})
    base, licence = _encoder(model)
    sources, measured = list(_trained_on(record, config.get("data", {}))), list(_measured(record))
    data = ModelCardData(
        base_model=base,
        datasets=sorted({source.dataset for source in sources} - {""}) or None,
        eval_results=measured or None,
        language="en" if sources and all(source.is_corpus for source in sources) else None,  # of every corpus
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
        "similarity": similarity or f"the cosine, which is not the similarity that {model.method} is evaluated by",
    }
    if record:
        facts["run"] = "{name}, config hash {config_hash}, seed {seed}".format(**record)
    scores = [(one.metric_name, f"{one.metric_value:.4f}", one.dataset_name) for one in measured]
    limits = {
        f"`limits.{k}={v}`" for node in config.get("suite", {}).values() for k, v in node.items() if k[:5] == "test_"
    }
    part = f"\n\nOn a part of each test set: {', '.join(sorted(limits))}." if limits else ""
    sections = {
        f"# {name}": (SAMPLE if any(source.is_sample for source in sources) else "") + INTRODUCTION,
        "## Model": _table(("", ""), facts.items()),
        "## Usage": USAGE.format(place),
        "## Trained on": _table(("source", "licence"), [(source.title, source.licence) for source in sources]),
        "## Results of the whole model": _table(("metric", "value", "test set"), scores) + part,
        "## Citation": "```bibtex\n" + "\n\n".join(citations(model.method)) + "\n```" if model.method in PAPERS else "",
    }
    text = "\n\n".join(f"{heading}\n\n{section}" for heading, section in sections.items() if section)
    return f"---\n{data.to_yaml()}\n---\n\n{text}\n"


def citations(method: str) -> list[str]:
    """Return the BibTeX entries of a method's papers."""
    entries = (experiments_dir() / "references.bib").read_text(encoding="utf-8").strip().split("\n\n")
    return [entry for key in PAPERS[method] for entry in entries if f"{{{key}," in entry]


def _table(head: tuple[str, ...], rows: Iterable[tuple[object, ...]]) -> str:
    lines = ["| " + " | ".join(map(str, row)) + " |" for row in rows]
    return "\n".join([f"| {' | '.join(head)} |", "|---" * len(head) + "|", *lines]) if lines else ""


def _encoder(model: LoadedModel) -> tuple[str | None, str | None]:
    """Return the hub id and the licence of the encoder, as far as they are known."""
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
    for name in dict.fromkeys(str(one) for some in given for one in ([some] if isinstance(some, str) else some)):
        corpus, _, split = name.partition("/")
        known = CORPORA.get(corpus) if corpus in CORPORA and "." not in split else None
        files = {file.path for file in known.split_files(split)} if known else set()
        yield Source.of(name, known, {path: digest for path, digest in record["data"].items() if path in files})


def _measured(record: Mapping[str, Any]) -> Iterator[EvalResult]:
    """Yield the metrics of a run on test sets; thresholds are no metrics."""
    corpora = {file.path: corpus for corpus in CORPORA.values() for file in corpus.files}
    every = {path: digest for files in record.get("task_data", {}).values() for path, digest in files.items()}
    for key, value in record.get("metrics", {}).items():
        split, task, metric = key.split("/", 2)
        if split == "test" and metric != "threshold" and math.isfinite(value):
            files = record["task_data"].get(task) or every  # a mean of other tasks has none
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
