"""A large language model that is shown a few labelled pairs and asked for the label of another one."""

from __future__ import annotations

import hashlib
import json
import random
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final, Protocol

from lightning_cse.baselines.verdict import Verdict
from lightning_cse.data import Rows, read_corpus
from lightning_cse.errors import DataError
from lightning_cse.llm import Failure, Reply, Request

__all__ = ["LABELS", "FewShot", "Label", "read_answer"]


@dataclass(frozen=True)
class Label:
    """What a pair can be called: its name in the prompt, what that means, INLI's column, and whether it entails."""

    name: str
    meaning: str
    column: str
    entailed: bool


LABELS: Final = {
    "explicit": Label(
        "explicit entailment",
        "the premise itself says the hypothesis, in the same words or in others",
        "explicit_entailment",
        True,
    ),
    "implied": Label(
        "implied entailment",
        "the premise does not say the hypothesis, but gives a reader good reason to understand it so",
        "implied_entailment",
        True,
    ),
    "neutral": Label(
        "neutral",
        "with the premise as it stands, the hypothesis may be true or false",
        "neutral",
        False,
    ),
    "contradiction": Label(
        "contradiction",
        "if the premise holds, the hypothesis is false",
        "contradiction",
        False,
    ),
}
"""The labels by the type of hypothesis they stand for."""

_TASK: Final = (
    "You are given pairs of a premise and a hypothesis. Say how the hypothesis relates to the premise. "
    "Answer with one of these four labels, and with nothing else:"
)
_PAIR: Final = "Premise: {}\nHypothesis: {}"

_BETWEEN: Final = r"[\s_*-]+"
"""What may stand between the words of a label."""
_NAMED: Final = {
    kind: re.compile(rf"(?<![^\W_]){_BETWEEN.join(label.name.split())}(?![^\W_])", re.IGNORECASE)
    for kind, label in LABELS.items()
}
_DENIED: Final = re.compile(r"\b(not|no|nor|neither|never|isn['’]t|than)(\W+an?)?\W*$", re.IGNORECASE)
_DECLINES: Final = re.compile(
    r"\b(sorry|apologi[sz]e|can(not| not|['’]?t)|unable|wo(n['’]t|uld rather not)|will not|not able|decline|refuse)\b",
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
        temperature: of the model's sampling; None leaves it to the endpoint, for models that refuse the parameter.
        max_tokens: the most an answer may take; None leaves it to the endpoint.
        max_completion_tokens: the same under the name that reasoning models want.
        reasoning_effort: for models that have it: ``low``, say.

    Raises:
        ValueError: if shots or seed are negative, or a limit of tokens is below 1.
    """

    def __init__(
        self,
        client: Asks,
        *,
        data_dir: str,
        shots: int = 8,
        seed: int = 0,
        temperature: float | None = 0.0,
        max_tokens: int | None = 32,
        max_completion_tokens: int | None = None,
        reasoning_effort: str | None = None,
    ) -> None:
        limits = {"max_tokens": max_tokens, "max_completion_tokens": max_completion_tokens}
        for name, value, least in (("shots", shots, 0), ("seed", seed, 0), *((n, v, 1) for n, v in limits.items())):
            if value is not None and value < least:
                raise ValueError(f"{name}: {value} is no whole number of at least {least}")
        self.client = client
        self.data_dir = Path(data_dir)
        self.shots = shots
        self.seed = seed
        given = {"temperature": temperature, **limits, "reasoning_effort": reasoning_effort}
        self.parameters: Mapping[str, float | int | str] = {k: v for k, v in given.items() if v is not None}

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

    def requests(self, premises: Sequence[str], hypotheses: Sequence[str]) -> list[Request]:
        """Return what is asked about pairs, in their order."""
        return [
            Request((*self.messages, ("user", _PAIR.format(premise, hypothesis))), self.parameters)
            for premise, hypothesis in zip(premises, hypotheses, strict=True)
        ]

    def judge(self, premises: Sequence[str], hypotheses: Sequence[str]) -> list[Verdict]:
        """Return a verdict on every pair, in their order.

        Raises:
            LLMError: if the endpoint cannot be reached or refuses to work for us; replies that came are in the cache.
        """
        asked = self.requests(premises, hypotheses)
        replies = dict(self.client.ask(asked))
        return [_verdict(replies[number]) for number in range(len(asked))]


def _verdict(reply: Reply | Failure) -> Verdict:
    if isinstance(reply, Failure):
        return Verdict(None, "failed")
    answer = read_answer(reply)
    return Verdict(LABELS[answer].entailed if answer in LABELS else None, answer)


def read_answer(reply: Reply) -> str:
    """Return the type of hypothesis that a reply names, or ``refused`` or ``unparsable``.

    Case, punctuation, markdown and words around the label do not matter. A reply that names several labels, says what
    the pair is not, or was cut off before it was over (unless it begins with its label) is not guessed.

    Example:
        >>> read_answer(Reply("**Answer:** Implied entailment.", "stop", None, None, None, cached=False))
        'implied'
        >>> read_answer(Reply("Neutral, or a contradiction", "stop", None, None, None, cached=False))
        'unparsable'
    """
    if reply.refusal or reply.finish_reason == "content_filter":
        return "refused"
    text = reply.text
    named = {kind: found for kind, pattern in _NAMED.items() if (found := list(pattern.finditer(text)))}
    if not named:
        return "refused" if _DECLINES.search(text) else "unparsable"
    if len(named) > 1:
        return "unparsable"
    ((kind, places),) = named.items()
    if any(_DENIED.search(text[: place.start()]) for place in places):
        return "unparsable"
    if reply.finish_reason == "length" and re.search(r"\w", text[: places[0].start()]):
        return "unparsable"
    return kind
