"""Training rows of ImpScore: an implicit sentence with an explicit one of the same meaning and a
mismatched one.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import pyarrow as pa

from lightning_cse.data.parsers import PAIR_SENTENCES
from lightning_cse.data.roles import POSITIVES, interleaved, made_of, with_roles
from lightning_cse.data.rows import Rows


@dataclass(frozen=True)
class ImplicitPairs:
    """Pairs of ImpScore's authors: a positive pair with the same meaning, and a negative pair that
    does not match.
    """

    roles: ClassVar[tuple[str, ...]] = PAIR_SENTENCES
    by_row: ClassVar[bool] = True

    def __call__(self, tables: Sequence[Rows]) -> Rows:
        """Return the rows as they are: the roles are columns of the pair file."""
        rows = Rows.cat(tables)
        columns = dict(zip(self.roles, self.roles, strict=True))

        return made_of(rows.renamed(**columns), range(len(rows)))


@dataclass(frozen=True)
class INLIImplicitPairs:
    """INLI as pairs of ImpScore: the premise is the implicit sentence, and an entailment is the
    explicit one.

    The negative pair is the premise with another explicit sentence, chosen by ``mismatched``:

    - ``other_premise``: the same kind of entailment of another premise in the split, drawn by
      ``seed``, as Wang et al. pair sentences that do not match; each is drawn once if no premise or
      hypothesis is repeated;
    - ``contradiction``, ``neutral``: the premise's own hypothesis of that kind.

    ``explicit="both"`` makes two rows from each premise. DualCSE trains its baseline "ImpScore
    (INLI)" on such pairs; how it makes them is not known.
    """

    roles: ClassVar[tuple[str, ...]] = PAIR_SENTENCES
    explicit: Literal["explicit", "implied", "both"] = "both"
    mismatched: Literal["other_premise", "contradiction", "neutral"] = "other_premise"
    seed: int = 0

    def __call__(self, tables: Sequence[Rows]) -> Rows:
        """Return one or two rows per premise, but none with a missing sentence."""
        kinds = POSITIVES[self.explicit]
        own = () if self.mismatched == "other_premise" else (self.mismatched,)
        rows = with_roles(tables, ("premise", *kinds, *own))
        premise = rows.values("premise")
        variants = []

        for kind in kinds:
            explicit = rows.values(kind)
            other = rows.values(own[0]) if own else _of_another(premise, explicit, self.seed)
            columns = zip(self.roles, (premise, explicit, premise, other), strict=True)
            variants.append(rows.with_columns(**dict(columns)))

        pairs, numbers = interleaved(variants, self.roles)
        dropped = {"no pair": len(rows) - len(np.unique(numbers))}

        return made_of(pairs.dropping(dropped), numbers)


def _of_another(
    premises: pa.ChunkedArray, explicit: pa.ChunkedArray, seed: int
) -> list[str | None]:
    """Return for each row an explicit sentence of the next premise, in a circle, that the row's own
    premise lacks.
    """
    sentences = explicit.to_pylist()
    rows_of: dict[str, list[int]] = {}

    for row, premise in enumerate(premises.to_pylist()):
        if sentences[row] is not None:
            rows_of.setdefault(premise, []).append(row)

    circle = list(rows_of)
    random.Random(f"{seed}").shuffle(circle)  # noqa: S311 - a choice of rows, not a secret

    others: list[str | None] = [None] * len(sentences)

    for place, premise in enumerate(circle):
        own = {sentences[row] for row in rows_of[premise]}

        for number, row in enumerate(rows_of[premise]):
            for step in range(1, len(circle)):
                rows = rows_of[circle[(place + step) % len(circle)]]
                candidate = sentences[rows[number % len(rows)]]

                if candidate not in own:
                    others[row] = candidate
                    break

    return others
