"""Turn the user's own files into training rows, by the scheme that their columns and the method
call for.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, Literal

from lightning_cse.data.columns import layout_of, override
from lightning_cse.data.implicit_pairs import ImplicitPairs, INLIImplicitPairs
from lightning_cse.data.parsers import LLM_SENTENCES, PAIR_SENTENCES
from lightning_cse.data.roles import (
    TRAINED,
    TRIPLET,
    INLIQuadruples,
    INLITriplets,
    NLITriplets,
    RoleRows,
    Sentences,
)
from lightning_cse.data.rows import Rows
from lightning_cse.errors import DataError

# The roles that some scheme makes from a layout. The other layouts are pairs or triplets, and can
# be mixed.
_GIVE: Final = {
    "sentences": TRAINED[:1],
    "unlabelled pairs": TRAINED[:1],
    "implicit pairs": PAIR_SENTENCES,
    "INLI": (*INLIQuadruples.roles, *PAIR_SENTENCES, *TRIPLET, *TRAINED),
}


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
        optional: Collection[str] = (),
        key: str = "data.train",
    ) -> RoleRows:
        """Return the scheme that makes rows with the wanted roles or, if none are given, keeps the
        roles of the files.

        Args:
            tables: the user's files.
            wanted: the roles that a method trains on.
            optional: those that may be missing: the negative, and any of INLI's, which may be null.
            key: the config key of the files, for messages.

        Raises:
            DataError: if files do not give a wanted role, cannot be combined, or are test sets.
        """
        kinds = {layout_of(rows.names) or "sentences" for rows in tables}

        if len(kinds) > 1 and kinds & _GIVE.keys():
            found = "; ".join(f"{rows.origin} has {', '.join(rows.names)}" for rows in tables)
            raise DataError(f"{key}: files of these layouts cannot be trained on together: {found}")

        for rows in tables:
            _refuse_test_sets(rows, key)

        contradicted = self.contradiction and any(map(_has_contradictions, tables))
        given = set(_given_roles(kinds, contradicted=contradicted))

        if "negative" in optional:
            given.add("negative")

        lacking = [role for role in wanted if role not in given]
        if lacking:
            raise DataError(
                f"{key}: {tables[0].origin}: the method trains on {' and '.join(lacking)}, "
                f"which these columns do not give: {', '.join(tables[0].names)}"
            )

        if set(wanted) == set(self.roles) or kinds <= {"sentences", "unlabelled pairs"}:
            return Sentences(distinct="labelled pairs" in kinds)

        if kinds == {"implicit pairs"}:
            return ImplicitPairs()

        if kinds == {"INLI"}:
            return self._of_inli(set(wanted))

        return NLITriplets(
            pairing=self.pairing,
            seed=self.seed,
            contradiction=contradicted,
        )

    def _of_inli(self, wanted: set[str]) -> RoleRows:
        if wanted & set(PAIR_SENTENCES):
            return INLIImplicitPairs(
                explicit=self.positive,
                seed=self.seed,
            )

        if wanted & {"positive", "entailment"}:
            return INLITriplets(self.positive)

        return INLIQuadruples()


def _given_roles(kinds: set[str], *, contradicted: bool) -> Sequence[str]:
    """Return the roles that some scheme makes from files of these layouts."""
    kind = next(iter(kinds))

    if kind in _GIVE:
        return _GIVE[kind]

    roles = (*TRIPLET, *TRAINED) if contradicted else (*TRIPLET[:2], *TRAINED[:2])

    return (*roles, *LLM_SENTENCES) if kinds == {"LLM rows"} else roles


def _has_contradictions(rows: Rows) -> bool:
    labels = rows.unique("label") if "label" in rows.names else ()
    return not {"negative", "contradiction"}.isdisjoint((*rows.names, *labels))


def _refuse_test_sets(rows: Rows, key: str) -> None:
    """Raise a DataError for pairs with a score or with the labels 1 and 0."""
    if "score" in rows.names and layout_of(rows.names) == "sentence pairs":
        pairs = override("data.columns", {"anchor": "sentence1", "positive": "sentence2"})
        raise DataError(
            f"{key}: {rows.origin}: pairs with a score are a test set "
            f"(+suite=own own.sts={rows.origin}); to train on all as positive pairs: {pairs}"
        )

    if "label" in rows.names and not {"0", "1"}.isdisjoint(rows.unique("label")):
        raise DataError(
            f"{key}: {rows.origin}: labels 1 and 0 are for test sets only; "
            "write entailment, not_entailment"
        )
