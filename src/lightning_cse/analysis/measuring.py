"""How far apart the sentences of pairs are, in words and to an encoder: drawn, measured, summarised and shown."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
import torch
from rich import box
from rich.console import Console
from rich.table import Table

from lightning_cse.analysis.histograms import Pairs, PairSet
from lightning_cse.encoders import SentenceEncoder
from lightning_cse.errors import EncoderError
from lightning_cse.evaluation import Embedded
from lightning_cse.metrics import match_error_rate
from lightning_cse.models import PointModel
from lightning_cse.runs.machine import device_of

log = logging.getLogger(__name__)

Kind = Literal["positive", "negative"]

ROLES: Final[dict[Kind, tuple[str, ...]]] = {
    "positive": ("positive", "intermediate", "entailment", "explicit_entailment", "implied_entailment"),
    "negative": ("negative", "contradiction"),
}
"""The roles that methods pull to the first one, and those that they push away from it."""


@dataclass(frozen=True)
class Drawn:
    """The pairs of one kind that are looked at; ``there`` counts all, ``dropout`` says that they are two passes."""

    kind: Kind
    label: str
    first: list[str]
    second: list[str]
    there: int
    dropout: bool = False


def kind_of(role: str) -> Kind:
    """Return the kind of pair that a role makes with the first one; a role that no method knows is a positive."""
    return "negative" if role in ROLES["negative"] else "positive"


def measure(encoder: SentenceEncoder | None, sets: Sequence[Sequence[Drawn]], seed: int) -> list[list[Pairs]]:
    """Return match error rates and, with an encoder, cosines of all pairs; each distinct sentence is embedded once.

    ``seed`` is that of the dropout of dropout pairs. Raises EncoderError if a cosine is not finite.
    """
    model = None if encoder is None else PointModel(encoder.to(device_of())).eval()
    sentences = [s for drawn in sets for pairs in drawn if not pairs.dropout for s in (*pairs.first, *pairs.second)]
    embedded = Embedded(model, sentences) if model is not None and sentences else None

    def measured(pairs: Drawn) -> Pairs:
        rates = list(map(match_error_rate, pairs.first, pairs.second))
        if model is None or not rates:
            return Pairs(pairs.label, rates)
        if pairs.dropout or embedded is None:
            cosine = model.similarity(*_dropout_passes(model, pairs.first, seed))
        else:
            cosine = model.similarity(*(embedded[side] for side in (pairs.first, pairs.second)))  # type: ignore[arg-type]
        if not cosine.isfinite().all():
            raise EncoderError(f"some embeddings of {model.encoder.name} are not finite: its weights are broken")
        return Pairs(pairs.label, rates, cosine.tolist())

    return [[measured(pairs) for pairs in drawn] for drawn in sets]


def _dropout_passes(model: PointModel, sentences: Sequence[str], seed: int) -> Any:
    """Return two embeddings of each sentence with dropout, and leave the random state as it was."""
    if not model.encoder.has_dropout:
        log.warning("the encoder %s has no dropout, so the cosine of its dropout pairs is 1", model.encoder.name)
    model.encoder.train()
    try:
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            return model.embed(sentences), model.embed(sentences)
    finally:
        model.encoder.eval()


def pair_set(name: str, drawn: Sequence[Drawn], measured: Sequence[Pairs]) -> PairSet:
    """Return the pairs of a data set as a row of the figure."""
    kinds = [(pairs.kind, values) for pairs, values in zip(drawn, measured, strict=True)]
    positive, negative = ([values for kind, values in kinds if kind == wanted] for wanted in ROLES)
    return PairSet(name, positive, negative)


def pair_summary(drawn: Drawn, pairs: Pairs) -> dict[str, Any]:
    """Return the number of pairs, and how their values are spread."""
    return {
        "kind": drawn.kind,
        "label": drawn.label,
        "dropout": drawn.dropout,
        "pairs": drawn.there,
        "looked_at": len(drawn.first),
        "mer": _spread(pairs.mer),
        "cosine": _spread(pairs.cosine),
    }


def _spread(values: Sequence[float]) -> dict[str, float] | None:
    if not len(values):
        return None
    low, middle, high = np.quantile(np.asarray(values, dtype=np.float64), (0.25, 0.5, 0.75)).tolist()
    mean = float(np.mean(values, dtype=np.float64))
    return {"mean": mean, "lower_quartile": low, "median": middle, "upper_quartile": high}


def table(*columns: str, left: int) -> Table:
    """Return an empty table, whose first ``left`` columns are texts and the others numbers."""
    made = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for number, column in enumerate(columns):
        made.add_column(column, justify="left" if number < left else "right", no_wrap=True)
    return made


def print_tables(tables: Sequence[Table], console: Console) -> None:
    """Print tables with no cell cut, however narrow the console is: a pipe has 80 columns."""
    wide = console.options.update(width=1000)
    console.width = max(console.width, *(console.measure(each, options=wide).maximum for each in tables))
    for each in tables:
        console.print(each)
        console.print()


def mean_cell(values: Mapping[str, float] | None) -> str:
    """Return the mean of the values of a `pair_summary`, or a dash."""
    return "-" if values is None else f"{values['mean']:.3f}"
