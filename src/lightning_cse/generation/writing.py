"""Have a language model write rows by a pattern; rejected replies are asked for again."""

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any, Final

from lightning_cse.generation.filters import judge
from lightning_cse.generation.pattern import ANCHOR, SOURCE, Pattern, Role
from lightning_cse.llm import LLM, Account, Failure, Reply, Request

SCHEMA: Final = {
    "type": "object",
    "properties": {"sentence": {"type": "string"}},
    "required": ["sentence"],
    "additionalProperties": False,
}
"""The schema of a reply with structured output; other endpoints reply with the sentence alone."""


@dataclass
class Row:
    """The sentences that were written for the anchor at a position in the order of drawing.

    ``sentences`` are by role; ``rejected`` has the role, reason and text of each rejected reply.
    ``lost`` is why a request has no reply, if asking again may bring one.
    """

    position: int
    anchor: str
    sentences: dict[str, str] = field(default_factory=dict)
    rejected: list[dict[str, str]] = field(default_factory=list)
    replies: list[Reply] = field(default_factory=list)
    lost: str | None = None
    complete: bool = False

    def reject(self, role: Role, reason: str, text: str) -> None:
        """Note a rejected reply."""
        self.rejected.append({"role": role.name, "reason": reason, "text": text})

    @property
    def cells(self) -> dict[str, Any]:
        """The row as it is written to a file; one that was given up with its rejected replies."""
        cells = {ANCHOR: self.anchor, **self.sentences}
        return cells if self.complete else {**cells, "rejected": self.rejected}


class Writer:
    """Writes rows by a pattern, with at most ``samples`` replies for each role.

    Source: NGCSE, similarity pattern simulation. Differs: the authors' code has no filters, and
    takes every reply.
    """

    def __init__(
        self,
        llm: LLM,
        pattern: Pattern,
        samples: int,
    ) -> None:
        self.llm = llm
        self.pattern = pattern
        self.samples = samples

    def request(
        self,
        role: Role,
        sentence: str,
        sample: int = 0,
    ) -> Request:
        """Return the request for a role, given the sentence that it is made from.

        Each sample has its own seed.
        """
        parameters = dict(self.llm.parameters)
        seed = parameters.get("seed")

        if isinstance(seed, int):
            parameters["seed"] = seed + sample

        messages = (("system", role.system), ("user", sentence))
        return Request(messages, parameters, sample, SCHEMA)

    async def write(self, place: tuple[int, str]) -> Row:
        """Return the row for a position and its sentence, complete or as far as it got."""
        row = Row(*place)

        for role in self.pattern.roles:
            if not await self._write_role(row, role):
                return row

        row.complete = True
        return row

    async def _write_role(self, row: Row, role: Role) -> bool:
        """Write the sentence of a role; return whether a reply was accepted."""
        reference = row.anchor if role.reference == SOURCE else row.sentences[role.reference]

        for sample in range(self.samples):
            reply = await self.llm.reply(self.request(role, reference, sample))
            if isinstance(reply, Failure):
                row.lost = None if reply.final else reply.reason
                row.reject(role, "refused by the endpoint", reply.reason)
                return False

            row.replies.append(reply)
            sentence, reason = judge(reply, role, row.anchor, reference, row.sentences)

            if reason is None:
                row.sentences[role.name] = sentence
                return True

            row.reject(role, reason, reply.text)

        return False


@dataclass
class Tally:
    """Counts over rows.

    ``roles`` counts the replies of each role by the reason to reject them, None for those accepted;
    ``replies`` is the account of all replies, as if none had been in the cache.
    """

    roles: dict[str, Counter[str | None]]
    complete: int = 0
    given_up: int = 0
    replies: Account = field(default_factory=Account)

    def add(self, row: Row) -> None:
        """Count a row."""
        self.complete += row.complete
        self.given_up += not row.complete

        for reply in row.replies:
            self.replies.add(replace(reply, cached=False))

        for role in row.sentences:
            self.roles[role][None] += 1

        for rejected in row.rejected:
            self.roles[rejected["role"]][rejected["reason"]] += 1
