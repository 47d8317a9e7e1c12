"""Have a language model write rows by a pattern; rejected replies are asked for again."""

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

from lightning_cse.generation.filters import Cosine, judge
from lightning_cse.generation.pattern import ANCHOR, SOURCE, Pattern, Role
from lightning_cse.llm import LLM, Account, Failure, Request

SCHEMA = {
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
    lost: str | None = None
    complete: bool = False

    @property
    def cells(self) -> dict[str, Any]:
        """The row as it is written to a file; one that was given up with its rejected replies."""
        cells = {ANCHOR: self.anchor, **self.sentences}
        return cells if self.complete else {**cells, "rejected": self.rejected}


class Writer:
    """Writes rows by a pattern, with at most ``samples`` replies for each role.

    ``roles`` counts the replies of each role by the reason to reject them, None for those accepted;
    ``replies`` is the account of all replies, as if none had been in the cache.

    Source: NGCSE, similarity pattern simulation. Differs: the authors' code has no filters, and
    takes every reply.
    """

    def __init__(
        self,
        llm: LLM,
        pattern: Pattern,
        samples: int,
        cosine: Cosine | None = None,
    ) -> None:
        self.llm = llm
        self.pattern = pattern
        self.samples = samples
        self.cosine = cosine
        self.roles = {role.name: Counter[str | None]() for role in pattern.roles}
        self.replies = Account()

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
                self._count(
                    row,
                    role,
                    "refused by the endpoint",
                    reply.reason,
                )
                return False

            self.replies.add(replace(reply, cached=False))
            sentence, reason = judge(
                reply,
                role,
                row.anchor,
                reference,
                row.sentences,
                self.cosine,
            )
            self._count(row, role, reason, reply.text)

            if reason is None:
                row.sentences[role.name] = sentence
                return True

        return False

    def _count(
        self,
        row: Row,
        role: Role,
        reason: str | None,
        text: str,
    ) -> None:
        self.roles[role.name][reason] += 1
        if reason is not None:
            row.rejected.append({"role": role.name, "reason": reason, "text": text})
