"""Similarity patterns: what a language model writes for a sentence, role by role."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import pydantic
from pydantic import BaseModel, Field, ValidationError

from lightning_cse.generation.examples import Examples, Pair, Source, draw_examples
from lightning_cse.generation.text import mask_words

SOURCE = "source"
"""The reference of a role that is made from the sentence itself."""
ANCHOR = "anchor"
"""That sentence's key in a row."""
SENTENCE = "{sentence}"
"""The message of the user that is the sentence alone."""

Text = Annotated[str, Field(pattern=r"\S")]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Score = Annotated[float, Field(ge=0, le=1)]
Bounds = Annotated[
    dict[Literal["above", "below"], Annotated[float, Field(ge=-1, le=1)]], Field(min_length=1)
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
    relation: str = ""
    fields: tuple[Text, Text]
    examples: tuple[tuple[Text, Text], ...] | Source = ()
    rule: Text
    message: Text = SENTENCE
    masked: Annotated[float, Field(gt=0, le=1)] | None = None
    checks: Annotated[
        Checks, pydantic.BeforeValidator(lambda checks: {} if checks is None else checks)
    ] = Checks()


class Scoring(BaseModel, extra="forbid", strict=True, str_strip_whitespace=True):
    """How a model is asked for the score of a pair: the system message, and that of the user."""

    task: Text
    rule: Text
    message: Text

    @property
    def system(self) -> str:
        """The system message."""
        return f"{self.task}\n\n{self.rule}"


class _Pattern(BaseModel, extra="forbid", strict=True):
    name: str = Field(pattern=r"^\w[\w.-]*$")  # it names a folder
    shots: int = Field(ge=1)
    seed: int = Field(ge=0)
    reference: str | None = None  # for roles that share one, by interpolation
    longer_first: bool = False  # the same
    cosine: dict[str, Any] = {}  # the same, by role
    layout: dict[Literal["prompt", "example"], str] = Field(min_length=2)
    given: tuple[str, ...] = ()  # roles that the data has
    scores: dict[str, Score | Literal["asked"]] = {}  # of the pairs of the source and a role
    scoring: Scoring | None = None  # how the model is asked for them
    experiment: str | None = None  # which trains on the rows
    roles: tuple[_Role, ...]

    @property
    def asked(self) -> tuple[str, ...]:
        """The roles whose pairs the model is asked to score."""
        return tuple(name for name, score in self.scores.items() if score == "asked")

    @pydantic.model_validator(mode="after")
    def _has_what_it_refers_to(self) -> Self:
        names = [*self.given, *(role.name for role in self.roles)]
        if not self.roles and not self.asked:
            raise ValueError("roles: at least one sentence must be written, or one score asked")

        for name in self.scores:
            if name not in names:
                raise ValueError(f"scores: {name!r} must be one of {names}")

        if self.given and len(self.scores) != 1:
            raise ValueError("scores: rows of given sentences have one score")

        if self.asked and self.scoring is None:
            raise ValueError("scoring: says how the model is asked for a score")

        if self.scoring is not None:
            _check_message("scoring.message", self.scoring.message, first="", second="")

        return self

    @pydantic.model_validator(mode="after")
    def _refers_to_earlier_roles(self) -> Self:
        earlier = [SOURCE, *self.given]

        for role in self.roles:
            try:
                _system_message(role, (("first", "second"),), self.layout)
            except (KeyError, IndexError, ValueError) as error:
                raise ValueError(f"layout: unknown placeholder {error}") from None

            _check_message(f"{role.name}.message", role.message, sentence="")
            if role.name in (ANCHOR, *earlier):
                raise ValueError(f"{role.name} must not be the source or an earlier role")

            for name in (role.reference, role.checks.less_detail_than or SOURCE):
                if name not in earlier:
                    raise ValueError(f"{role.name}: {name!r} must be one of {earlier}")

            earlier.append(role.name)

        return self


def wrong_pattern(node: Any) -> Iterator[str]:
    """Yield all faults of the config below ``pattern``, given as plain values; no file is read."""
    try:
        _Pattern.model_validate_json(json.dumps(node))
    except ValidationError as error:
        for fault in error.errors(include_url=False):
            key = ".".join(["pattern", *map(str, fault["loc"])])
            yield f"{key}: {fault['msg']}"


# The pattern -------------------------------------------------------------------------------------


class Role(_Role):
    """A sentence that is written for each source, as its config says.

    ``reference`` is what it is made from: `SOURCE`, or the name of an earlier role. ``system`` is
    the system message with the chosen ``example_pairs``, and ``fields`` are the labels of an
    example's two sentences. ``message`` is that of the user, around the sentence; a share of its
    words are ``masked``.
    """

    system: str
    example_pairs: Examples

    def content(self, sentence: str, seed: int) -> str:
        """Return the message of the user for a sentence."""
        text = sentence if self.masked is None else mask_words(sentence, self.masked, seed)

        return self.message.format(sentence=text)


class Pattern(_Pattern):
    """The roles that a language model writes for a sentence, with the same examples for all.

    With ``scores``, rows are pairs of the source and a role's sentence with a score from 0 to 1;
    ``asked`` if the model is asked for it. ``given`` are roles that the data has.

    Source: NGCSE, similarity pattern simulation; Dino (Schick and Schütze 2021) for pairs of a
    score, CLAIF (Cheng et al. 2023) for scores that the model gives. Differs: the wording is our
    own, and so is the draw of the examples.
    """

    roles: tuple[Role, ...]

    @cached_property
    def digest(self) -> str:
        """The sha256 of what is the same for every sentence: names, references, system messages,
        and, of patterns with scores, how these come about.
        """
        document: list[Any] = [[role.name, role.reference, role.system] for role in self.roles]
        messages = [[role.message, role.masked] for role in self.roles]
        scoring = [self.scoring.system, self.scoring.message] if self.scoring else ["", ""]
        if self.scores or messages != [[SENTENCE, None]] * len(self.roles):
            document += [messages, self.given, list(self.scores.items()), scoring, self.seed]

        return hashlib.sha256(json.dumps(document).encode()).hexdigest()

    @property
    def measured(self) -> tuple[str, ...]:
        """The roles that stand in the rows with the source."""
        return tuple(self.scores) or tuple(role.name for role in self.roles)

    @property
    def digests(self) -> dict[str, str]:
        """The sha256 of the files that the examples come from, by name."""
        digests: dict[str, str] = {}

        for role in self.roles:
            digests.update(role.example_pairs.digests)

        return digests


def build_pattern(node: Mapping[str, Any], data_dir: Path) -> Pattern:
    """Build the pattern of a config without `wrong_pattern`; raises like `draw_examples`."""
    config = _Pattern.model_validate_json(json.dumps(node))
    keys = {f"pattern.roles.{number}.examples": role for number, role in enumerate(config.roles)}
    sources = {
        key: role.examples for key, role in keys.items() if isinstance(role.examples, Source)
    }
    examples = draw_examples(sources, data_dir, shots=config.shots, seed=config.seed)
    roles = []

    for key, role in keys.items():
        if not isinstance(role.examples, Source):
            examples[key] = Examples(role.examples, role.examples)

        system = _system_message(role, examples[key].chosen, config.layout)
        roles.append(Role.model_construct(**dict(role), system=system, example_pairs=examples[key]))

    return Pattern.model_construct(**dict(config) | {"roles": tuple(roles)})


def _check_message(name: str, message: str, **words: str) -> None:
    """Raise ValueError unless a message has these placeholders alone."""
    try:
        message.format(**words)
    except (KeyError, IndexError, ValueError) as error:
        raise ValueError(f"{name}: unknown placeholder {error}") from None

    missing = [word for word in words if f"{{{word}}}" not in message]
    if missing:
        raise ValueError(f"{name}: must have the placeholder {{{missing[0]}}}")


def _system_message(role: _Role, examples: tuple[Pair, ...], layout: Mapping[Any, str]) -> str:
    first_field, second_field = role.fields
    numbered = [
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
        examples="\n\n".join(numbered),
        rule=role.rule.strip(),
    )

    return prompt.strip()
