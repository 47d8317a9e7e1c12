"""The model card of an exported view, with the hub's metadata."""

from __future__ import annotations

import hashlib
import math
import pkgutil
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from huggingface_hub import EvalResult, ModelCard, ModelCardData, metadata_load

from lightning_cse.config import encoder_configs, experiments_dir
from lightning_cse.data import sample_dir
from lightning_cse.data.corpora import CORPORA
from lightning_cse.engine.inference import SentenceModel
from lightning_cse.engine.load import CONFIG, read_yaml

TEMPLATE: Final = """\
---
{{ card_data }}
---

# {{ name }}
{% if sample %}
> **Trained on the sample corpus**, a few hundred sentences shipped with lightning_cse for trying out the software: the
> vectors are of no practical use.
{% endif %}
One vector per sentence, exported by lightning_cse. The licences of encoder and corpora apply.

{% for key, value in facts.items() -%}
- {{ key }}: {{ value }}
{% endfor %}
## Usage

```python
from sentence_transformers import SentenceTransformer

model = SentenceTransformer("{{ place }}")
vectors = model.encode(["The ferry leaves at noon.", "At noon, the boat departs."])
```

`lightning_cse.load("{{ place }}").encode(...)` gives the same vectors.
{% if sources %}
## Trained on

{% for source in sources -%}
- {{ source }}
{% endfor %}
{%- endif %}
{%- if scores %}
## Results of the whole model

| metric | value |
|---|---|
{% for score in scores -%}
| {{ score.metric_name }} | {{ "%.4f" | format(score.metric_value) }} |
{% endfor %}
{%- if limits %}
Evaluated on part of each test set: {{ limits | join(", ") }}.
{% endif %}
{%- endif %}
{%- if citations %}
## Citation

```bibtex
{{ citations | join("\n\n") }}
```
{% endif %}"""
TASK_TYPES: Final = {
    "spearman": "sentence-similarity",
    "ndcg": "text-ranking",
    "recall": "text-ranking",
}


def model_card(
    model: SentenceModel,
    view: str,
    similarity: str | None,
    place: str,
) -> ModelCard:
    """Return the model card of a view; ``place`` is a folder's name or a hub id. The card has no
    local path.
    """
    record = model.record
    config = record.get("decisive", {}).get("config", {})
    base, licence = _known_encoder(model)
    sources = dict(_sources(config.get("data", {})))
    scores = list(_scores(record))
    name = Path(model.name).name
    data = ModelCardData(
        base_model=base,
        datasets=sorted(hub_id for hub_id in sources.values() if hub_id) or None,
        eval_results=scores or None,
        library_name="sentence-transformers",
        license=licence,
        model_name=name,
        pipeline_tag="sentence-similarity",
        tags=["sentence-transformers", "feature-extraction", "lightning_cse"],
    )
    facts = {
        "method and view": f"{model.method_name}, {view}",
        "encoder": f"{Path(model.encoder.name).name}, pooling {model.encoder.pooling}",
        "sha256 of the weights": model.digests["weights"],
        "similarity": similarity or "not the cosine of this view: compare with care",
    }
    if record:
        facts["run"] = "{name}, config hash {config_hash}, seed {seed}".format(**record)
    card: ModelCard = ModelCard.from_template(
        data,
        template_str=TEMPLATE,
        name=name,
        place=place,
        facts=facts,
        sources=sources,
        scores=scores,
        limits=_limits(config.get("suite", {})),
        sample=_is_sample(record.get("data", {})),
        citations=citations(model.method),
    )
    return card


def citations(method: str) -> list[str]:
    """Return the BibTeX entries of a method's ``papers``: its own text, or keys in
    ``experiments/references.bib``.
    """
    papers = getattr(
        pkgutil.resolve_name(method),
        "papers",
        (),
    )
    text = (experiments_dir() / "references.bib").read_text(encoding="utf-8")
    found = re.findall(
        r"^(@\w+\{([^,]+),.*?^\})",
        text,
        re.MULTILINE | re.DOTALL,
    )
    entries = {key: entry for entry, key in found}
    return [entries.get(paper, paper) for paper in papers]


def _known_encoder(model: SentenceModel) -> tuple[str | None, str | None]:
    """Return the hub id and the licence of the encoder, as its own card and config name them."""
    folder = Path(str(model.encoder.backbone.name_or_path))
    card = metadata_load(folder / "README.md") if (folder / "README.md").is_file() else None
    source = model.name
    if model.run is not None:
        source = read_yaml(model.run / CONFIG)["encoder"].get("source", "")
    elif model.name in encoder_configs():
        source = read_yaml(encoder_configs()[model.name]).get("source", "")
    is_id = re.fullmatch(r"(?!folder/)[\w.-]+/[\w.-]+", source) and not Path(source).is_dir()
    said = card or {}
    base = source if is_id else said.get("base_model")
    return base if isinstance(base, str) else None, said.get("license")


def _sources(data: Mapping[str, Any]) -> Iterator[tuple[str, str | None]]:
    """Yield each training set, described without local folders, and its id on the hub."""
    for given in (data.get("train"), data.get("rows", {}).get("llm")):
        for name in [given] if isinstance(given, str) else given or []:
            corpus = CORPORA.get(name.partition("/")[0])
            if name.startswith("hub:"):
                yield name, "/".join(re.split("[/:]", name)[1:3])
            elif corpus is not None and "." not in name:
                yield f"{corpus.title} ({corpus.licence})", corpus.hub.id if corpus.hub else None
            else:
                yield Path(name).name, None


def _is_sample(files: Mapping[str, str]) -> bool:
    """Whether a training file, by name and sha256, is one of the sample corpus."""
    for name, digest in files.items():
        path = sample_dir() / name.lstrip("/")
        if path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == digest:
            return True
    return False


def _limits(suite: Mapping[str, Mapping[str, Any]]) -> list[str]:
    limits = set()
    for task in suite.values():
        limits |= {f"{key}={value}" for key, value in task.items() if key.startswith("test_")}
    return sorted(limits)


def _scores(record: Mapping[str, Any]) -> Iterable[EvalResult]:
    """Yield the metrics of a run on test sets; thresholds are left out."""
    for key, value in record.get("metrics", {}).items():
        split, task, metric = key.split("/", 2)
        if split == "test" and metric != "threshold" and math.isfinite(value):
            kind = TASK_TYPES.get(re.split("[@_]", metric)[0], "text-classification")
            yield EvalResult(
                task_type=kind,
                dataset_type=task,
                dataset_name=task,
                dataset_split="test",
                metric_type=metric,
                metric_value=value,
                metric_name=f"{task}, {metric}",
            )
