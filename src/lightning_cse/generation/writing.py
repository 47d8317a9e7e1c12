"""Have a language model write rows by a pattern; rejected replies are asked for again."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from lightning_cse.generation.filters import judge
from lightning_cse.generation.pattern import SOURCE, Pattern, Role
from lightning_cse.llm import LLM, Failure, Reply, Request

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

    def reject(
        self,
        role: Role,
        reason: str,
        text: str,
    ) -> None:
        """Note a rejected reply."""
        self.rejected.append(
            {
                "role": role.name,
                "reason": reason,
                "text": text,
            }
        )


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
        return Request(
            messages,
            parameters,
            sample,
            SCHEMA,
        )

    async def write(self, place: tuple[int, str]) -> Row:
        """Return the row for a position and its sentence, complete or as far as it got."""
        row = Row(*place)

        for role in self.pattern.roles:
            if not await self._write_role(row, role):
                return row

        row.complete = True
        return row

    async def _write_role(
        self,
        row: Row,
        role: Role,
    ) -> bool:
        """Write the sentence of a role; return whether a reply was accepted."""
        reference = row.anchor if role.reference == SOURCE else row.sentences[role.reference]

        for sample in range(self.samples):
            reply = await self.llm.reply(self.request(role, reference, sample))
            if isinstance(reply, Failure):
                if not reply.final:
                    row.lost = reply.reason

                row.reject(
                    role,
                    "refused by the endpoint",
                    reply.reason,
                )
                return False

            row.replies.append(reply)
            sentence, reason = judge(
                reply,
                role,
                row.anchor,
                reference,
                row.sentences,
            )

            if reason is None:
                row.sentences[role.name] = sentence
                return True

            row.reject(role, reason, reply.text)

        return False


def _no_tokens() -> Counter[str]:
    return Counter(prompt=0, completion=0, unmetered=0)


@dataclass
class Tally:
    """Counts over rows.

    ``roles`` counts the replies of each role by the reason to reject them, None for those accepted.
    """

    roles: dict[str, Counter[str | None]]
    complete: int = 0
    given_up: int = 0
    tokens: Counter[str] = field(default_factory=_no_tokens)
    served: Counter[str] = field(default_factory=Counter)
    last_rejected: dict[str, str] = field(default_factory=dict)

    def add(self, row: Row) -> None:
        """Count a row."""
        if row.complete:
            self.complete += 1
        else:
            self.given_up += 1

        for reply in row.replies:
            self._add_reply(reply)

        for role in row.sentences:
            self.roles[role][None] += 1

        for rejected in row.rejected:
            self.roles[rejected["role"]][rejected["reason"]] += 1
            self.last_rejected = rejected

    def _add_reply(self, reply: Reply) -> None:
        self.tokens["prompt"] += reply.prompt_tokens or 0
        self.tokens["completion"] += reply.completion_tokens or 0

        if reply.prompt_tokens is None or reply.completion_tokens is None:
            self.tokens["unmetered"] += 1

        if reply.model:
            self.served[reply.model] += 1
