"""What a language model is asked to write, role by role: the standing instructions, and what they are made of."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from lightning_cse.errors import did_you_mean
from lightning_cse.generation.checks import Checks
from lightning_cse.generation.examples import Examples, Pool, Wanted, draw_examples, wrong_examples
from lightning_cse.generation.nodes import absent_keys, given, is_list, is_pair, is_text, is_whole, unknown_keys

__all__ = ["ANCHOR", "SOURCE", "Pattern", "Prompt", "Role", "build_pattern", "wrong_pattern"]

SOURCE: Final = "source"
"""The reference of a role that is made of the source sentence."""

ANCHOR: Final = "anchor"
"""The source sentence's key in a row."""

_NUMBERS: Final = {"shots": 1, "seed": 0}
"""The whole numbers of a pattern, and the least each may be."""

_KEYS: Final = {
    "name": "what the pattern is called",
    "shots": "how many examples a role is shown",
    "seed": "what draws the examples",
    "layout": "the frame of a prompt and of an example",
    "roles": "a list of what is written for a sentence, in the order of asking",
}
_REFERENCE: Final = "reference"

_LAYOUTS: Final = {"prompt": "the frame of a prompt", "example": "the frame of an example"}
_PLACEHOLDERS: Final = {
    "prompt": ("task", "relation", "examples", "rule"),
    "example": ("number", "first_field", "first", "second_field", "second"),
}
_NEEDED: Final = {"prompt": ("task", "examples"), "example": ("first", "second")}
"""The placeholders without which a layout makes no prompt."""

_TEXTS: Final = {
    "task": "what the model is to do with the user's sentence",
    "relation": "how the two fields of an example relate",
    "rule": "what the reply is to be",
}
_ROLE: Final = {
    "name": "the key of the sentence in a row, such as positive",
    "reference": f"{SOURCE}, or the name of an earlier role, whose sentence the user gives",
    **_TEXTS,
    "fields": "the labels of an example's two sentences, as in [Premise, Hypothesis]",
    "examples": "what examples are drawn from, or pairs of sentences",
}
_CHECKS: Final = "checks"

_PLACEHOLDER: Final = re.compile(r"\{(\w+)\}")
_FILE_NAME: Final = re.compile(r"\w[\w.-]*")


@dataclass(frozen=True)
class Prompt:
    """What stands before a sentence.

    Attributes:
        system: The whole standing instruction.
        fields: The labels of the two fields of its examples.
        examples: Their sentences.
    """

    system: str
    fields: tuple[str, str]
    examples: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Role:
    """A sentence that is written for each source.

    Attributes:
        name: Its key in a row.
        reference: What it is made of: `SOURCE`, or the name of an earlier role.
        prompt: What is asked.
        checks: What a reply has to stand.
    """

    name: str
    reference: str
    prompt: Prompt
    checks: Checks

    def messages(self, sentence: str) -> tuple[tuple[str, str], ...]:
        """Return what is sent: the standing instruction, and the sentence as the user's turn."""
        return (("system", self.prompt.system), ("user", sentence))


@dataclass(frozen=True)
class Pattern:
    """A similarity pattern: what a language model writes for a sentence, from examples of each relation in meaning.

    The examples are drawn once and are the same for every sentence.

    Source: NGCSE, similarity pattern simulation.  Differs: the wording is our own, and which examples are drawn.

    Attributes:
        name: What it is called.
        roles: What is written, in the order of asking.
        pools: By role, what its examples were drawn from.
    """

    name: str
    roles: tuple[Role, ...]
    pools: Mapping[str, Pool]

    @cached_property
    def digest(self) -> str:
        """The sha256 of all that is sent but the sentence: each role's name, reference and standing instruction."""
        document = [[role.name, role.reference, role.prompt.system] for role in self.roles]
        return hashlib.sha256(json.dumps(document).encode()).hexdigest()

    @property
    def digests(self) -> dict[str, str]:
        """The sha256 of the files that the examples are from, by name."""
        return {name: digest for pool in self.pools.values() for name, digest in pool.digests.items()}


def build_pattern(node: Mapping[str, Any], data_dir: Path) -> Pattern:
    """Build a pattern, and draw its examples.

    Args:
        node: The config below ``pattern`` as plain values, in which `wrong_pattern` finds nothing.
        data_dir: Where the corpora are.

    Raises:
        ConfigError: As `draw_examples`.
        DataError: As `draw_examples`: a source is not there, or has too few pairs.
    """
    wanted: list[Wanted] = []
    drawn: dict[str, Examples] = {}
    for number, role in enumerate(node["roles"]):
        if isinstance(role["examples"], Mapping):
            key = f"pattern.roles.{number}.examples"
            wanted.append(Wanted.of(role["examples"], role=role["name"], key=key))
        else:
            drawn[role["name"]] = Examples.inline(role["examples"])
    drawn |= draw_examples(wanted, data_dir, shots=node["shots"], seed=node["seed"])
    roles = [
        Role(
            role["name"],
            role[_REFERENCE],
            _prompt(role, drawn[role["name"]].shown, node["layout"]),
            Checks(**(role.get(_CHECKS) or {})),
        )
        for role in node["roles"]
    ]
    return Pattern(node["name"], tuple(roles), {role.name: drawn[role.name].pool for role in roles})


def _prompt(role: Mapping[str, Any], examples: tuple[tuple[str, str], ...], layout: Mapping[str, str]) -> Prompt:
    first_field, second_field = role["fields"]
    shown = [
        _filled(
            layout["example"],
            {
                "number": str(number),
                "first_field": first_field,
                "first": first,
                "second_field": second_field,
                "second": second,
            },
        )
        for number, (first, second) in enumerate(examples, start=1)
    ]
    parts = {name: role[name].strip() for name in _TEXTS} | {"examples": "\n\n".join(shown)}
    return Prompt(_filled(layout["prompt"], parts).strip(), (first_field, second_field), examples)


def _filled(layout: str, values: Mapping[str, str]) -> str:
    """Return a layout with its placeholders filled; braces in what they are filled with are left alone."""
    return _PLACEHOLDER.sub(lambda found: values[found[1]], layout)


def wrong_pattern(node: Any) -> Iterator[str]:
    """Yield all that is wrong with the config below ``pattern``, as plain values, before any file is read."""
    if not isinstance(node, Mapping):
        yield f"pattern: {node!r} has no roles; choose a pattern, as in +pattern=sts"
        return
    yield from unknown_keys(node, [*_KEYS, _REFERENCE], "pattern")
    yield from absent_keys(node, _KEYS, "pattern")
    if (name := given(node, "name")) is not None and not (isinstance(name, str) and _FILE_NAME.fullmatch(name)):
        yield f"pattern.name: {name!r} would name a folder; letters, digits, '_', '-' and '.' are needed"
    for number, least in _NUMBERS.items():
        if (value := given(node, number)) is not None and not is_whole(value, least):
            yield f"pattern.{number}: {value!r} is not a whole number of at least {least}"
    if (layout := given(node, "layout")) is not None:
        yield from _wrong_layout(layout)
    if (roles := given(node, "roles")) is not None:
        yield from _wrong_roles(roles, given(node, _REFERENCE))


def _wrong_roles(roles: Any, shared: Any) -> Iterator[str]:
    """Yield what is wrong with the roles, and with the reference that several may share."""
    if not is_list(roles) or not roles:
        yield f"pattern.roles: {roles!r} is not a list of at least one role"
        return
    told = []
    if shared is not None and shared not in (SOURCE, *_names(roles)):
        told.append(shared)  # once, and not of each role that has it
        yield _wrong_reference(shared, "pattern.reference", _names(roles), "a role")
    for number, role in enumerate(roles):
        yield from _wrong_role(role, f"pattern.roles.{number}", _names(roles[:number]), told)


def _names(roles: Sequence[Any]) -> list[str]:
    return [role["name"] for role in roles if isinstance(role, Mapping) and is_text(role.get("name"))]


def _wrong_reference(reference: Any, at: str, roles: Sequence[str], what: str) -> str:
    known = [SOURCE, *roles]
    near = did_you_mean(str(reference), known)
    return f"{at}: {reference!r} is neither '{SOURCE}' nor {what}{near}; there are {', '.join(known)}"


def _wrong_layout(layout: Any) -> Iterator[str]:
    at = "pattern.layout"
    if not isinstance(layout, Mapping):
        yield f"{at}: {layout!r} has no prompt and no example, which are texts with words in braces"
        return
    yield from unknown_keys(layout, _LAYOUTS, at)
    yield from absent_keys(layout, _LAYOUTS, at)
    for name, known in _PLACEHOLDERS.items():
        if (text := given(layout, name)) is None:
            continue
        if not isinstance(text, str):
            yield f"{at}.{name}: {text!r} is not a text"
            continue
        found = _PLACEHOLDER.findall(text)
        for word in dict.fromkeys(found):
            if word not in known:
                there = ", ".join(f"{{{each}}}" for each in known)
                yield f"{at}.{name}: nothing fills {{{word}}}{did_you_mean(word, known)}; there are {there}"
        for word in _NEEDED[name]:
            if word not in found:
                yield f"{at}.{name}: has no {{{word}}}, which it needs"


def _wrong_role(role: Any, at: str, before: Sequence[str], told: Sequence[Any]) -> Iterator[str]:
    """Yield what is wrong with a role, given the names of those before it and references that have been told."""
    if not isinstance(role, Mapping):
        yield f"{at}: {role!r} is not a role; a role has {', '.join(_ROLE)}"
        return
    yield from unknown_keys(role, [*_ROLE, _CHECKS], at)
    yield from absent_keys(role, _ROLE, at)
    if (name := given(role, "name")) is not None:
        yield from _wrong_name(name, f"{at}.name", before)
    if (reference := given(role, _REFERENCE)) not in (None, SOURCE, *before, *told):
        yield _wrong_reference(reference, f"{at}.{_REFERENCE}", before, "a role before this one")
    for key, what in _TEXTS.items():
        if (text := given(role, key)) is not None and not is_text(text):
            yield f"{at}.{key}: {text!r} is no text that says {what}"
    if (fields := given(role, "fields")) is not None and not is_pair(fields):
        yield f"{at}.fields: {fields!r} is not two texts; they are {_ROLE['fields']}"
    if (examples := given(role, "examples")) is not None:
        yield from wrong_examples(examples, f"{at}.examples")
    if (checks := given(role, _CHECKS)) is not None:
        yield from Checks.faults(checks, f"{at}.{_CHECKS}", before)


def _wrong_name(name: Any, at: str, before: Sequence[str]) -> Iterator[str]:
    if not isinstance(name, str) or not name.isidentifier():
        yield f"{at}: {name!r} is no key of a row; letters, digits and '_' are needed, and no digit first"
    elif name in (ANCHOR, SOURCE):
        yield f"{at}: {name!r} is the name of the sentence that rows are made for"
    elif name in before:
        yield f"{at}: {name!r} is the name of an earlier role; each has its own"
