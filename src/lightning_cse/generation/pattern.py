"""Similarity patterns: what a language model is asked to write for a sentence, role by role."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import (
    BaseModel,
    Discriminator,
    Field,
    Tag,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from lightning_cse.errors import did_you_mean
from lightning_cse.generation.examples import Bounds, Examples, Pair, Source, draw_examples
from lightning_cse.generation.filters import Checks

SOURCE: Final = "source"  # the reference of a role that is made of the sentence itself
ANCHOR: Final = "anchor"  # that sentence's key in a row

_PLACEHOLDERS: Final = {
    "prompt": ("task", "relation", "examples", "rule"),
    "example": ("number", "first_field", "first", "second_field", "second"),
}
"""What may stand in braces in a layout."""

Text = Annotated[str, Field(pattern=r"\S")]


class _Layout(BaseModel, extra="forbid", strict=True):
    prompt: str
    example: str

    @field_validator("prompt", "example")
    @classmethod
    def _has_known_placeholders(cls, text: str, info: ValidationInfo) -> str:
        known = _PLACEHOLDERS[str(info.field_name)]
        if unknown := [name for name in re.findall(r"\{(\w+)\}", text) if name not in known]:
            raise ValueError(f"unknown placeholder {{{unknown[0]}}}{did_you_mean(unknown[0], known)}")
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
    layout: _Layout
    roles: tuple[_Role, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _refers_to_earlier_roles(self) -> _Pattern:
        faults, names = [], [role.name for role in self.roles]
        for number, role in enumerate(self.roles):
            at, known = f"roles.{number}", [SOURCE, *names[:number]]
            than = role.checks.less_detail_than if role.checks else None
            if role.name in (ANCHOR, *known):
                faults.append(f"{at}.name: must not be the source or an earlier role, got {role.name!r}")
            for key, name in (("reference", role.reference), ("checks.less_detail_than", than or SOURCE)):
                if name not in known:
                    faults.append(f"{at}.{key}: must be one of {known}, got {name!r}{did_you_mean(name, known)}")
        if faults:
            raise ValueError("\n".join(faults))
        return self


@dataclass(frozen=True)
class Role:
    """A sentence that is written for each source."""

    name: str
    reference: str  # what it is made of: `SOURCE`, or the name of an earlier role
    system: str  # the standing instruction, examples included
    fields: tuple[str, str]  # the labels of an example's two sentences
    examples: Examples
    checks: Checks


@dataclass(frozen=True)
class Pattern:
    """What a language model writes for a sentence, from examples that are the same for every sentence.

    Source: NGCSE, similarity pattern simulation. Differs: our own wording, and the draw of the examples.
    """

    name: str
    roles: tuple[Role, ...]

    @cached_property
    def digest(self) -> str:
        """The sha256 of all that is sent but the sentence: each role's name, reference and standing instruction."""
        document = [[role.name, role.reference, role.system] for role in self.roles]
        return hashlib.sha256(json.dumps(document).encode()).hexdigest()

    @property
    def digests(self) -> dict[str, str]:
        """The sha256 of the files that the examples are from, by name."""
        return {name: digest for role in self.roles for name, digest in role.examples.digests.items()}


def wrong_pattern(node: Any) -> Iterator[str]:
    """Yield all faults of the config below ``pattern``, as plain values; no file is read."""
    models = (_Pattern, _Layout, _Role, Source, Bounds, Checks)
    known = {each.alias or name for model in models for name, each in model.model_fields.items()}
    try:
        _Pattern.model_validate_json(json.dumps(node))
    except ValidationError as error:
        for fault in error.errors(include_url=False):
            at = ".".join(["pattern", *(str(part) for part in fault["loc"] if part not in ("pairs", "drawn"))])
            if fault["type"] == "extra_forbidden":
                key = str(fault["loc"][-1])
                yield f"{at}: there is no such key{did_you_mean(key, known - {key})}"
            elif fault["type"] == "value_error" and not fault["loc"]:
                yield from (f"pattern.{line}" for line in str(fault["ctx"]["error"]).splitlines())
            elif fault["type"] != "too_short" or not fault["input"]:  # or all its items have faults of their own
                yield f"{at}: {fault['msg'].removeprefix('Value error, ')}, got {str(fault['input'])[:60]!r}"


def build_pattern(node: Mapping[str, Any], data_dir: Path) -> Pattern:
    """Build the pattern of a config in which `wrong_pattern` finds nothing; raises as `draw_examples`."""
    config = _Pattern.model_validate_json(json.dumps(node))
    keys = {f"pattern.roles.{number}.examples": role for number, role in enumerate(config.roles)}
    wanted = {key: role.examples for key, role in keys.items() if isinstance(role.examples, Source)}
    drawn = draw_examples(wanted, data_dir, shots=config.shots, seed=config.seed)
    roles = []
    for key, role in keys.items():
        examples = drawn[key] if isinstance(role.examples, Source) else Examples(role.examples, role.examples)
        system = _system(role, examples.shown, config.layout)
        roles.append(Role(role.name, role.reference, system, role.fields, examples, role.checks or Checks()))
    return Pattern(config.name, tuple(roles))


def _system(role: _Role, examples: tuple[Pair, ...], layout: _Layout) -> str:
    fields, shown = dict(zip(("first_field", "second_field"), role.fields, strict=True)), []
    for number, (first, second) in enumerate(examples, start=1):
        shown.append(_filled(layout.example, number=str(number), first=first, second=second, **fields))
    texts = {name: getattr(role, name).strip() for name in ("task", "relation", "rule")}
    return _filled(layout.prompt, examples="\n\n".join(shown), **texts).strip()


def _filled(layout: str, **values: str) -> str:
    """Return a layout with its placeholders filled; braces in what they are filled with are left alone."""
    return re.sub(r"\{(\w+)\}", lambda found: values[found[1]], layout)
