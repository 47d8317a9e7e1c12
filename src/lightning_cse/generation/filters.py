"""Which replies of a language model are taken: each is cleaned, and then accepted, or rejected with a reason."""

from __future__ import annotations

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

_RUN: Final = 8  # words of the prompt in a row that no reply has by chance
_FEW: Final = 6  # a sentence of fewer words may be paraphrased by a single one

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Checks(BaseModel, extra="forbid", strict=True, frozen=True):
    """The filters of one role that a pattern sets; null leaves one out.

    Source: NGCSE's code takes every reply. Differs: every filter is our own.
    """

    most_sentences: Annotated[int, Field(ge=1)] | None = 1  # unless the sentence that the role is made of has more
    longest: Positive | None = 2.5  # times the words of that sentence ...
    always_allowed: Annotated[int, Field(ge=0)] = 16  # ... or this many words
    less_detail_than: str | None = None  # an earlier role: it has more words, or as many and is closer to the source
    shortest: Positive | None = None  # times the words of a sentence of six or more
    refused_words: list[Annotated[str, Field(pattern=r"\S")]] | None = None  # how refusals begin in other languages


def judge(reply: Reply, role: Role, source: str, reference: str, written: Mapping[str, str]) -> tuple[str, str | None]:
    """Return the sentence of a reply, and the first reason to reject it; None: it is accepted.

    The role is made of the reference: the source, or the sentence that was ``written`` for an earlier role.
    """
    text = cleaned(reply.text, role.fields[1], reference)
    sentence, said, words = " ".join(text.split()), letters(text), len(text.split())
    checks, given, of = role.checks, (source, reference), len(reference.split())
    begin, labels = checks.refused_words or (), [re.sub(r"\d+$", "", letters(field)) for field in role.fields]
    nothing = _NOTHING.fullmatch(said) or re.sub(r"\d+$", "", said) in labels

    def detail(of: str) -> tuple[int, float]:
        return len(of.split()), -match_error_rate(source, of)

    reasons: dict[str, Callable[[], bool]] = {
        "refused": lambda: reply.refused or (refuses(text, begin) and not any(refuses(one, begin) for one in given)),
        "cut off": lambda: reply.finish == "length" and not _ENDED.search(text),
        "empty": lambda: not said or (nothing and all(len(one.split()) > words for one in given)),
        "echo of the prompt": lambda: _echoes(text, role, source, reference),
        "echo of the source": lambda: said in map(letters, given),
        "several sentences": lambda: (
            checks.most_sentences is not None
            and count_sentences(text) > max(checks.most_sentences, count_sentences(reference))
        ),
        "too long": lambda: checks.longest is not None and words > max(checks.always_allowed, checks.longest * of),
        "too short": lambda: checks.shortest is not None and of >= _FEW and words < checks.shortest * of,
        "equal to another role": lambda: said in map(letters, written.values()),
        "more detail": lambda: (
            checks.less_detail_than is not None
            and detail(sentence) >= detail({"source": source, **written}[checks.less_detail_than])
        ),
    }
    return sentence, next((reason for reason, applies in reasons.items() if applies()), None)


_NOTHING: Final = re.compile(
    "yes|no|none|na|nil|null|nothing|notapplicable|notavailable|unknown|sure|ok|okay|true|false|same|nochange"
    "|entailment|contradiction|neutral"
)


def _echoes(text: str, role: Role, source: str, reference: str) -> bool:
    """Whether a reply has a label, a sentence of an example, or eight words in a row of the prompt."""
    given, said, asked = f"{source}\n{reference}", letters(text), letters(reference)
    if any(_label(field).search(text) and not _label(field).search(given) for field in role.fields):
        return True
    if any(said in map(letters, pair) for pair in role.examples.shown if letters(pair[0]) != asked):
        return True
    runs = _runs(text) & _runs(role.system)
    return bool(runs) and not runs <= _runs(source) | _runs(reference)


@lru_cache(maxsize=64)
def _label(field: str) -> re.Pattern[str]:
    """Return the pattern of a field's label, whatever its number; within a line in the same case only."""
    words = r"\s+".join(re.sub(r"\d+", r"\\d+", re.escape(word)) for word in field.split()) or r"(?!)"
    return re.compile(rf"(?:^[\s\W_]*(?i:{words})|(?<![^\W_]){words})[\s*_`]*[:：]", re.MULTILINE)


@lru_cache(maxsize=256)
def _runs(text: str) -> frozenset[tuple[str, ...]]:
    words = [word for word in map(letters, text.split()) if word]
    return frozenset(tuple(words[start : start + _RUN]) for start in range(len(words) - _RUN + 1))


def _folded(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold()).split())


def letters(text: str) -> str:
    """Return the letters and digits of a text, with marks, in one case: sentences are equal if these are."""
    if text.isascii():
        return re.sub(r"[\W_]+", "", text).lower()
    return "".join(s for s in _folded(text) if unicodedata.category(s)[0] in "LNM" and s != "\ufe0f")


_SORRY: Final = (
    r"(?:i'?m|i am|we are)?(?: \w+)? ?(?:sorry|afraid|(?:my )?apologies|i apologi[sz]e|unfortunately|regrettably)"
)
_I_CANNOT: Final = (
    r"(?:i|we)\b ?(?:(?:really|simply|just|respectfully) )?(?:can(?:not| not|'?t)|won'?t|will not|'d rather not"
    r"|(?:do not|don'?t)(?: feel comfortable)?|(?:(?:must|have to) )?(?:\w+ly )?(?:decline|refuse) to"
    r"|(?:am|'m|are) (?:unable|not (?:able|allowed|comfortable|going)))(?: be able)?(?: to)? (?:in good conscience )?"
)
_SERVE: Final = (
    r"(?:assist|help|comply|fulfil|creat|generat|provid|writ|produc|respond|answer|engag|participat|continu|rewrit"
    r"|rephras|reword|paraphras|contradict)\w*"
)
_ASKED: Final = (
    r"(?:requests?|prompts?|questions?|tasks?|content|sentences?|statements?|texts?|hypothes[ie]s|premises?"
    r"|paraphrases?|contradictions?|answers?|advice|speech|something that)"
)
_REFUSALS: Final = re.compile(
    r"(?:(?:sure|no|certainly|thank you|i understand)\b[^.;!]{0,60}?[,.;!-]+ (?:but )?)?(?:"
    rf"{_SORRY}\b[^.;:!?]{{0,80}}?[\s,.;:!-]+(?:but )?(?:as an ai,? )?{_I_CANNOT}"
    rf"(?:{_SERVE}(?! (?:it|but|\w+ing)\b)|do (?:that|this|what you))\b"
    rf"|{_SORRY}[\s,.;:!-]+(?:but )?(?:no|i can(?:no|')t)[.!]*$|{_I_CANNOT}(?:assist|comply|fulfil)\w*\b"
    rf"|{_I_CANNOT}{_SERVE}(?: (?:you|in|to|on|with|for|about))* "
    rf"(?:(?:this|that)(?:[.!]|$)|(?:[\w-]+,? ){{0,7}}?{_ASKED}\b)"
    r"|(?:as|i'?m|i am)(?: just)? an? (?:\w+ )?(?:ai|language model)(?: (?:\w+ )?(?:model|assistant))?,? "
    r"(?:and )?i\b[^.]*(?:not|n't|unable)\b"
    r"|(?:[^.!?]{0,80}[.!?] )?(?:please|(?:could|can|would) you(?: please)?) (?:provide|share|send|give)(?: me)?"
    r"(?: with)? (?:an?|the|your)(?: \w+)? (?:sentence|premise|hypothesis|text (?:that )?you)\b)"
)


def refuses(text: str, beginnings: Sequence[str] = ()) -> bool:
    """Return whether a text is a refusal: in English by how it begins, in other languages by these beginnings."""
    plain = _folded(text[:400].replace("’", "'"))
    if re.match(r"[\"'“«].*[,.!?][\"'”»] \w", plain):  # said by somebody in a story
        return False
    plain = plain.strip(" *_#>`~-\"'“”«»")
    return bool(_REFUSALS.match(plain)) or plain.startswith(tuple(map(_folded, beginnings)))


_WRAPS: Final = (
    *(("```", "```"), ("`", "`"), ("***", "***"), ("**", "**"), ("*", "*"), ("__", "__"), ("_", "_"), ('"', '"')),
    *(("'", "'"), ("“", "”"), ("„", "“"), ("„", "”"), ("‘", "’"), ("«", "»"), ("»", "«"), ("「", "」")),
)
_WILLING: Final = r"(?:sure(?: thing)?|certainly|of course|absolutely|okay|ok|yes|gladly)"
_NEW: Final = r"(?:new|rewritten|revised|final|paraphrased|rephrased|reworded|simplified|shortened|shorter)"
_SENTENCE: Final = (
    r"(?:sentence|hypothesis|statement|version|variant|rewrite|rewording|paraphrase|text|output|answer|response|result"
    r"|contradiction|entailment)"
)
_LABELS: Final = rf"(?:(?:the |my |your )?(?:{_NEW} )?{_SENTENCE}|{_NEW}|negation|opposite|assistant|reply)"
_HERE: Final = rf"\A(?:{_WILLING}\b[^:]{{0,40}}?)?\bhere(?:['’]s| is| are| you go| it is)\b"
_NOTE: Final = r"(?:please )?note(?: that\b|\s*[:：])|(?:explanation|reasoning|rationale)\s*[:：]"
_REMARK: Final = rf"(?:{_NOTE}|(?:this|the|my) (?:{_NEW} )?{_SENTENCE} [a-z]+s\b)"
_DONE: Final = r"i(?:['’]ve| have)? (?:kept|changed|rewrote|rephrased|replaced|removed|omitted|used|left|preserved)\b"
_AROUND: Final = tuple(
    re.compile(pattern, re.IGNORECASE | re.DOTALL)
    for pattern in (
        r"\A(?:.*</think(?:ing)?>|\s*<think(?:ing)?>.*)",  # of a reasoning model, which some servers leave in the reply
        r"(?:(?:<\|\w+\|>|</s>)\s*)+\Z",
        r"\A(?:[-–—•*>]\s+)+",
        r"\A\(?\d{1,2}[.)]\s+(?=[^\W\d_]|[\"“'‘«*_])",
        rf"{_HERE}[^\n:]*:[*_]*(?:\s*\n|\s*\Z)",
        rf"{_HERE}(?:[^:.!?]{{0,80}}?\b{_SENTENCE}\b[^:.!?]{{0,80}}|(?<=you go)|(?<=it is)):[*_]*\s+",
        rf"\A{_WILLING}(?:[.!:,]*\s*\n|!\s+)",
        rf"\A(?:[*_]*{_LABELS}[*_]*:[*_]*\s+)+",
        rf"\A(?:\#+\s*|[*_]{{1,3}}){_LABELS}[*_]*\s*\n",
        rf"\A(?:the|my|your) {_NEW} {_SENTENCE} is:\s+",
        r"\A(?:(?:\S+[^\S\n]+){2,14}\S*[:：]|[^\n\d:：]{4,40}：)[*_]*\n(?=.)",  # in any language, a line with a colon
        rf"(?<!\s)\s+[(\[][*_]*(?:(?:{_REMARK}|{_DONE})[^()\[\]]*|{_LABELS})[)\]][.*_]*\Z",
        rf"\n[(\[*_# -]*(?:{_REMARK}|{_DONE}).*\Z",
        rf"(?<=[.!?\"”*_])\s+[*_]*(?:{_NOTE}).*\Z",
        r"(?<=[.!?\"”*_\n])\s*(?:(?:please )?(?:let me know|feel free to)\b|i hope (?:this|that|it)\b"
        r"|would you like (?:me|another|more)\b|if you(?:['’]d| would)? (?:like|need|want)\b).*\Z",
    )
)
"""What models put around a sentence."""


def cleaned(text: str, field: str = "", reference: str = "") -> str:
    """Return a reply without quotes, markdown, labels, numbers, a preamble and remarks around the sentence.

    What the reference has too, such as a number or a label, belongs to the sentence.
    """
    around = [pattern for pattern in _AROUND if not pattern.search(reference.strip())]
    if field.strip():
        around.append(_field(field))
    text, before = re.sub(r"[\ud800-\udfff\ufeff\x00-\x08\x0e-\x1b\x7f]", "", _content(text)), None
    while text != before:
        before = text
        text = _unwrapped("\n".join(line.strip() for line in text.splitlines() if line.strip()))
        for pattern in around:
            text = pattern.sub("", text, count=1).strip()
        text = re.sub(r"\A[\"“]([^\"“”]*[^\"“”.!?…])[\"”]([.!?])\Z", r"\1\2", text)
    return text


def _content(text: str) -> str:
    """Return the sentence of a reply in JSON, though it be cut off or in a code block; another reply as it is."""
    found = re.search(r"\A\s*(?:```(?:json)?\s*)?(\{.*?)(?:\s*```\s*)?\Z", text, re.DOTALL)
    if found is None:
        return text
    try:
        return str(pydantic_core.from_json(found[1], allow_partial="trailing-strings").get("sentence") or "")
    except ValueError:
        return ""


@lru_cache(maxsize=64)
def _field(field: str) -> re.Pattern[str]:
    words = r"\s+".join(map(re.escape, field.split()))
    return re.compile(rf"\A(?:(?P<mark>[*_`]*){words}\s*(?:(?P=mark)\s*[:：]|[:：]\s*(?P=mark))\s*)+", re.IGNORECASE)


def _unwrapped(text: str) -> str:
    """Return a text without the one pair of quotes, backticks or marks of emphasis that holds all of it."""
    for first, last in _WRAPS:
        if len(text) > len(first) + len(last) and text.startswith(first) and text.endswith(last):
            inner = text[len(first) : -len(last)]
            without = re.sub(r"(?<=[^\W_])['’](?=[^\W_])", "", inner)  # apostrophes
            if first not in without and last not in without:
                return inner.strip()
    return text


_STOPS: Final = "。！？｡।॥؟۔։"
_CLOSERS: Final = r"[\"'”’»›\)\]}*_`“‘」』】）]*"
_ENDED: Final = re.compile(rf"[.!?…{_STOPS}]\s?{_CLOSERS}\Z")
_MARK: Final = re.compile(
    rf"(?P<word>[^\s{_STOPS}]{{0,40}}?)\s?(?:(?P<mark>[.!?…]+){_CLOSERS}\s|[{_STOPS}])"
    r"(?=[\s\"'“”„‘’«»‹›(\[{*_`「『【（¿¡/|]*(?P<next>[^\W_]))"
)
_SHORT: Final = re.compile(
    r"[A-Z]|(?:[^\W\d_]{1,2}\.)+[^\W\d_]{1,2}|(?i:mr|mrs|ms|dr|prof|st|gen|sen|rep|gov|lt|col|capt|sgt|maj|rev|hon|v|vs|ca"
    r"|inc|ltd|corp|co|jr|sr|etc|dept|jan|feb|mar|apr|aug|sept|oct|nov|dec|ph\.d|no|vol|p|pp|fig)"
)


def count_sentences(text: str) -> int:
    """Return the number of sentences of a text by a rule of thumb; 0 where it has no letter and no digit.

    A sentence ends with its line, or at a full stop or mark before anything but a small letter, unless that is one of
    an abbreviation, an initial or a list's number.
    """
    count = 0
    for line in map(_unwrapped, map(str.strip, text.splitlines())):
        start = 0
        for mark in _MARK.finditer(line):
            if letters(line[start : mark.end()]) and _ends(line[start : mark.end()], mark):
                count, start = count + 1, mark.end()
        count += bool(letters(line[start:]))
    return count


def _ends(sentence: str, mark: re.Match[str]) -> bool:
    """Whether what ends in a mark is a sentence, given the next word."""
    word = mark["word"].lstrip("\"'“”„‘«([{*_`-").rpartition("-")[2]
    if mark["next"].islower() or mark["mark"] != ".":
        return not mark["next"].islower()
    if re.fullmatch(r"\W*(?:\d{1,3}|[^\W\d_]|[ivx]{1,4})\.\s+\W*", sentence):
        return False
    return not _SHORT.fullmatch(word)
