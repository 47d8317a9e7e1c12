"""The examples of a pattern: pairs of a corpus, drawn by a seed."""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import BaseModel, Field

from lightning_cse.data.roles import TRIPLET, NLITriplets
from lightning_cse.data.rows import Rows
from lightning_cse.data.sources import read_sources
from lightning_cse.errors import DataError
from lightning_cse.generation.text import letters

Pair = tuple[str, str]


class Bounds(BaseModel, extra="forbid", strict=True, frozen=True):
    """Bounds for the scores of pairs; the bounds themselves are excluded."""

    above: float | None = None
    below: float | None = None

    def __contains__(self, score: float) -> bool:
        if self.above is not None and score <= self.above:
            return False
        return self.below is None or score < self.below


class Source(BaseModel, extra="forbid", strict=True, frozen=True):
    """The source of a role's examples: splits (``sts12/train``) or own files, and two columns.

    ``scores`` bounds the column ``score``. With ``longer_first``, the sentence with more words
    comes first, and ties are left out.
    """

    from_: tuple[str, ...] = Field(
        alias="from",
        min_length=1,
    )
    first: str
    second: str
    scores: Bounds | None = None
    longer_first: bool | None = False

    @property
    def label(self) -> str:
        """The name of the source, such as ``sts12/train, score above 4``."""
        parts = list(self.from_)
        bounds = [f"{name} {bound:g}" for name, bound in self.scores or () if bound is not None]

        if bounds:
            parts.append(f"score {' and '.join(bounds)}")

        return ", ".join(parts)

    def pair(
        self,
        first: object,
        second: object,
    ) -> Pair | None:
        """Return a pair in the source's order, or None if it makes no example."""
        if not isinstance(first, str) or not isinstance(second, str):
            return None

        if not letters(first) or not letters(second) or letters(first) == letters(second):
            return None

        if not self.longer_first:
            return first, second

        difference = len(first.split()) - len(second.split())
        if difference == 0:
            return None

        return (first, second) if difference > 0 else (second, first)


@dataclass(frozen=True)
class Examples:
    """The pairs ``shown`` for a role, and the ``pool`` of all pairs that could have been drawn."""

    shown: tuple[Pair, ...]
    pool: tuple[Pair, ...]
    label: str = "examples of the pattern"
    digests: Mapping[str, str] = field(default_factory=dict)


def draw_examples(
    wanted: Mapping[str, Source],
    data_dir: Path,
    *,
    shots: int,
    seed: int,
) -> dict[str, Examples]:
    """Draw the examples for each key of the config; a seed draws the same ones on every machine.

    Roles with the same sources and bounds are shown the same rows: those that make an example for
    all of them. No two examples of a role share a sentence. Raises DataError if there are too few.
    """
    groups: dict[tuple[tuple[str, ...], Bounds | None], dict[str, Source]] = {}

    for key, source in wanted.items():
        groups.setdefault((source.from_, source.scores), {})[key] = source

    drawn: dict[str, Examples] = {}
    for group in groups.values():
        drawn |= _draw_group(
            group,
            data_dir,
            shots,
            seed,
        )

    return drawn


def _draw_group(
    group: Mapping[str, Source],
    data_dir: Path,
    shots: int,
    seed: int,
) -> dict[str, Examples]:
    """Draw the examples of roles that are shown the same rows."""
    key = next(iter(group))
    sources = list(group.values())
    tables = read_sources(
        sources[0].from_,
        data_dir,
        key=f"{key}.from",
    )
    digests = {file.name: file.sha256 for table in tables for file in table.files}
    rows: list[tuple[Pair, ...]] = []

    try:
        for table in _as_triplets(tables, sources):
            rows.extend(_eligible(table, sources))
    except DataError as error:
        raise DataError(f"{key}: {error}") from None

    chosen = _draw(
        rows,
        shots,
        seed,
    )
    if len(chosen) < shots:
        raise DataError(
            f"{' and '.join(group)}: {sources[0].label} has {len(rows)} pairs, {len(chosen)} of "
            f"them without a repeated sentence, and pattern.shots is {shots}: set fewer shots, or "
            "add sources"
        )

    drawn = {}
    for place, (name, source) in enumerate(group.items()):
        shown = tuple(pairs[place] for pairs in chosen)
        pool = tuple(pairs[place] for pairs in rows)
        drawn[name] = Examples(
            shown,
            pool,
            source.label,
            digests,
        )

    return drawn


def _as_triplets(tables: Sequence[Rows], sources: Sequence[Source]) -> list[Rows]:
    """Return the tables; labelled pairs become triplets if the sources name triplets' columns."""
    columns = {column for source in sources for column in (source.first, source.second)}
    labelled = [table for table in tables if "hypothesis" in table.names]

    if not labelled or not columns <= set(TRIPLET):
        return list(tables)

    others = [table for table in tables if "hypothesis" not in table.names]
    return [*others, NLITriplets()(labelled)]


def _eligible(table: Rows, sources: Sequence[Source]) -> Iterator[tuple[Pair, ...]]:
    """Yield the pair of each source for every row that makes an example for all of them."""
    bounds = sources[0].scores
    scores = table.column("score") if bounds else []
    firsts = [table.column(source.first) for source in sources]
    seconds = [table.column(source.second) for source in sources]

    for row in range(len(table)):
        if bounds is not None and (scores[row] is None or scores[row] not in bounds):
            continue

        pairs = []
        for source, first, second in zip(
            sources,
            firsts,
            seconds,
            strict=True,
        ):
            pair = source.pair(first[row], second[row])
            if pair is not None:
                pairs.append(pair)

        if len(pairs) == len(sources):
            yield tuple(pairs)


def _draw(
    rows: Sequence[tuple[Pair, ...]],
    shots: int,
    seed: int,
) -> list[tuple[Pair, ...]]:
    """Return ``shots`` of the rows, or fewer if all others repeat a sentence."""
    # Of Python's generator, only random() is the same in all versions.
    generator = random.Random(seed)  # noqa: S311 - no secret
    order = [generator.random() for _ in rows]
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
