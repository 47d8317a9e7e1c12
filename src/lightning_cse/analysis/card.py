"""The model card of an exported view, with the hub's metadata."""

from __future__ import annotations

import math
import pkgutil
import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from huggingface_hub import ModelCard, ModelCardData

from lightning_cse.config import experiments_dir
from lightning_cse.data.corpora import CORPORA
from lightning_cse.data.own import is_own
from lightning_cse.engine.inference import SentenceModel
from lightning_cse.runs.hashing import portable

_LOCAL = re.compile(
    r"(?:(?<=[=\[,'\"])|^)(?:~|\.{0,2})/(?:[^\],'\"]*/)?"
)  # folders of a local path
TEMPLATE = """\
---
{{ card_data }}
---

# {{ name }}

One vector per sentence, exported by lightning_cse. The licences of encoder and corpora apply.
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
from sentence_transformers import SentenceTransformer

model = SentenceTransformer("{{ place }}")
vectors = model.encode(["The ferry leaves at noon.", "At noon, the boat departs."])
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


def model_card(
    model: SentenceModel,
    view: str,
    is_cosine: bool,
    place: str,
) -> ModelCard:
    """Return the model card of a view; ``place`` is a folder's name or a hub id. The card has no
    local path.
    """
    record = model.record
    config = record.get("decisive", {}).get("config", {})
    name = Path(model.name).name
    data = ModelCardData(
        library_name="sentence-transformers",
        model_name=name,
        pipeline_tag="sentence-similarity",
        tags=["sentence-transformers", "feature-extraction", "lightning_cse"],
    )
    facts = {
        "method and view": f"{model.method_name}, {view}",
        "encoder": f"{Path(model.encoder.name).name}, pooling {model.encoder.pooling}",
        "sha256 of the weights": model.digests["weights"],
        "similarity": "cosine" if is_cosine else "not the cosine of this view",
    }
    if record:
        facts["run"] = "{name}, config hash {config_hash}, seed {seed}".format(**record)
        train = config.get("data", {}).get("train") or ()
        sources = [train] if isinstance(train, str) else train
        facts["trained on"] = ", ".join(map(_trained_on, sources))

    card: ModelCard = ModelCard.from_template(
        data,
        template_str=TEMPLATE,
        name=name,
        place=place,
        facts=facts,
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
    found = re.findall(r"^(@\w+\{([^,]+),.*?^\})", text, re.MULTILINE | re.DOTALL)
    entries = {key: entry for entry, key in found}

    return [entries.get(paper, paper) for paper in papers]


def _trained_on(source: str) -> str:
    """Return a source with its licence; of the user's own files, the name."""
    if is_own(source):
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
