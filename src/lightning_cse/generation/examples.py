"""The examples of a pattern: pairs of a corpus, drawn by a seed."""

import math
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from datasets import Dataset
from pydantic import BaseModel, Field

from lightning_cse.data.corpora import read_sources
from lightning_cse.data.roles import TRIPLET, NLITriplets
from lightning_cse.data.rows import check_column, digests_of
from lightning_cse.errors import DataError
from lightning_cse.generation.text import letters

Pair = tuple[str, str]


class Source(BaseModel, extra="forbid", strict=True, frozen=True):
    """The source of a role's examples: splits (``sts12/train``) or own files, and two columns.

    ``scores`` bounds the column ``score``; the bounds themselves are excluded. With
    ``longer_first``, the sentence with more words comes first, and ties are left out.
    """

    from_: tuple[str, ...] = Field(alias="from", min_length=1)
    first: str
    second: str
    scores: dict[Literal["above", "below"], float] = {}
    longer_first: bool = False

    @property
    def label(self) -> str:
        """The name of the source, such as ``sts12/train, above 4`` or ``snli/train and 2 more``."""
        first, *more = self.from_
        name = f"{first} and {len(more)} more" if more else first
        bounds = [f"{name} {bound:g}" for name, bound in self.scores.items()]

        return ", ".join([name, *bounds])

    def pairs(self, table: Dataset) -> list[Pair | None]:
        """Return the pair of each row in the source's order, or None if it makes no example."""
        for name in (self.first, self.second):
            check_column(table, name)

        columns = zip(table[self.first], table[self.second], strict=True)
        pairs = [self._pair(first, second) for first, second in columns]

        if not self.scores:
            return pairs

        low = self.scores.get("above", -math.inf)
        high = self.scores.get("below", math.inf)
        check_column(table, "score")

        return [
            pair if score is not None and low < score < high else None
            for pair, score in zip(pairs, table["score"], strict=True)
        ]

    def _pair(self, first: str | None, second: str | None) -> Pair | None:
        if not first or not second or len({"", letters(first), letters(second)}) < 3:
            return None

        difference = len(first.split()) - len(second.split())
        if not self.longer_first or difference > 0:
            return first, second

        return (second, first) if difference < 0 else None


@dataclass(frozen=True)
class Examples:
    """The pairs ``chosen`` for a role, and the ``pool`` of all pairs that could have been drawn."""

    chosen: tuple[Pair, ...]
    pool: tuple[Pair, ...]
    label: str = "examples of the pattern"
    digests: Mapping[str, str] = field(default_factory=dict)


def draw_examples(
    sources: Mapping[str, Source], data_dir: Path, *, shots: int, seed: int
) -> dict[str, Examples]:
    """Draw the examples for each key of the config; a seed draws the same ones on every machine.

    Roles with the same sources and bounds are shown the same rows: those that make an example for
    all of them. No two examples of a role share a sentence. Raises DataError if there are too few.
    """
    groups: dict[object, dict[str, Source]] = {}

    for key, source in sources.items():
        groups.setdefault((source.from_, *source.scores.items()), {})[key] = source

    examples: dict[str, Examples] = {}
    for group in groups.values():
        examples |= _draw_group(group, data_dir, shots, seed)

    return examples


def _draw_group(
    group: Mapping[str, Source], data_dir: Path, shots: int, seed: int
) -> dict[str, Examples]:
    """Draw the examples of roles that are shown the same rows."""
    (key, source), *_ = group.items()
    tables = read_sources(source.from_, data_dir, key=f"{key}.from")

    try:
        rows = _complete_rows(tables, list(group.values()))
    except DataError as error:
        raise DataError(f"{key}: {error}") from None

    chosen = _draw(rows, shots, seed)
    if len(chosen) < shots:
        raise DataError(
            f"{key}: {source.label} has {len(rows)} pairs, {len(chosen)} of them without a "
            f"repeated sentence, and pattern.shots is {shots}: set fewer shots, or add sources"
        )

    columns = zip(group.items(), zip(*chosen, strict=True), zip(*rows, strict=True), strict=True)

    return {
        name: Examples(pairs, pool, source.label, digests_of(tables))
        for (name, source), pairs, pool in columns
    }


def _complete_rows(tables: Sequence[Dataset], sources: Sequence[Source]) -> list[tuple[Pair, ...]]:
    """Return the pair of each source for every row that makes an example for all of them."""
    columns = {column for source in sources for column in (source.first, source.second)}
    labelled = [table for table in tables if "hypothesis" in table.column_names]
    rows = []

    if labelled and columns <= set(TRIPLET):  # labelled pairs become triplets
        unlabelled = [table for table in tables if "hypothesis" not in table.column_names]
        tables = [*unlabelled, NLITriplets()(labelled, Counter())]

    for table in tables:
        for pairs in zip(*(source.pairs(table) for source in sources), strict=True):
            complete = tuple(pair for pair in pairs if pair is not None)
            if len(complete) == len(pairs):
                rows.append(complete)

    return rows


def _draw(rows: Sequence[tuple[Pair, ...]], shots: int, seed: int) -> list[tuple[Pair, ...]]:
    """Return ``shots`` of the rows, or fewer if all others repeat a sentence."""
    # Of Python's generator, only random() is the same in all versions.
    generator = random.Random(seed)  # noqa: S311 - no secret
    order = [generator.random() for _ in rows]
    chosen: list[tuple[Pair, ...]] = []
    used: set[tuple[int, str]] = set()

    for row in sorted(range(len(rows)), key=order.__getitem__):
        if len(chosen) == shots:
            break

        sentences = {(role, letters(text)) for role, pair in enumerate(rows[row]) for text in pair}
        if used.isdisjoint(sentences):
            used |= sentences
            chosen.append(rows[row])

    return chosen
