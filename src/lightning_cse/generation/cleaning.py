"""The sentence inside a reply, and what of a sentence counts when two are compared."""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from typing import Final

__all__ = ["cleaned", "label", "letters", "unwrapped"]

_BROKEN: Final = re.compile(r"[\ud800-\udfff\ufeff\x00-\x08\x0e-\x1b\x7f]")
"""Half characters, byte order marks and control characters: no tokenizer has a use for them, some files no place."""

_THOUGHT: Final = re.compile(r"\A(?:.*</think(?:ing)?>|\s*<think(?:ing)?>.*)", re.DOTALL)
"""What a reasoning model says to itself; some servers leave it in the reply, without its beginning or its end."""

_WRAPS: Final = (
    *(("```", "```"), ("`", "`")),
    *(("***", "***"), ("**", "**"), ("*", "*"), ("__", "__"), ("_", "_")),
    *(('"', '"'), ("'", "'"), ("``", "''")),
    *(("“", "”"), ("„", "“"), ("„", "”"), ("”", "”"), ("‘", "’"), ("‚", "‘"), ("’", "’")),
    *(("«", "»"), ("»", "«"), ("‹", "›"), ("「", "」"), ("『", "』")),
)
_APOSTROPHE: Final = re.compile(r"(?<=[^\W_])['’](?=[^\W_])")

_STOP_OUTSIDE: Final = re.compile(r"\A[\"“]([^\"“”]*[^\"“”.!?…])[\"”]([.!?])\Z")

_TOKENS: Final = re.compile(r"(?:(?:<\|\w+\|>|</s>)\s*)+\Z")
"""What ends a turn, where a server's template lets it through."""

_BULLET: Final = re.compile(r"\A(?:[-–—•*>]\s+)+")
_NUMBER: Final = re.compile(r"\A\(?\d{1,2}[.)]\s+(?=[^\W\d_]|[\"“'‘«*_])")
"""A list's number; a digit after it would make it one of a date or a score."""

_WILLING: Final = r"(?:sure(?:\s+thing)?|certainly|of\s+course|absolutely|okay|ok|yes|gladly|no\s+problem)"
_SENTENCE: Final = (
    r"(?:sentence|hypothesis|statement|version|variant|rewrite|rewording|paraphrase|rephrasing|text|output|answer|"
    r"response|result|contradiction|entailment)"
)
_NEW: Final = r"(?:new|rewritten|revised|generated|final|paraphrased|rephrased|reworded|simplified|shortened|shorter)"
_LABELS: Final = (
    rf"(?:(?:the\s+|my\s+|your\s+)?(?:{_NEW}\s+)?{_SENTENCE}|{_NEW}|negation|opposite|entailed|contradictory|"
    r"assistant|reply)"
)
_HERE: Final = rf"\A(?:{_WILLING}\b[^:]{{0,40}}?)?\bhere(?:['’]s|\s+(?:is|are))\b"
_HERE_ELSEWHERE: Final = (
    r"(?:voici|hier\s+(?:ist|sind)|aqu[íi]\s+(?:está|tienes?)|ecco|hier\s+is)\b[^:.!?]{0,60}?"
    r"\b(?:phrase|satz|oración|frase|zin|versione?|versión|hypoth[eè]se|paraphrase|umformulierung)\b[^:.!?]{0,60}"
)
_PREAMBLES: Final = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"{_HERE}[^\n]*:[*_]*\s*\n",
        rf"{_HERE}[^:]*:[*_]*\s*\Z",
        rf"{_HERE}[^:.!?]{{0,80}}?\b{_SENTENCE}\b[^:.!?]{{0,80}}:[*_]*(?:\s+|\Z)",
        rf"\A(?:{_WILLING}\b[^:]{{0,40}}?)?\bhere\s+(?:you\s+(?:go|are)|it\s+is)[:!.]\s+",
        rf"\A(?:{_WILLING}[.!:,]*\s*\n)+",
        rf"\A{_WILLING}!\s+(?=\S)",
        rf"\A(?:[*_]*{_LABELS}[*_]*:[*_]*\s+)+",
        rf"\A(?:\#+\s*|[*_]{{1,3}}){_LABELS}[*_]*\s*\n",
        rf"\A(?:the|my|your)\s+{_NEW}\s+{_SENTENCE}\s+is:\s+",
        rf"\A{_HERE_ELSEWHERE}[:：]\s+",
        # Whatever its language, a line that ends with a colon announces what follows.
        r"\A(?:(?:\S+[^\S\n]+){2,14}\S*[:：]|[^\n\d:：]{4,40}：)[*_]*\n(?=.)",
    )
)
"""What stands before the sentence: "Here is ...:" on a line of its own, or naming a sentence; "Sure!"; "Here you go!";
a label, as "Rewritten sentence:" or "Contradiction:"."""

_NOTE: Final = r"(?:please\s+)?note(?:\s+that\b|\s*[:：])|(?:n\.b\.|explanation|reasoning|rationale)\s*[:：]"
_OF_SENTENCE: Final = rf"(?:this|the|my)\s+(?:{_NEW}\s+)?{_SENTENCE}\s+[a-z]+s\b"
_DONE: Final = (
    r"(?:here,?\s+)?i(?:['’]ve|\s+have)?\s+"
    r"(?:kept|changed|rewrote|rewritten|rephrased|replaced|removed|omitted|used|left|preserved|simplified|made)\b"
)
_TAILS: Final = tuple(
    re.compile(pattern, re.IGNORECASE | re.DOTALL)
    for pattern in (
        rf"(?<!\s)\s+[(\[][*_]*(?:(?:{_NOTE}|{_OF_SENTENCE}|{_DONE})[^()\[\]]*|{_LABELS})[)\]][.*_]*\Z",
        rf"\n[(\[*_# -]*(?:{_NOTE}|{_OF_SENTENCE}).*\Z",
        rf"(?<=[.!?\"”*_])\s+[*_]*(?:{_NOTE}).*\Z",
    )
)
"""What stands after it: remarks on what was done, in brackets, on a line of their own, or called a note."""

_TO_USER: Final = tuple(
    re.compile(pattern, re.IGNORECASE | re.DOTALL)
    for pattern in (
        r"(?<=[.!?\"”*_\n])\s*(?:(?:please\s+)?(?:let\s+me\s+know|feel\s+free\s+to)\b|i\s+hope\s+(?:this|that|it)\b"
        r"|is\s+there\s+anything\s+else\b|would\s+you\s+like\s+(?:me|another|more)\b"
        r"|if\s+you(?:['’]d|\s+would)?\s+(?:like|need|want)\b).*\Z",
        rf"\n{_DONE}.*\Z",
    )
)
"""What assistants say to the user at their end."""

_TALK: Final = re.compile(r"(?=.*[.!?]\s).*\b(?:i|me|my|we|us|you|your)\b", re.IGNORECASE | re.DOTALL)
"""Several sentences, perhaps, in which somebody is spoken to."""


def cleaned(reply: str, second_field: str = "", reference: str = "") -> str:
    r"""Return what is left of a reply without what models put around a sentence, blank lines left out.

    Taken off are outer white space, a reasoning model's thoughts, one pair of quotes, backticks or bold around all of
    it, a bullet or a list's number, a label, the second field's among them, a preamble as "Here is the sentence:", and
    a remark after it, as "(Note: ...)" or "Let me know if ..."; also one within the other. So a reply that was paid is
    not lost for a label.

    Labels, numbers and remarks that the reference has too belong to the sentence. So may words to the user, if the
    reference has several sentences and speaks to somebody.

    Args:
        reply: What the model said.
        second_field: The label of what was asked for.
        reference: The sentence that it is made of.

    Example:
        >>> cleaned('Sure! Here is the hypothesis:\n\n**Hypothesis:** "A dog runs."', "Hypothesis")
        'A dog runs.'
        >>> cleaned("1. A dog runs.\n\n(Note: it is brown.)")
        'A dog runs.'
        >>> cleaned("1. FC Bonn lost.", reference="The 1. FC Bonn won.")
        '1. FC Bonn lost.'
    """
    text = _BROKEN.sub("", reply)
    always = [_THOUGHT, _TOKENS, _BULLET]
    if second_field.strip():
        always.append(label(second_field))
    perhaps = [_NUMBER, *_PREAMBLES, *_TAILS]
    if not _TALK.match(reference.strip()):
        perhaps.extend(_TO_USER)
    before = None
    while text != before:
        before = text
        text = unwrapped("\n".join(line.strip() for line in text.splitlines() if line.strip()))
        for pattern in always:
            text = pattern.sub("", text, count=1).strip()
        for pattern in perhaps:
            text = _without(text, pattern, reference)
        text = _STOP_OUTSIDE.sub(r"\1\2", text)
    return text


def _without(text: str, pattern: re.Pattern[str], reference: str) -> str:
    """Return a text without what a pattern finds, unless the reference begins or ends so, or has it within."""
    found = pattern.search(text)
    if found is None or pattern.search(reference) or _has(reference, found.group().strip()):
        return text
    return (text[: found.start()] + text[found.end() :]).strip()


def _has(text: str, part: str) -> bool:
    return bool(part) and re.search(rf"(?<!\w){re.escape(part)}", text, re.IGNORECASE) is not None


@lru_cache(maxsize=64)
def label(field: str) -> re.Pattern[str]:
    """Return the pattern of a field's label before a sentence, with its colon, in bold or not."""
    words = r"\s+".join(map(re.escape, field.split()))
    return re.compile(rf"\A(?:(?P<mark>[*_`]*){words}\s*(?:(?P=mark)\s*[:：]|[:：]\s*(?P=mark))\s*)+", re.IGNORECASE)


def unwrapped(text: str) -> str:
    r"""Return a text without the one pair of quotes, backticks or marks of emphasis that holds all of it.

    Example:
        >>> unwrapped('"It\'s late."'), unwrapped('"Go!" and "Stay!"')
        ("It's late.", '"Go!" and "Stay!"')
    """
    for first, last in _WRAPS:
        if len(text) > len(first) + len(last) and text.startswith(first) and text.endswith(last):
            inner = text[len(first) : -len(last)]
            within = _APOSTROPHE.sub("", inner)
            if first not in within and last not in within:
                return inner.strip()
    return text


def letters(text: str) -> str:
    """Return the letters and digits of a text, all that counts when two sentences are called equal.

    Case and width do not matter, and no sign or space. A mark belongs to the letter it stands on: without their vowels,
    words of many scripts would fall together.

    Example:
        >>> letters("A dog, ＤＯＧ №１!") == letters("a dog dog no1")
        True
    """
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    kept: list[str] = []
    on_letter = False
    for sign in folded:
        on_letter = sign.isalnum() or (on_letter and unicodedata.category(sign).startswith("M"))
        if on_letter:
            kept.append(sign)
    return "".join(kept)
