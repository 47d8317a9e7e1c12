"""Filters for the replies of a language model: each is accepted, or rejected with a reason."""

import math
import re
from collections.abc import Callable, Iterator, Mapping

from lightning_cse.generation.pattern import SOURCE, Checks, Role
from lightning_cse.generation.text import (
    MASK,
    cleaned,
    count_sentences,
    is_complete,
    letters,
    refuses,
)
from lightning_cse.llm import Reply, read_answer

Cosine = Callable[[str, str], float]
"""The cosine of two sentences by an encoder."""

_FEW = 6
"""A sentence of fewer words may be paraphrased in a single word."""

_SCORE = re.compile(
    r"\A\W*(?:json\W*)?(?:(?:\w+ ){0,4}score\W*(?:(?:[a-z]+ ){0,6}(?:is|of)\W*)?)?"
    r"(?<![-−\d.,])(\d*\.?\d+)(?!\d|[.,:-]\d|e[-+]?\d|\s*(?:%|/|out of))",
    re.IGNORECASE,
)
"""A number, perhaps marked as JSON or after the word score; no fraction, percentage or range."""


def judge(
    reply: Reply,
    role: Role,
    by_role: Mapping[str, str],
    reference: str,
    cosine: Cosine | None = None,
) -> tuple[str, str | None]:
    """Return the sentence of a reply and the first reason to reject it, None if it is accepted.

    ``known`` has the sentences by role, the source included; the role is made from the
    ``reference`` among them. ``cosine`` is needed for roles with bounds of it.
    """
    answer = read_answer(reply.text, "sentence")
    text = cleaned(answer or "", role.fields[1], reference)
    sentence = " ".join(text.split())
    reason = next(_reasons(reply, text, role, by_role, reference), None)
    if reason in (None, "empty") and (answer is None or read_answer(text, "sentence") != text):
        reason = "no sentence"

    bounds = role.checks.cosine
    if reason is None and bounds is not None and cosine is not None:
        meaning = cosine(by_role[SOURCE], sentence)
        if meaning <= bounds.get("above", -math.inf):
            reason = "too far in meaning"
        elif meaning >= bounds.get("below", math.inf):
            reason = "too close in meaning"

    return sentence, reason


def read_score(reply: Reply) -> tuple[float, str | None]:
    """Return the score of a reply, and the reason to reject it, None if it is accepted.

    Source: CLAIF, authors' code. Differs: the authors take the first number, whatever it is.
    """
    answer = read_answer(reply.text, "score") or ""
    match = _SCORE.search(answer)
    score = float(match[1]) if match else math.nan
    if reply.refused or refuses(answer):
        return score, "refused"

    if match is None:
        return score, "no score"

    return score, None if score <= 1 else "score not from 0 to 1"


def _reasons(
    reply: Reply, text: str, role: Role, by_role: Mapping[str, str], reference: str
) -> Iterator[str]:
    """Yield the reasons to reject a text, whatever its meaning."""
    content = letters(text)
    checks = role.checks
    inputs = (by_role[SOURCE], reference)
    if reply.refused or (refuses(text) and not any(map(refuses, inputs))):
        yield "refused"
    if reply.finish == "length" and not is_complete(text):
        yield "cut off"
    if not content:
        yield "empty"
    if role.masked is not None and MASK in text.lower():
        yield "mask left"
    if _echoes_prompt(text, role, inputs):
        yield "echo of the prompt"
    if content in map(letters, inputs):
        yield "echo of the source"

    yield from _length_reasons(text, checks, reference)
    if content in map(letters, by_role.values()):
        yield "equal to another role"

    longer = by_role.get(checks.less_detail_than or "")
    if longer is not None and len(text.split()) >= len(longer.split()):
        yield "more detail"


def _length_reasons(text: str, checks: Checks, reference: str) -> Iterator[str]:
    """Yield the reasons to reject a text for its length, beside what it is made from."""
    sentences = count_sentences(text)
    words = len(text.split())
    reference_words = len(reference.split())
    longest = math.inf if checks.longest is None else checks.longest * reference_words
    shortest = 0.0
    if checks.shortest is not None and reference_words >= _FEW:
        shortest = checks.shortest * reference_words

    if sentences > max(checks.most_sentences or sentences, count_sentences(reference)):
        yield "several sentences"
    if words > max(checks.always_allowed, longest):
        yield "too long"
    if words < shortest:
        yield "too short"


def _echoes_prompt(text: str, role: Role, inputs: tuple[str, str]) -> bool:
    """Whether a reply has a label, or is a sentence of an example."""
    for field in role.fields:
        # Whatever the number of the label.
        name = re.sub(r"\d+", r"\\d+", re.escape(field.strip()))
        label = re.compile(rf"(?i)\b{name}\W*[:：]")
        if label.search(text) and not label.search("\n".join(inputs)):
            return True

    reference = letters(inputs[1])
    for pair in role.example_pairs.chosen:
        # The second sentence of an example may be the answer to its first.
        if letters(pair[0]) != reference and letters(text) in map(letters, pair):
            return True

    return False
