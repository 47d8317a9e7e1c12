"""Turn the rows of a corpus into training rows with one column per role."""

import itertools
import random
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol

import numpy as np
import pyarrow as pa

from lightning_cse.data.rows import Rows
from lightning_cse.errors import DataError

SOURCE = "source"  # the column with the number of each row's source, if sources have weights
TRIPLET = ("premise", "entailment", "contradiction")
TRAINED = ("anchor", "positive", "negative")  # the same under the names of contrastive learning
FIRST = (
    "sentence",
    "anchor",
    "premise",
    "sentence1",
)  # the names of a row's first sentence; corpora differ


class RoleRows(Protocol):
    """Turns the rows of a corpus into training rows with one column per role, and ``made_of`` (see `made_of`)."""

    @property
    def roles(self) -> tuple[str, ...]: ...  # noqa: D102

    def __call__(self, tables: Sequence[Rows]) -> Rows: ...  # noqa: D102


def made_of(rows: Rows, numbers: Any) -> Rows:
    """Return rows with the numbers of the corpus rows that each is made of: (rows,) or (rows, corpus rows per row)."""
    flat = np.asarray(numbers, dtype=np.int64).ravel()
    offsets = np.arange(len(rows) + 1) * (len(flat) // max(1, len(rows)))
    return rows.with_column(
        "made_of", pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(flat))
    )


def source_of(rows: Rows) -> dict[str, Any]:
    """Return the column with the number of each row's source, if sources have weights."""
    return {SOURCE: rows.values(SOURCE)} if SOURCE in rows.names else {}


@dataclass(frozen=True)
class INLIQuadruples:
    """INLI as DualCSE trains on it: premise, explicit and implied entailment, contradiction.

    A row of a user's own file may lack some of the three hypotheses; without any of them it is dropped and counted.
    """

    roles: ClassVar[tuple[str, ...]] = (
        "premise",
        "explicit_entailment",
        "implied_entailment",
        "contradiction",
    )

    def __call__(self, tables: Sequence[Rows]) -> Rows:
        """Return the rows as they are; a table without premises or any hypothesis is a DataError."""
        rows = with_roles(tables, self.roles)
        used = np.flatnonzero(np.any([rows.has(role) for role in self.roles[1:]], axis=0))
        if len(rows) and not len(used):
            raise DataError(
                f"{rows.origin}: no row has an entailment or a contradiction to train on"
            )
        dropped = {"no entailment and no contradiction": len(rows) - len(used)}
        return made_of(rows.select(used).dropping(dropped), used)


POSITIVES: dict[str, tuple[str, ...]] = {
    kind: (f"{kind}_entailment",) for kind in ("explicit", "implied")
}
POSITIVES["both"] = POSITIVES["explicit"] + POSITIVES["implied"]


@dataclass(frozen=True)
class INLITriplets:
    """INLI as triplets: premise, an entailment, contradiction; ``positive="both"`` makes two triplets per premise.

    The DualCSE paper does not say which entailment its baseline SimCSE (INLI) uses; with ``both`` it sees the same
    sentences as DualCSE. Rows that lack the contradiction, or every chosen entailment, are dropped and counted.
    """

    roles: ClassVar[tuple[str, ...]] = TRIPLET
    positive: Literal["explicit", "implied", "both"] = "both"

    def __call__(self, tables: Sequence[Rows]) -> Rows:
        """Return one or two triplets per premise; a table without any is a DataError."""
        names = POSITIVES[self.positive]
        rows = with_roles(tables, ("premise", *names, "contradiction"))
        entailed = np.stack([rows.has(name) for name in names], axis=1)
        contradicted = rows.has("contradiction")
        made, kinds = np.nonzero(entailed & contradicted[:, None])
        if len(rows) and not len(made):
            raise DataError(
                f"{rows.origin}: no row has a contradiction and {' or '.join(names)} for a triplet"
            )
        sentences = [rows.column(name) for name in names]
        entailment = [sentences[kind][row] for row, kind in zip(made, kinds, strict=True)]
        chosen = rows.select(made)
        more = {"contradiction": chosen.values("contradiction"), **source_of(chosen)}
        triplets = _triplets(chosen, chosen.values("premise"), entailment, **more)
        lacking = {
            "no contradiction": ~contradicted,
            "no entailment": contradicted & ~entailed.any(axis=1),
        }
        return made_of(
            triplets.dropping({reason: rows.sum() for reason, rows in lacking.items()}), made
        )


@dataclass(frozen=True)
class NLITriplets:
    r"""Sentence pairs of NLI as triplets: a premise, one of its entailments, one of its contradictions.

    Pairs are grouped by premise over all corpora. A premise is kept if it has an entailment and a contradiction; if
    ``contradiction`` is false, every entailed pair is kept. ``pairing`` says which of several go together:

    - ``first``: the first entailment with the first contradiction, one triplet per premise;
    - ``random``: one of each, drawn by ``seed`` (the same for all training seeds), one triplet per premise;
    - ``zip``: the first with the first, the second with the second, until either has no more;
    - ``cycle``: every entailment once, with the contradictions in turn;
    - ``product``: every entailment with every contradiction.

    Ready-made triplets are taken as they are, with any further hard negatives (``negative_2``, ...) and intermediate;
    ready-made pairs have no contradictions. Each column has two names, that of NLI and that of contrastive learning:
    ``anchor``, ``positive``, ``negative``.

    Source: supervised SimCSE, section 4. Its triplets (275,601 from SNLI and MNLI) are released, but not their rule.
    One triplet per premise fits this number: SNLI has 150 thousand distinct premises and MNLI 130 thousand.
    """

    pairing: Literal["first", "random", "zip", "cycle", "product"] = "first"
    seed: int = 0
    contradiction: bool = True

    @property
    def roles(self) -> tuple[str, ...]:
        """Premise, entailment, and contradiction unless it is left out."""
        return TRIPLET if self.contradiction else TRIPLET[:2]

    def __call__(self, tables: Sequence[Rows]) -> Rows:
        """Return the triplets, in the order in which their premises first appear; no triplet at all is a DataError."""
        pairs = [rows for rows in tables if "hypothesis" in rows.names]
        parts: list[Rows] = []
        start = 0
        for rows in tables:
            if "hypothesis" not in rows.names:
                parts.append(
                    made_of(
                        self._ready(rows, with_source=not pairs),
                        np.arange(start, start + len(rows)),
                    )
                )
                start += len(rows)
        built = Rows.cat(
            [*parts, self._build(Rows.cat(pairs), start)] if pairs else parts, fill=True
        )
        if not len(built):
            do = "data.rows.contradiction=false takes every entailed pair"
            raise DataError(
                f"{built.origin}: no premise has both an entailment and a contradiction for a triplet; {do}"
            )
        return built

    def _ready(self, rows: Rows, *, with_source: bool) -> Rows:
        """Return the triplets, or pairs, that a table holds."""
        known = (TRAINED, ("sentence1", "sentence2"), TRIPLET)
        names = next((some for some in known if set(some[:2]) <= set(rows.names)), TRIPLET)[
            : len(self.roles)
        ]
        names = tuple(
            name
            for name in names
            if name in rows.names or name not in ("negative", "contradiction")
        )
        hard = [name for name in rows.names if name.startswith("negative_") and self.contradiction]
        more = ("intermediate", *hard, SOURCE) if with_source else ("intermediate", *hard)
        kept = {name: rows.values(name) for name in more if name in rows.names}
        return _triplets(rows, *map(rows.values, names), **kept)

    def _build(self, rows: Rows, start: int) -> Rows:
        """Build triplets from pairs, grouped by premise; corpus rows are numbered from ``start``."""
        dropped: Counter[str] = Counter()
        premises: dict[str, tuple[list[int], list[int]]] = {}
        seen: set[tuple[str, str]] = set()
        hypotheses = rows.column("hypothesis")
        columns = zip(rows.column("premise"), hypotheses, rows.column("label"), strict=True)
        for row, (premise, hypothesis, label) in enumerate(columns):
            if label not in self.roles:
                dropped["no gold label" if label == "-" else f"label {label}"] += 1
            elif (premise, hypothesis) in seen:
                dropped["repeated pair"] += 1
            else:
                seen.add((premise, hypothesis))
                premises.setdefault(premise, ([], []))[label == "contradiction"].append(row)
        made: list[tuple[int, ...]] = []
        for entailments, contradictions in premises.values():
            if not self.contradiction:
                made += [(row,) for row in entailments]
            elif entailments and contradictions:
                chosen = list(self._pair(entailments, contradictions))
                made += chosen
                dropped["not chosen"] += len({*entailments, *contradictions}.difference(*chosen))
            else:
                lacks = "a contradiction" if entailments else "an entailment"
                dropped[f"premise without {lacks}"] += len(entailments) + len(contradictions)
        numbers = np.array(made, dtype=np.int64).reshape(len(made), len(self.roles) - 1)
        chosen_rows = rows.select(numbers[:, 0]).dropping(dropped)
        others = [[hypotheses[row] for row in column] for column in numbers.T]
        return made_of(
            _triplets(chosen_rows, chosen_rows.values("premise"), *others), start + numbers
        )

    def _pair(self, entailments: list[int], contradictions: list[int]) -> Iterable[tuple[int, int]]:
        if self.pairing == "random":
            draw = random.Random(f"{self.seed} {entailments[0]}")  # noqa: S311 - a choice of rows, not a secret
            return [(draw.choice(entailments), draw.choice(contradictions))]
        if self.pairing == "first":
            return [(entailments[0], contradictions[0])]
        if self.pairing == "product":
            return itertools.product(entailments, contradictions)
        cycle = itertools.cycle(contradictions) if self.pairing == "cycle" else contradictions
        return zip(entailments, cycle, strict=False)


@dataclass(frozen=True)
class Sentences:
    """Plain sentences: the first of each row, including repeated ones, as the authors of SimCSE have them.

    With ``distinct``, a repeated sentence is dropped and counted.
    """

    roles: ClassVar[tuple[str, ...]] = ("anchor",)
    distinct: bool = False

    def __call__(self, tables: Sequence[Rows]) -> Rows:
        """Return one row per sentence."""
        alone = []
        for rows in tables:
            name = next((name for name in FIRST if name in rows.names), FIRST[0])
            alone.append(rows.with_columns(anchor=rows.values(name), **source_of(rows)))
        sentences = Rows.cat(alone)
        sentences = made_of(sentences, np.arange(len(sentences)))
        if not self.distinct:
            return sentences
        codes = sentences.values("anchor").combine_chunks().dictionary_encode().indices.to_numpy()
        return sentences.select(np.unique(codes, return_index=True)[1], reason="repeated sentence")


def with_roles(tables: Sequence[Rows], roles: Collection[str]) -> Rows:
    """Return the rows of several tables with all of these roles, the premise first; missing roles are null."""
    whole = []
    for rows in tables:
        rows.values("premise")
        lacking = [role for role in roles if role not in rows.names]
        if len(lacking) == len(roles) - 1:
            raise DataError(
                f"{rows.origin}: none of the columns {', '.join(lacking)}; found: {', '.join(rows.names)}. "
                "Rows in INLI's layout are needed"
            )
        for role in lacking:
            rows = rows.with_column(role, pa.nulls(len(rows), pa.string()))
        whole.append(rows)
    return Rows.cat(whole)


def _triplets(
    rows: Rows, premise: Any, entailment: Any, contradiction: Any = None, **more: Any
) -> Rows:
    """Return rows with these sentences under the names of NLI and of contrastive learning."""
    columns = {
        "premise": premise,
        "anchor": premise,
        "entailment": entailment,
        "positive": entailment,
    }
    if contradiction is not None:
        columns |= {"contradiction": contradiction, "negative": contradiction}
    return rows.with_columns(**columns, **more)
