"""The pairs of sentences that a prompt shows, drawn from corpora once for all sentences."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import BaseModel, Field

from lightning_cse.data.roles import TRIPLET, NLITriplets
from lightning_cse.data.rows import Rows
from lightning_cse.data.sources import read_sources
from lightning_cse.errors import DataError
from lightning_cse.generation.filters import letters

Pair = tuple[str, str]


class Bounds(BaseModel, extra="forbid", strict=True, frozen=True):
    """What the scores of pairs lie between, the bounds themselves excluded."""

    above: float | None = None
    below: float | None = None

    def __contains__(self, score: float) -> bool:
        return (self.above is None or score > self.above) and (self.below is None or score < self.below)

    def __str__(self) -> str:
        return "score " + " and ".join(f"{name} {bound:g}" for name, bound in self if bound is not None)


class Source(BaseModel, extra="forbid", strict=True, frozen=True):
    """What the examples of a role are drawn from."""

    from_: tuple[str, ...] = Field(alias="from", min_length=1)  # splits such as sts12/train, or own files
    first: str  # the column of the first sentences
    second: str
    scores: Bounds | None = None  # of the column score
    longer_first: bool | None = False  # the sentence of more words is the first; pairs of as many are left out

    @property
    def label(self) -> str:
        """What it is called, such as ``sts12/train, score above 4``."""
        return ", ".join([*self.from_, *([str(self.scores)] if self.scores else [])])

    def pair(self, first: object, second: object) -> Pair | None:
        """Return a pair in its order; None if it makes no example."""
        if not isinstance(first, str) or not isinstance(second, str):
            return None
        if not letters(first) or not letters(second) or letters(first) == letters(second):
            return None
        longer = len(first.split()) - len(second.split())
        if self.longer_first and longer <= 0:
            return (second, first) if longer else None
        return first, second


@dataclass(frozen=True)
class Examples:
    """The pairs that a role is ``shown``, and the ``pool`` of all that could have been drawn from the files."""

    shown: tuple[Pair, ...]
    pool: tuple[Pair, ...]
    label: str = "examples of the pattern"
    digests: Mapping[str, str] = field(default_factory=dict)


def draw_examples(wanted: Mapping[str, Source], data_dir: Path, *, shots: int, seed: int) -> dict[str, Examples]:
    """Draw the examples for keys of the config; a seed draws the same ones on every machine.

    Roles with the same sources and bounds are shown the same rows: those that make an example for all of them. No two
    examples of a role share a sentence.

    Raises:
        DataError: If a source or a column is missing, or there are too few pairs.
    """
    groups: dict[tuple[tuple[str, ...], Bounds | None], dict[str, Source]] = {}
    for key, source in wanted.items():
        groups.setdefault((source.from_, source.scores), {})[key] = source
    drawn: dict[str, Examples] = {}
    for group in groups.values():
        (at, one), sources = next(iter(group.items())), list(group.values())
        tables = read_sources(one.from_, data_dir, key=f"{at}.from")
        digests = {file.name: file.sha256 for table in tables for file in table.files}
        try:
            rows = [pairs for table in _as_triplets(tables, sources) for pairs in _eligible(table, sources)]
        except DataError as error:
            raise DataError(f"{at}: {error}") from None
        chosen = _draw(rows, shots, seed)
        if len(chosen) < shots:
            raise DataError(
                f"{' and '.join(group)}: {one.label} has {len(rows)} pairs, {len(chosen)} of them without a repeated "
                f"sentence, and pattern.shots is {shots}: set fewer shots, or add sources"
            )
        for place, (key, source) in enumerate(group.items()):
            shown, pool = (tuple(pairs[place] for pairs in some) for some in (chosen, rows))
            drawn[key] = Examples(shown, pool, source.label, digests)
    return drawn


def _as_triplets(tables: Sequence[Rows], sources: Sequence[Source]) -> Sequence[Rows]:
    """Return the tables, labelled NLI pairs among them as triplets if the columns are those of triplets."""
    labelled = [rows for rows in tables if "hypothesis" in rows.names]
    if not labelled or not {column for source in sources for column in (source.first, source.second)} <= set(TRIPLET):
        return tables
    return [*(rows for rows in tables if "hypothesis" not in rows.names), NLITriplets()(labelled)]


def _eligible(table: Rows, sources: Sequence[Source]) -> Iterator[tuple[Pair, ...]]:
    """Yield the pair of each source for every row that makes an example for all of them."""
    bounds = sources[0].scores
    scores = table.column("score") if bounds else []
    columns = [(source, table.column(source.first), table.column(source.second)) for source in sources]
    for row in range(len(table)):
        if bounds is None or (scores[row] is not None and scores[row] in bounds):
            pairs = [source.pair(first[row], second[row]) for source, first, second in columns]
            if None not in pairs:
                yield tuple(pair for pair in pairs if pair)


def _draw(rows: Sequence[tuple[Pair, ...]], shots: int, seed: int) -> list[tuple[Pair, ...]]:
    """Return so many of the rows, or fewer if all others repeat a sentence."""
    draw = random.Random(seed)  # noqa: S311 - no secret; only its random() is the same for all versions of Python
    order = [draw.random() for _ in rows]
    chosen: list[tuple[Pair, ...]] = []
    seen: set[tuple[int, str]] = set()
    for row in sorted(range(len(rows)), key=order.__getitem__):
        if len(chosen) == shots:
            break
        sentences = {(role, letters(text)) for role, pair in enumerate(rows[row]) for text in pair}
        if seen.isdisjoint(sentences):
            seen |= sentences
            chosen.append(rows[row])
    return chosen
