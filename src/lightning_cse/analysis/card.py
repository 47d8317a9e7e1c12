"""The model card of an exported model: metadata as the Hugging Face hub reads it, measured scores, how to cite."""

from __future__ import annotations

import contextlib
import hashlib
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

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
    "SimCSE": ("gao2021simcse",),
    "UnsupervisedSimCSE": ("gao2021simcse",),
    "GaussCSE": ("yoda2024gausscse",),
    "DualCSE": ("oda2026dualcse",),
    "DualGauss": ("oda2026dualcse", "yoda2024gausscse"),
    "NGCSE": ("li2024ngcse",),
    "ImpScore": ("wang2025impscore",),
}
TASK_TYPES: Final = {"spearman": "sentence-similarity", "ndcg": "text-ranking", "recall": "text-ranking"}
SAMPLE_NOTE: Final = (
    "> **Trained on the sample corpus**, some hundred sentences shipped with lightning_cse to try the software with: the "
    "vectors are of no use.\n\n"
)
INTRODUCTION: Final = "One vector a sentence, exported by lightning_cse. The licences of encoder and corpora apply."
USAGE: Final = """\
```python
from sentence_transformers import SentenceTransformer

model = SentenceTransformer("{place}")
vectors = model.encode(["The ferry leaves at noon.", "At noon, the boat departs."])
```

{which}, by lightning_cse:

```python
import lightning_cse

model = lightning_cse.load("{own}")
vectors = model.encode(["The ferry leaves at noon.", "At noon, the boat departs."])
```"""


def model_card(model: LoadedModel, view: str, similarity: str | None, place: str, *, loads_here: bool) -> str:
    """Return the card of a view of a model that will lie in ``place``, a folder's name or a hub id; without a path.

    ``loads_here``: `lightning_cse.load` reads the folder too, and not sentence-transformers alone.
    """
    record, name = model.record, Path(model.name).name
    base, licence = _encoder(model)
    trained = _trained_on(record)
    measured = list(_measured(record))
    known = bool(trained) and all(corpus for _, corpus, _ in trained)
    data = ModelCardData(
        base_model=base,
        datasets=sorted({_dataset(*source) for source in trained} - {""}) or None,
        eval_results=measured or None,
        language="en" if known else None,  # of all corpora that are known by name
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
    rows = [(result.metric_name, f"{result.metric_value:.4f}", result.dataset_name) for result in measured]
    sources = [(_title(*source), _licence(*source[1:])) for source in trained]
    own = "runs/{name}/{config_hash}-s{seed}".format(**record) if record else name
    parts = {
        "": (SAMPLE_NOTE if any(is_sample for *_, is_sample in trained) else "") + INTRODUCTION,
        "Model": _table(("", ""), facts.items()),
        "Usage": USAGE.format(
            place=place,
            which="The same vectors" if loads_here else "The whole model, with all its views",
            own=place if loads_here else own,
        ),
        "Trained on": _table(("source", "licence"), sources),
        "Results of the whole model": _table(("metric", "value", "test set"), rows) + _limits(record),
        "Citation": "```bibtex\n" + "\n\n".join(citations(model.method)) + "\n```" if model.method in PAPERS else "",
    }
    text = "\n\n".join(f"## {head}\n\n{part}" if head else f"# {name}\n\n{part}" for head, part in parts.items() if part)
    return f"---\n{data.to_yaml()}\n---\n\n{text}\n"


def citations(method: str) -> list[str]:
    """Return the BibTeX entries of a method's papers."""
    entries = (experiments_dir() / "references.bib").read_text(encoding="utf-8").strip().split("\n\n")
    by_key = {re.match(r"@\w+\{([^,]+),", entry)[1]: entry for entry in entries}  # type: ignore[index]
    return [by_key[key] for key in PAPERS[method]]


def _table(head: tuple[str, ...], rows: Iterable[tuple[object, ...]]) -> str:
    lines = ["| " + " | ".join(map(str, row)) + " |" for row in rows]
    return "\n".join([f"| {' | '.join(head)} |", "|---" * len(head) + "|", *lines]) if lines else ""


def _encoder(model: LoadedModel) -> tuple[str | None, str | None]:
    """Return the hub id and the licence of the encoder, as far as they are known."""
    if model.run:
        node: Any = OmegaConf.load(model.run / CONFIG)["encoder"]
    else:
        known = encoder_configs().get(model.name)
        node = OmegaConf.load(known) if known else {"source": model.name}
    source = str(node.get("source", ""))
    readme = Path(str(model.encoder.backbone.name_or_path)) / "README.md"
    said: Any = {}
    if readme.is_file():
        with contextlib.suppress(ValueError, YAMLError):
            said = metadata_load(readme) or {}
    is_id = re.fullmatch(r"[\w.-]+/[\w.-]+", source) and not source.startswith("folder/") and not Path(source).is_dir()
    base = source if is_id else said.get("base_model")
    family = (licence for beginning, licence in LICENCES.items() if str(base).startswith(beginning))
    return base if isinstance(base, str) else None, said.get("license") or next(family, None)


def _config(record: Mapping[str, Any]) -> Mapping[str, Any]:
    config: Mapping[str, Any] = record.get("decisive", {}).get("config", {})
    return config


def _trained_on(record: Mapping[str, Any]) -> list[tuple[str, Corpus | None, bool]]:
    """Return the training sources of a run, each with its corpus, if it is one, and whether it is the sample's."""
    data = _config(record).get("data", {})
    given = data.get("train") or []
    llm = (data.get("rows") or {}).get("llm") or []
    sources = [*([given] if isinstance(given, str) else given), *([llm] if isinstance(llm, str) else llm)]
    found = []
    for source in dict.fromkeys(map(str, sources)):
        name, _, split = source.partition("/")
        corpus = None if source.endswith((".csv", ".jsonl", ".txt", ".gz")) else CORPORA.get(name)
        files = {file.path for file in corpus.split_files(split)} if corpus else set()
        found.append((source, corpus, any(_is_sample(path, record["data"].get(path)) for path in files)))
    return found


def _is_sample(path: str, digest: str | None) -> bool:
    file = sample_dir() / path
    return digest is not None and file.is_file() and hashlib.sha256(file.read_bytes()).hexdigest() == digest


def _dataset(source: str, corpus: Corpus | None, is_sample: bool) -> str:
    """Return the id on the hub, else our name of a corpus; nothing for a file and for the sample."""
    if corpus is None or is_sample:
        return "/".join(re.split("[/:]", source)[1:3]) if source.startswith("hub:") else ""
    return str((corpus.hub or {}).get("id", corpus.name))


def _licence(corpus: Corpus | None, is_sample: bool) -> str:
    return "CC0" if is_sample else corpus.licence if corpus else "not known here"


def _limits(record: Mapping[str, Any]) -> str:
    suite = _config(record).get("suite", {})
    limits = {(key, value) for node in suite.values() for key, value in node.items() if key.startswith("test_")}
    what = ", ".join(f"`limits.{key}={value}`" for key, value in sorted(limits))
    return f"\n\nOn a part of each test set: {what}." if what else ""


def _title(source: str, corpus: Corpus | None, is_sample: bool) -> str:
    title = corpus.title if corpus else source if source.startswith("hub:") else Path(source).name
    return f"{title}, sample" if is_sample else title


def _measured(record: Mapping[str, Any]) -> Iterator[EvalResult]:
    """Yield the metrics of a run on test sets; thresholds are no metrics."""
    corpora = {file.path: corpus for corpus in CORPORA.values() for file in corpus.files}
    every = {path: digest for files in record.get("task_data", {}).values() for path, digest in files.items()}
    for key, value in (record.get("metrics") or {}).items():
        split, task, metric = key.split("/", 2)
        if split != "test" or metric == "threshold" or not math.isfinite(value):
            continue
        files = record["task_data"].get(task) or every  # a mean of other tasks has none
        of = {corpora[path].name: corpora[path] for path in files if path in corpora}
        corpus = next(iter(of.values())) if len(of) == 1 else None
        is_sample = any(_is_sample(path, digest) for path, digest in files.items())
        kinds = (kind for beginning, kind in TASK_TYPES.items() if metric.startswith(beginning))
        yield EvalResult(
            task_type=next(kinds, "text-classification"),
            dataset_type=_dataset("", corpus, is_sample) or (f"{task}_sample" if is_sample else task),
            dataset_name=_title(task, corpus, is_sample),
            dataset_split="test",
            metric_type=metric,
            metric_value=value,
            metric_name=f"{task}, {metric}",
        )
