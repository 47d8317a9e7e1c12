"""How many sentences a raw text has."""

from __future__ import annotations

import re
from typing import Final

from lightning_cse.generation.cleaning import unwrapped

__all__ = ["count_sentences", "is_ended"]

_CLOSERS: Final = r"[\"'”’»›\)\]}*_`“‘」』】）]*"
_FULL_STOPS: Final = "。！？｡।॥؟۔։።"
_MARK: Final = re.compile(rf"(?P<mark>[.!?…‽]+|[{_FULL_STOPS}][.!?…{_FULL_STOPS}]*)(?P<closers>{_CLOSERS})")
_SPACED_DOTS: Final = re.compile(r"\.(?: \.){2,}")
_ENDED: Final = re.compile(rf"(?P<word>\S*?)[.!?…‽{_FULL_STOPS}]\s?{_CLOSERS}\Z")
_NEXT: Final = re.compile(r"[\s\"'“”„‘’«»‹›(\[{*_`「『【（¿¡/|]*(?P<word>\S*)")
_IN_QUOTES: Final = r"[\"“][^\"“”]*[.!?][\"”]"
_ALTERNATIVES: Final = re.compile(rf"{_IN_QUOTES},?(?:\s+(?:or|and|oder|ou|o)\s+{_IN_QUOTES}[.!?]?)+")
"""Quoted sentences and nothing else, to choose from."""

_DOTTED: Final = re.compile(r"(?:[^\W\d_]{1,2}\.)+[^\W\d_]{1,2}")
_INITIAL: Final = re.compile(r"[^\W\d_]\.")
_LIST_NUMBER: Final = re.compile(r"[\"'“(\[*_]*(?:\d{1,3}|[^\W\d_]|[ivx]{1,4})", re.IGNORECASE)
_SPOKEN: Final = re.compile(
    r"(?:\S+\s){0,3}?(?:said|says|asked|asks|added|adds|replied|replies|told|cried|shouted|wrote|writes|whispered|"
    r"answered|announced|declared|exclaimed|wondered|yelled|called|insisted|explained)\b"
)


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_NEVER: Final = _words(
    "mr mrs ms mx dr drs prof st gen sen rep gov lt col capt cpt sgt cpl maj cmdr adm rev hon pres messrs mme mlle "
    "v vs cf viz approx e.g i.e resp hr fr sra bzw ca z.b d.h u.a"
)
"""Words whose full stop is none of a sentence: a name or an explanation follows."""

_BEFORE_NUMBER: Final = _words("no nos nr vol p pp fig figs eq eqs art ch sec para ver op")
"""Words that are short for another one if a number follows."""

_MAYBE: Final = _words(
    "inc ltd corp co jr sr etc bros llc plc dept univ assn ave blvd rd al est jan feb mar apr aug sept sep oct nov dec "
    "ph.d b.sc m.sc usw ft mt hwy intl natl"
)
"""Words whose full stop may be that of a sentence too."""

_STATES: Final = _words(
    "Ala Ariz Ark Calif Colo Conn Del Fla Ga Ill Ind Kan Ky La Mass Md Mich Minn Miss Mo Mont Neb Nev Okla Ore Pa Penn "
    "Tenn Tex Va Vt Wash Wis Wyo"
)
"""The same, where a capital tells them from words."""

_BRANDS: Final = frozenset({"yahoo", "jeopardy"})
"""Names that are written with an exclamation mark."""

_STARTERS: Final = _words(
    "the a an it its he his she her they their we our you your i my this that these those there here and but or so yet "
    "however also then when while if as after before in on at for from to with by not no one two some many most all "
    "both each what who why how where which is are was were do does did can will"
)
"""Words with which English sentences begin, and names, as a rule, do not."""

_OPEN: Final = frozenset("([{“„«「『【（")
_CLOSE: Final = frozenset(")]}”»」』】）")


def count_sentences(text: str) -> int:
    """Return the number of sentences of a text, tokenised or not; 0 where there is no letter and no digit.

    A sentence ends with its line, or at a full stop, mark or ellipsis after which something follows that can begin
    another one: no small letter, no comma, no dash. The full stops of abbreviations (English ones, and a few of other
    languages), initials, numbers and lists are none, unless the next word is one with which sentences begin. What
    stands in brackets or in quotes within a sentence belongs to it; ``"It rains." or "It pours."`` are two all the
    same. It is a rule of thumb: ``He saw the U.S. Dogs bark.`` is one sentence to it.

    Example:
        >>> count_sentences('Dr. Ames of the U.S. Navy paid $3.50. "Why?" he asked... They left.')
        3
    """
    return sum(_of_line(unwrapped(line.strip())) for line in text.splitlines())


def is_ended(text: str) -> bool:
    """Return whether a text ends as sentences do, and not with the full stop of a title or an initial.

    Example:
        >>> is_ended('He said "Go."'), is_ended("They met Dr."), is_ended("It is a")
        (True, False, False)
    """
    ended = _ENDED.search(text.rstrip())
    if ended is None:
        return False
    word = _bare(ended["word"])
    return not (ended.group().startswith(f"{ended['word']}.") and (word.casefold() in _NEVER or _is_initial(word)))


def _of_line(line: str) -> int:
    line = _SPACED_DOTS.sub("…", line)
    if _ALTERNATIVES.fullmatch(line):
        return len(re.findall(_IN_QUOTES, line))
    inside = _inside(line)
    count = start = 0
    for mark in _MARK.finditer(line):
        if not inside[mark.end() - 1] and _ends(line, start, mark):
            count += _says(line[start : mark.end()])
            start = mark.end()
    return count + _says(line[start:])


def _says(text: str) -> bool:
    return any(map(str.isalnum, text))


def _inside(line: str) -> list[bool]:
    """Return of each character whether it stands in brackets or quotes open after it; no if they do not match."""
    depth = 0
    quoted = _quoted(line)
    inside = []
    for sign, within in zip(line, quoted, strict=True):
        depth += (sign in _OPEN) - (sign in _CLOSE)
        if depth < 0:
            return quoted
        inside.append(within or depth > 0)
    return quoted if depth else inside


def _quoted(line: str) -> list[bool]:
    """Return the same of straight quotes, which open and close in turn; one that follows a digit opens nothing."""
    quoted = False
    inside = []
    for place, sign in enumerate(line):
        if sign == '"' and (quoted or not line[max(place - 1, 0)].isdigit()):
            quoted = not quoted
        inside.append(quoted)
    return [False] * len(line) if quoted else inside


def _ends(line: str, start: int, mark: re.Match[str]) -> bool:
    """Whether a sentence that began at ``start`` ends at a mark, given what follows."""
    rest = line[mark.end() :]
    glued = bool(rest) and not rest[0].isspace()
    if glued and (mark["mark"][0] not in _FULL_STOPS or mark["closers"]):
        return False
    following = _NEXT.match(rest)
    word = following["word"] if following else ""
    if not word or word[0].islower() or not word[0].isalnum():
        return False
    if '"' in mark["closers"] or "”" in mark["closers"]:
        return not _SPOKEN.match(rest.lstrip())
    before = line[start : mark.start()]
    token = (before.split() or [""])[-1]
    if mark["mark"] == ".":
        return _full_stop_ends(before, _bare(token), word)
    if mark["mark"] in {"...", "…", ".."}:
        return re.match(r"I\b", word) is None
    return _bare(token).casefold() not in _BRANDS


def _full_stop_ends(before: str, token: str, word: str) -> bool:
    """Whether a full stop behind a token ends what stands before it, given the next word."""
    if _LIST_NUMBER.fullmatch(before.strip()):
        return False
    folded = token.casefold()
    if folded in _NEVER:
        return False
    if (folded in _BEFORE_NUMBER and word[0].isdigit()) or _INITIAL.fullmatch(word):
        return False
    maybe = folded in _MAYBE or token in _STATES or _is_initial(token) or _DOTTED.fullmatch(token) is not None
    return not maybe or re.split(r"\W", word.casefold(), maxsplit=1)[0] in _STARTERS


def _bare(token: str) -> str:
    return token.lstrip("\"'“”„‘’«»([{*_`-").rpartition("-")[2]


def _is_initial(token: str) -> bool:
    return len(token) == 1 and token.isupper()
