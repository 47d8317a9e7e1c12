"""Filters for the replies of a language model: each is accepted, or rejected with a reason."""

import math
import re
from collections.abc import Callable, Iterator, Mapping

from lightning_cse.generation.pattern import SOURCE, Bounds, Role
from lightning_cse.generation.text import (
    MASK,
    cleaned,
    count_sentences,
    is_complete,
    letters,
    refuses,
)
from lightning_cse.llm import Reply

Cosine = Callable[[str, str], float]
"""The cosine of two sentences by an encoder."""

_FEW = 6
"""A sentence of fewer words may be paraphrased in a single word."""

_SCORE = re.compile(
    r"\A\W*(?:json\W*)?(?:(?:\w+ ){0,4}score\W*(?:(?:[a-z]+ ){0,6}(?:is|of)\W*)?)?"
    r"(?<![-−\d.,])(\d*\.?\d+)(?!\d|[.,:-]\d|\s*(?:%|/|out of))",
    re.IGNORECASE,
)
"""A number, perhaps in JSON or after the word score; no fraction, percentage or range."""


def judge(
    reply: Reply,
    role: Role,
    source: str,
    reference: str,
    written: Mapping[str, str],
    cosine: Cosine | None = None,
) -> tuple[str, str | None]:
    """Return the sentence of a reply and the first reason to reject it, None if it is accepted.

    The role is made from the ``reference``: the ``source``, or the sentence ``written`` for an
    earlier role. ``cosine`` is needed for roles with bounds of it.
    """
    text = cleaned(reply.text, role.fields[1], reference)
    reasons = _reasons(
        reply,
        text,
        role,
        {SOURCE: source, **written},
        reference,
        cosine,
    )

    return " ".join(text.split()), next(reasons, None)


def read_score(reply: Reply) -> tuple[float, str | None]:
    """Return the score of a reply, and the reason to reject it, None if it is accepted.

    Source: CLAIF, authors' code. Differs: the authors take the first number, whatever it is.
    """
    found = _SCORE.search(reply.text)
    score = float(found[1]) if found else math.nan
    if reply.refused or refuses(reply.text):
        return score, "refused"

    if found is None:
        return score, "no score"

    return score, None if score <= 1 else "score not from 0 to 1"


def _reasons(
    reply: Reply,
    text: str,
    role: Role,
    known: Mapping[str, str],
    reference: str,
    cosine: Cosine | None,
) -> Iterator[str]:
    """Yield the reasons to reject a text, the first to report first; ``known`` has the sentences by
    role.
    """
    content = letters(text)
    checks = role.checks
    given = (known[SOURCE], reference)
    sentences = count_sentences(text)
    words = len(text.split())
    of = len(reference.split())

    if reply.refused or (refuses(text) and not any(map(refuses, given))):
        yield "refused"

    if reply.finish == "length" and not is_complete(text):
        yield "cut off"

    if not content:
        yield "empty"

    yield from _of_prompt(text, role, given)

    if content in map(letters, given):
        yield "echo of the source"

    if sentences > max(checks.most_sentences or sentences, count_sentences(reference)):
        yield "several sentences"

    if checks.longest is not None and words > max(checks.always_allowed, checks.longest * of):
        yield "too long"

    if checks.shortest is not None and of >= _FEW and words < checks.shortest * of:
        yield "too short"

    if content in map(letters, known.values()):
        yield "equal to another role"

    other = known.get(checks.less_detail_than or "")
    if other is not None and words >= len(other.split()):
        yield "more detail"

    if checks.cosine is not None and cosine is not None:
        yield from _of_meaning(checks.cosine, cosine(known[SOURCE], " ".join(text.split())))


def _of_meaning(bounds: Bounds, cosine: float) -> Iterator[str]:
    """Yield the reasons to reject a sentence of this cosine with the source."""
    if cosine <= bounds.get("above", -math.inf):
        yield "too far in meaning"

    if cosine >= bounds.get("below", math.inf):
        yield "too close in meaning"


def _of_prompt(text: str, role: Role, given: tuple[str, str]) -> Iterator[str]:
    """Yield the reasons to reject a sentence that has parts of its prompt."""
    if role.masked is not None and MASK in text.lower():
        yield "mask left"

    if _echoes_prompt(text, role, given):
        yield "echo of the prompt"


def _echoes_prompt(text: str, role: Role, given: tuple[str, str]) -> bool:
    """Whether a reply has a label, or is a sentence of an example."""
    for field in role.fields:
        # Whatever the number of the label.
        name = re.sub(r"\d+", r"\\d+", re.escape(field.strip()))
        label = re.compile(rf"(?i)\b{name}\W*[:：]")
        if label.search(text) and not label.search("\n".join(given)):
            return True

    asked = letters(given[1])
    for pair in role.drawn.shown:
        # The second sentence of an example may be the answer to its first.
        if letters(pair[0]) != asked and letters(text) in map(letters, pair):
            return True

    return False
