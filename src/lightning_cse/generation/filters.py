"""Filters for the replies of a language model: each is accepted, or rejected with a reason."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from lightning_cse.generation.pattern import SOURCE, Role
from lightning_cse.generation.text import cleaned, count_sentences, is_complete, letters, refuses
from lightning_cse.llm import Reply

_FEW: Final = 6
"""A sentence of fewer words may be paraphrased in a single word."""


@dataclass(frozen=True)
class Candidate:
    """The sentence of a reply, and what it is judged against.

    The role is made from the ``reference``: the ``source``, or the sentence ``written`` for an
    earlier role.
    """

    reply: Reply
    text: str
    role: Role
    source: str
    reference: str
    written: Mapping[str, str]

    @property
    def sentence(self) -> str:
        """The text in one line."""
        return " ".join(self.text.split())

    @property
    def words(self) -> int:
        """The number of words."""
        return len(self.text.split())

    @property
    def given(self) -> tuple[str, str]:
        """The sentences that the language model was given."""
        return self.source, self.reference


def judge(
    reply: Reply,
    role: Role,
    source: str,
    reference: str,
    written: Mapping[str, str],
) -> tuple[str, str | None]:
    """Return the sentence of a reply and the first reason to reject it, None if it is accepted."""
    text = cleaned(reply.text, role.fields[1], reference)
    candidate = Candidate(reply, text, role, source, reference, written)

    return candidate.sentence, next(_reasons(candidate), None)


def _reasons(candidate: Candidate) -> Iterator[str]:
    """Yield the reasons to reject a candidate, the first to report first."""
    content = letters(candidate.text)
    checks = candidate.role.checks
    sentences = count_sentences(candidate.text)
    most = max(checks.most_sentences or sentences, count_sentences(candidate.reference))

    is_refusal = refuses(candidate.text) and not any(map(refuses, candidate.given))
    if candidate.reply.refused or is_refusal:
        yield "refused"

    if candidate.reply.finish == "length" and not is_complete(candidate.text):
        yield "cut off"

    if not content:
        yield "empty"

    if _echoes_prompt(candidate, content):
        yield "echo of the prompt"

    if content in map(letters, candidate.given):
        yield "echo of the source"

    if sentences > most:
        yield "several sentences"

    yield from _wrong_length(candidate)
    if content in map(letters, candidate.written.values()):
        yield "equal to another role"

    if checks.less_detail_than is not None:
        other = {SOURCE: candidate.source, **candidate.written}[checks.less_detail_than]
        if candidate.words >= len(other.split()):
            yield "more detail"


def _echoes_prompt(candidate: Candidate, content: str) -> bool:
    """Whether a reply has a label, or is a sentence of an example."""
    role = candidate.role
    given = "\n".join(candidate.given)

    for field in role.fields:
        label = _label(field)
        if label.search(candidate.text) and not label.search(given):
            return True

    asked = letters(candidate.reference)
    for pair in role.examples.shown:
        # The second sentence of an example may be the answer to its first.
        if letters(pair[0]) != asked and content in map(letters, pair):
            return True

    return False


def _wrong_length(candidate: Candidate) -> Iterator[str]:
    checks = candidate.role.checks
    words = candidate.words
    of = len(candidate.reference.split())

    if checks.longest is not None and words > max(checks.always_allowed, checks.longest * of):
        yield "too long"

    if checks.shortest is not None and of >= _FEW and words < checks.shortest * of:
        yield "too short"


def _label(field: str) -> re.Pattern[str]:
    """Return the pattern of a field's label, whatever its number."""
    label = re.sub(r"\d+", r"\\d+", re.escape(field.strip()))
    return re.compile(rf"(?i)\b{label}\W*[:：]")
