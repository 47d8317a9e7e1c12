"""How people's own files become training rows: by the scheme that their columns and the method call for."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, Literal

from lightning_cse.data.columns import layout_of, override
from lightning_cse.data.implicit_pairs import ImplicitPairs, INLIImplicitPairs
from lightning_cse.data.parsers import LLM_SENTENCES, PAIR_SENTENCES
from lightning_cse.data.roles import TRAINED, TRIPLET, INLIQuadruples, INLITriplets, NLITriplets, RoleRows, Sentences
from lightning_cse.data.rows import Rows
from lightning_cse.errors import DataError

EXPERIMENTS: Final = {
    "simcse_unsup": TRAINED[:1],
    "ngcse_wiki_dropout": TRAINED[:1],
    "simcse_sup": TRAINED[:2],
    "ngcse_nli_sup": TRAINED[:2],
    "gausscse_ent": TRIPLET[:2],
    "gausscse": TRIPLET,
    "ngcse_nli_nli": TRAINED,
    "ngcse_wiki_sts": LLM_SENTENCES,
    "ngcse_wiki_sts_ht": LLM_SENTENCES,
    "dualcse_cross": INLIQuadruples.roles,
    "dualgauss": INLIQuadruples.roles,
    "impscore": PAIR_SENTENCES,
}
"""One or two experiments of each kind, and the roles that a file must have for them."""


_PAIRED: Final = ("labelled pairs", "unlabelled pairs", "NLI triplets", "triplets", "sentence pairs", "LLM rows")
"""Layouts whose files can be trained on together, as pairs or triplets."""


@dataclass(frozen=True)
class OwnRows:
    """Rows of people's own files, in the roles that a method takes.

    - INLI's columns: quadruples for DualCSE, implicit pairs for ImpScore, else triplets (`INLITriplets`);
    - labelled pairs: triplets if some are contradictions, else the entailed pairs (`NLITriplets`);
    - plain sentences, pairs, triplets, LLM rows and implicit pairs: as they are.

    ``pairing`` and ``seed`` are those of `NLITriplets`, ``positive`` that of `INLITriplets`.
    """

    roles: ClassVar[tuple[str, ...]] = TRAINED[:1]
    pairing: Literal["first", "random", "zip", "cycle", "product"] = "first"
    seed: int = 0
    positive: Literal["explicit", "implied", "both"] = "both"

    def __call__(self, tables: Sequence[Rows]) -> Rows:
        """Return the sentences alone: the first of each row, and of labelled pairs each premise once."""
        return self.scheme(tables, self.roles)(tables)

    def scheme(self, tables: Sequence[Rows], wanted: Collection[str], optional: Collection[str] = ()) -> RoleRows:
        """Return the scheme that makes rows with the wanted roles; without any, one that keeps what the files have.

        A role that is neither there nor optional is a DataError with the experiments that the files do fit.
        """
        kinds = {layout_of(rows.names) or "sentences" for rows in tables}
        if len(kinds) > 1 and not kinds.issubset(_PAIRED):
            found = "; ".join(f"{rows.origin}: {', '.join(rows.names)}" for rows in tables)
            raise DataError(f"files of these layouts cannot be trained on together: {found}")
        if scored := [rows for rows in tables if "score" in rows.names]:
            pairs = override("data.columns", {"anchor": "sentence1", "positive": "sentence2"})
            raise DataError(
                f"{scored[0].origin}: sentence pairs with a score are a test set: evaluate on them with +suite=own "
                f"own.sts={scored[0].origin}; to train on all of them as positive pairs: {pairs}"
            )
        triplets = any({"negative", "contradiction"} & {*rows.names, *_labels(rows)} for rows in tables)
        there = _roles(kinds, triplets=triplets)
        lacking = [role for role in wanted if role not in there and not (role == "negative" and role in optional)]
        if lacking:
            fits = [name for name, needed in EXPERIMENTS.items() if there.issuperset(needed)]
            raise DataError(
                f"{tables[0].origin}: the method trains on {' and '.join(lacking)}, which these columns do not give: "
                f"{', '.join(tables[0].names)}\n  experiments that they fit: {', '.join(fits)}"
            )
        alone = set(wanted) == set(self.roles) and "labelled pairs" not in kinds
        if alone or kinds == {"sentences"}:
            return Sentences()
        if "unlabelled pairs" in kinds:
            pairs = override("data.columns", {"anchor": "premise", "positive": "hypothesis"})
            raise DataError(
                f"{tables[0].origin}: pairs without a label; to train on all of them as positive pairs: {pairs}"
            )
        if kinds == {"implicit pairs"}:
            return ImplicitPairs()
        if kinds != {"INLI"}:
            return NLITriplets(pairing=self.pairing, seed=self.seed, contradiction=triplets)
        if set(PAIR_SENTENCES) & set(wanted):
            return INLIImplicitPairs(explicit=self.positive, seed=self.seed)
        return INLITriplets(self.positive) if {"positive", "entailment"} & set(wanted) else INLIQuadruples()


def _labels(rows: Rows) -> list[str]:
    return list(rows.table.column("label").unique().to_pylist()) if "label" in rows.names else []


def _roles(kinds: Collection[str], *, triplets: bool) -> set[str]:
    """Return the roles that some scheme makes of files of these layouts."""
    if "implicit pairs" in kinds:
        return set(PAIR_SENTENCES)
    if "sentences" in kinds:
        return {"anchor"}
    if "INLI" in kinds:
        return {*INLIQuadruples.roles, *PAIR_SENTENCES, *TRIPLET, *TRAINED}
    roles = {*TRIPLET[: 3 if triplets else 2], *TRAINED[: 3 if triplets else 2]}
    return roles | {"intermediate"} if set(kinds) == {"LLM rows"} else roles
