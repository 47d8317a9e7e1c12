"""Training rows of ImpScore: an implicit sentence with an explicit one of the same meaning and a mismatched one."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from lightning_cse.data.parsers import PAIR_SENTENCES
from lightning_cse.data.roles import POSITIVES, made_of, source_of, with_roles
from lightning_cse.data.rows import Rows
from lightning_cse.errors import DataError


@dataclass(frozen=True)
class ImplicitPairs:
    """Pairs of ImpScore's authors: a positive pair with the same meaning, and a negative pair that does not match."""

    roles: ClassVar[tuple[str, ...]] = PAIR_SENTENCES

    def __call__(self, tables: Sequence[Rows]) -> Rows:
        """Return the rows as they are: the roles are columns of the pair file."""
        rows = Rows.cat(tables)
        sentences = {role: rows.values(role) for role in self.roles}
        return made_of(rows.with_columns(**sentences, **source_of(rows)), np.arange(len(rows)))


@dataclass(frozen=True)
class INLIImplicitPairs:
    """INLI as pairs of ImpScore: the premise is the implicit sentence, and an entailment is the explicit one.

    The negative pair is the premise with another explicit sentence, chosen by ``mismatched``:

    - ``other_premise``: the same kind of entailment of another premise in the split, drawn by ``seed``, as Wang et al.
      pair sentences that do not match; each is drawn once if no premise or hypothesis is repeated;
    - ``contradiction``, ``neutral``: the premise's own hypothesis of that kind.

    ``explicit="both"`` makes two rows from each premise. DualCSE trains its baseline "ImpScore (INLI)" on such pairs;
    how it makes them is not known.
    """

    roles: ClassVar[tuple[str, ...]] = PAIR_SENTENCES
    explicit: Literal["explicit", "implied", "both"] = "both"
    mismatched: Literal["other_premise", "contradiction", "neutral"] = "other_premise"
    seed: int = 0

    def __call__(self, tables: Sequence[Rows]) -> Rows:
        """Return one or two rows per premise, but none with a missing sentence; no row at all is a DataError."""
        mismatched = () if self.mismatched == "other_premise" else (self.mismatched,)
        rows = with_roles(tables, ("premise", *POSITIVES[self.explicit], *mismatched))
        premise = rows.column("premise")
        kinds = {kind: rows.column(kind) for kind in POSITIVES[self.explicit]}
        if self.mismatched == "other_premise":
            others = {
                kind: _of_another(premise, explicit, self.seed) for kind, explicit in kinds.items()
            }
        else:
            others = {kind: dict(enumerate(rows.column(self.mismatched))) for kind in kinds}
        made = [
            (row, premise[row], kinds[kind][row], others[kind][row])
            for row in range(len(rows))
            for kind in kinds
            if kinds[kind][row] is not None and others[kind].get(row) is not None
        ]
        if not made:
            raise DataError(
                f"{rows.origin}: no premise has an explicit sentence ({' or '.join(kinds)}) and a mismatched one "
                f"({self.mismatched}), so there is no pair to train on; set data.rows.explicit or data.rows.mismatched"
            )
        used, implicit, explicit, other = zip(*made, strict=True)
        sentences = dict(zip(self.roles, (implicit, explicit, implicit, other), strict=True))
        chosen = rows.select(used)
        pairs = chosen.with_columns(**sentences, **source_of(chosen))
        return made_of(pairs.dropping({"no pair": len(rows) - len(set(used))}), used)


def _of_another(premise: list[str], explicit: list[str | None], seed: int) -> dict[int, str]:
    """Return for each row an explicit sentence of the next premise, in a circle, that the row's own premise lacks."""
    own: dict[str, dict[int, str]] = {}
    for row, (implicit, sentence) in enumerate(zip(premise, explicit, strict=True)):
        if sentence is not None:
            own.setdefault(implicit, {})[row] = sentence
    circle = list(own)
    random.Random(f"{seed}").shuffle(circle)  # noqa: S311 - a choice of rows, not a secret
    others: dict[int, str] = {}
    for place, implicit in enumerate(circle):
        belongs = set(own[implicit].values())
        for number, row in enumerate(own[implicit]):
            for step in range(1, len(circle)):
                there = list(own[circle[(place + step) % len(circle)]].values())
                if there[number % len(there)] not in belongs:
                    others[row] = there[number % len(there)]
                    break
    return others
