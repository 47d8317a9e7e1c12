"""Turn the rows of a corpus into training rows with one column per role."""

import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lightning_cse.data.cells import NLI_LABELS
from lightning_cse.data.mapped import (
    blocks,
    first_appearance,
    in_file,
    is_first,
    joined,
    masked,
    scratch,
)
from lightning_cse.data.own import layout_of
from lightning_cse.data.parsers import PAIR_SENTENCES
from lightning_cse.data.rows import Rows
from lightning_cse.errors import ConfigError, DataError

# The column with the label or score of each row, for methods that learn from one.
TARGET = "target"
# The column that marks pairs whose second sentence is drawn after the hold-out.
RANDOM_PAIR = "random_pair"
TRIPLET = ("premise", "entailment", "contradiction")
# The same under the names of contrastive learning.
TRAINED = ("anchor", "positive", "negative")
# The names of a row's first sentence, and of a pair's second one; corpora differ.
FIRST = ("sentence", "anchor", "premise", "sentence1")
SECOND = ("hypothesis", "sentence2")

POSITIVES: dict[str, tuple[str, ...]] = {
    "explicit": ("explicit_entailment",),
    "implied": ("implied_entailment",),
    "both": ("explicit_entailment", "implied_entailment"),
}
"""INLI's entailments that are trained on, by option."""

# Of ready-made pairs and triplets: the two names that are needed, and that of the contradiction.
_READY = (TRAINED, ("sentence1", "sentence2"), TRIPLET)

_ODD = np.uint64(0x9E3779B97F4A7C15)  # mixes the hashes of two sentences


class RoleRows(Protocol):
    """Turns the rows of a corpus into training rows with one column per role, and ``made_of`` (see
    `made_of`).

    A scheme whose training rows each depend on one corpus row alone has ``by_row = True``: it can
    be applied to a part of a corpus, as to a stream's.
    """

    @property
    def roles(self) -> tuple[str, ...]: ...  # noqa: D102

    def __call__(self, tables: Sequence[Rows]) -> Rows: ...  # noqa: D102


def made_of(rows: Rows, numbers: Any) -> Rows:
    """Return rows with the numbers of the corpus rows that each is made of: (rows,) or (rows,
    corpus rows per row).
    """
    flat = numbers if isinstance(numbers, range) else np.asarray(numbers, dtype=np.int64).ravel()
    width = max(1, len(flat) // max(1, len(rows)))
    ends = in_file(range(0, len(flat) + 1, width), np.int32, rows.cache_dir)
    flat = in_file(flat, np.int64, rows.cache_dir)
    lists = pa.ListArray.from_arrays(*map(pa.array, (ends, flat)))

    return rows.with_column("made_of", lists)


def with_roles(tables: Sequence[Rows], roles: Sequence[str]) -> Rows:
    """Return the rows of several tables with all of these roles, the first of which is needed;
    others may be null.
    """
    complete = []

    for rows in tables:
        rows.values(roles[0])
        for role in roles:
            if role not in rows.names:
                rows = rows.with_constant(role, None)

        complete.append(rows)

    return Rows.cat(complete)


def interleaved(variants: Sequence[Rows], roles: Sequence[str]) -> tuple[Rows, np.ndarray]:
    """Return all variants of the first row, then all of the second one, ..., of those that have all
    of these roles, and the number of the row that each is a variant of.
    """
    together = Rows.cat(variants)
    order = np.arange(len(together)).reshape(len(variants), -1).T.ravel()
    order = order[together.has(*roles)[order]]
    rows = together.select(order)
    rows.counts = dict(variants[0].counts)

    return rows, order % len(variants[0])


@dataclass(frozen=True)
class INLIQuadruples:
    """INLI as DualCSE trains on it: premise, explicit and implied entailment, contradiction.

    A row of a user's own file may lack some of the three hypotheses; without any of them it is
    dropped and counted.
    """

    roles: ClassVar[tuple[str, ...]] = (
        "premise",
        "explicit_entailment",
        "implied_entailment",
        "contradiction",
    )
    by_row: ClassVar[bool] = True

    def __call__(self, tables: Sequence[Rows]) -> Rows:
        """Return the rows as they are; a table without premises is a DataError."""
        rows = with_roles(tables, self.roles)
        used = np.flatnonzero(np.any([rows.has(role) for role in self.roles[1:]], axis=0))

        dropped = {"no entailment and no contradiction": len(rows) - len(used)}

        return made_of(rows.select(used).dropping(dropped), used)


@dataclass(frozen=True)
class INLITriplets:
    """INLI as triplets: premise, an entailment, contradiction; ``positive="both"`` makes two
    triplets per premise.

    The DualCSE paper does not say which entailment its baseline SimCSE (INLI) uses; with ``both``
    it sees the same sentences as DualCSE. Rows that lack the contradiction, or every chosen
    entailment, are dropped and counted.
    """

    roles: ClassVar[tuple[str, ...]] = TRIPLET
    by_row: ClassVar[bool] = True
    positive: Literal["explicit", "implied", "both"] = "both"

    def __call__(self, tables: Sequence[Rows]) -> Rows:
        """Return one or two triplets per premise; a table without premises is a DataError."""
        names = POSITIVES[self.positive]
        rows = with_roles(tables, ("premise", *names, "contradiction"))
        premise, contradiction = map(rows.values, ("premise", "contradiction"))
        variants = [_triplets(rows, premise, rows.values(name), contradiction) for name in names]
        triplets, numbers = interleaved(variants, TRIPLET)
        contradicted = int(rows.has("contradiction").sum())
        dropped = {
            "no contradiction": len(rows) - contradicted,
            "no entailment": contradicted - len(np.unique(numbers)),
        }

        return made_of(triplets.dropping(dropped), numbers)


@dataclass(frozen=True)
class NLITriplets:
    r"""Sentence pairs of NLI as triplets: a premise, one of its entailments, one of its
    contradictions.

    Pairs are grouped by premise over all corpora. A premise is kept if it has an entailment and a
    contradiction; if ``contradiction`` is false, every entailed pair is kept. ``pairing`` says
    which of several go together:

    - ``first``: the first entailment with the first contradiction;
    - ``random``: one of each, drawn by ``seed`` (the same for all training seeds).

    Ready-made triplets are taken as they are, with any further hard negatives (``negative_2``, ...)
    and intermediate; ready-made pairs have no contradictions. Each column has two names, that of
    NLI and that of contrastive learning: ``anchor``, ``positive``, ``negative``.

    Source: supervised SimCSE, section 4. Its triplets (275,601 from SNLI and MNLI) are released,
    but not their rule. One triplet per premise fits this number: SNLI has 150 thousand distinct
    premises and MNLI 130 thousand.
    """

    by_row: ClassVar[bool] = True  # of ready-made triplets; labelled pairs are grouped
    pairing: Literal["first", "random"] = "first"
    seed: int = 0
    contradiction: bool = True

    @property
    def roles(self) -> tuple[str, ...]:
        """Premise, entailment, and contradiction unless it is left out."""
        return TRIPLET if self.contradiction else TRIPLET[:2]

    def __call__(self, tables: Sequence[Rows]) -> Rows:
        """Return the triplets, in the order in which their premises first appear."""
        pairs = [rows for rows in tables if "hypothesis" in rows.names]
        parts: list[Rows] = []
        start = 0

        for rows in tables:
            if "hypothesis" not in rows.names:
                parts.append(made_of(self._ready(rows), range(start, start + len(rows))))
                start += len(rows)

        if pairs:
            parts.append(self._from_pairs(Rows.cat(pairs), start))

        return Rows.cat(parts, fill=True)

    def _ready(self, rows: Rows) -> Rows:
        """Return the triplets, or pairs, that a table holds."""
        ready = next((names for names in _READY if set(names[:2]) <= set(rows.names)), TRIPLET[:2])
        sentences = [name for name in ready if name in rows.names][: len(self.roles)]
        kept = [name for name in rows.names if name.startswith("negative_") and self.contradiction]
        kept += {"intermediate"}.intersection(rows.names)
        names = [*TRIPLET[: len(sentences)], *TRAINED[: len(sentences)], *kept]

        return rows.renamed(**dict(zip(names, sentences * 2 + kept, strict=True)))

    def _from_pairs(self, rows: Rows, start: int) -> Rows:
        """Build triplets from pairs, grouped by premise; corpus rows are numbered from
        ``start``.
        """
        labels = rows.values("label")
        is_trained = pc.is_in(labels, value_set=pa.array(self.roles)).to_numpy()
        dropped = _other_labels(labels, is_trained)

        premises = rows.hashes("premise")
        pairs = _of_pairs(premises, rows.hashes("hypothesis"), rows.cache_dir)
        pairs = masked(pairs, is_trained, rows.cache_dir)
        is_new = is_first(first_appearance(pairs, rows.cache_dir))
        dropped["repeated pair"] = int(is_trained.sum() - is_new.sum())

        new_premises = masked(premises, is_new, rows.cache_dir)
        codes = first_appearance(new_premises, rows.cache_dir)
        is_entailment = pc.equal(labels, "entailment").to_numpy()
        numbers = _by_premise(codes, is_new & is_entailment)[:, None]

        if self.contradiction:
            contradictions = _by_premise(codes, is_new & ~is_entailment)
            numbers = self._chosen(codes, numbers[:, 0], contradictions, dropped)

        kept = rows.select(numbers[:, 0]).dropping(dropped)
        others = [rows.select(column).values("hypothesis") for column in numbers.T]

        return made_of(_triplets(kept, kept.values("premise"), *others), start + numbers)

    def _chosen(
        self,
        codes: np.ndarray,
        entailments: np.ndarray,
        contradictions: np.ndarray,
        dropped: dict[str, int],
    ) -> np.ndarray:
        """Return the rows of the entailment and of the contradiction of each premise that has both:
        (premises, 2).
        """
        premises = int(codes.max(initial=-1)) + 1
        both = (entailments, contradictions)
        counts = np.stack([np.bincount(codes[rows], minlength=premises) for rows in both], axis=1)
        places = np.cumsum(counts, axis=0) - counts
        is_complete = counts.all(axis=1)
        entailed, contradicted = counts[~is_complete].sum(axis=0).tolist()
        counts = counts[is_complete]
        places = places[is_complete]
        dropped["premise without a contradiction"] = entailed
        dropped["premise without an entailment"] = contradicted
        dropped["not chosen"] = int(counts.sum()) - counts.size

        if self.pairing == "random":
            firsts = entailments[places[:, 0]].tolist()
            for first, place, count in zip(firsts, places, counts.tolist(), strict=True):
                # A choice of rows, not a secret.
                draw = random.Random(f"{self.seed} {first}")  # noqa: S311
                place += [draw.choice(range(each)) for each in count]

        return np.stack([entailments[places[:, 0]], contradictions[places[:, 1]]], axis=1)


def _of_pairs(premises: np.ndarray, hypotheses: np.ndarray, cache_dir: Path | None) -> np.ndarray:
    """Return a hash of each pair of sentences, given theirs, that is never 0: (rows,)."""
    pairs = scratch(len(premises), np.uint64, cache_dir)
    for block in blocks(len(premises)):
        pairs[block] = premises[block] * _ODD + hypotheses[block]

    pairs[pairs == 0] = 1

    return pairs


def _by_premise(codes: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """Return the chosen rows, those of the first premise before the others."""
    numbers = np.flatnonzero(chosen)

    return np.asarray(numbers[np.argsort(codes[numbers], kind="stable")])


@dataclass(frozen=True)
class LabelledPairs:
    """Sentence pairs with one of several labels, such as all three of NLI.

    The target of a row is the number of its label in ``labels``; rows with another label are
    dropped and counted. The hypotheses of the first label are also in the column ``entailment``,
    for the alignment of pairs that mean the same. Rows are not grouped, and repeated pairs stay.
    """

    roles: ClassVar[tuple[str, ...]] = ("premise", "hypothesis")
    by_row: ClassVar[bool] = True
    labels: Sequence[str] = NLI_LABELS[:3]

    def __call__(self, tables: Sequence[Rows]) -> Rows:
        """Return one row per pair; a table without labels is a DataError."""
        rows = Rows.cat(tables)
        labels = list(map(str, self.labels))
        numbers = pc.index_in(rows.values("label"), value_set=pa.array(labels))
        dropped = _other_labels(rows.values("label"), numbers.is_valid().to_numpy())
        premises, hypotheses = map(rows.values, self.roles)
        alike = pc.fill_null(pc.equal(numbers, 0), False)
        pairs = rows.with_columns(
            premise=premises,
            hypothesis=hypotheses,
            entailment=pc.if_else(alike, hypotheses, pa.scalar(None, pa.string())),
            target=pc.cast(numbers, pa.int64()),
        )
        used = np.flatnonzero(pairs.has(TARGET))

        return made_of(pairs.select(used).dropping(dropped), used)


def targets_of(rows: Rows, scores: Sequence[float]) -> pa.Array:
    """Return the scores of rows on the scale from 0 to 1, given the lowest and the highest one; one
    off the scale is a DataError.
    """
    lowest, highest = scores
    found = rows.values("score").to_numpy()
    wrong = np.flatnonzero((found < lowest) | (found > highest))
    if len(wrong):
        row = int(wrong[0])
        raise DataError(
            f"{rows.where(row)}: the score {found[row]:g} is not between {lowest:g} and "
            f"{highest:g}: set data.rows.scores=[LOWEST,HIGHEST]"
        )

    return pa.array(((found - lowest) / (highest - lowest)).astype(np.float32))


@dataclass(frozen=True)
class ScoredPairs:
    """Sentence pairs with a score of their similarity.

    The target of a row is its score on the scale from 0 to 1; ``scores`` are the lowest and the
    highest possible one. The second sentences of pairs with a target of at least ``similar`` are
    also in the column ``positive``, for the alignment of pairs that mean the same.
    """

    roles: ClassVar[tuple[str, ...]] = ("sentence1", "sentence2")
    by_row: ClassVar[bool] = True
    scores: Sequence[float] = (0.0, 1.0)
    similar: float = 0.8

    def __post_init__(self) -> None:
        if len(self.scores) != 2 or self.scores[0] >= self.scores[1]:
            raise ConfigError(
                [f"data.rows.scores: must be [lowest, highest], got {list(self.scores)}"]
            )

    def __call__(self, tables: Sequence[Rows]) -> Rows:
        """Return one row per pair; a table without scores, or one off the scale, is a DataError."""
        rows = Rows.cat(tables)
        targets = targets_of(rows, self.scores)
        first, second = map(rows.values, self.roles)
        alike = pa.chunked_array([pc.greater_equal(targets, self.similar)])
        pairs = rows.with_columns(
            sentence1=first,
            sentence2=second,
            positive=pc.if_else(alike, second, pa.scalar(None, pa.string())),
            target=targets,
        )

        return made_of(pairs, range(len(pairs)))


@dataclass(frozen=True)
class Sentences:
    """Plain sentences: the first of each row, including repeated ones, as the authors of SimCSE
    have them.

    With ``both``, both sentences of a pair become rows, one after the other. With ``distinct``, a
    repeated sentence is dropped and counted.
    """

    roles: ClassVar[tuple[str, ...]] = ("anchor",)
    distinct: bool = False
    both: bool = False

    @property
    def by_row(self) -> bool:
        """Whether no row depends on another: repeated ones may."""
        return not self.distinct

    def __call__(self, tables: Sequence[Rows]) -> Rows:
        """Return one row per sentence."""
        anchors = []
        numbers = []
        start = 0

        for rows in tables:
            sentences = rows.renamed(anchor=first_role(rows))
            number: np.ndarray | range = range(len(rows))
            second = next((name for name in SECOND if name in rows.names), None)
            if self.both and second is not None:
                sentences, number = interleaved([sentences, rows.renamed(anchor=second)], ())

            anchors.append(sentences)
            numbers.append((start, number))
            start += len(rows)

        rows = Rows.cat(anchors)
        rows = made_of(rows, joined(numbers, np.int64, rows.cache_dir))

        if not self.distinct:
            return rows

        return rows.select(rows.distinct("anchor"), reason="repeated sentence")


def first_role(rows: Rows) -> str:
    """Return the name of a row's first sentence; corpora differ."""
    return next((name for name in FIRST if name in rows.names), FIRST[0])


def _triplets(rows: Rows, *sentences: pa.ChunkedArray) -> Rows:
    """Return rows with a premise, an entailment and perhaps a contradiction, under the names of NLI
    and of contrastive learning.
    """
    names = [*TRIPLET[: len(sentences)], *TRAINED[: len(sentences)]]

    return rows.with_columns(**dict(zip(names, sentences * 2, strict=True)))


def _other_labels(labels: pa.ChunkedArray, is_trained: np.ndarray) -> dict[str, int]:
    """Return how many pairs have each label that is not trained on, by the reason why they are
    dropped.
    """
    counts = labels.filter(pa.array(~is_trained)).value_counts().to_pylist()
    named = {f"label {each['values']}": each["counts"] for each in counts}
    without = named.pop("label -", 0)

    return named | {"no gold label": without}


# The layouts that cannot be mixed with others.
_ALONE = {"sentences", "unlabelled pairs", "implicit pairs", "INLI"}


@dataclass(frozen=True)
class OwnRows:
    """Rows of the user's own files, in the roles that a method takes.

    - INLI's columns: quadruples for DualCSE, implicit pairs for ImpScore, else triplets
      (`INLITriplets`);
    - labelled pairs: as they are for a method that takes labels (`LabelledPairs`), else triplets if
      some are contradictions, else the entailed pairs (`NLITriplets`);
    - pairs with a score: as they are, for a method that takes scores (`ScoredPairs`); triplets with
      one: as they are (`ScoredTriplets`);
    - plain sentences, pairs, triplets, LLM rows and implicit pairs: as they are.

    ``pairing``, ``seed`` and ``contradiction`` are those of `NLITriplets`, ``positive`` that of
    `INLITriplets`, ``labels`` that of `LabelledPairs`, and ``scores`` that of `ScoredPairs`.
    """

    roles: ClassVar[tuple[str, ...]] = TRAINED[:1]
    pairing: Literal["first", "random"] = "first"
    seed: int = 0
    contradiction: bool = True
    positive: Literal["explicit", "implied", "both"] = "both"
    labels: Sequence[str] | None = None
    scores: Sequence[float] | None = None

    def __call__(self, tables: Sequence[Rows]) -> Rows:
        """Return the first sentence of each row; of labelled pairs, each premise once."""
        return self.scheme(tables, self.roles)(tables)

    def scheme(
        self, tables: Sequence[Rows], wanted: Collection[str], key: str = "data.train"
    ) -> RoleRows:
        """Return the scheme that makes rows with the wanted roles or, if none are given, keeps the
        roles of the files.

        Args:
            tables: the user's files.
            wanted: the roles that a method trains on.
            key: the config key of the files, for messages.

        Raises:
            DataError: if files cannot be combined, or are test sets.
        """
        from lightning_cse.data.implicit_pairs import ImplicitPairs, INLIImplicitPairs

        kinds = {layout_of(rows.names) or "sentences" for rows in tables}

        if len(kinds) > 1 and kinds & _ALONE:
            found = "; ".join(f"{rows.origin} has {', '.join(rows.names)}" for rows in tables)
            raise DataError(f"{key}: files of these layouts cannot be trained on together: {found}")

        with_targets = self._with_targets(kinds, wanted)
        if with_targets is not None:
            return with_targets

        for rows in tables:
            if "score" in rows.names and layout_of(rows.names) == "sentence pairs":
                raise DataError(
                    f"{key}: {rows.origin}: pairs with a score are for a method that takes scores "
                    "(+experiment=sbert_regression), or are a test set (+suite=own own.sts=FILE); "
                    "to train on all pairs: "
                    '"data.columns={anchor: sentence1, positive: sentence2}"'
                )

        if set(wanted) == set(self.roles) or kinds <= {"sentences", "unlabelled pairs"}:
            return Sentences(distinct="labelled pairs" in kinds)

        if kinds == {"implicit pairs"}:
            return ImplicitPairs()

        if kinds != {"INLI"}:
            names = {name for rows in tables for name in rows.names}
            labelled = [rows for rows in tables if "label" in rows.names]
            for rows in labelled:
                names.update(rows.values("label").unique().to_pylist())

            contradicted = self.contradiction and not names.isdisjoint(TRAINED[2:] + TRIPLET[2:])

            return NLITriplets(self.pairing, self.seed, contradicted)

        if set(wanted) & set(PAIR_SENTENCES):
            return INLIImplicitPairs(explicit=self.positive, seed=self.seed)

        if {"positive", "entailment"}.isdisjoint(wanted):
            return INLIQuadruples()

        return INLITriplets(self.positive)

    def _with_targets(self, kinds: Collection[str], wanted: Collection[str]) -> RoleRows | None:
        """Return the scheme of rows with labels or scores, if these roles and layouts have them."""
        from lightning_cse.data.written import ScoredTriplets

        if set(wanted) == set(ScoredPairs.roles):
            return ScoredPairs() if self.scores is None else ScoredPairs(self.scores)

        if set(wanted) == set(LabelledPairs.roles):
            return LabelledPairs() if self.labels is None else LabelledPairs(self.labels)

        if set(kinds) == {"scored triplets"} and set(wanted) == set(TRAINED):
            return ScoredTriplets()

        return None
