"""The model cards of exported views and of kept models, with the hub's metadata."""

from __future__ import annotations

import math
import pkgutil
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from huggingface_hub import ModelCard, ModelCardData

from lightning_cse.data.declarations import CORPORA
from lightning_cse.data.read import is_file
from lightning_cse.engine.inference import SentenceModel
from lightning_cse.paths import experiments_dir
from lightning_cse.runs.redaction import portable

_LOCAL = re.compile(
    r"(?:(?<=[=\[,'\"])|^)(?:~|\.{0,2})/(?:[^\],'\"]*/)?"
)  # folders of a local path
_TEMPLATE = """\
---
{{ card_data }}
---

# {{ name }}

{{ summary }} The licences of encoder and corpora apply.
{%- if command %} Trained by

```bash
{{ command }}
```
{%- endif %}

{% for key, value in facts.items() -%}
- {{ key }}: {{ value }}
{% endfor %}
## Usage

```python
{{ usage }}
```

## Results of the whole model

| metric | value |
|---|---|
{% for metric, value in scores -%}
| {{ metric }} | {{ "%.4f" | format(value) }} |
{% endfor %}
## Citation

```bibtex
{{ citations | join("\n\n") }}
```
"""
_EXPORTED = """\
from sentence_transformers import SentenceTransformer

model = SentenceTransformer("{place}")
vectors = model.encode(["The ferry leaves at noon.", "At noon, the boat departs."])"""
_KEPT = """\
import lightning_cse

model = lightning_cse.load("{name}")
vectors = model.encode(["The ferry leaves at noon.", "At noon, the boat departs."])
print(model.views, model.questions)"""


def exported_card(model: SentenceModel, view: str, is_cosine: bool, place: str) -> ModelCard:
    """Return the card of an exported view; ``place`` is a folder's name or a hub id. The card has
    no local path.
    """
    return _card(
        model,
        name=Path(model.name).name,
        summary="One vector per sentence, exported by lightning_cse.",
        usage=_EXPORTED.format(place=place),
        facts={
            "method and view": f"{model.method_name}, {view}",
            "similarity": "cosine" if is_cosine else "not the cosine of this view",
        },
        library="sentence-transformers",
        tags=["sentence-transformers", "feature-extraction"],
    )


def kept_card(model: SentenceModel, name: str) -> ModelCard:
    """Return the card of a run that comes with the package under a name."""
    return _card(
        model,
        name=name,
        summary="A small model for trying lightning_cse, which comes with the package.",
        usage=_KEPT.format(name=name),
        facts={"method and views": ", ".join([model.method_name, *model.views])},
        library="lightning_cse",
    )


def _card(
    model: SentenceModel,
    *,
    name: str,
    summary: str,
    usage: str,
    facts: Mapping[str, str],
    library: str,
    tags: Sequence[str] = (),
) -> ModelCard:
    """Return a card with what is known of any model."""
    record = model.record
    config = record.get("decisive", {}).get("config", {})
    data = ModelCardData(
        library_name=library,
        model_name=name,
        pipeline_tag="sentence-similarity",
        tags=[*tags, "lightning_cse"],
    )
    model_facts = {
        "encoder": f"{Path(model.encoder.name).name}, pooling {model.encoder.pooling}",
        "sha256 of the weights": model.digests["weights"],
    }
    if record:
        model_facts["run"] = "{name}, config hash {config_hash}, seed {seed}".format(**record)
        train = config.get("data", {}).get("train") or ()
        sources = [train] if isinstance(train, str) else train
        model_facts["trained on"] = ", ".join(map(_trained_on, sources))

    card: ModelCard = ModelCard.from_template(
        data,
        template_str=_TEMPLATE,
        name=name,
        summary=summary,
        usage=usage,
        facts={**facts, **model_facts},
        command=_command(record),
        scores=list(_scores(record)),
        citations=citations(model.method),
    )

    return card


def citations(method: str) -> list[str]:
    """Return the BibTeX entries of a method's ``papers``: its own text, or keys in
    ``experiments/references.bib``.
    """
    papers = getattr(pkgutil.resolve_name(method), "papers", ())
    text = (experiments_dir() / "references.bib").read_text(encoding="utf-8")
    matches = re.findall(r"^(@\w+\{([^,]+),.*?^\})", text, re.MULTILINE | re.DOTALL)
    entries = {key: entry for entry, key in matches}

    return [entries.get(paper, paper) for paper in papers]


def _trained_on(source: str) -> str:
    """Return a source with its licence; of the user's own files, the name."""
    if is_file(source):
        return Path(source).name

    corpus = CORPORA.get(source.partition("/")[0])

    return f"{source} (licence: {corpus.licence})" if corpus else source


def _command(record: Mapping[str, Any]) -> str:
    """Return the command that trained a run, with the names of local files only; nothing if the
    record does not have it.
    """
    overrides = record.get("overrides") or []
    if not overrides:
        return ""

    words = [shlex.quote(_LOCAL.sub("", word)) for word in portable(overrides)]

    return " ".join(["python -m lightning_cse.train", *words])


def _scores(record: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """Yield the names and values of a run's metrics on test sets; thresholds are left out."""
    for key, value in record.get("metrics", {}).items():
        split, task, metric = key.split("/", 2)
        if split == "test" and metric != "threshold" and math.isfinite(value):
            yield f"{task}, {metric}", value
