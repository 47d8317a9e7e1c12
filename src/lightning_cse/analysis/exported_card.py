"""The model card of an exported folder: what it is, how it is used, how good it is, what it was made from."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final

import lightning_cse
from lightning_cse.data.corpora import is_own

if TYPE_CHECKING:  # heavy, and what is wrong with a command line is told without
    from lightning_cse.analysis.exported_recipe import Recipe
    from lightning_cse.engine.load import LoadedModel

__all__ = ["card"]

_SEPARATOR: Final = re.compile(r"[/\\]")
_PATH: Final = re.compile(r"[/~.]|[A-Za-z]:/|.*\\")  # on this machine or on one with Windows; the hub's names are none


def card(
    model: LoadedModel, recipe: Recipe, *, view: str, compared: str | None, left_out: Sequence[str], width: int
) -> str:
    """Return the model card, which has no path of the machine and no setting that is not named here.

    Args:
        model: what is exported.
        recipe: what its vectors are made of.
        view: the view that they are.
        compared: as in `Exported`.
        left_out: the fields of the model's embeddings that the vectors are not.
        width: the dimensions of a vector.
    """
    record: dict[str, Any] = model.record
    method = model.method
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
    yield "method", model.method
    yield "view", view
    encoder = recipe.encoder
    yield "encoder", f"{_no_path(encoder.name)}, pooling {encoder.pooling}, {encoder.max_length} tokens at most"
    yield "vectors", f"{width} dimensions, float32"
    if record:
        yield "run", f"{record['name']}, config hash {record['config_hash']}, seed {record['seed']}"
        yield "commit", str(record.get("environment", {}).get("commit") or "unknown")
        yield "started from weights", f"sha256 {record['encoder'].get('weights', 'unknown')}"
    yield f"made from {'the checkpoint' if record else 'weights'}", f"sha256 {model.digests['weights']}"
    yield "lightning_cse", lightning_cse.__version__
    yield "checked with", ", ".join(f"{name} {version(name)}" for name in ("sentence-transformers", "transformers"))


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
    data = record.get("decisive", {}).get("config", {}).get("data", {})
    sources = [str(source) for source in data.get("train") or []]
    own = {text.removesuffix(".gz") for text in _texts(data) if is_own(text)}

    def named(name: str) -> str:
        return _end(name) if name in own else _no_path(name)

    yield "## Data"
    trained = ", ".join(named(source.removesuffix(".gz")) for source in sources)
    yield (
        f"{f'Trained on {trained}. ' if trained else ''}Files that were read, also to choose the best step and to "
        "leave out what must not be trained on:"
    )
    yield _table(((named(name), digest) for name, digest in record["data"].items()), ("file", "sha256"))
    for name, document in record.get("provenance", {}).items():
        pattern = (document.get("pattern") or {}).get("name", "unknown")
        writer = _no_path(document.get("model") or "a language model")
        yield f"Sentences of {named(name)} were written by {writer}, pattern {pattern}."


def _texts(node: Any) -> Iterator[str]:
    """Yield the texts of a config, however deep."""
    if isinstance(node, str):
        yield node
    elif isinstance(node, Mapping | list):
        for item in node.values() if isinstance(node, Mapping) else node:
            yield from _texts(item)


def _table(rows: Iterable[tuple[str, str]], header: tuple[str, str]) -> str:
    lines = [header, ("---", "---"), *rows]
    return "\n".join(
        "| {} | {} |".format(*(" ".join(cell.replace("|", "\\|").split()) for cell in row)) for row in lines
    )


def _no_path(name: str) -> str:
    """Return a name as it is, and of a path of a machine its end."""
    return _end(name) if _PATH.match(name) else name


def _end(path: str) -> str:
    return _SEPARATOR.split(path.rstrip("/\\"))[-1]
