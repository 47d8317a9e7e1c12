"""Turn the user's own files into training rows, by the scheme that their columns and the method
call for.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, Literal

from lightning_cse.data.columns import layout_of
from lightning_cse.data.implicit_pairs import ImplicitPairs, INLIImplicitPairs
from lightning_cse.data.parsers import PAIR_SENTENCES
from lightning_cse.data.roles import (
    TRAINED,
    INLIQuadruples,
    INLITriplets,
    NLITriplets,
    RoleRows,
    Sentences,
)
from lightning_cse.data.rows import Rows
from lightning_cse.errors import DataError

# The layouts that cannot be mixed with others.
_ALONE: Final = {"sentences", "unlabelled pairs", "implicit pairs", "INLI"}


@dataclass(frozen=True)
class OwnRows:
    """Rows of the user's own files, in the roles that a method takes.

    - INLI's columns: quadruples for DualCSE, implicit pairs for ImpScore, else triplets
      (`INLITriplets`);
    - labelled pairs: triplets if some are contradictions, else the entailed pairs (`NLITriplets`);
    - plain sentences, pairs, triplets, LLM rows and implicit pairs: as they are.

    ``pairing``, ``seed`` and ``contradiction`` are those of `NLITriplets`, ``positive`` that of
    `INLITriplets`.
    """

    roles: ClassVar[tuple[str, ...]] = TRAINED[:1]
    pairing: Literal["first", "random"] = "first"
    seed: int = 0
    contradiction: bool = True
    positive: Literal["explicit", "implied", "both"] = "both"

    def __call__(self, tables: Sequence[Rows]) -> Rows:
        """Return the first sentence of each row; of labelled pairs, each premise once."""
        return self.scheme(tables, self.roles)(tables)

    def scheme(
        self,
        tables: Sequence[Rows],
        wanted: Collection[str],
        key: str = "data.train",
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
        kinds = {layout_of(rows.names) or "sentences" for rows in tables}

        if len(kinds) > 1 and kinds & _ALONE:
            found = "; ".join(f"{rows.origin} has {', '.join(rows.names)}" for rows in tables)
            raise DataError(f"{key}: files of these layouts cannot be trained on together: {found}")

        for rows in tables:
            _refuse_test_sets(rows, key)

        if set(wanted) == set(self.roles) or kinds <= {"sentences", "unlabelled pairs"}:
            return Sentences(distinct="labelled pairs" in kinds)

        if kinds == {"implicit pairs"}:
            return ImplicitPairs()

        if kinds != {"INLI"}:
            contradicted = self.contradiction and any(map(_has_contradictions, tables))
            return NLITriplets(self.pairing, self.seed, contradicted)

        if set(wanted) & set(PAIR_SENTENCES):
            return INLIImplicitPairs(explicit=self.positive, seed=self.seed)

        if {"positive", "entailment"}.isdisjoint(wanted):
            return INLIQuadruples()

        return INLITriplets(self.positive)


def _has_contradictions(rows: Rows) -> bool:
    labels = rows.unique("label") if "label" in rows.names else ()
    return not {"negative", "contradiction"}.isdisjoint((*rows.names, *labels))


def _refuse_test_sets(rows: Rows, key: str) -> None:
    """Raise a DataError for pairs with a score or with the labels 1 and 0."""
    if "score" in rows.names and layout_of(rows.names) == "sentence pairs":
        raise DataError(
            f"{key}: {rows.origin}: pairs with a score are a test set (+suite=own own.sts=FILE); "
            'to train on all pairs: "data.columns={anchor: sentence1, positive: sentence2}"'
        )
