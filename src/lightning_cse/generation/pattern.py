"""Similarity patterns: what a language model is asked to write for a sentence, role by role, with which examples."""

from __future__ import annotations

import hashlib
import json
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Final

import pydantic
from pydantic import BaseModel, Discriminator, Field, Tag, ValidationError

from lightning_cse.data.roles import TRIPLET, NLITriplets
from lightning_cse.data.rows import Rows
from lightning_cse.data.sources import read_sources
from lightning_cse.errors import DataError, did_you_mean
from lightning_cse.generation.filters import Checks, letters

SOURCE: Final = "source"  # the reference of a role that is made from the sentence itself
ANCHOR: Final = "anchor"  # that sentence's key in a row

_PLACEHOLDERS: Final = {
    "prompt": ("task", "relation", "examples", "rule"),
    "example": ("number", "first_field", "first", "second_field", "second"),
}
"""The placeholders that a layout may have in braces."""

Text = Annotated[str, Field(pattern=r"\S")]
Pair = tuple[str, str]


class Bounds(BaseModel, extra="forbid", strict=True, frozen=True):
    """Bounds for the scores of pairs; the bounds themselves are excluded."""

    above: float | None = None
    below: float | None = None

    def __contains__(self, score: float) -> bool:
        return (self.above is None or score > self.above) and (
            self.below is None or score < self.below
        )


class Source(BaseModel, extra="forbid", strict=True, frozen=True):
    """The source that the examples of a role are drawn from."""

    from_: tuple[str, ...] = Field(
        alias="from", min_length=1
    )  # splits such as sts12/train, or own files
    first: str  # the column of the first sentences
    second: str
    scores: Bounds | None = None  # for the column ``score``
    longer_first: bool | None = False  # the sentence with more words comes first; ties are left out

    @property
    def label(self) -> str:
        """The name of the source, such as ``sts12/train, score above 4``."""
        bounds = " and ".join(
            f"{name} {bound:g}" for name, bound in self.scores or () if bound is not None
        )
        return ", ".join([*self.from_, *([f"score {bounds}"] if bounds else [])])

    def pair(self, first: object, second: object) -> Pair | None:
        """Return a pair in the source's order, or None if it makes no example."""
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
    """The pairs ``shown`` for a role, and the ``pool`` of all pairs that could have been drawn from the files."""

    shown: tuple[Pair, ...]
    pool: tuple[Pair, ...]
    label: str = "examples of the pattern"
    digests: Mapping[str, str] = field(default_factory=dict)


class _Layout(BaseModel, extra="forbid", strict=True):
    prompt: str
    example: str

    @pydantic.field_validator("prompt", "example")
    @classmethod
    def _has_known_placeholders(cls, text: str, info: pydantic.ValidationInfo) -> str:
        known = _PLACEHOLDERS[str(info.field_name)]
        if unknown := [name for name in re.findall(r"\{(\w+)\}", text) if name not in known]:
            raise ValueError(
                f"unknown placeholder {{{unknown[0]}}}{did_you_mean(unknown[0], known)}"
            )
        return text


class _Role(BaseModel, extra="forbid", strict=True):
    name: str = Field(pattern=r"^[^\W\d]\w*$")  # a key of a row
    reference: str
    task: Text
    relation: Text
    fields: tuple[Text, Text]
    examples: Annotated[
        Annotated[tuple[tuple[Text, Text], ...], Tag("pairs")] | Annotated[Source, Tag("drawn")],
        Discriminator(lambda node: "drawn" if isinstance(node, dict | Source) else "pairs"),
    ]
    rule: Text
    checks: Checks | None = None


class _Pattern(BaseModel, extra="forbid", strict=True):
    name: str = Field(pattern=r"^\w[\w.-]*$")  # it names a folder
    shots: int = Field(ge=1)
    seed: int = Field(ge=0)
    reference: str | None = None  # for roles that share one, by interpolation
    longer_first: bool = False  # the same
    layout: _Layout
    roles: tuple[_Role, ...] = Field(min_length=1)

    @pydantic.model_validator(mode="after")
    def _refers_to_earlier_roles(self) -> _Pattern:
        faults, names = [], [role.name for role in self.roles]
        for number, role in enumerate(self.roles):
            at, known = f"roles.{number}", [SOURCE, *names[:number]]
            than = role.checks.less_detail_than if role.checks else None
            if role.name in (ANCHOR, *known):
                faults.append(
                    f"{at}.name: must not be the source or an earlier role, got {role.name!r}"
                )
            for key, name in (
                ("reference", role.reference),
                ("checks.less_detail_than", than or SOURCE),
            ):
                if name not in known:
                    faults.append(
                        f"{at}.{key}: must be one of {known}, got {name!r}{did_you_mean(name, known)}"
                    )
        if faults:
            raise ValueError("\n".join(faults))
        return self


@dataclass(frozen=True)
class Role:
    """A sentence that is written for each source."""

    name: str
    reference: str  # what it is made from: `SOURCE`, or the name of an earlier role
    system: str  # the system message, examples included
    fields: tuple[str, str]  # the labels of an example's two sentences
    examples: Examples
    checks: Checks


@dataclass(frozen=True)
class Pattern:
    """The roles that a language model writes for a sentence, from examples that are the same for every sentence.

    Source: NGCSE, similarity pattern simulation. Differs: the wording is our own, and so is the draw of the examples.
    """

    name: str
    roles: tuple[Role, ...]

    @cached_property
    def digest(self) -> str:
        """The sha256 of all that is the same for every sentence: each role's name, reference and system message."""
        document = [[role.name, role.reference, role.system] for role in self.roles]
        return hashlib.sha256(json.dumps(document).encode()).hexdigest()

    @property
    def digests(self) -> dict[str, str]:
        """The sha256 of the files that the examples come from, by name."""
        return {
            name: digest for role in self.roles for name, digest in role.examples.digests.items()
        }


def wrong_pattern(node: Any) -> Iterator[str]:
    """Yield all faults of the config below ``pattern``, given as plain values; no file is read."""
    models = (_Pattern, _Layout, _Role, Source, Bounds, Checks)
    known = {each.alias or name for model in models for name, each in model.model_fields.items()}
    try:
        _Pattern.model_validate_json(json.dumps(node))
    except ValidationError as error:
        for fault in error.errors(include_url=False):
            at = ".".join(
                ["pattern", *(str(part) for part in fault["loc"] if part not in ("pairs", "drawn"))]
            )
            if fault["type"] == "extra_forbidden":
                key = str(fault["loc"][-1])
                yield f"{at}: unknown key{did_you_mean(key, known - {key})}"
            elif fault["type"] == "value_error" and not fault["loc"]:
                yield from (f"pattern.{line}" for line in str(fault["ctx"]["error"]).splitlines())
            elif (
                fault["type"] != "too_short" or not fault["input"]
            ):  # else its items have their own faults
                yield f"{at}: {fault['msg'].removeprefix('Value error, ')}, got {str(fault['input'])[:60]!r}"


def build_pattern(node: Mapping[str, Any], data_dir: Path) -> Pattern:
    """Build the pattern of a config in which `wrong_pattern` finds nothing; raises like `draw_examples`."""
    config = _Pattern.model_validate_json(json.dumps(node))
    keys = {f"pattern.roles.{number}.examples": role for number, role in enumerate(config.roles)}
    wanted = {key: role.examples for key, role in keys.items() if isinstance(role.examples, Source)}
    drawn = draw_examples(wanted, data_dir, shots=config.shots, seed=config.seed)
    roles = []
    for key, role in keys.items():
        examples = (
            drawn[key]
            if isinstance(role.examples, Source)
            else Examples(role.examples, role.examples)
        )
        system = _system(role, examples.shown, config.layout)
        roles.append(
            Role(role.name, role.reference, system, role.fields, examples, role.checks or Checks())
        )
    return Pattern(config.name, tuple(roles))


def _system(role: _Role, examples: tuple[Pair, ...], layout: _Layout) -> str:
    fields, shown = dict(zip(("first_field", "second_field"), role.fields, strict=True)), []
    for number, (first, second) in enumerate(examples, start=1):
        shown.append(
            _filled(layout.example, number=str(number), first=first, second=second, **fields)
        )
    texts = {name: getattr(role, name).strip() for name in ("task", "relation", "rule")}
    return _filled(layout.prompt, examples="\n\n".join(shown), **texts).strip()


def _filled(layout: str, **values: str) -> str:
    """Return a layout with its placeholders filled; braces in the values are left alone."""
    return re.sub(r"\{(\w+)\}", lambda found: values[found[1]], layout)


def draw_examples(
    wanted: Mapping[str, Source], data_dir: Path, *, shots: int, seed: int
) -> dict[str, Examples]:
    """Draw the examples for each key of the config; a seed draws the same ones on every machine.

    Roles with the same sources and bounds are shown the same rows: those that make an example for all of them. No two
    examples of a role share a sentence.
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
            labelled = [table for table in tables if "hypothesis" in table.names]
            if labelled and {
                column for source in sources for column in (source.first, source.second)
            } <= set(TRIPLET):
                tables = [
                    *(table for table in tables if "hypothesis" not in table.names),
                    NLITriplets()(labelled),
                ]
            rows = [pairs for table in tables for pairs in _eligible(table, sources)]
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


def _eligible(table: Rows, sources: Sequence[Source]) -> Iterator[tuple[Pair, ...]]:
    """Yield the pair of each source for every row that makes an example for all of them."""
    bounds = sources[0].scores
    scores = table.column("score") if bounds else []
    columns = [
        (source, table.column(source.first), table.column(source.second)) for source in sources
    ]
    for row in range(len(table)):
        if bounds is None or (scores[row] is not None and scores[row] in bounds):
            pairs = [source.pair(first[row], second[row]) for source, first, second in columns]
            if None not in pairs:
                yield tuple(pair for pair in pairs if pair)


def _draw(rows: Sequence[tuple[Pair, ...]], shots: int, seed: int) -> list[tuple[Pair, ...]]:
    """Return ``shots`` of the rows, or fewer if all others repeat a sentence."""
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
