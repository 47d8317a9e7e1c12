"""Filters for the replies of a language model: each is cleaned, and then accepted, or rejected with a reason."""

import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Final

import pydantic_core
from pydantic import BaseModel, Field

from lightning_cse.metrics import match_error_rate

if TYPE_CHECKING:
    from lightning_cse.generation.pattern import Role
    from lightning_cse.llm import Reply

_RUN: Final = 8  # consecutive words of the prompt that no reply has by chance
_FEW: Final = 6  # a sentence of fewer words may be paraphrased in a single word

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Checks(BaseModel, extra="forbid", strict=True, frozen=True):
    """The filters that a pattern sets for one role; null switches a filter off.

    Source: NGCSE, whose code takes every reply. Differs: every filter is our own.
    """

    most_sentences: Annotated[int, Field(ge=1)] | None = (
        1  # unless the sentence that the role is made from has more
    )
    longest: Positive | None = 2.5  # times the words of that sentence ...
    always_allowed: Annotated[int, Field(ge=0)] = 16  # ... or this many words
    less_detail_than: str | None = (
        None  # an earlier role with more words, or as many and closer to the source
    )
    shortest: Positive | None = None  # times the words of that sentence, if it has six or more
    refused_words: list[Annotated[str, Field(pattern=r"\S")]] | None = (
        None  # how refusals begin in other languages
    )


def judge(
    reply: "Reply", role: "Role", source: str, reference: str, written: Mapping[str, str]
) -> tuple[str, str | None]:
    """Return the sentence of a reply and the first reason to reject it, or None if it is accepted.

    The role is made from the ``reference``: the ``source``, or the sentence that was ``written`` for an earlier role.
    """
    text = cleaned(reply.text, role.fields[1], reference)
    sentence, said, words = " ".join(text.split()), letters(text), len(text.split())
    checks, given, of = role.checks, (source, reference), len(reference.split())
    begin, labels = (
        checks.refused_words or (),
        [re.sub(r"\d+$", "", letters(field)) for field in role.fields],
    )
    nothing = _NOTHING.fullmatch(said) or re.sub(r"\d+$", "", said) in labels

    def detail(of: str) -> tuple[int, float]:
        return len(of.split()), -match_error_rate(source, of)

    reasons: dict[str, Callable[[], bool]] = {
        "refused": lambda: (
            reply.refused
            or (refuses(text, begin) and not any(refuses(one, begin) for one in given))
        ),
        "cut off": lambda: reply.finish == "length" and not _ENDED.search(text),
        "empty": lambda: not said or (nothing and all(len(one.split()) > words for one in given)),
        "echo of the prompt": lambda: _echoes(text, role, source, reference),
        "echo of the source": lambda: said in map(letters, given),
        "several sentences": lambda: (
            checks.most_sentences is not None
            and count_sentences(text) > max(checks.most_sentences, count_sentences(reference))
        ),
        "too long": lambda: (
            checks.longest is not None and words > max(checks.always_allowed, checks.longest * of)
        ),
        "too short": lambda: (
            checks.shortest is not None and of >= _FEW and words < checks.shortest * of
        ),
        "equal to another role": lambda: said in map(letters, written.values()),
        "more detail": lambda: (
            checks.less_detail_than is not None
            and detail(sentence) >= detail({"source": source, **written}[checks.less_detail_than])
        ),
    }
    return sentence, next((reason for reason, applies in reasons.items() if applies()), None)


_NOTHING: Final = re.compile("yes|no|none|na|null|nothing|unknown|sure|ok|true|false|same|nochange")


def _echoes(text: str, role: "Role", source: str, reference: str) -> bool:
    """Return whether a reply has a label, a sentence of an example, or eight consecutive words of the prompt."""
    given, said, asked = f"{source}\n{reference}", letters(text), letters(reference)
    if any(_label(field).search(text) and not _label(field).search(given) for field in role.fields):
        return True
    if any(said in map(letters, pair) for pair in role.examples.shown if letters(pair[0]) != asked):
        return True
    runs = _runs(text) & _runs(role.system)
    return bool(runs) and not runs <= _runs(source) | _runs(reference)


@lru_cache(maxsize=64)
def _label(field: str) -> re.Pattern[str]:
    """Return the pattern of a field's label, whatever its number; within a line, the case must be the same."""
    words = (
        r"\s+".join(re.sub(r"\d+", r"\\d+", re.escape(word)) for word in field.split()) or r"(?!)"
    )
    return re.compile(rf"(?:^[\s\W_]*(?i:{words})|(?<![^\W_]){words})[\s*_`]*[:：]", re.MULTILINE)


@lru_cache(maxsize=256)
def _runs(text: str) -> frozenset[tuple[str, ...]]:
    words = [word for word in map(letters, text.split()) if word]
    return frozenset(tuple(words[start : start + _RUN]) for start in range(len(words) - _RUN + 1))


def _folded(text: str) -> str:
    return " ".join(
        unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold()).split()
    )


def letters(text: str) -> str:
    """Return the letters, marks and digits of a text in one case; sentences count as equal if these are equal."""
    if text.isascii():
        return re.sub(r"[\W_]+", "", text).lower()
    return "".join(
        s for s in _folded(text) if unicodedata.category(s)[0] in "LNM" and s != "\ufe0f"
    )


_SORRY: Final = r"(?:(?:i'm |i am )?(?:\w+ )?sorry|i apologize|my apologies|unfortunately)\b[^.;:!?]{0,80}?[\s,.;:!-]+"
_I_CANNOT: Final = r"i(?: can't| cannot| can not| won't|(?:'m| am) (?:unable|not able) to) "
_SERVE: Final = r"(?:help|comply|create|generate|provide|write|answer|continue|fulfill?|rewrite|rephrase|paraphrase)"
_ASKED: Final = (
    r"(?:requests?|prompts?|questions?|tasks?|sentences?|hypothes[ie]s|premises?|paraphrases?)"
)
_REFUSALS: Final = re.compile(
    rf"(?:{_SORRY}(?:but )?)?{_I_CANNOT}(?:assist\b|{_SERVE}(?: [\w-]+){{0,7}}? (?:{_ASKED}\b|(?:this|that)[.!]*$))"
    rf"|{_SORRY}(?:but )?{_I_CANNOT}(?:{_SERVE}|do)(?: (?:you )?(?:with|this|that)\b|[.!]*$)"
    r"|(?:as|i'm)(?: just)? an? (?:ai|(?:\w+ )?language model|ai (?:language )?(?:model|assistant)),? (?:and )?i "
    r"(?:can't|cannot|don't|do not|am)\b"
    r"|(?:please|could you(?: please)?) provide (?:a|the) sentence\b"
)


def refuses(text: str, beginnings: Sequence[str] = ()) -> bool:
    """Return whether a text begins like a refusal in English, or with one of these beginnings in another language."""
    plain = _folded(text[:400].replace("’", "'"))
    if re.match(r"[\"'“«].*[,.!?][\"'”»] \w", plain):  # said by somebody in a story
        return False
    plain = plain.strip(" *_#>`~-\"'“”«»")
    return bool(_REFUSALS.match(plain)) or plain.startswith(tuple(map(_folded, beginnings)))


_SENTENCE: Final = (
    r"(?:sentence|hypothesis|statement|version|paraphrase|rewrite|text|output|answer|response)"
)
_LABEL: Final = (
    rf"(?:(?:the |your )?(?:(?:new|rewritten|revised) )?{_SENTENCE}|rewritten|assistant)"
)
_AROUND: Final = tuple(
    re.compile(pattern, re.IGNORECASE | re.DOTALL)
    for pattern in (
        r"\A(?:.*</think>|\s*<think>.*)",  # the thinking that some servers leave in a reply
        r"\A(?:[-–—•*>]|\d{1,2}[.)])\s+(?=\D)",  # the bullet or number of a list
        r"\A(?:sure|certainly|of course|okay)(?:!\s+|[.,:]?\n|[.,:]\s+(?=here\b))",
        rf"\Ahere(?:['’]s| is)\b[^:.!?\n]{{0,80}}?\b{_SENTENCE}\b[^:.!?\n]{{0,80}}:[*_]*(?:\s+|\Z)",
        r"\A[^\n:：]{4,80}[:：][*_]*\n(?=.)",  # in any language, a line with a colon
        rf"\A[#*_\s]{{0,5}}{_LABEL}[*_]*(?::[*_]*\s+|\n)",
        rf"\n[(\[*_]{{0,3}}(?:note|explanation|this {_SENTENCE}|i (?:hope|kept|changed|replaced)|let me know)\b.*\Z",
        r"(?<=[.!?\"”*_])\s[(*_]{0,3}note:.*\Z",
    )
)


def cleaned(text: str, field: str = "", reference: str = "") -> str:
    """Return a reply without the quotes, markdown, labels, numbers, preamble and remarks around the sentence.

    Anything that the reference has too, such as a number or a label, belongs to the sentence.
    """
    around = [pattern for pattern in _AROUND if not pattern.search(reference.strip())]
    if field.strip():
        words = r"\s+".join(map(re.escape, field.split()))
        around.append(re.compile(rf"(?i)\A([*_`]*){words}\s*(?:\1\s*[:：]|[:：]\s*\1)\s*"))
    text, before = re.sub(r"[\ud800-\udfff\ufeff\x00-\x08\x0e-\x1b\x7f]", "", _content(text)), None
    while text != before:
        before = text
        text = "\n".join(line.strip() for line in text.splitlines() if line.strip())
        if wrapped := _PAIR.fullmatch(text):
            text = (wrapped[2] or wrapped[3]).strip()
        for pattern in around:
            text = pattern.sub("", text, count=1).strip()
        text = re.sub(r"\A[\"“]([^\"“”]*[^\"“”.!?…])[\"”]([.!?])\Z", r"\1\2", text)
    return text


def _content(text: str) -> str:
    """Return the sentence of a reply in JSON, even if cut off or in a code block; any other reply is unchanged."""
    found = re.search(r"\A\s*(?:```(?:json)?\s*)?(\{.*?)(?:\s*```\s*)?\Z", text, re.DOTALL)
    if found is None:
        return text
    try:
        return str(
            pydantic_core.from_json(found[1], allow_partial="trailing-strings").get("sentence")
            or ""
        )
    except ValueError:
        return ""


# One pair of quotes, backticks or emphasis marks around the whole text.
_PAIR: Final = re.compile(
    r"(?s)(?:([*_`]{1,3}|[\"'])((?:\b'\b|(?!\1).)+)\1|[“„«「]([^“”„«»「」]+)[”“»」])"
)

_STOPS: Final = "。！？｡।॥؟۔։"
_CLOSERS: Final = r"[\"'”’»›\)\]}*_`“‘」』】）]*"
_ENDED: Final = re.compile(rf"[.!?…{_STOPS}]\s?{_CLOSERS}\Z")
_BETWEEN: Final = re.compile(
    rf"[.!?…]{_CLOSERS}\s(?![\W_]{{0,9}}[a-zß-öø-ÿα-ωа-я])|[{_STOPS}]\s?(?=[\w“「『])"
)
_SHORT: Final = re.compile(
    r"\b((?:[^\W\d_]\.){1,3}[^\W\d_]|[A-Z]|Mrs?|Ms|Dr|Prof|St|Jr|Sr|vs|Inc|Ltd) ?\.(?=\s)"
)


def count_sentences(text: str) -> int:
    """Count the sentences of a text by a rule of thumb; a list's numbers and parts without letters do not count.

    A sentence ends with its line, or at a full stop or similar mark that no lower-case letter follows.
    """
    lines = (_SHORT.sub(r"\1", line) for line in text.splitlines())
    parts = [letters(part) for line in lines for part in _BETWEEN.split(line)]
    return sum(bool(part) and not re.fullmatch(r"\d{1,3}", part) for part in parts)
