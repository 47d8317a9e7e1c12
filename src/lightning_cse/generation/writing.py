"""Have a language model write rows by a pattern; rejected replies are asked for again."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, TypeVar

from lightning_cse.generation.filters import Cosine, judge, read_score
from lightning_cse.generation.pattern import ANCHOR, SOURCE, Pattern, Role
from lightning_cse.llm import LLM, Account, Failure, Reply, Request

Value = TypeVar("Value")


def _schema(key: str, value_type: str) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {key: {"type": value_type}},
        "required": [key],
        "additionalProperties": False,
    }


SCHEMA = _schema("sentence", "string")
"""The schema of a reply with structured output; other endpoints reply with the sentence alone."""
SCORE_SCHEMA = _schema("score", "number")
"""The same for the score of a pair."""


def score_name(role: str) -> str:
    """Return the name by which the replies with scores of a role's pairs are counted."""
    return f"{role} score"


class Judged(NamedTuple):
    """What came back for a role or its score, with the reason to reject it, None if accepted."""

    name: str
    outcome: Reply | Failure
    reason: str | None


@dataclass
class Row:
    """The sentences that were written for the anchor at a position in the order of drawing.

    ``sentences`` are by role, and so are ``scores``, of their pairs with the anchor. ``lost`` is
    why a request has no reply, if asking again may bring one.
    """

    position: int
    anchor: str
    sentences: dict[str, str] = field(default_factory=dict)
    scores: dict[str, float] = field(default_factory=dict)
    replies: list[Judged] = field(default_factory=list)
    lost: str | None = None
    complete: bool = False

    @property
    def rejected(self) -> list[dict[str, str]]:
        """The role, reason and text of each rejected reply."""
        return [
            {
                "role": name,
                "reason": reason,
                "text": outcome.text if isinstance(outcome, Reply) else outcome.reason,
            }
            for name, outcome, reason in self.replies
            if reason
        ]

    def lines(self, pattern: Pattern) -> list[dict[str, Any]]:
        """Return the row as it is written to a file, a line or, with scores, one for each pair; a
        row that was given up with its rejected replies.
        """
        cells = {ANCHOR: self.anchor, **self.sentences}
        if not self.complete:
            return [{**cells, "rejected": self.rejected}]

        if pattern.given:
            return [{**cells, "score": score} for score in self.scores.values()]

        if not pattern.scores:
            return [cells]

        return [
            {
                "sentence1": self.anchor,
                "sentence2": self.sentences[role],
                "score": score,
                "role": role,
            }
            for role, score in self.scores.items()
        ]


@dataclass
class Writer:
    """Writes rows by a pattern, with at most ``samples`` replies for each role and score.

    ``data_roles`` has the sentences of the data's roles, by the source. In a pattern with scores, a
    role without an accepted reply is left out, and the row is complete with any pair.

    Source: NGCSE, similarity pattern simulation. Differs: the authors' code has no filters, and
    takes every reply.
    """

    llm: LLM
    pattern: Pattern
    samples: int
    cosine: Cosine | None
    data_roles: Mapping[str, Mapping[str, str]]

    def request(self, role: Role, sentence: str, sample: int = 0) -> Request:
        """Return the request for a role, given the sentence that it is made from.

        Each sample has its own seed.
        """
        content = role.content(sentence, self.pattern.seed)

        return self._request(role.system, content, sample, SCHEMA)

    def score_request(self, first: str, second: str, sample: int = 0) -> Request:
        """Return the request for the score of a pair, by a pattern with ``scoring``."""
        scoring = self.pattern.scoring
        assert scoring is not None  # noqa: S101 - else no score is asked
        content = scoring.message.format(first=first, second=second)

        return self._request(scoring.system, content, sample, SCORE_SCHEMA)

    def _request(
        self, system: str, content: str, sample: int, schema: Mapping[str, Any]
    ) -> Request:
        parameters = dict(self.llm.parameters)
        seed = parameters.get("seed")

        if isinstance(seed, int):
            parameters["seed"] = seed + sample

        messages = (("system", system), ("user", content))

        return Request(messages, parameters, sample, schema)

    def write(self, numbered: tuple[int, str]) -> Row:
        """Return the row for a position and its sentence, complete or as far as it got."""
        row = Row(*numbered)
        row.sentences.update(self.data_roles.get(row.anchor, {}))

        for role in self.pattern.roles:
            self._write_role(row, role)
            if row.lost or not (role.name in row.sentences or self.pattern.scores):
                return row

        for name, score in self.pattern.scores.items():
            if name in row.sentences:
                self._score_role(row, name, score)

            if row.lost:
                return row

        row.complete = bool(row.scores or not self.pattern.scores)

        return row

    def _write_role(self, row: Row, role: Role) -> None:
        """Write the sentence of a role, if a reply is accepted."""
        by_role = {SOURCE: row.anchor, **row.sentences}
        reference = by_role.get(role.reference)
        if reference is None:
            return

        sentence = self._asked(
            row,
            role.name,
            lambda sample: self.request(role, reference, sample),
            lambda reply: judge(reply, role, by_role, reference, self.cosine),
        )
        if sentence is not None:
            row.sentences[role.name] = sentence

    def _score_role(self, row: Row, name: str, score: float | Literal["asked"]) -> None:
        """Set the score of the pair of the anchor and a role's sentence."""
        value: float | None
        if score == "asked":
            value = self._asked(
                row,
                score_name(name),
                lambda sample: self.score_request(row.anchor, row.sentences[name], sample),
                read_score,
            )
        else:
            value = score

        if value is not None:
            row.scores[name] = value

    def _asked(
        self,
        row: Row,
        name: str,
        request: Callable[[int], Request],
        read: Callable[[Reply], tuple[Value, str | None]],
    ) -> Value | None:
        """Return what is read from the first accepted of ``samples`` replies, or None."""
        for sample in range(self.samples):
            outcome = self.llm.reply(request(sample))
            if isinstance(outcome, Failure):
                row.lost = None if outcome.final else outcome.reason
                row.replies.append(Judged(name, outcome, "refused by the endpoint"))
                return None

            value, reason = read(outcome)
            row.replies.append(Judged(name, outcome, reason))
            if reason is None:
                return value

        return None


def acceptance(pattern: Pattern, rows: Iterable[Row]) -> dict[str, dict[str, Any]]:
    """Return the numbers of replies to rows, of each role and each score: ``asked``, ``accepted``,
    and ``rejected`` by reason.
    """
    names = [role.name for role in pattern.roles]
    reasons = {name: Counter[str | None]() for name in [*names, *map(score_name, pattern.asked)]}
    for row in rows:
        for name, _, reason in row.replies:
            reasons[name][reason] += 1

    return {
        name: {
            "asked": counts.total(),
            "accepted": counts.pop(None, 0),
            "rejected": dict(counts.most_common()),
        }
        for name, counts in reasons.items()
    }


def account_of(rows: Iterable[Row]) -> Account:
    """Return the account of the replies to rows, as if none had been in the cache."""
    account = Account()
    for row in rows:
        for _, outcome, _ in row.replies:
            if isinstance(outcome, Reply):
                account.add(replace(outcome, cached=False))

    return account
