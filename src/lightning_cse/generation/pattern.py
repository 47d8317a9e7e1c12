"""Similarity patterns: what a language model writes for a sentence, role by role."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

import pydantic
from pydantic import BaseModel, Field, ValidationError

from lightning_cse.generation.examples import Examples, Pair, Source, draw_examples

SOURCE = "source"
"""The reference of a role that is made from the sentence itself."""
ANCHOR = "anchor"
"""That sentence's key in a row."""

Text = Annotated[str, Field(pattern=r"\S")]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Bounds = Annotated[
    dict[Literal["above", "below"], Annotated[float, Field(ge=-1, le=1)]],
    Field(min_length=1),
]

# The config --------------------------------------------------------------------------------------


class Checks(BaseModel, extra="forbid", strict=True, frozen=True):
    """The filters that a pattern sets for one role; null switches a filter off.

    - ``most_sentences``: unless the sentence that the role is made from has more.
    - ``longest``: times the words of that sentence, or ``always_allowed`` words.
    - ``shortest``: times the words of that sentence, if it has six or more.
    - ``less_detail_than``: an earlier role, which must have more words.
    - ``cosine``: bounds of the cosine with the source sentence, by the encoder ``checks_encoder``.

    Source: NGCSE, whose code takes every reply. Differs: every filter is our own.
    """

    most_sentences: Annotated[int, Field(ge=1)] | None = 1
    longest: Positive | None = 2.5
    always_allowed: Annotated[int, Field(ge=0)] = 16
    less_detail_than: str | None = None
    shortest: Positive | None = None
    cosine: Bounds | None = None


class _Role(BaseModel, extra="forbid", strict=True):
    name: str = Field(pattern=r"^[^\W\d]\w*$")  # a key of a row
    reference: str
    task: Text
    relation: Text
    fields: tuple[Text, Text]
    examples: tuple[tuple[Text, Text], ...] | Source
    rule: Text
    checks: Checks | None = None


class _Pattern(BaseModel, extra="forbid", strict=True):
    name: str = Field(pattern=r"^\w[\w.-]*$")  # it names a folder
    shots: int = Field(ge=1)
    seed: int = Field(ge=0)
    reference: str | None = None  # for roles that share one, by interpolation
    longer_first: bool = False  # the same
    cosine: dict[str, Any] = {}  # the same, by role
    layout: dict[Literal["prompt", "example"], str] = Field(min_length=2)
    roles: tuple[_Role, ...] = Field(min_length=1)

    @pydantic.model_validator(mode="after")
    def _refers_to_earlier_roles(self) -> _Pattern:
        known = [SOURCE]

        for role in self.roles:
            try:
                _system_message(role, (("first", "second"),), self.layout)
            except (KeyError, IndexError, ValueError) as error:
                raise ValueError(f"layout: unknown placeholder {error}") from None

            if role.name in (ANCHOR, *known):
                raise ValueError(f"{role.name} must not be the source or an earlier role")

            other = role.checks.less_detail_than if role.checks else None
            for name in (role.reference, other or SOURCE):
                if name not in known:
                    raise ValueError(f"{role.name}: {name!r} must be one of {known}")

            known.append(role.name)

        return self


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
        document = [[role.name, role.reference, role.system] for role in self.roles]
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
            examples = Examples(role.examples, role.examples)

        roles.append(
            Role(
                role.name,
                role.reference,
                _system_message(role, examples.shown, config.layout),
                role.fields,
                examples,
                role.checks or Checks(),
            )
        )

    return Pattern(config.name, tuple(roles))


def _system_message(
    role: _Role,
    examples: tuple[Pair, ...],
    layout: Mapping[Any, str],
) -> str:
    first_field, second_field = role.fields
    shown = [
        layout["example"].format(
            number=number,
            first_field=first_field,
            first=first,
            second_field=second_field,
            second=second,
        )
        for number, (first, second) in enumerate(examples, start=1)
    ]

    prompt = layout["prompt"].format(
        task=role.task.strip(),
        relation=role.relation.strip(),
        examples="\n\n".join(shown),
        rule=role.rule.strip(),
    )

    return prompt.strip()
