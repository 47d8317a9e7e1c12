"""A large language model that is shown a few labelled pairs and asked for the label of another
one.
"""

import hashlib
import json
import logging
import random
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property
from pathlib import Path

from datasets import Dataset

from lightning_cse.data import read_corpus
from lightning_cse.data.rows import digests_of
from lightning_cse.errors import ConfigError
from lightning_cse.llm import Failure, Reply, Request, read_answer

log = logging.getLogger(__name__)

LABELS = {
    "explicit": "explicit entailment",
    "implied": "implied entailment",
    "neutral": "neutral",
    "contradiction": "contradiction",
}
"""The labels of the prompt by type of hypothesis; with underscores they are the columns of INLI."""

_TASK = """\
You are given pairs of a premise and a hypothesis. Say how the hypothesis relates to the premise. \
Answer with one of these four labels, and with nothing else:
- explicit entailment: the premise itself says the hypothesis, in the same words or in others
- implied entailment: the premise does not say the hypothesis, but gives a reader good reason to understand it so
- neutral: with the premise as it stands, the hypothesis may be true or false
- contradiction: if the premise holds, the hypothesis is false"""
_PAIR = "Premise: {}\nHypothesis: {}"

_WORD = r"(?<![^\W_])(?:{})(?![^\W_])"  # markdown's underscores are not part of a word
_LABEL = re.compile(
    _WORD.format(r"(explicit|implied)[\s_*-]+entailment|(neutral|contradiction)"), re.IGNORECASE
)
_DECLINES = re.compile(
    r"\b(sorry|apologi[sz]e|can(not| not|['’]?t)|unable|wo(n['’]t|uld rather not)|will not|not able|decline|refuse)\b",
    re.IGNORECASE,
)
_DENIES = re.compile(
    _WORD.format(
        r"not|no|nor|neither|never|cannot|without|than|false|wrong|incorrect|ruled\s+out|\w+n['’]t"
    ),
    re.IGNORECASE,
)


Ask = Callable[[Iterable[Request]], Iterable[tuple[int, Reply | Failure]]]
"""Yields the reply to each request, with the number of the request, as replies arrive."""


@dataclass(eq=False)
class FewShot:
    """Entailment as judged by a language model that is shown some labelled pairs of INLI's train
    split.

    The examples are drawn once by the seed, with distinct premises and balanced labels, and
    precede every pair in the same order. A pair has no label if `read_label` finds none, the
    model declines, or the endpoint gives no reply.

    Source: DualCSE, RTE experiment, rows of few-shot LLMs.  Differs: the wording of the prompt,
    the draw of the examples and the rules for answers are ours.
    """

    ask: Ask
    _: KW_ONLY
    data_dir: str
    shots: int = 8  # 0: no examples
    seed: int = 0  # draws the examples
    parameters: Mapping[str, float | int | str] = field(
        default_factory=dict
    )  # sent under the endpoint's own names

    @cached_property
    def _train(self) -> Dataset:
        return read_corpus("inli", "train", Path(self.data_dir))

    @property
    def digests(self) -> dict[str, str]:
        """The sha256 of the file that the examples are drawn from, if there are any."""
        return digests_of([self._train]) if self.shots else {}

    @cached_property
    def examples(self) -> tuple[tuple[str, str, str], ...]:
        """Premise, hypothesis and type of every example."""
        if not self.shots:
            return ()

        first: dict[str, int] = {}
        for row, premise in enumerate(self._train["premise"]):
            first.setdefault(premise, row)

        if self.shots > len(first):
            raise ConfigError([f"few_shot.shots: INLI has {len(first)} premises to draw from"])

        draw = random.Random(self.seed)  # noqa: S311 - no secret; the same draw on every machine
        order = draw.sample(list(LABELS), len(LABELS))
        types = [order[number % len(order)] for number in range(self.shots)]
        draw.shuffle(types)
        examples = []
        for number, hypothesis_type in zip(
            draw.sample(sorted(first.values()), self.shots), types, strict=True
        ):
            row = self._train[number]
            examples.append(
                (row["premise"], row[LABELS[hypothesis_type].replace(" ", "_")], hypothesis_type)
            )

        return tuple(examples)

    @cached_property
    def messages(self) -> tuple[tuple[str, str], ...]:
        """The messages before every pair: the task with its labels, then the examples as answered
        turns.
        """
        turns = [("system", _TASK)]
        for premise, hypothesis, hypothesis_type in self.examples:
            turns += [
                ("user", _PAIR.format(premise, hypothesis)),
                ("assistant", LABELS[hypothesis_type]),
            ]

        return tuple(turns)

    @property
    def prompt_digest(self) -> str:
        """The sha256 of the whole prompt except the pair."""
        return hashlib.sha256(json.dumps([*self.messages, ("user", _PAIR)]).encode()).hexdigest()

    def request(self, premise: str, hypothesis: str) -> Request:
        """Return the request about one pair."""
        pair = ("user", _PAIR.format(premise, hypothesis))

        return Request((*self.messages, pair), self.parameters)

    def judge(self, premises: Sequence[str], hypotheses: Sequence[str]) -> list[str]:
        """Return the type of every hypothesis, in order, or ``refused``, ``unparsable`` or
        ``failed``.

        If more than 5 % of the answers are unparsable, log a warning.
        """
        # Pairs of one premise follow each other: a server may keep the prompt up to there.
        order = sorted(range(len(premises)), key=lambda pair: premises.index(premises[pair]))
        requests = (self.request(premises[pair], hypotheses[pair]) for pair in order)
        replies = {order[number]: reply for number, reply in self.ask(requests)}

        answers = []
        unread = []
        for number in range(len(premises)):
            reply = replies[number]
            if isinstance(reply, Failure):
                answers.append("failed")
                continue

            answers.append(read_label(reply))
            if answers[-1] == "unparsable":
                unread.append(reply)

        if len(unread) > 0.05 * len(answers):
            log.warning(
                "%d of %d replies name no label, or several, and count as wrong (if they were cut "
                "off: raise llm.parameters.max_tokens). The first: %r",
                len(unread),
                len(answers),
                unread[0].text[:200],
            )

        return answers


def read_label(reply: Reply) -> str:
    """Return the type of hypothesis that a reply names, or ``refused`` or ``unparsable``.

    Case, punctuation, markdown and words around the label do not matter. A label in a clause
    with a denial, such as "not neutral", is not named. A reply that names several labels, or
    was cut off before its end (unless it begins with its label), is unparsable.

    Examples:
        >>> read_label(Reply("**Answer:** Implied entailment.", "stop"))
        'implied'
        >>> read_label(Reply("Neutral, or a contradiction", "stop"))
        'unparsable'
    """
    text = read_answer(reply.text) or ""
    if reply.refused:
        return "refused"
    if not _LABEL.search(text):
        return "refused" if _DECLINES.search(text) else "unparsable"

    types = set()
    for clause in re.split(r"[.,;:!?\n]+|\brather\b", text):
        if not _DENIES.search(clause):
            for match in _LABEL.finditer(clause):
                types.add((match[1] or match[2]).lower())

    is_cut_off = reply.finish == "length" and not _LABEL.match(re.sub(r"^[\W_]+", "", text))

    return types.pop() if len(types) == 1 and not is_cut_off else "unparsable"
