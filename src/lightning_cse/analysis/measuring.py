"""How far apart the sentences of pairs are, in words and to an encoder: drawn, measured, summed up and shown."""

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

__all__ = [
    "ROLES",
    "Drawn",
    "Kind",
    "draw",
    "kind_of",
    "mean_cell",
    "measure",
    "pair_set",
    "pair_summary",
    "print_tables",
    "spread",
    "table",
]

log = logging.getLogger(__name__)

Kind = Literal["positive", "negative"]

ROLES: Final[dict[Kind, tuple[str, ...]]] = {
    "positive": ("positive", "intermediate", "entailment", "explicit_entailment", "implied_entailment"),
    "negative": ("negative", "contradiction"),
}
"""The roles that methods pull to the first one, and those they push away from it."""

_WIDEST: Final = 1000


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
    """Return which kind of pair a role makes with the first one; a role that no method knows is a positive."""
    return "negative" if role in ROLES["negative"] else "positive"


def draw(kind: Kind, label: str, first: Sequence[Any], second: Sequence[Any], rows: Sequence[int], most: int) -> Drawn:
    """Return the pairs of the first of these rows, ``most`` at most."""
    chosen = rows[:most]
    return Drawn(kind, label, [first[row] for row in chosen], [second[row] for row in chosen], len(rows))


# ------------------------------------------------------------------------------------------------- what is measured


def measure(encoder: SentenceEncoder | None, sets: Sequence[Sequence[Drawn]], seed: int) -> list[list[Pairs]]:
    """Return match error rates and cosines of all pairs, each distinct sentence embedded once.

    Args:
        encoder: What the cosines are of; None measures none.
        sets: The pairs of each data set.
        seed: Of the dropout of dropout pairs.

    Raises:
        EncoderError: if an embedding has a value that is not a finite number.
    """
    if encoder is None:
        return [
            [Pairs(pairs.label, list(map(match_error_rate, pairs.first, pairs.second))) for pairs in drawn]
            for drawn in sets
        ]
    plain = PointModel(encoder.to(device_of())).eval()
    sentences = [s for drawn in sets for pairs in drawn if not pairs.dropout for s in (*pairs.first, *pairs.second)]
    log.info("%s reads %d sentences without dropout", encoder.name, len(set(sentences)))
    embedded = Embedded(plain, sentences) if sentences else None
    measured: list[list[Pairs]] = []
    for drawn in sets:
        found = []
        for pairs in drawn:
            if pairs.dropout or embedded is None:
                cosine = _dropout_cosine(plain, pairs.first, seed)
            else:
                a, b = embedded[pairs.first], embedded[pairs.second]
                cosine = plain.similarity(a, b)  # type: ignore[arg-type]  # a plain encoder's embeddings are points
            if not bool(torch.isfinite(cosine).all()):
                raise EncoderError(f"some embeddings of {encoder.name} are not finite numbers: its weights are broken")
            found.append(Pairs(pairs.label, list(map(match_error_rate, pairs.first, pairs.second)), cosine.tolist()))
        measured.append(found)
    return measured


def _dropout_cosine(plain: PointModel, sentences: Sequence[str], seed: int) -> torch.Tensor:
    """Return the cosine of two passes with dropout over each sentence, and leave the random state as it was."""
    if not sentences:
        return torch.empty(0)
    if not plain.encoder.has_dropout:
        log.warning("the encoder %s has no dropout, so the cosine of its dropout pairs is 1", plain.encoder.name)
    plain.encoder.train()
    try:
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            first, second = plain.embed(sentences), plain.embed(sentences)
    finally:
        plain.encoder.eval()
    return plain.similarity(first, second)  # type: ignore[arg-type]  # a plain encoder's embeddings are points


def pair_set(name: str, drawn: Sequence[Drawn], measured: Sequence[Pairs]) -> PairSet:
    """Return the pairs of a data set as a row of the figure."""
    by_kind: dict[Kind, list[Pairs]] = {"positive": [], "negative": []}
    for pairs, values in zip(drawn, measured, strict=True):
        by_kind[pairs.kind].append(values)
    return PairSet(name, by_kind["positive"], by_kind["negative"])


def pair_summary(drawn: Drawn, pairs: Pairs) -> dict[str, Any]:
    """Return how many pairs there are, and how their values are spread."""
    return {
        "kind": drawn.kind,
        "label": drawn.label,
        "dropout": drawn.dropout,
        "pairs": drawn.there,
        "looked_at": len(drawn.first),
        "mer": spread(pairs.mer),
        "cosine": spread(pairs.cosine),
    }


def spread(values: Sequence[float]) -> dict[str, float] | None:
    """Return mean, median and quartiles; None where there is no value."""
    if not values:
        return None
    low, middle, high = np.quantile(np.asarray(values, dtype=np.float64), (0.25, 0.5, 0.75)).tolist()
    mean = float(np.mean(values, dtype=np.float64))
    return {"mean": mean, "lower_quartile": low, "median": middle, "upper_quartile": high}


# ------------------------------------------------------------------------------------------------------ what is shown


def table(*columns: str, left: int) -> Table:
    """Return an empty table, of whose columns so many are texts and the others numbers."""
    made = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for number, column in enumerate(columns):
        made.add_column(column, justify="left" if number < left else "right", no_wrap=True)
    return made


def print_tables(tables: Sequence[Table], console: Console) -> None:
    """Print tables of which no number is cut, however narrow the console says it is: a pipe has 80 columns."""
    width = console.width
    wide = console.options.update(width=_WIDEST)
    console.width = max(width, *(console.measure(each, options=wide).maximum for each in tables))
    try:
        for each in tables:
            console.print(each)
            console.print()
    finally:
        console.width = width


def mean_cell(values: Mapping[str, float] | None) -> str:
    """Return the mean of a `spread`, or a dash."""
    return "-" if values is None else f"{values['mean']:.3f}"
