"""Whether a reply of a language model is the sentence it was asked for."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from lightning_cse.errors import did_you_mean
from lightning_cse.generation.cleaning import cleaned, letters
from lightning_cse.generation.counting import count_sentences, is_ended
from lightning_cse.generation.nodes import is_list, is_number, is_text, is_whole, unknown_keys
from lightning_cse.llm import Reply, refuses

if TYPE_CHECKING:
    from lightning_cse.generation.pattern import Prompt

__all__ = ["REASONS", "Checks", "Judged"]

EMPTY: Final = "empty"
REFUSED: Final = "refused"
CUT_OFF: Final = "cut off"
ECHO_OF_PROMPT: Final = "echo of the prompt"
ECHO_OF_SOURCE: Final = "echo of the source"
SEVERAL: Final = "several sentences"
TOO_LONG: Final = "too long"
TOO_SHORT: Final = "too short"
MORE_DETAIL: Final = "more detail"
EQUAL: Final = "equal to another role"

REASONS: Final = (
    *(EMPTY, REFUSED, CUT_OFF, ECHO_OF_PROMPT, ECHO_OF_SOURCE),
    *(SEVERAL, TOO_LONG, TOO_SHORT, MORE_DETAIL, EQUAL),
)
"""Why a reply is rejected, in the order of looking; the first that fits is told."""

_RUN: Final = 8
"""Words of the prompt in a row that no reply has by accident."""

_FEW: Final = 6
"""Below so many words, a sentence of a single word may say the same."""

_NO_ANSWERS: Final = frozenset(
    {*("yes", "no", "none", "na", "nil", "null", "nothing", "notapplicable", "notavailable", "unknown", "sure", "ok")}
    | {*("okay", "true", "false", "same", "nochange", "entailment", "contradiction", "neutral")}
)
"""Words, as `letters` leaves them, that fill a place and alone say nothing of a sentence."""


@dataclass(frozen=True)
class Judged:
    """What a reply is worth.

    Attributes:
        sentence: The reply, cleaned and on one line; what stands in the row if it is accepted.
        reason: None if it is accepted, else one of `REASONS`.
    """

    sentence: str
    reason: str | None


@dataclass(frozen=True)
class Checks:
    """What is asked of the replies for a role, beside being a sentence that is new; None switches a check off.

    A reply is cleaned first: of quotes, markdown, labels, a preamble and remarks. It is rejected as

    - ``empty``: no letter and no digit, or nothing but a field's label or a word as "None", unless the source or the
      sentence it is made of is as short;
    - ``refused``: by the endpoint or in words, unless the source or the sentence it is made of reads as a refusal;
    - ``cut off``: at the most tokens a reply may have, and not at a sentence's end;
    - ``echo of the prompt``: a field's label is in it, it is a sentence of an example, or has eight words in a row of
      the prompt, unless they are the source's. The second sentence of an example is no echo where the first one is what
      is asked about;
    - ``echo of the source``: equal to the source, or to the sentence it is made of;
    - ``several sentences``, ``too long``, ``too short``: as set below;
    - ``more detail`` than an earlier role: it has more words, or as many and is not farther from the source than that
      role's sentence is, by match error rate;
    - ``equal to another role`` of the same source.

    Equal are sentences of the same letters and digits in the same order, whatever their case. Words are what white
    space separates: in languages that write without spaces, ``longest`` and ``shortest`` do nothing and
    ``less_detail_than`` must be None. Refusals are known in English; for other languages there are ``refused_words``.

    Source: NGCSE asks for only the sentence, and for an intermediate with clearly fewer details.  Differs: the paper
    and its code check nothing, and give no rule for details: every rule here is our own.

    Attributes:
        most_sentences: More sentences than this, and than the sentence it is made of has, are several.
        longest: More words than this many times those of the sentence it is made of are too long.
        always_allowed: This many words are not too long, however short that sentence is.
        less_detail_than: The earlier role whose sentence has to say more.
        shortest: Fewer words than this many times those of the sentence it is made of are too short, as where a
            question is answered and not put in other words; not looked at where that sentence has fewer than six.
        refused_words: Beginnings, in whatever case, of replies that are refusals too, as "Es tut mir leid, aber".
    """

    most_sentences: int | None = 1
    longest: float | None = 2.5
    always_allowed: int = 16
    less_detail_than: str | None = None
    shortest: float | None = None
    refused_words: Sequence[str] | None = None

    def judge(self, reply: Reply, *, source: str, reference: str, written: Mapping[str, str], prompt: Prompt) -> Judged:
        """Return the sentence of a reply, and why it is rejected, if it is.

        Args:
            reply: What the model said.
            source: The sentence for which all roles are written.
            reference: The one that this role is made of: the source, or an earlier role's sentence.
            written: The accepted sentences of this source, by role, in their order.
            prompt: What stood before the reference.

        Raises:
            KeyError: If no sentence was written for the role of ``less_detail_than``.
        """
        lines = cleaned(reply.text, prompt.fields[1], reference)
        sentence = " ".join(lines.split())
        if reason := self._unusable(reply, sentence, (source, reference), prompt.fields):
            return Judged(sentence, reason)
        if _echoes_prompt(lines, prompt, source, reference):
            return Judged(sentence, ECHO_OF_PROMPT)
        said = letters(sentence)
        if said in {letters(source), letters(reference)}:
            return Judged(sentence, ECHO_OF_SOURCE)
        if reason := self._too_much(lines, reference):
            return Judged(sentence, reason)
        others = {letters(other) for other in written.values()}
        if said not in others and self._more_detail(sentence, source, written):
            return Judged(sentence, MORE_DETAIL)
        return Judged(sentence, EQUAL if said in others else None)

    @staticmethod
    def faults(node: Any, at: str, roles_before: Sequence[str]) -> Iterator[str]:
        """Yield what is wrong with a role's node of the config.

        Args:
            node: The node as plain values.
            at: Its key, for the messages.
            roles_before: The roles that are asked earlier.
        """
        if not isinstance(node, Mapping):
            yield f"{at}: {node!r} is no mapping of checks, as {{most_sentences: 1}}"
            return
        yield from unknown_keys(node, [field.name for field in fields(Checks)], at)
        yield from _faults_of_numbers(node, at)
        yield from _faults_of_words(node, at)
        if (role := node.get("less_detail_than")) is not None and role not in roles_before:
            meant = did_you_mean(str(role), roles_before)
            there = f"there are {', '.join(roles_before)}" if roles_before else "this role is the first"
            yield f"{at}.less_detail_than: {role!r} is no role that is asked before this one{meant}; {there}"

    def _unusable(self, reply: Reply, sentence: str, given: Sequence[str], fields: Sequence[str]) -> str | None:
        """Return why there is no whole answer, if so; nothing at all at the most tokens was cut off while thinking."""
        if reply.refusal or reply.finish_reason == "content_filter":
            return REFUSED
        cut_off = reply.finish_reason == "length"
        if not letters(sentence) or _is_no_answer(sentence, given, fields):
            return CUT_OFF if cut_off else EMPTY
        if self._refused(sentence) and not any(map(self._refused, given)):
            return REFUSED
        return CUT_OFF if cut_off and not is_ended(sentence) else None

    def _refused(self, sentence: str) -> bool:
        return refuses(sentence) or any(_begins(sentence, words) for words in self.refused_words or ())

    def _too_much(self, lines: str, reference: str) -> str | None:
        if self.most_sentences is not None:
            count = count_sentences(lines)
            if count > self.most_sentences and count > count_sentences(reference):
                return SEVERAL
        if self.longest is not None:
            most = max(self.always_allowed, self.longest * len(reference.split()))
            if len(lines.split()) > most:
                return TOO_LONG
        return TOO_SHORT if self._too_short(lines, reference) else None

    def _too_short(self, lines: str, reference: str) -> bool:
        words = len(reference.split())
        return self.shortest is not None and words >= _FEW and len(lines.split()) < self.shortest * words

    def _more_detail(self, sentence: str, source: str, written: Mapping[str, str]) -> bool:
        if self.less_detail_than is None:
            return False
        if self.less_detail_than not in written:
            raise KeyError(f"less_detail_than: no sentence for {self.less_detail_than!r}, only for {sorted(written)}")
        from lightning_cse.metrics import match_error_rate

        other = written[self.less_detail_than]
        words, most = len(sentence.split()), len(other.split())
        if words != most:
            return words > most
        return match_error_rate(source, sentence) <= match_error_rate(source, other)


def _is_no_answer(sentence: str, given: Sequence[str], fields: Sequence[str]) -> bool:
    """Whether a reply only fills a place, where what it is made of says more."""
    if any(len(text.split()) <= len(sentence.split()) for text in given):
        return False
    said = letters(sentence)
    return said in _NO_ANSWERS or said.rstrip("0123456789") in {letters(field).rstrip("0123456789") for field in fields}


def _folded(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text).replace("’", "'").casefold().split())


def _begins(sentence: str, words: str) -> bool:
    """Whether a sentence begins so; within no word, where there is a space between words."""
    text, beginning = _folded(sentence), _folded(words)
    rest = text[len(beginning) :]
    # Scripts with capitals are those in which spaces can be relied on.
    within = rest[:1].isalnum() and beginning[-1:].lower() != beginning[-1:].upper()
    return text.startswith(beginning) and not within


def _echoes_prompt(lines: str, prompt: Prompt, source: str, reference: str) -> bool:
    given = f"{source}\n{reference}"
    if any(_labels(field).search(lines) and not _labels(field).search(given) for field in prompt.fields):
        return True
    said, asked = letters(lines), letters(reference)
    if any(said in map(letters, example) for example in prompt.examples if letters(example[0]) != asked):
        return True
    runs = _runs(lines) & _runs_of_prompt(prompt.system)
    return bool(runs) and not runs <= _runs(source) | _runs(reference)


@lru_cache(maxsize=64)
def _labels(field: str) -> re.Pattern[str]:
    """Return the pattern of a field's label anywhere, whatever its number; within a line only in the same case."""
    words = r"\s+".join(re.sub(r"\d+", r"\\d+", re.escape(word)) for word in field.split()) or r"(?!)"
    return re.compile(rf"(?:^[\s\W_]*(?i:{words})|(?<![^\W_]){words})[\s*_`]*[:：]", re.MULTILINE)


def _runs(text: str) -> frozenset[tuple[str, ...]]:
    words = [word for word in map(letters, text.split()) if word]
    return frozenset(tuple(words[start : start + _RUN]) for start in range(len(words) - _RUN + 1))


_runs_of_prompt: Final = lru_cache(maxsize=64)(_runs)


def _faults_of_numbers(node: Mapping[Any, Any], at: str) -> Iterator[str]:
    given = {field.name: node.get(field.name, field.default) for field in fields(Checks)}
    most, allowed = given["most_sentences"], given["always_allowed"]
    if most is not None and not is_whole(most, 1):
        yield f"{at}.most_sentences: {most!r} is not a whole number of at least 1, or null for no check"
    wrong = False
    for name in ("longest", "shortest"):
        if (times := given[name]) is not None and not (is_number(times) and times > 0):
            wrong = True
            yield f"{at}.{name}: {times!r} is not a number above 0, or null for no check"
    if not wrong and None not in (given["longest"], given["shortest"]) and given["shortest"] > given["longest"]:
        yield f"{at}.shortest: {given['shortest']:g} is more than longest, {given['longest']:g}: no sentence is both"
    if not is_whole(allowed, 0):
        yield f"{at}.always_allowed: {allowed!r} is not a whole number of at least 0"


def _faults_of_words(node: Mapping[Any, Any], at: str) -> Iterator[str]:
    words = node.get("refused_words")
    if words is not None and not (is_list(words) and all(map(is_text, words))):
        yield f"{at}.refused_words: {words!r} is not a list of beginnings, as [Es tut mir leid], or null for no check"
