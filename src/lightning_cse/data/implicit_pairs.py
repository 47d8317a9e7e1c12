"""Training rows of ImpScore: an implicit sentence, with an explicit one of the same meaning and with another one."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from lightning_cse.data.parsers import PAIR_SENTENCES as SENTENCES
from lightning_cse.data.roles import POSITIVES, TrainingRows
from lightning_cse.data.rows import Rows
from lightning_cse.errors import ConfigError, DataError, did_you_mean

MISMATCHED = ("other_premise", "contradiction", "neutral")


@dataclass(frozen=True)
class ImplicitPairs:
    """Pairs of ImpScore's authors: the positive pair, of one meaning, and the negative pair, which does not match."""

    roles: ClassVar[tuple[str, ...]] = SENTENCES

    def __call__(self, tables: Sequence[Rows]) -> TrainingRows:
        """Return the rows as they are: the roles are columns of the pair file."""
        rows = Rows.cat(tables)
        pairs = rows.with_columns(**{role: rows.column(role) for role in self.roles})
        return TrainingRows(pairs, [(row,) for row in range(len(rows))])


@dataclass(frozen=True)
class INLIImplicitPairs:
    """INLI as pairs of ImpScore: the premise is the implicit sentence, an entailment of it the explicit one.

    The negative pair is the premise with another explicit sentence, as ``mismatched`` says:

    - ``other_premise``: the same kind of entailment, of another premise, drawn by ``seed``; every one is drawn once
      where no premise or hypothesis is repeated. Wang et al. pair sentences that do not match so. Splits are drawn by
      themselves, those that are held out too (but a ``data.held_out_share`` is held out of what was drawn);
    - ``contradiction``, ``neutral``: the premise's own hypothesis of that kind.

    DualCSE trains its baseline "ImpScore (INLI)" on such pairs; how it makes them is not known.

    Args:
        explicit: the entailment in the positive pair: ``explicit``, ``implied``, or ``both`` (two rows a premise).
        mismatched: see above.
        seed: draws for ``other_premise``; the same pairs for all training seeds.

    Raises:
        ConfigError: for any other ``explicit`` or ``mismatched``.
    """

    roles: ClassVar[tuple[str, ...]] = SENTENCES
    explicit: str = "both"
    mismatched: str = "other_premise"
    seed: int = 0

    def __post_init__(self) -> None:
        faults = []
        for key, value, known in (
            ("explicit", self.explicit, tuple(POSITIVES)),
            ("mismatched", self.mismatched, MISMATCHED),
        ):
            if value not in known:
                near = did_you_mean(value, known)
                faults.append(f"data.rows.{key}: {value!r} is not one of {', '.join(known)}{near}")
        if faults:
            raise ConfigError(faults)

    def __call__(self, tables: Sequence[Rows]) -> TrainingRows:
        """Return one row, or two, a premise; one that lacks a sentence makes none.

        Raises:
            DataError: if no row is left, or there is one premise only to draw another one's entailment from.
        """
        rows = Rows.cat(tables)
        premise = rows.column("premise")
        kinds = {kind: rows.column(kind) for kind in POSITIVES[self.explicit]}
        others = {kind: self._others(premise, explicit, rows) for kind, explicit in kinds.items()}
        sources = [
            (row, kind)
            for row in range(len(rows))
            for kind in kinds
            if kinds[kind][row] is not None and others[kind].get(row) is not None
        ]
        if not sources:
            files = ", ".join(file.name for file in rows.files) or "rows"
            raise DataError(
                f"{files}: no premise has an explicit sentence ({' or '.join(kinds)}) and a mismatched one "
                f"({self.mismatched}), so there is no pair to train on; set data.rows.explicit or data.rows.mismatched"
            )
        used = [row for row, _ in sources]
        chosen = rows.select(used).recounted(_account(rows, len(set(used))))
        implicit = [premise[row] for row in used]
        explicit, mismatched = ([of[kind][row] for row, kind in sources] for of in (kinds, others))
        pairs = chosen.with_columns(
            pos_implicit=implicit, pos_explicit=explicit, neg_implicit=implicit, neg_explicit=mismatched
        )
        return TrainingRows(pairs, [(row,) for row in used])

    def _others(self, premise: list[str], explicit: list[str | None], rows: Rows) -> Mapping[int, str | None]:
        """Return for each row an explicit sentence that does not belong to its premise."""
        if self.mismatched == "other_premise":
            return _of_another(premise, explicit, self.seed)
        return dict(enumerate(rows.column(self.mismatched)))


def _of_another(premise: list[str], explicit: list[str | None], seed: int) -> dict[int, str]:
    """Return for each row the explicit sentence of another premise.

    The premises stand in a circle, in an order that the seed decides, and each takes its neighbour's sentence, or that
    of the next one whose is not its own.
    """
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


def _account(rows: Rows, used: int) -> dict[str, int]:
    """Return the account of rows of which so many are used."""
    dropped = {"dropped: no pair": len(rows) - used} if used < len(rows) else {}
    return {**rows.counts, **dropped}
