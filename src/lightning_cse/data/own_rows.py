"""The user's own files, in the roles that a method takes."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from datasets import Dataset

from lightning_cse.data.columns import PAIR_SENTENCES, layout_of
from lightning_cse.data.implicit_pairs import ImplicitPairs, INLIImplicitPairs
from lightning_cse.data.roles import (
    TRAINED,
    TRIPLET,
    INLIQuadruples,
    INLITriplets,
    LabelledPairs,
    NLITriplets,
    RoleRows,
    ScoredPairs,
    Sentences,
)
from lightning_cse.data.rows import Account, names_of, origin_of, values
from lightning_cse.data.written import ScoredTriplets
from lightning_cse.errors import DataError

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

    def __call__(self, tables: Sequence[Dataset], account: Account) -> Dataset:
        """Return the first sentence of each row; of labelled pairs, each premise once."""
        return self.scheme(tables, self.roles)(tables, account)

    def scheme(
        self, tables: Sequence[Dataset], roles: Collection[str], key: str = "data.train"
    ) -> RoleRows:
        """Return the scheme that makes rows with these roles or, if none are given, keeps the
        roles of the files.

        Args:
            tables: the user's files.
            roles: the roles that a method trains on.
            key: the config key of the files, for messages.

        Raises:
            DataError: if files cannot be combined, or are test sets.
        """
        layouts = {layout_of(names_of(rows)) or "sentences" for rows in tables}

        if len(layouts) > 1 and layouts & _ALONE:
            listing = "; ".join(
                f"{origin_of(rows)} has {', '.join(names_of(rows))}" for rows in tables
            )
            raise DataError(
                f"{key}: files of these layouts cannot be trained on together: {listing}"
            )

        with_targets = self._with_targets(layouts, roles)
        if with_targets is not None:
            return with_targets

        for rows in tables:
            if "score" in names_of(rows) and layout_of(names_of(rows)) == "sentence pairs":
                raise DataError(
                    f"{key}: {origin_of(rows)}: pairs with a score are for a method that takes scores "
                    "(+experiment=sbert_regression), or are a test set (+suite=own own.sts=FILE); "
                    "to train on all pairs: "
                    '"data.columns={anchor: sentence1, positive: sentence2}"'
                )

        if set(roles) == set(self.roles) or layouts <= {"sentences", "unlabelled pairs"}:
            return Sentences(distinct="labelled pairs" in layouts)

        if layouts == {"implicit pairs"}:
            return ImplicitPairs()

        if layouts != {"INLI"}:
            names = {name for rows in tables for name in names_of(rows)}
            labelled = [rows for rows in tables if "label" in names_of(rows)]
            for rows in labelled:
                names.update(values(rows, "label").unique().to_pylist())

            contradicted = self.contradiction and not names.isdisjoint(TRAINED[2:] + TRIPLET[2:])

            return NLITriplets(self.pairing, self.seed, contradicted)

        if set(roles) & set(PAIR_SENTENCES):
            return INLIImplicitPairs(explicit=self.positive, seed=self.seed)

        if {"positive", "entailment"}.isdisjoint(roles):
            return INLIQuadruples()

        return INLITriplets(self.positive)

    def _with_targets(self, layouts: Collection[str], roles: Collection[str]) -> RoleRows | None:
        """Return the scheme of rows with labels or scores, if these roles and layouts have them."""
        if set(roles) == set(ScoredPairs.roles):
            return ScoredPairs() if self.scores is None else ScoredPairs(self.scores)

        if set(roles) == set(LabelledPairs.roles):
            return LabelledPairs() if self.labels is None else LabelledPairs(self.labels)

        if set(layouts) == {"scored triplets"} and set(roles) == set(TRAINED):
            return ScoredTriplets()

        return None
