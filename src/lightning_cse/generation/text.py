"""Mask the words of a sentence; clean the reply of a language model, find refusals, and count
sentences.
"""

import math
import random
import re
import unicodedata
from collections.abc import Sequence
from itertools import pairwise

# What counts as equal ----------------------------------------------------------------------------


def letters(text: str) -> str:
    """Return the letters, marks and digits of a text in one case; sentences are compared by it."""
    if text.isascii():
        return re.sub(r"[\W_]+", "", text).lower()

    signs = (sign for sign in folded(text) if unicodedata.category(sign)[0] in "LNM")

    return "".join(signs).replace("\ufe0f", "")


def folded(text: str) -> str:
    """Return a text in one case and in Unicode's compatible form, with single spaces."""
    lower = unicodedata.normalize("NFKC", text).casefold()

    return " ".join(unicodedata.normalize("NFKC", lower).split())


# Masks -------------------------------------------------------------------------------------------

MASK = "<mask>"
"""What stands in the place of a word that a language model fills."""


def mask_words(sentence: str, share: float, seed: int) -> str:
    r"""Return a sentence with :math:`\lceil s n \rceil` of its :math:`n` words masked.

    In half of the sentences, neighbouring masks become one.

    Source: CLAIF (Cheng et al. 2023), authors' code. Differs: seed, share and sentence decide the
    draw.
    """
    words = sentence.split()
    # Of Python's generator, only random() is the same in all versions.
    generator = random.Random(f"{seed} {share} {sentence}")  # noqa: S311 - no secret
    draws = [generator.random() for _ in words]
    for index in sorted(range(len(words)), key=draws.__getitem__)[: math.ceil(share * len(words))]:
        words[index] = MASK

    if generator.random() < 0.5:
        words = [word for before, word in pairwise(["", *words]) if not before == word == MASK]

    return " ".join(words)


# Refusals ----------------------------------------------------------------------------------------

_SORRY = (
    r"(?:(?:i'm |i am )?(?:\w+ )?sorry|i apologize|my apologies|unfortunately)\b"
    r"[^.;:!?]{0,80}?[\s,.;:!-]+"
)
_I_CANNOT = r"i(?: can't| cannot| can not| won't|(?:'m| am) (?:unable|not able) to) "
_SERVE = (
    r"(?:help|comply|create|generate|provide|write|answer|continue|fulfill?|rewrite|rephrase"
    r"|paraphrase)"
)
_ASKED = r"(?:requests?|prompts?|questions?|tasks?|sentences?|hypothes[ie]s|premises?|paraphrases?)"
_REFUSALS = re.compile(
    rf"(?:{_SORRY}(?:but )?)?{_I_CANNOT}"
    rf"(?:assist\b|{_SERVE}(?: [\w-]+){{0,7}}? (?:{_ASKED}\b|(?:this|that)[.!]*$))"
    rf"|{_SORRY}(?:but )?{_I_CANNOT}(?:{_SERVE}|do)(?: (?:you )?(?:with|this|that)\b|[.!]*$)"
    r"|(?:as|i'm)(?: just)? an? "
    r"(?:ai|(?:\w+ )?language model|ai (?:language )?(?:model|assistant)),? (?:and )?i "
    r"(?:can't|cannot|don't|do not|am)\b"
    r"|(?:please|could you(?: please)?) provide (?:a|the) sentence\b"
)
_QUOTED = re.compile(r"[\"'“«].*[,.!?][\"'”»] \w")
"""Something said by somebody in a story."""


def refuses(text: str) -> bool:
    """Return whether a text begins like an English refusal."""
    plain = folded(text[:400].replace("’", "'"))

    return not _QUOTED.match(plain) and bool(_REFUSALS.match(plain.strip(" *_#>`~-\"'“”«»")))


# What is around the sentence ---------------------------------------------------------------------

_SENTENCE = (
    r"(?:sentence|hypothesis|statement|version|paraphrase|rewrite|text|output|answer|response)"
)
_LABEL = rf"(?:(?:the |your )?(?:(?:new|rewritten|revised) )?{_SENTENCE}|rewritten|assistant)"
_PATTERNS_AROUND = (
    r"\A(?:[-–—•*>]|\d{1,2}[.)])\s+(?=\D)",  # the bullet or number of a list
    r"\A(?:sure|certainly|of course|okay)(?:!\s+|[.,:]?\n|[.,:]\s+(?=here\b))",
    rf"\Ahere(?:['’]s| is)\b[^:.!?\n]{{0,80}}?\b{_SENTENCE}\b[^:.!?\n]{{0,80}}:[*_]*(?:\s+|\Z)",
    r"\A[^\n:：]{4,80}[:：][*_]*\n(?=.)",  # in any language, a line with a colon
    rf"\A[#*_\s]{{0,5}}{_LABEL}[*_]*(?::[*_]*\s+|\n)",
    rf"\n[(\[*_]{{0,3}}(?:note|explanation|this {_SENTENCE}|i (?:hope|kept|changed|replaced)"
    r"|let me know)\b.*\Z",
    r"(?<=[.!?\"”*_])\s[(*_]{0,3}note:.*\Z",
)
_AROUND = tuple(re.compile(pattern, re.IGNORECASE | re.DOTALL) for pattern in _PATTERNS_AROUND)
_CONTROL = re.compile(r"[\ud800-\udfff\ufeff\x00-\x08\x0e-\x1b\x7f]")
_WRAPPED = re.compile(
    r"(?s)(?:([*_`]{1,3}|[\"'])((?:\b'\b|(?!\1).)+)\1|[“„«「]([^“”„«»「」]+)[”“»」])"
)
"""One pair of quotes, backticks or emphasis marks around the whole text."""
_QUOTED_INSIDE_STOP = re.compile(r"\A[\"“]([^\"“”]*[^\"“”.!?…])[\"”]([.!?])\Z")


def cleaned(text: str, field: str = "", reference: str = "") -> str:
    """Return an answer without quotes, markdown, labels, preamble and remarks around the sentence.

    Anything that the reference has too, such as a number or a label, belongs to the sentence.
    """
    around = [pattern for pattern in _AROUND if not pattern.search(reference.strip())]

    if field.strip():
        words = r"\s+".join(map(re.escape, field.split()))
        around.append(re.compile(rf"(?i)\A([*_`]*){words}\s*(?:\1\s*[:：]|[:：]\s*\1)\s*"))

    text = _CONTROL.sub("", text)
    before = None

    while text != before:
        before = text
        text = _unwrapped(text, around)

    return text


def _unwrapped(text: str, around: Sequence[re.Pattern[str]]) -> str:
    """Return a text without its outermost layer."""
    lines = [line.strip() for line in text.splitlines()]
    text = "\n".join(filter(None, lines))
    wrapped = _WRAPPED.fullmatch(text)

    if wrapped:
        text = (wrapped[2] or wrapped[3]).strip()

    for pattern in around:
        text = pattern.sub("", text, count=1).strip()

    return _QUOTED_INSIDE_STOP.sub(r"\1\2", text)


# Sentences ---------------------------------------------------------------------------------------

_STOPS = "。！？｡।॥؟۔։"
_CLOSERS = r"[\"'”’»›\)\]}*_`“‘」』】）]*"
_ENDED = re.compile(rf"[.!?…{_STOPS}]\s?{_CLOSERS}\Z")
_BETWEEN = re.compile(
    rf"[.!?…]{_CLOSERS}\s(?![\W_]{{0,9}}[a-zß-öø-ÿα-ωа-я])|[{_STOPS}]\s?(?=[\w“「『])"
)
_SHORT = re.compile(
    r"\b((?:[^\W\d_]\.){1,3}[^\W\d_]|[A-Z]|Mrs?|Ms|Dr|Prof|St|Jr|Sr|vs|Inc|Ltd) ?\.(?=\s)"
)


def is_complete(text: str) -> bool:
    """Return whether a text ends with a full stop or a similar mark."""
    return bool(_ENDED.search(text))


def count_sentences(text: str) -> int:
    """Count the sentences of a text by a rule of thumb.

    A sentence ends with its line, or at a full stop or similar mark that no lower-case letter
    follows. A list's numbers and parts without letters do not count.
    """
    count = 0

    for line in text.splitlines():
        for part in _BETWEEN.split(_SHORT.sub(r"\1", line)):
            content = letters(part)
            if content and not re.fullmatch(r"\d{1,3}", content):
                count += 1

    return count
