"""A large language model that is shown a few labelled pairs and asked for the label of another one."""

from __future__ import annotations

import hashlib
import json
import logging
import random
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final, Protocol

from lightning_cse.baselines.verdict import Verdict
from lightning_cse.data import Rows, read_corpus
from lightning_cse.errors import ConfigError, DataError
from lightning_cse.llm import Failure, Reply, Request, declines

__all__ = ["LABELS", "FewShot", "Label", "read_answer"]

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Label:
    """What a pair can be called: its name in the prompt, what that means, INLI's column, and whether it entails."""

    name: str
    meaning: str
    column: str
    entailed: bool


LABELS: Final = {
    label.column.removesuffix("_entailment"): label
    for label in (
        Label(
            "explicit entailment",
            "the premise itself says the hypothesis, in the same words or in others",
            "explicit_entailment",
            True,
        ),
        Label(
            "implied entailment",
            "the premise does not say the hypothesis, but gives a reader good reason to understand it so",
            "implied_entailment",
            True,
        ),
        Label("neutral", "with the premise as it stands, the hypothesis may be true or false", "neutral", False),
        Label("contradiction", "if the premise holds, the hypothesis is false", "contradiction", False),
    )
}
"""The labels by the type of hypothesis they stand for."""

_TASK: Final = (
    "You are given pairs of a premise and a hypothesis. Say how the hypothesis relates to the premise. "
    "Answer with one of these four labels, and with nothing else:"
)
_PAIR: Final = "Premise: {}\nHypothesis: {}"

_UNREAD: Final = 0.05
"""The share of replies without a label above which a warning is logged."""

_WORD: Final = r"(?<![^\W_]){}(?![^\W_])"  # markdown's underscores are no part of a word
_NAMED: Final = {
    kind: re.compile(_WORD.format(r"[\s_*-]+".join(label.name.split())), re.IGNORECASE)
    for kind, label in LABELS.items()
}
_CLAUSE: Final = re.compile(r"(?:\b(?:not|never)\s*,[^.;:!?\n]*|[^.;:!?,\n]*)\Z", re.IGNORECASE)
"""The words before a label in its clause; a denial that ends an earlier clause reaches over the comma."""
_DENIES: Final = re.compile(
    _WORD.format(r"(?:not|no|nor|neither|never|cannot|without|than|far\s+from|rather|\w*n['’]t)"), re.IGNORECASE
)
_DENIED_AFTER: Final = re.compile(
    r"[^\w.,;!\n]*(?:(?:is|was|does|can|could|would|should|must)(?:\s+be)?\s+)?"
    + _WORD.format(r"(?:no|not|false|wrong|incorrect|excluded|ruled\s+out|cannot|\w+n['’]t)")
    # Past the end of its sentence only a word that stands alone: "Neutral. Not enough is said." denies nothing.
    + rf"|\W*{_WORD.format('(?:no|not|false)')}[^\w.,;!\n]*(?:\Z|[.,;!\n])",
    re.IGNORECASE,
)


class Asks(Protocol):
    """What is asked of a client: replies to requests, each with its request's number, as they come."""

    def ask(self, requests: Iterable[Request]) -> Iterator[tuple[int, Reply | Failure]]:
        """Return the replies."""
        ...


class FewShot:
    """Entailment as a language model sees it, after some examples of INLI's train split.

    The examples are drawn once by the seed, of distinct premises and as many of each label as can be, and stand in the
    same order before every pair. The four labels are collapsed to two: explicit and implied entailments are entailed.
    What `read_answer` cannot read, what the model declines to answer and what the endpoint did not reply to is no
    verdict, and never guessed.

    Source: DualCSE, RTE experiment, rows of few-shot LLMs.  Differs: the prompt's wording, the draw of the examples and
    what counts as an answer are our own.

    Args:
        client: gives the replies.
        data_dir: where the corpora are.
        shots: how many examples are shown; 0 for none.
        seed: draws the examples.
        parameters: what goes to the endpoint with every pair, by the endpoint's own names.
    """

    def __init__(
        self,
        client: Asks,
        *,
        data_dir: str,
        shots: int = 8,
        seed: int = 0,
        parameters: Mapping[str, float | int | str] | None = None,
    ) -> None:
        if min(shots, seed) < 0:
            raise ConfigError([f"few_shot: shots and seed must be integers >= 0, got {shots} and {seed}"])
        self.client = client
        self.data_dir = Path(data_dir)
        self.shots = shots
        self.seed = seed
        self.parameters = dict(parameters or {})

    @cached_property
    def _train(self) -> Rows:
        return read_corpus("inli", "train", self.data_dir)

    @property
    def digests(self) -> dict[str, str]:
        """The sha256 of the file the examples are drawn from; none where there is no example."""
        return {file.name: file.sha256 for file in self._train.files} if self.shots else {}

    @cached_property
    def examples(self) -> tuple[tuple[str, str, str], ...]:
        """Premise, hypothesis and type of every example.

        Raises:
            DataError: if the train split has fewer premises.
        """
        if not self.shots:
            return ()
        first = {premise: row for row, premise in reversed(list(enumerate(self._train.column("premise"))))}
        rows = sorted(first.values())
        if self.shots > len(rows):
            raise DataError(f"shots: {self.shots}, but INLI train has only {len(rows)} premises; ask for fewer")
        draw = random.Random(self.seed)  # noqa: S311 - no secret; the same draw on every machine
        kinds = draw.sample(list(LABELS), len(LABELS))
        kinds = [kinds[number % len(kinds)] for number in range(self.shots)]
        draw.shuffle(kinds)
        chosen = [self._train[row] for row in draw.sample(rows, self.shots)]
        return tuple((row["premise"], row[LABELS[kind].column], kind) for row, kind in zip(chosen, kinds, strict=True))

    @cached_property
    def messages(self) -> tuple[tuple[str, str], ...]:
        """What stands before every pair: the task with its labels, then the examples as if they had been answered."""
        system = "\n".join([_TASK, *(f"- {label.name}: {label.meaning}" for label in LABELS.values())])
        turns = [("system", system)]
        for premise, hypothesis, kind in self.examples:
            turns += [("user", _PAIR.format(premise, hypothesis)), ("assistant", LABELS[kind].name)]
        return tuple(turns)

    @property
    def prompt_digest(self) -> str:
        """The sha256 of the whole prompt but for the pair."""
        return hashlib.sha256(json.dumps([*self.messages, ("user", _PAIR)]).encode()).hexdigest()

    def requests(self, premises: Sequence[str], hypotheses: Sequence[str]) -> Iterator[Request]:
        """Yield what is asked about pairs, in their order."""
        for premise, hypothesis in zip(premises, hypotheses, strict=True):
            yield Request((*self.messages, ("user", _PAIR.format(premise, hypothesis))), self.parameters)

    def judge(self, premises: Sequence[str], hypotheses: Sequence[str]) -> list[Verdict]:
        """Return a verdict on every pair, in their order; warn where many of the replies name no label.

        Raises:
            LLMError: if the endpoint cannot be reached or refuses to work for us; replies that came are in the cache.
        """
        came = dict(self.client.ask(self.requests(premises, hypotheses)))
        replies = [came[number] for number in range(len(premises))]
        verdicts = [_verdict(reply) for reply in replies]
        unread = [r for r in replies if isinstance(r, Reply) and read_answer(r) == "unparsable"]
        if len(unread) > _UNREAD * len(replies):
            reason, count = Counter(reply.finish_reason for reply in unread).most_common(1)[0]
            example = next(reply.text for reply in unread if reply.finish_reason == reason)
            log.warning(
                "%d of %d replies name no label, or several, and count as wrong; most often they ended with %r (%d)%s. "
                "One of these: %r",
                len(unread),
                len(replies),
                reason,
                count,
                ": they were cut off, so raise llm.parameters.max_tokens" if reason == "length" else "",
                example[:200],
            )
        return verdicts


def _verdict(reply: Reply | Failure) -> Verdict:
    answer = "failed" if isinstance(reply, Failure) else read_answer(reply)
    return Verdict(LABELS[answer].entailed if answer in LABELS else None, answer)


def read_answer(reply: Reply) -> str:
    """Return the type of hypothesis that a reply names, or ``refused`` or ``unparsable``.

    Case, punctuation, markdown and words around the label do not matter. A label that is denied is not named: not by
    "This is not neutral", nor by "Neutral: no". A reply that names several labels, or was cut off before it was over
    (unless it begins with its label), is not guessed.

    Example:
        >>> read_answer(Reply("**Answer:** Implied entailment.", "stop", None, None, None, cached=False))
        'implied'
        >>> read_answer(Reply("Neutral, or a contradiction", "stop", None, None, None, cached=False))
        'unparsable'
    """
    if reply.refusal or reply.finish_reason == "content_filter":
        return "refused"
    text = reply.text
    found = {kind: list(pattern.finditer(text)) for kind, pattern in _NAMED.items()}
    if not any(found.values()):
        return "refused" if declines(text) else "unparsable"
    named = {kind: open_ for kind, places in found.items() if (open_ := [p for p in places if not _denied(text, p)])}
    if len(named) != 1:
        return "unparsable"
    ((kind, places),) = named.items()
    if reply.finish_reason == "length" and re.search(r"\w", text[: places[0].start()]):
        return "unparsable"
    return kind


def _denied(text: str, place: re.Match[str]) -> bool:
    """Whether a reply says of a label that it is not the one: earlier in its clause, or right after it."""
    clause = _CLAUSE.search(text[: place.start()])
    before = clause is not None and _DENIES.search(clause.group())
    return bool(before or _DENIED_AFTER.match(text[place.end() :]))
