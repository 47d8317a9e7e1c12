"""Turn the rows of a corpus into training rows with one column per role."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from datasets import Dataset

from lightning_cse.data.columns import NLI_LABELS
from lightning_cse.data.rows import (
    MADE_OF,
    Account,
    beside,
    check_column,
    concatenate,
    count_dropped,
    distinct,
    has,
    hashes,
    made_of,
    renamed,
    values,
    where,
    with_columns,
    with_constant,
)
from lightning_cse.errors import ConfigError, DataError

# The column with the label or score of each row, for methods that learn from one.
TARGET = "target"
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


class RoleRows(Protocol):
    """Turns the rows of a corpus into training rows with one column per role."""

    @property
    def roles(self) -> tuple[str, ...]: ...  # noqa: D102

    def __call__(self, tables: Sequence[Dataset], account: Account) -> Dataset:
        """Return the training rows; count in the account why rows of the tables are dropped.

        The columns ``file``, ``line`` and ``made_of``, the numbers of the rows that a training row
        is made of, go with the rows.
        """
        ...


def with_roles(tables: Sequence[Dataset], roles: Sequence[str]) -> Dataset:
    """Return the rows of several tables with all of these roles, the first of which is needed;
    others may be null.
    """
    for rows in tables:
        check_column(rows, roles[0])

    rows = concatenate(tables, fill=True)
    for role in roles:
        if role not in rows.column_names:
            rows = with_constant(rows, role, None)

    return rows


def interleaved(variants: Sequence[Dataset], roles: Sequence[str]) -> tuple[Dataset, np.ndarray]:
    """Return all variants of the first row, then all of the second one, ..., of those that have all
    of these roles, and the number of the row that each is a variant of.
    """
    rows = concatenate(variants)
    order = np.arange(len(rows)).reshape(len(variants), -1).T.ravel()
    order = order[has(rows, *roles)[order]]

    return rows.select(order), order % len(variants[0])


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

    def __call__(self, tables: Sequence[Dataset], account: Account) -> Dataset:
        """Return the rows as they are; a table without premises is a DataError."""
        rows = with_roles(tables, self.roles)
        used = np.flatnonzero(np.any([has(rows, role) for role in self.roles[1:]], axis=0))
        count_dropped(account, {"no entailment and no contradiction": len(rows) - len(used)})

        return rows.select(used)


@dataclass(frozen=True)
class INLITriplets:
    """INLI as triplets: premise, an entailment, contradiction; ``positive="both"`` makes two
    triplets per premise.

    The DualCSE paper does not say which entailment its baseline SimCSE (INLI) uses; with ``both``
    it sees the same sentences as DualCSE. Rows that lack the contradiction, or every chosen
    entailment, are dropped and counted.
    """

    roles: ClassVar[tuple[str, ...]] = TRIPLET
    positive: Literal["explicit", "implied", "both"] = "both"

    def __call__(self, tables: Sequence[Dataset], account: Account) -> Dataset:
        """Return one or two triplets per premise; a table without premises is a DataError."""
        entailments = POSITIVES[self.positive]
        rows = with_roles(tables, ("premise", *entailments, "contradiction"))
        variants = [_triplets(rows, "premise", name, "contradiction") for name in entailments]
        triplets, numbers = interleaved(variants, TRIPLET)
        contradicted = int(has(rows, "contradiction").sum())
        dropped = {
            "no contradiction": len(rows) - contradicted,
            "no entailment": contradicted - len(np.unique(numbers)),
        }
        count_dropped(account, dropped)

        return triplets


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

    pairing: Literal["first", "random"] = "first"
    seed: int = 0
    contradiction: bool = True

    @property
    def roles(self) -> tuple[str, ...]:
        """Premise, entailment, and contradiction unless it is left out."""
        return TRIPLET if self.contradiction else TRIPLET[:2]

    def __call__(self, tables: Sequence[Dataset], account: Account) -> Dataset:
        """Return the triplets, in the order in which their premises first appear."""
        parts = [self._ready(rows) for rows in tables if "hypothesis" not in rows.column_names]
        pairs = [rows for rows in tables if "hypothesis" in rows.column_names]

        if pairs:
            parts.append(self._from_pairs(concatenate(pairs), account))

        return concatenate(parts, fill=True)

    def _ready(self, rows: Dataset) -> Dataset:
        """Return the triplets, or pairs, that a table holds."""
        columns = rows.column_names
        ready = next((names for names in _READY if {*names[:2]} <= {*columns}), TRIPLET[:2])
        sentences = [name for name in ready if name in columns][: len(self.roles)]
        further = [name for name in columns if name.startswith("negative_") and self.contradiction]
        further += {"intermediate"}.intersection(columns)
        names = [*TRIPLET[: len(sentences)], *TRAINED[: len(sentences)], *further]

        return renamed(rows, **dict(zip(names, sentences * 2 + further, strict=True)))

    def _from_pairs(self, rows: Dataset, account: Account) -> Dataset:
        """Build triplets from labelled pairs, grouped by premise."""
        columns = {name: hashes(rows, name) for name in ("premise", "hypothesis")}
        pairs = pd.DataFrame(columns | {"label": values(rows, "label").to_pandas()})
        trained = pairs[pairs["label"].isin(self.roles)]
        unique = trained.drop_duplicates(["premise", "hypothesis"])
        count_dropped(account, _other_labels(pairs["label"], self.roles))
        count_dropped(account, {"repeated pair": len(trained) - len(unique)})

        in_order = pd.factorize(unique["premise"])[0]  # premises by their first appearance
        unique = unique.assign(premise=in_order, row=unique.index).sort_values(
            "premise", kind="stable"
        )

        if not self.contradiction:
            entailed = rows.select(unique["row"].to_numpy())
            return _triplets(entailed, "premise", "hypothesis")

        numbers = self._chosen(unique, account)
        first = renamed(rows, premise="premise", entailment="hypothesis").select(numbers[:, 0])
        second = rows.select_columns("hypothesis").select(numbers[:, 1])
        triplets = beside(first, second.rename_column("hypothesis", "contradiction"))

        if MADE_OF in rows.column_names:
            corpus_rows = pc.list_flatten(values(rows, MADE_OF)).to_numpy()[numbers]
            triplets = with_columns(triplets, made_of=made_of(corpus_rows))

        return _triplets(triplets, *TRIPLET)

    def _chosen(self, pairs: pd.DataFrame, account: Account) -> np.ndarray:
        """Return the rows of the entailment and of the contradiction of each premise that has both:
        (premises, 2).
        """
        rows = pairs.groupby(["premise", "label"])["row"]
        labels = list(TRIPLET[1:])
        counts = rows.size().unstack(fill_value=0).reindex(columns=labels, fill_value=0)
        is_complete = counts.all(axis=1)
        entailed, contradicted = counts[~is_complete].sum()
        dropped = {
            "premise without a contradiction": entailed,
            "premise without an entailment": contradicted,
            "not chosen": counts[is_complete].to_numpy().sum() - 2 * is_complete.sum(),
        }
        count_dropped(account, dropped)

        if self.pairing == "first":
            first = rows.first().unstack().reindex(columns=labels)
            return np.asarray(first[is_complete], np.int64)

        choices = rows.agg(list).unstack().reindex(columns=labels)[is_complete]
        chosen = []
        for entailments, contradictions in choices.to_numpy():
            # A choice of rows, not a secret.
            draw = random.Random(f"{self.seed} {entailments[0]}")  # noqa: S311
            chosen.append((draw.choice(entailments), draw.choice(contradictions)))

        return np.array(chosen, np.int64).reshape(-1, 2)


@dataclass(frozen=True)
class LabelledPairs:
    """Sentence pairs with one of several labels, such as all three of NLI.

    The target of a row is the number of its label in ``labels``; rows with another label are
    dropped and counted. The hypotheses of the first label are also in the column ``entailment``,
    for the alignment of pairs that mean the same. Rows are not grouped, and repeated pairs stay.
    """

    roles: ClassVar[tuple[str, ...]] = ("premise", "hypothesis")
    labels: Sequence[str] = NLI_LABELS[:3]

    def __call__(self, tables: Sequence[Dataset], account: Account) -> Dataset:
        """Return one row per pair; a table without labels is a DataError."""
        rows = concatenate(tables)
        labels = list(map(str, self.labels))
        count_dropped(account, _other_labels(values(rows, "label").to_pandas(), labels))
        targets = pc.index_in(values(rows, "label"), value_set=pa.array(labels))
        pairs = with_columns(
            renamed(rows, premise="premise", hypothesis="hypothesis"),
            entailment=_where(pc.equal(targets, 0), values(rows, "hypothesis")),
            target=targets.cast(pa.int64()),
        )

        return pairs.select(np.flatnonzero(has(pairs, TARGET)))


def targets_of(rows: Dataset, scores: Sequence[float]) -> pa.Array:
    """Return the scores of rows on the scale from 0 to 1, given the lowest and the highest one; one
    off the scale is a DataError.
    """
    lowest, highest = scores
    scored = values(rows, "score").to_numpy()
    wrong = np.flatnonzero((scored < lowest) | (scored > highest))
    if len(wrong):
        row = int(wrong[0])
        raise DataError(
            f"{where(rows, row)}: the score {scored[row]:g} is not between {lowest:g} and "
            f"{highest:g}: set data.rows.scores=[LOWEST,HIGHEST]"
        )

    return pa.array(((scored - lowest) / (highest - lowest)).astype(np.float32))


@dataclass(frozen=True)
class ScoredPairs:
    """Sentence pairs with a score of their similarity.

    The target of a row is its score on the scale from 0 to 1; ``scores`` are the lowest and the
    highest possible one. The second sentences of pairs with a target of at least ``similar`` are
    also in the column ``positive``, for the alignment of pairs that mean the same.
    """

    roles: ClassVar[tuple[str, ...]] = ("sentence1", "sentence2")
    scores: Sequence[float] = (0.0, 1.0)
    similar: float = 0.8

    def __post_init__(self) -> None:
        if len(self.scores) != 2 or self.scores[0] >= self.scores[1]:
            raise ConfigError(
                [f"data.rows.scores: must be [lowest, highest], got {list(self.scores)}"]
            )

    def __call__(self, tables: Sequence[Dataset], account: Account) -> Dataset:
        """Return one row per pair; a table without scores, or one off the scale, is a DataError."""
        rows = concatenate(tables)
        targets = targets_of(rows, self.scores)
        is_similar = pc.greater_equal(targets, self.similar)

        return with_columns(
            renamed(rows, sentence1="sentence1", sentence2="sentence2"),
            positive=_where(is_similar, values(rows, "sentence2")),
            target=targets,
        )


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

    def __call__(self, tables: Sequence[Dataset], account: Account) -> Dataset:
        """Return one row per sentence."""
        anchors = []

        for rows in tables:
            sentences = renamed(rows, anchor=first_role(rows))
            second = next((name for name in SECOND if name in rows.column_names), None)
            if self.both and second is not None:
                sentences, _ = interleaved([sentences, renamed(rows, anchor=second)], ())

            anchors.append(sentences)

        rows = concatenate(anchors)
        if not self.distinct:
            return rows

        first = distinct(rows, "anchor")
        count_dropped(account, {"repeated sentence": len(rows) - len(first)})

        return rows.select(first)


def first_role(rows: Dataset) -> str:
    """Return the name of a row's first sentence; corpora differ."""
    return next((name for name in FIRST if name in rows.column_names), FIRST[0])


def _triplets(rows: Dataset, *columns: str) -> Dataset:
    """Return rows with a premise, an entailment and perhaps a contradiction, under the names of NLI
    and of contrastive learning.
    """
    names = [*TRIPLET[: len(columns)], *TRAINED[: len(columns)]]

    return renamed(rows, **dict(zip(names, columns * 2, strict=True)))


def _where(condition: pa.ChunkedArray | pa.Array, column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column of text where a condition holds, else null."""
    if isinstance(condition, pa.Array):
        condition = pa.chunked_array([condition])

    return pc.if_else(pc.fill_null(condition, False), column, pa.scalar(None, pa.string()))


def _other_labels(labels: pd.Series, trained: Sequence[str]) -> dict[str, int]:
    """Return how many pairs have each label that is not trained on, by the reason why they are
    dropped.
    """
    counts = labels[~labels.isin(trained)].value_counts()
    reasons = {"-": "no gold label"}

    return {reasons.get(label, f"label {label}"): count for label, count in counts.items()}
