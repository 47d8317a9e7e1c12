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
_WILLING: Final = r"(?:sure(?:\s+thing)?|certainly|of\s+course|absolutely|okay|ok|yes|gladly|no\s+problem)"
_SENTENCE: Final = (
    r"(?:sentence|hypothesis|statement|version|variant|rewrite|rewording|paraphrase|rephrasing|text|output|answer|"
    r"response|result)"
)
_NEW: Final = r"(?:new|rewritten|revised|generated|final)"
_HERE: Final = rf"\A(?:{_WILLING}\b[^:]{{0,40}}?)?\bhere(?:['’]s|\s+(?:is|are))\b"
_PREAMBLES: Final = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"{_HERE}[^\n]*:[*_]*\s*\n",
        rf"{_HERE}[^:]*:[*_]*\s*\Z",
        rf"{_HERE}[^:.!?]{{0,80}}?\b{_SENTENCE}\b[^:.!?]{{0,80}}:[*_]*(?:\s+|\Z)",
        rf"\A(?:{_WILLING}\b[^:]{{0,40}}?)?\bhere\s+(?:you\s+(?:go|are)|it\s+is)[:!.]\s+",
        rf"\A(?:{_WILLING}[.!:,]*\s*\n)+",
        rf"\A(?:[*_]*(?:the\s+|my\s+|your\s+)?(?:{_NEW}\s+)?{_SENTENCE}[*_]*:[*_]*\s+)+",
        rf"\A(?:the|my|your)\s+{_NEW}\s+{_SENTENCE}\s+is:\s+",
    )
)
"""What stands before the sentence: "Here is ...:" on a line of its own, or naming a sentence; "Sure!" on such a line;
"Rewritten sentence:", "Here you go!"."""


def cleaned(reply: str, second_field: str = "") -> str:
    r"""Return what is left of a reply without what models put around a sentence, blank lines left out.

    Taken off are outer white space, a reasoning model's thoughts, one pair of quotes, backticks or bold around all of
    it, a bullet, the label of the second field, and a preamble as "Here is the sentence:"; also one within the other.
    So a reply that was paid is not lost for a label.

    Example:
        >>> cleaned('Sure! Here is the hypothesis:\n\n**Hypothesis:** "A dog runs."', "Hypothesis")
        'A dog runs.'
    """
    text = _BROKEN.sub("", reply)
    patterns = [_THOUGHT, _TOKENS, _BULLET, *_PREAMBLES]
    if second_field.strip():
        patterns.append(label(second_field))
    before = None
    while text != before:
        before = text
        text = unwrapped("\n".join(line.strip() for line in text.splitlines() if line.strip()))
        for pattern in patterns:
            text = pattern.sub("", text, count=1).strip()
        text = _STOP_OUTSIDE.sub(r"\1\2", text)
    return text


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
