"""The pairs a prompt shows: which rows they may be of, and which of these are drawn, once for all sentences."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from lightning_cse.data.corpora import get_corpus, is_own
from lightning_cse.data.roles import TRIPLET, NLITriplets
from lightning_cse.data.rows import Rows
from lightning_cse.data.sources import read_sources
from lightning_cse.errors import DataError
from lightning_cse.generation.cleaning import letters
from lightning_cse.generation.nodes import absent_keys, given, is_list, is_number, is_pair, is_text, unknown_keys

__all__ = ["Bounds", "Examples", "Pair", "Pool", "Wanted", "draw_examples", "wrong_examples"]

Pair = tuple[str, str]

INLINE: Final = "examples of the pattern"
"""What a pool is called whose pairs stand in the pattern itself."""

_SCORE: Final = "score"
_BOUNDS: Final = {"above": "a number that scores exceed", "below": "a number that scores stay below"}
_KEYS: Final = {
    "from": "a list of names such as sts12/train, or of files of your own",
    "first": "the name of a column",
    "second": "the name of a column",
    "scores": "bounds that scores lie between, as in {above: 1, below: 4}",
    "longer_first": "true or false",
}
_NEEDED: Final = ("from", "first", "second")

_SIGNS: Final = re.compile(r"[\W_]+")


@dataclass(frozen=True)
class Bounds:
    """What the score of a pair lies between, itself not included; None: no bound."""

    above: float | None = None
    below: float | None = None

    def __bool__(self) -> bool:
        return self.above is not None or self.below is not None

    def __contains__(self, score: float) -> bool:
        return (self.above is None or score > self.above) and (self.below is None or score < self.below)

    def __str__(self) -> str:
        told = [f"{name} {bound:g}" for name in _BOUNDS if (bound := getattr(self, name)) is not None]
        return f"score {' and '.join(told)}" if told else ""


@dataclass(frozen=True)
class Wanted:
    """What the examples of a role are drawn from.

    Attributes:
        role: The role.
        key: Where that stands in the config, for errors.
        sources: Names such as ``sts12/train``, or files of the user's own.
        first: The column of the first sentences.
        second: The column of the second ones.
        bounds: What the column ``score`` lies between.
        longer_first: Whether the sentence of more words comes first, whichever column has it; pairs of as many words
            are left out.
    """

    role: str
    key: str
    sources: tuple[str, ...]
    first: str
    second: str
    bounds: Bounds = Bounds()
    longer_first: bool = False

    @classmethod
    def of(cls, node: Mapping[str, Any], *, role: str, key: str) -> Wanted:
        """Return what a node of the config wants, in which `wrong_examples` finds nothing."""
        scores = node.get("scores") or {}
        return cls(
            role,
            key,
            tuple(node["from"]),
            node["first"],
            node["second"],
            Bounds(scores.get("above"), scores.get("below")),
            node.get("longer_first") or False,
        )

    @property
    def columns(self) -> tuple[str, str]:
        """The columns of its pairs."""
        return self.first, self.second

    @property
    def label(self) -> str:
        """What its pool is called."""
        return ", ".join([*self.sources, *([str(self.bounds)] if self.bounds else [])])

    def pair(self, first: str | None, second: str | None) -> Pair | None:
        """Return a pair in its order; None where it makes no example."""
        if first is None or second is None:
            return None
        said = _letters(first), _letters(second)
        if not all(said) or said[0] == said[1]:
            return None
        if not self.longer_first:
            return first, second
        words = len(first.split()), len(second.split())
        if words[0] == words[1]:
            return None
        return (first, second) if words[0] > words[1] else (second, first)


@dataclass(frozen=True)
class Pool:
    """All pairs that the examples of a role may be.

    Attributes:
        label: What it is called, such as ``sts12/train, score above 4``.
        pairs: The pairs, in the order of the files.
        digests: The sha256 of the files they are from; none where they stand in the pattern.
    """

    label: str
    pairs: list[Pair]
    digests: dict[str, str]


@dataclass(frozen=True)
class Examples:
    """The pairs that a role is shown, and the pool they were drawn from."""

    shown: tuple[Pair, ...]
    pool: Pool

    @classmethod
    def inline(cls, pairs: Sequence[Sequence[str]]) -> Examples:
        """Return examples that stand in the pattern: all of them, as they are."""
        shown = tuple((first, second) for first, second in pairs)
        return cls(shown, Pool(INLINE, list(shown), {}))


def draw_examples(wanted: Sequence[Wanted], data_dir: Path, *, shots: int, seed: int) -> dict[str, Examples]:
    """Draw the examples of several roles.

    Roles with the same sources and bounds are shown the same rows: those that make an example for all of them. Two
    examples of a role have no sentence in common.

    Args:
        wanted: What they are drawn from.
        data_dir: Where the corpora are.
        shots: How many a role is shown.
        seed: Draws them; over the rows in the order of the files, and the same ones on every machine and for ever.

    Raises:
        ConfigError: As `read_sources`.
        DataError: As `read_sources`, if a source lacks a column, or if there are too few pairs.
    """
    together: dict[tuple[tuple[str, ...], Bounds], list[Wanted]] = {}
    for each in wanted:
        together.setdefault((each.sources, each.bounds), []).append(each)
    drawn: dict[str, Examples] = {}
    for group in together.values():
        tables = _read(group, data_dir)
        digests = {file.name: file.sha256 for table in tables for file in table.files}
        rows = [pairs for table in tables for pairs in _eligible(table, group)]
        chosen = _draw(rows, shots, seed)
        if len(chosen) < shots:
            raise DataError(_too_few(group, len(rows), len(chosen), shots))
        for number, each in enumerate(group):
            pool = Pool(each.label, [pairs[number] for pairs in rows], digests)
            drawn[each.role] = Examples(tuple(pairs[number] for pairs in chosen), pool)
    return drawn


def _read(group: Sequence[Wanted], data_dir: Path) -> list[Rows]:
    """Return the tables of the sources, labelled pairs of NLI among them as triplets if the columns are a triplet's."""
    tables = read_sources(group[0].sources, data_dir, key=f"{group[0].key}.from")
    columns = {column for each in group for column in each.columns}
    labelled = [rows for rows in tables if "hypothesis" in rows.names]
    if not labelled or not columns <= set(TRIPLET):
        return tables
    ready = [rows for rows in tables if "hypothesis" not in rows.names]
    try:
        return [*ready, NLITriplets()(labelled)]
    except DataError as error:
        raise DataError(f"{group[0].key}.from: {error}") from None


def _eligible(table: Rows, group: Sequence[Wanted]) -> Iterator[tuple[Pair, ...]]:
    """Yield, for each row that makes an example for all roles of a group, the pair of each role."""
    bounds = group[0].bounds
    scores = _column(table, _SCORE, f"{group[0].key}.scores") if bounds else None
    columns = [
        (_column(table, each.first, f"{each.key}.first"), _column(table, each.second, f"{each.key}.second"))
        for each in group
    ]
    for row in range(len(table)):
        if scores is not None and (scores[row] is None or scores[row] not in bounds):
            continue
        pairs = []
        for each, (first, second) in zip(group, columns, strict=True):
            pair = each.pair(first[row], second[row])
            if pair is None:
                break
            pairs.append(pair)
        else:
            yield tuple(pairs)


def _column(table: Rows, name: str, key: str) -> list[Any]:
    try:
        values = table.column(name)
    except DataError as error:
        raise DataError(f"{key}: {error}") from None
    kind, what = (float, "scores") if key.endswith(".scores") else (str, "sentences")
    if any(not isinstance(value, kind) for value in values if value is not None):
        raise DataError(f"{key}: the column {name!r} of {table.files[0].name} holds no {what}")
    return values


def _draw(rows: Sequence[tuple[Pair, ...]], shots: int, seed: int) -> list[tuple[Pair, ...]]:
    """Return so many of the rows, or fewer if all others repeat a sentence."""
    draw = random.Random(seed)  # noqa: S311 - no secret; the same draw on every machine
    # Of all that Random has, only random() is promised to stay what it is from one Python to the next.
    order = [draw.random() for _ in rows]
    chosen: list[tuple[Pair, ...]] = []
    seen: set[tuple[int, str]] = set()
    for row in sorted(range(len(rows)), key=order.__getitem__):
        if len(chosen) == shots:
            break
        sentences = {(role, _letters(text)) for role, pair in enumerate(rows[row]) for text in pair}
        if seen.isdisjoint(sentences):
            seen |= sentences
            chosen.append(rows[row])
    return chosen


def _too_few(group: Sequence[Wanted], there: int, apart: int, shots: int) -> str:
    """Say how many pairs there are, of which role and source, and what can be done."""
    roles = " and ".join(f"'{each.role}'" for each in group)
    pairs = f"{there or 'no'} pair{'' if there == 1 else 's'} to show"
    repeats = f", and without repeating a sentence only {apart} of them were found" if apart < there else ""
    return (
        f"{group[0].key}: for the role{'s' if len(group) > 1 else ''} {roles}, {shots} examples are needed, but "
        f"{group[0].label} has {pairs}{repeats}; ask for fewer with pattern.shots, or name more sources"
    )


def _letters(sentence: str) -> str:
    """Return what `letters` does, in a tenth of its time where nothing is folded: NLI has a million sentences."""
    return _SIGNS.sub("", sentence).lower() if sentence.isascii() else letters(sentence)


def wrong_examples(node: Any, at: str) -> Iterator[str]:
    """Yield what is wrong with the examples of a role, as plain values; no file is read.

    Args:
        node: Pairs, or what they are drawn from.
        at: Where that stands in the config.
    """
    if isinstance(node, Mapping):
        yield from _wrong_source(node, at)
    elif not is_list(node) or not node:
        yield f"{at}: {node!r} is neither a list of pairs, [[a, b], ...], nor says what they are drawn from"
    else:
        for number, pair in enumerate(node):
            if not is_pair(pair):
                yield f"{at}.{number}: {pair!r} is no pair of texts, [a, b]"


def _wrong_source(node: Mapping[Any, Any], at: str) -> Iterator[str]:
    yield from unknown_keys(node, _KEYS, at)
    yield from absent_keys(node, {name: _KEYS[name] for name in _NEEDED}, at)
    sources = given(node, "from")
    if isinstance(sources, str):
        yield f"{at}.from: {sources!r} is one name, and a list of names is needed: [{sources}]"
    elif sources is not None and not (is_list(sources) and sources and all(map(is_text, sources))):
        yield f"{at}.from: {sources!r} is not {_KEYS['from']}"
    elif sources is not None:
        yield from _wrong_names(sources, f"{at}.from")
    for name in ("first", "second"):
        if (column := given(node, name)) is not None and not is_text(column):
            yield f"{at}.{name}: {column!r} is not {_KEYS[name]}"
    if not isinstance(node.get("longer_first") or False, bool):
        yield f"{at}.longer_first: {node['longer_first']!r} is not {_KEYS['longer_first']}"
    if (scores := given(node, "scores")) is not None:
        yield from _wrong_bounds(scores, f"{at}.scores")


def _wrong_names(sources: Sequence[str], at: str) -> Iterator[str]:
    for source in sources:
        if is_own(source):
            continue
        corpus, _, split = source.partition("/")
        if not split:
            yield f"{at}: {source!r} is not of the form corpus/split, such as sts12/train, and no file that can be read"
            continue
        try:
            get_corpus(corpus).split_files(split)
        except DataError as error:
            yield f"{at}: {error}"


def _wrong_bounds(scores: Any, at: str) -> Iterator[str]:
    if not isinstance(scores, Mapping):
        yield f"{at}: {scores!r} is not {_KEYS['scores']}"
        return
    yield from unknown_keys(scores, _BOUNDS, at)
    bounds = {name: bound for name in _BOUNDS if (bound := given(scores, name)) is not None}
    wrong = {name: bound for name, bound in bounds.items() if not is_number(bound)}
    for name, bound in wrong.items():
        yield f"{at}.{name}: {bound!r} is not {_BOUNDS[name]}"
    if not bounds:
        yield f"{at}: no bound; there are above and below, or leave scores out"
    if len(bounds) == 2 and not wrong and bounds["above"] >= bounds["below"]:
        yield f"{at}: no score is above {bounds['above']:g} and below {bounds['below']:g}"
