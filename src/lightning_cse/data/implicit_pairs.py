"""Training rows of ImpScore: an implicit sentence with an explicit one of the same meaning and a
mismatched one.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from datasets import Dataset

from lightning_cse.data.columns import PAIR_SENTENCES
from lightning_cse.data.roles import POSITIVES, interleaved, with_roles
from lightning_cse.data.rows import Account, concatenate, count_dropped, renamed, with_columns


@dataclass(frozen=True)
class ImplicitPairs:
    """Pairs of ImpScore's authors: a positive pair with the same meaning, and a negative pair that
    does not match.
    """

    roles: ClassVar[tuple[str, ...]] = PAIR_SENTENCES

    def __call__(self, tables: Sequence[Dataset], account: Account) -> Dataset:
        """Return the rows as they are: the roles are columns of the pair file."""
        return renamed(concatenate(tables), **dict(zip(self.roles, self.roles, strict=True)))


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

    def __call__(self, tables: Sequence[Dataset], account: Account) -> Dataset:
        """Return one or two rows per premise, but none with a missing sentence."""
        entailments = POSITIVES[self.explicit]
        hypotheses = () if self.mismatched == "other_premise" else (self.mismatched,)
        rows = with_roles(tables, ("premise", *entailments, *hypotheses))
        variants = []

        for entailment in entailments:
            columns = ("premise", entailment, "premise", *(hypotheses or ("premise",)))
            variant = renamed(rows, **dict(zip(self.roles, columns, strict=True)))
            if not hypotheses:
                of_other_rows = _of_another(rows["premise"], rows[entailment], self.seed)
                variant = with_columns(variant, neg_explicit=of_other_rows)

            variants.append(variant)

        pairs, numbers = interleaved(variants, self.roles)
        count_dropped(account, {"no pair": len(rows) - len(np.unique(numbers))})

        return pairs


def _of_another(
    premises: Sequence[str], sentences: Sequence[str | None], seed: int
) -> list[str | None]:
    """Return for each row an explicit sentence of the next premise, in a circle, that the row's own
    premise lacks.
    """
    rows_of: dict[str, list[int]] = {}

    for row, premise in enumerate(premises):
        if sentences[row] is not None:
            rows_of.setdefault(premise, []).append(row)

    circle = list(rows_of)
    random.Random(f"{seed}").shuffle(circle)  # noqa: S311 - a choice of rows, not a secret

    of_others: list[str | None] = [None] * len(sentences)

    for position, premise in enumerate(circle):
        excluded = {sentences[row] for row in rows_of[premise]}

        for number, row in enumerate(rows_of[premise]):
            for step in range(1, len(circle)):
                rows = rows_of[circle[(position + step) % len(circle)]]
                candidate = sentences[rows[number % len(rows)]]

                if candidate not in excluded:
                    of_others[row] = candidate
                    break

    return of_others
