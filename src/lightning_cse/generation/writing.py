"""Have a language model write by a pattern, role by role for each sentence; rejected replies are asked for again."""

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
"""The schema of a reply if the endpoint offers structured output; other endpoints reply with the sentence alone."""


@dataclass
class Row:
    """The sentences that were written for the anchor at a position in the order of drawing."""

    position: int
    anchor: str
    sentences: dict[str, str] = field(default_factory=dict)  # by role
    rejected: list[dict[str, str]] = field(default_factory=list)  # role, reason and text of replies
    replies: list[Reply] = field(default_factory=list)
    lost: str | None = None  # why a request has no reply, if asking again may bring one
    complete: bool = False


class Writer:
    """Writes rows by a pattern, with at most ``samples`` replies for each role.

    Source: NGCSE, similarity pattern simulation. Differs: the authors' code has no filters, and takes every reply.
    """

    def __init__(self, llm: LLM, pattern: Pattern, samples: int) -> None:
        self.llm, self.pattern, self.samples = llm, pattern, samples

    def request(self, role: Role, sentence: str, sample: int = 0) -> Request:
        """Return the request for a role, given the sentence that it is made from; each sample has its own seed."""
        parameters = dict(self.llm.parameters)
        if isinstance(seed := parameters.get("seed"), int):
            parameters["seed"] = seed + sample
        return Request((("system", role.system), ("user", sentence)), parameters, sample, SCHEMA)

    async def write(self, place: tuple[int, str]) -> Row:
        """Return the row for a position and its sentence, complete or as far as it got."""
        row = Row(*place)
        for role in self.pattern.roles:
            reference = row.anchor if role.reference == SOURCE else row.sentences[role.reference]
            for sample in range(self.samples):
                reply = await self.llm.reply(self.request(role, reference, sample))
                if isinstance(reply, Failure):
                    if not reply.final:
                        row.lost = reply.reason
                    row.rejected.append(
                        {
                            "role": role.name,
                            "reason": "refused by the endpoint",
                            "text": reply.reason,
                        }
                    )
                    return row
                row.replies.append(reply)
                sentence, reason = judge(reply, role, row.anchor, reference, row.sentences)
                if reason is None:
                    row.sentences[role.name] = sentence
                    break
                row.rejected.append({"role": role.name, "reason": reason, "text": reply.text})
            else:
                return row
        row.complete = True
        return row


@dataclass
class Tally:
    """Counts over rows; ``roles`` counts the replies of each role by the reason to reject them, None if accepted."""

    roles: dict[str, Counter[str | None]]
    complete: int = 0
    given_up: int = 0
    tokens: Counter[str] = field(
        default_factory=lambda: Counter(prompt=0, completion=0, unmetered=0)
    )
    served: Counter[str] = field(default_factory=Counter)
    last_rejected: dict[str, str] = field(default_factory=dict)

    def add(self, row: Row) -> None:
        """Count a row."""
        self.complete += row.complete
        self.given_up += not row.complete
        for reply in row.replies:
            self.tokens.update(
                prompt=reply.prompt_tokens or 0, completion=reply.completion_tokens or 0
            )
            self.tokens["unmetered"] += (
                reply.prompt_tokens is None or reply.completion_tokens is None
            )
            self.served.update([reply.model] if reply.model else [])
        for role in row.sentences:
            self.roles[role][None] += 1
        for one in row.rejected:
            self.roles[one["role"]][one["reason"]] += 1
            self.last_rejected = one
