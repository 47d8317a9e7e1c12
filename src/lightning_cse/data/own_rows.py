"""Turn the user's own files into training rows, by the scheme that their columns and the method call for."""

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

# The roles that some scheme makes from a layout. The other layouts are pairs or triplets, and can be mixed.
_GIVE: Final = {
    "sentences": TRAINED[:1],
    "unlabelled pairs": TRAINED[:1],
    "implicit pairs": PAIR_SENTENCES,
    "INLI": (*INLIQuadruples.roles, *PAIR_SENTENCES, *TRIPLET, *TRAINED),
}


@dataclass(frozen=True)
class OwnRows:
    """Rows of the user's own files, in the roles that a method takes.

    - INLI's columns: quadruples for DualCSE, implicit pairs for ImpScore, else triplets (`INLITriplets`);
    - labelled pairs: triplets if some are contradictions, else the entailed pairs (`NLITriplets`);
    - plain sentences, pairs, triplets, LLM rows and implicit pairs: as they are.

    ``pairing``, ``seed`` and ``contradiction`` are those of `NLITriplets`, ``positive`` that of `INLITriplets`.
    """

    roles: ClassVar[tuple[str, ...]] = TRAINED[:1]
    pairing: Literal["first", "random", "zip", "cycle", "product"] = "first"
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
        """Return the scheme that makes rows with the wanted roles or, if none are given, keeps the roles of the files.

        Files that do not give a wanted role are a DataError. Of the optional roles, only the negative may be missing;
        those of INLI may be null.
        """
        kinds = {layout_of(rows.names) or "sentences" for rows in tables}
        path, names = tables[0].origin, ", ".join(tables[0].names)
        if len(kinds) > 1 and kinds & _GIVE.keys():
            found = "; ".join(f"{rows.origin} has {', '.join(rows.names)}" for rows in tables)
            raise DataError(f"{key}: files of these layouts cannot be trained on together: {found}")
        for rows in tables:
            if "score" in rows.names and layout_of(rows.names) == "sentence pairs":
                pairs = override("data.columns", {"anchor": "sentence1", "positive": "sentence2"})
                raise DataError(
                    f"{key}: {rows.origin}: sentence pairs with a score are a test set: evaluate on them with "
                    f"+suite=own own.sts={rows.origin}; to train on all of them as positive pairs: {pairs}"
                )
        columns = {name for rows in tables for name in rows.names}
        labels = {
            label for rows in tables if "label" in rows.names for label in rows.unique("label")
        }
        if {"0", "1"} & labels:
            raise DataError(
                f"{key}: {path}: labels 1 and 0 are for test sets only; write entailment, not_entailment"
            )
        contradicted = self.contradiction and bool(
            {"negative", "contradiction"} & (columns | labels)
        )
        kind, most = next(iter(kinds)), 3 if contradicted else 2
        paired = (
            *TRIPLET[:most],
            *TRAINED[:most],
            *(LLM_SENTENCES if kinds == {"LLM rows"} else ()),
        )
        there = set(_GIVE.get(kind, paired))
        if lacking := [
            role
            for role in wanted
            if role not in there and not (role == "negative" and role in optional)
        ]:
            positive = override("data.columns", {"anchor": "premise", "positive": "hypothesis"})
            hint = (
                f"\n  to train on all pairs as positive ones: {positive}"
                if kind == "unlabelled pairs"
                else ""
            )
            raise DataError(
                f"{key}: {path}: the method trains on {' and '.join(lacking)}, which these columns do not give: "
                f"{names}{hint}"
            )
        if set(wanted) == set(self.roles) or kind in ("sentences", "unlabelled pairs"):
            return Sentences(distinct="labelled pairs" in kinds)
        if kind == "implicit pairs":
            return ImplicitPairs()
        if kind != "INLI":
            return NLITriplets(pairing=self.pairing, seed=self.seed, contradiction=contradicted)
        if set(PAIR_SENTENCES) & set(wanted):
            return INLIImplicitPairs(explicit=self.positive, seed=self.seed)
        return (
            INLITriplets(self.positive)
            if {"positive", "entailment"} & set(wanted)
            else INLIQuadruples()
        )
