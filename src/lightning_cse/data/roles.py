"""How rows of a corpus become training rows with a column a role."""

from __future__ import annotations

import itertools
import random
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

from lightning_cse.data.rows import Rows
from lightning_cse.data.sources import LEAK, leaking
from lightning_cse.errors import ConfigError, DataError, did_you_mean

ANOTHER_ANCHOR = "\0another anchor"
"""Stands where a row waits for the anchor of another one, which is drawn once it is known who is held out."""

SOURCE = "source"
"""The column that says which source a row is from, by its number; there where sources have weights."""

TRIPLET = ("premise", "entailment", "contradiction")


@dataclass(frozen=True)
class TrainingRows:
    """Training rows, and for each the numbers of the corpus rows it is made of.

    ``own`` counts the leading rows whose first sentence the corpus has; None: all. Others were added to it, and what is
    drawn of the corpus, a hold-out say, must not depend on them.
    """

    rows: Rows
    sources: list[tuple[int, ...]]
    own: int | None = None

    def select(self, indices: Iterable[int]) -> TrainingRows:
        """Return the training rows of these numbers, which rise."""
        chosen = list(indices)
        own = None if self.own is None else sum(index < self.own for index in chosen)
        return TrainingRows(self.rows.select(chosen), [self.sources[index] for index in chosen], own)

    def without(self, pairs: set[str]) -> TrainingRows:
        """Return the training rows that have none of these sentence pairs; the account says how many were dropped."""
        leaks = leaking(self.rows, pairs)
        kept = self.select(row for row in range(len(self.rows)) if row not in leaks)
        return kept.counted(LEAK, self.used - kept.used)

    def counted(self, reason: str, dropped: int) -> TrainingRows:
        """Return the same rows with more corpus rows dropped in their account."""
        if not dropped:
            return self
        key = f"dropped: {reason}"
        counts = {**self.rows.counts, key: self.rows.counts.get(key, 0) + dropped}
        return TrainingRows(self.rows.recounted(counts), self.sources, self.own)

    @property
    def used(self) -> int:
        """The number of corpus rows in use."""
        return len({row for source in self.sources for row in source})


class RoleRows(Protocol):
    """How rows of a corpus become training rows with a column a role."""

    @property
    def roles(self) -> tuple[str, ...]:
        """The roles of a training row; a method may use some of them only."""
        ...

    def __call__(self, tables: Sequence[Rows]) -> TrainingRows:
        """Return the training rows of several corpora; no two corpus rows have one number."""
        ...


@dataclass(frozen=True)
class INLIQuadruples:
    """INLI as DualCSE trains on it: premise, explicit and implied entailment, contradiction.

    Rows of a user's own file may lack some of the three hypotheses, or its table a whole column; such a row is used
    with None in their place, and dropped and counted if it has none of them.
    """

    roles: ClassVar[tuple[str, ...]] = ("premise", "explicit_entailment", "implied_entailment", "contradiction")

    def __call__(self, tables: Sequence[Rows]) -> TrainingRows:
        """Return the rows as they are: the roles are columns of INLI.

        Raises:
            DataError: if a table has no premises or none of the three columns of hypotheses, or if no row is of use.
        """
        rows = _with_roles(tables, self.roles)
        hypotheses = zip(*(rows.column(role) for role in self.roles[1:]), strict=True)
        used = [row for row, found in enumerate(hypotheses) if any(sentence is not None for sentence in found)]
        if len(rows) and not used:
            raise DataError(
                f"{_files(rows)}: no row has an entailment or a contradiction, so there is nothing to train on"
            )
        if len(used) < len(rows):
            rows = rows.select(used, reason="no entailment and no contradiction")
        return TrainingRows(rows, [(row,) for row in used])


POSITIVES = {
    "explicit": ("explicit_entailment",),
    "implied": ("implied_entailment",),
    "both": ("explicit_entailment", "implied_entailment"),
}


@dataclass(frozen=True)
class INLITriplets:
    """INLI as triplets: premise, an entailment, contradiction.

    Rows of a user's own file that lack the contradiction, or all entailments that are asked for, make no triplet; they
    are dropped and counted.

    Args:
        positive: ``explicit``, ``implied``, or ``both`` (two triplets a premise). The DualCSE paper does not say which
            entailment its baseline SimCSE (INLI) has; with ``both`` it sees the same sentences as DualCSE.

    Raises:
        ConfigError: for any other positive.
    """

    roles: ClassVar[tuple[str, ...]] = TRIPLET
    positive: str = "both"

    def __post_init__(self) -> None:
        if self.positive not in POSITIVES:
            near = did_you_mean(self.positive, POSITIVES)
            raise ConfigError([f"data.rows.positive: {self.positive!r} is not one of {sorted(POSITIVES)}{near}"])

    def __call__(self, tables: Sequence[Rows]) -> TrainingRows:
        """Return one triplet, or two, a premise.

        Raises:
            DataError: if a table has no premises or neither of the other two, or if there is no triplet.
        """
        columns = POSITIVES[self.positive]
        rows = _with_roles(tables, ("premise", *columns, "contradiction"))
        entailments = list(zip(*(rows.column(name) for name in columns), strict=True))
        counts = dict(rows.counts)
        made: list[tuple[int, str]] = []
        for row, contradiction in enumerate(rows.column("contradiction")):
            found = [(row, sentence) for sentence in entailments[row] if sentence is not None]
            if contradiction is not None and found:
                made += found
            else:
                reason = f"dropped: no {'entailment' if contradiction is not None else 'contradiction'}"
                counts[reason] = counts.get(reason, 0) + 1
        if len(rows) and not made:
            raise DataError(
                f"{_files(rows)}: no row has a contradiction and {' or '.join(columns)}, so there is no triplet"
            )
        sources = [row for row, _ in made]
        repeated = rows.select(sources).recounted(counts)
        entailment = [sentence for _, sentence in made]
        triplets = _triplets(repeated, repeated.column("premise"), entailment, repeated.column("contradiction"))
        if SOURCE in rows.names:
            triplets = triplets.with_column(SOURCE, repeated.column(SOURCE))
        return TrainingRows(triplets, [(row,) for row in sources])


PAIRINGS = ("first", "random", "zip", "cycle", "product")


@dataclass(frozen=True)
class NLITriplets:
    r"""Sentence pairs of NLI as triplets: a premise, one of its entailments, one of its contradictions.

    Pairs are grouped by premise over all corpora; a premise is kept if it has an entailment and a contradiction. Where
    it has several, ``pairing`` says which go together:

    - ``first``: the first entailment with the first contradiction, one triplet a premise;
    - ``random``: one of each, drawn by ``seed``, one triplet a premise;
    - ``zip``: the first with the first, the second with the second, until either has no more;
    - ``cycle``: every entailment once, with the contradictions in turn;
    - ``product``: every entailment with every contradiction.

    Corpora of ready-made triplets are taken as they are. Columns are there under the names of NLI and under those of
    contrastive learning: ``anchor``, ``positive``, ``negative``.

    Source: supervised SimCSE, section 4; its triplets (275,601 of SNLI and MNLI) are released, their rule is not. One a
    premise fits their number: SNLI has 150 thousand distinct premises and MNLI 130 thousand.

    Args:
        pairing: one of the above.
        seed: draws for ``random``; the same triplets for all training seeds.
        contradiction: false keeps every entailed pair, with or without a contradiction, as a row of two roles, for
            methods that need no more.

    Raises:
        ConfigError: for any other pairing.
    """

    pairing: str = "first"
    seed: int = 0
    contradiction: bool = True

    def __post_init__(self) -> None:
        if self.pairing not in PAIRINGS:
            near = did_you_mean(self.pairing, PAIRINGS)
            raise ConfigError([f"data.rows.pairing: {self.pairing!r} is not one of {', '.join(PAIRINGS)}{near}"])

    @property
    def roles(self) -> tuple[str, ...]:
        """Premise, entailment, and contradiction unless it is left out."""
        return TRIPLET if self.contradiction else TRIPLET[:2]

    def __call__(self, tables: Sequence[Rows]) -> TrainingRows:
        """Return the triplets, in the order in which their premises first appear.

        Raises:
            DataError: if no premise has both an entailment and a contradiction.
        """
        parts: list[TrainingRows] = []
        start = 0
        ready = [rows for rows in tables if "hypothesis" not in rows.names]
        pairs = [rows for rows in tables if "hypothesis" in rows.names]
        for rows in ready:
            columns = [rows.column(name) for name in self.roles]
            parts.append(TrainingRows(_triplets(rows, *columns), [(start + row,) for row in range(len(rows))]))
            start += len(rows)
        if pairs:
            parts.append(self._build(Rows.cat(pairs), start))
        built = TrainingRows(
            Rows.cat([part.rows for part in parts]), [source for part in parts for source in part.sources]
        )
        if not built.sources:
            raise DataError(
                f"{_files(built.rows)}: no premise has both an entailment and a contradiction, so there is no triplet"
            )
        return built

    def _build(self, rows: Rows, start: int) -> TrainingRows:
        """Group pairs by premise and pair them; corpus rows are counted from ``start``."""
        counts = dict(rows.counts)

        def drop(reason: str, number: int = 1) -> None:
            if number:
                counts[f"dropped: {reason}"] = counts.get(f"dropped: {reason}", 0) + number

        premises: dict[str, dict[str, list[int]]] = {}
        seen: set[tuple[str, str]] = set()
        columns = (rows.column(name) for name in ("premise", "hypothesis", "label"))
        for row, (premise, hypothesis, label) in enumerate(zip(*columns, strict=True)):
            if label not in self.roles:
                drop("no gold label" if label == "-" else f"label {label}")
            elif (premise, hypothesis) in seen:
                drop("repeated pair")
            else:
                seen.add((premise, hypothesis))
                group = premises.setdefault(premise, {"entailment": [], "contradiction": []})
                group[label].append(row)
        sources: list[tuple[int, ...]] = []
        for group in premises.values():
            entailments, contradictions = group["entailment"], group["contradiction"]
            if not self.contradiction:
                sources += [(row,) for row in entailments]
            elif entailments and contradictions:
                chosen = list(self._pair(entailments, contradictions))
                sources += chosen
                drop("not chosen", len(entailments) + len(contradictions) - len(set(itertools.chain(*chosen))))
            else:
                lacks = "a contradiction" if entailments else "an entailment"
                drop(f"premise without {lacks}", len(entailments) + len(contradictions))
        hypothesis = rows.column("hypothesis")
        hypotheses = [[hypothesis[row] for row in role] for role in zip(*sources, strict=True)]
        first = rows.select(source[0] for source in sources).recounted(counts)
        triplets = _triplets(first, first.column("premise"), *(hypotheses or [[]] * (len(self.roles) - 1)))
        return TrainingRows(triplets, [tuple(start + row for row in source) for source in sources])

    def _pair(self, entailments: list[int], contradictions: list[int]) -> Iterator[tuple[int, int]]:
        if self.pairing == "random":
            draw = random.Random(f"{self.seed} {entailments[0]}")  # noqa: S311 - a choice of rows, not a secret
            yield draw.choice(entailments), draw.choice(contradictions)
        elif self.pairing == "first":
            yield entailments[0], contradictions[0]
        elif self.pairing == "zip":
            yield from zip(entailments, contradictions, strict=False)
        elif self.pairing == "cycle":
            yield from zip(entailments, itertools.cycle(contradictions), strict=False)
        else:
            yield from itertools.product(entailments, contradictions)


@dataclass(frozen=True)
class Sentences:
    """Plain sentences, for methods whose positive is another dropout pass over the anchor."""

    roles: ClassVar[tuple[str, ...]] = ("anchor",)

    def __call__(self, tables: Sequence[Rows]) -> TrainingRows:
        """Return one row a sentence, repeated ones included, as the authors of SimCSE have them."""
        rows = Rows.cat(tables)
        return TrainingRows(rows.with_columns(anchor=rows.column("sentence")), [(row,) for row in range(len(rows))])


def _files(rows: Rows) -> str:
    return ", ".join(file.name for file in rows.files) or "rows"


def _with_roles(tables: Sequence[Rows], roles: Collection[str]) -> Rows:
    """Return the rows of several tables with all of these roles, the premise among them, None where a table has none.

    Raises:
        DataError: if a table has no premises, or no other of the roles.
    """
    whole = []
    for rows in tables:
        rows.column("premise")
        lacking = [role for role in roles if role not in rows.names]
        if len(lacking) == len(roles) - 1:
            raise DataError(
                f"{_files(rows)}: none of the columns {', '.join(lacking)}; there are: {', '.join(rows.names)}. "
                "Rows in INLI's layout are needed"
            )
        for role in lacking:
            rows = rows.with_column(role, [None] * len(rows))
        whole.append(rows)
    return Rows.cat(whole)


def _triplets(rows: Rows, premise: list[str], entailment: list[str], contradiction: list[str] | None = None) -> Rows:
    """Return rows with these sentences under the names of NLI and of contrastive learning."""
    columns = {"premise": premise, "anchor": premise, "entailment": entailment, "positive": entailment}
    if contradiction is not None:
        columns |= {"contradiction": contradiction, "negative": contradiction}
    return rows.with_columns(**columns)
