"""Similarity patterns: what a language model writes for a sentence, role by role."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Final

import pydantic
from pydantic import BaseModel, Discriminator, Field, Tag, ValidationError

from lightning_cse.errors import did_you_mean
from lightning_cse.generation.examples import Examples, Pair, Source, draw_examples

SOURCE: Final = "source"
"""The reference of a role that is made from the sentence itself."""
ANCHOR: Final = "anchor"
"""That sentence's key in a row."""

_PLACEHOLDERS: Final = {
    "prompt": ("task", "relation", "examples", "rule"),
    "example": ("number", "first_field", "first", "second_field", "second"),
}
"""The placeholders that a layout may have in braces."""

Text = Annotated[str, Field(pattern=r"\S")]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]

# The config --------------------------------------------------------------------------------------


class Checks(BaseModel, extra="forbid", strict=True, frozen=True):
    """The filters that a pattern sets for one role; null switches a filter off.

    - ``most_sentences``: unless the sentence that the role is made from has more.
    - ``longest``: times the words of that sentence, or ``always_allowed`` words.
    - ``shortest``: times the words of that sentence, if it has six or more.
    - ``less_detail_than``: an earlier role with more words, or as many and closer to the source.
    - ``refused_words``: how refusals begin in other languages.

    Source: NGCSE, whose code takes every reply. Differs: every filter is our own.
    """

    most_sentences: Annotated[int, Field(ge=1)] | None = 1
    longest: Positive | None = 2.5
    always_allowed: Annotated[int, Field(ge=0)] = 16
    less_detail_than: str | None = None
    shortest: Positive | None = None
    refused_words: list[Text] | None = None


class _Layout(BaseModel, extra="forbid", strict=True):
    prompt: str
    example: str

    @pydantic.field_validator("prompt", "example")
    @classmethod
    def _has_known_placeholders(
        cls,
        text: str,
        info: pydantic.ValidationInfo,
    ) -> str:
        known = _PLACEHOLDERS[str(info.field_name)]
        for name in re.findall(r"\{(\w+)\}", text):
            if name not in known:
                raise ValueError(f"unknown placeholder {{{name}}}{did_you_mean(name, known)}")

        return text


def _kind_of_examples(node: Any) -> str:
    return "drawn" if isinstance(node, dict | Source) else "pairs"


class _Role(BaseModel, extra="forbid", strict=True):
    name: str = Field(pattern=r"^[^\W\d]\w*$")  # a key of a row
    reference: str
    task: Text
    relation: Text
    fields: tuple[Text, Text]
    examples: Annotated[
        Annotated[tuple[tuple[Text, Text], ...], Tag("pairs")] | Annotated[Source, Tag("drawn")],
        Discriminator(_kind_of_examples),
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
        faults: list[str] = []
        known = [SOURCE]

        for number, role in enumerate(self.roles):
            faults.extend(f"roles.{number}.{fault}" for fault in _wrong_names(role, known))
            known.append(role.name)

        if faults:
            raise ValueError("; ".join(faults))

        return self


def _wrong_names(role: _Role, known: list[str]) -> Iterator[str]:
    """Yield a fault for each name of a role that is not the source or that of an earlier role."""
    if role.name in (ANCHOR, *known):
        yield f"name: must not be the source or an earlier role, got {role.name!r}"

    references = {"reference": role.reference}
    if role.checks and role.checks.less_detail_than:
        references["checks.less_detail_than"] = role.checks.less_detail_than

    for key, name in references.items():
        if name not in known:
            yield f"{key}: must be one of {known}, got {name!r}{did_you_mean(name, known)}"


def wrong_pattern(node: Any) -> Iterator[str]:
    """Yield all faults of the config below ``pattern``, given as plain values; no file is read."""
    try:
        _Pattern.model_validate_json(json.dumps(node))
    except ValidationError as error:
        for fault in error.errors(include_url=False):
            place = ".".join(["pattern", *map(str, fault["loc"])])
            yield f"{place}: {fault['msg']}"


# The pattern -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Role:
    """A sentence that is written for each source.

    ``reference`` is what it is made from: `SOURCE`, or the name of an earlier role. ``system`` is
    the system message, examples included, and ``fields`` are the labels of an example's two
    sentences.
    """

    name: str
    reference: str
    system: str
    fields: tuple[str, str]
    examples: Examples
    checks: Checks


@dataclass(frozen=True)
class Pattern:
    """The roles that a language model writes for a sentence, with the same examples for all.

    Source: NGCSE, similarity pattern simulation. Differs: the wording is our own, and so is the
    draw of the examples.
    """

    name: str
    roles: tuple[Role, ...]

    @cached_property
    def digest(self) -> str:
        """The sha256 of what is the same for every sentence: names, references, system messages."""
        document = [
            [
                role.name,
                role.reference,
                role.system,
            ]
            for role in self.roles
        ]

        return hashlib.sha256(json.dumps(document).encode()).hexdigest()

    @property
    def digests(self) -> dict[str, str]:
        """The sha256 of the files that the examples come from, by name."""
        digests: dict[str, str] = {}

        for role in self.roles:
            digests.update(role.examples.digests)

        return digests


def build_pattern(node: Mapping[str, Any], data_dir: Path) -> Pattern:
    """Build the pattern of a config without `wrong_pattern`; raises like `draw_examples`."""
    config = _Pattern.model_validate_json(json.dumps(node))
    keys = {f"pattern.roles.{number}.examples": role for number, role in enumerate(config.roles)}
    wanted = {key: role.examples for key, role in keys.items() if isinstance(role.examples, Source)}
    drawn = draw_examples(
        wanted,
        data_dir,
        shots=config.shots,
        seed=config.seed,
    )
    roles = []

    for key, role in keys.items():
        if isinstance(role.examples, Source):
            examples = drawn[key]
        else:
            examples = Examples(shown=role.examples, pool=role.examples)
        roles.append(
            Role(
                name=role.name,
                reference=role.reference,
                system=_system_message(
                    role,
                    examples.shown,
                    config.layout,
                ),
                fields=role.fields,
                examples=examples,
                checks=role.checks or Checks(),
            )
        )

    return Pattern(config.name, tuple(roles))


def _system_message(
    role: _Role,
    examples: tuple[Pair, ...],
    layout: _Layout,
) -> str:
    shown = []
    for number, (first, second) in enumerate(examples, start=1):
        example = _filled(
            layout.example,
            number=str(number),
            first_field=role.fields[0],
            first=first,
            second_field=role.fields[1],
            second=second,
        )
        shown.append(example)

    prompt = _filled(
        layout.prompt,
        task=role.task.strip(),
        relation=role.relation.strip(),
        examples="\n\n".join(shown),
        rule=role.rule.strip(),
    )
    return prompt.strip()


def _filled(layout: str, **values: str) -> str:
    """Return a layout with its placeholders filled; braces in the values are left alone."""
    return re.sub(
        r"\{(\w+)\}",
        lambda match: values[match[1]],
        layout,
    )
