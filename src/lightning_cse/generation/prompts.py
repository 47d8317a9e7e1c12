"""What a language model would be sent for a set of rows, and what that would cost, before anything is sent."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from rich.console import Console
from rich.rule import Rule
from rich.text import Text

from lightning_cse.generation import SOURCE, Role, Writer
from lightning_cse.llm import Endpoint, Request, dollars, price_of

__all__ = ["Estimate", "estimate", "print_prompts"]

_BYTES: Final = 4  # of a token, in English
_FRAME: Final = 4  # tokens around each message


@dataclass(frozen=True)
class Estimate:
    """What calls would take, if no reply is rejected and each is as long as the sentence that it is made of.

    Attributes:
        calls: How many there are.
        prompt_tokens: What is sent, a token for four bytes.
        completion_tokens: What is received.
    """

    calls: int
    prompt_tokens: int
    completion_tokens: int

    def cost(self, price: Mapping[str, float] | None) -> float | None:
        """Return the cost in USD; None where the price is unknown."""
        return None if price is None else price_of(price, self.prompt_tokens, self.completion_tokens)


def estimate(writer: Writer, sentences: Sequence[str]) -> Estimate:
    """Return what the rows of these sentences would take; a sentence that is not written yet counts as its source."""
    standing = sum(_tokens(text) + 2 * _FRAME for role in writer.pattern.roles for _, text in role.messages("")[:-1])
    roles = len(writer.pattern.roles)
    written = sum(map(_tokens, sentences))
    sent = standing * len(sentences) + roles * written
    return Estimate(roles * len(sentences), round(sent), round(roles * written))


def print_prompts(
    writer: Writer, first: str, unwritten: Sequence[str], wanted: int, endpoint: Endpoint, console: Console
) -> None:
    """Print the calls for one sentence as they would be sent, and what all that are lacking would take.

    Args:
        writer: Who would ask.
        first: The sentence.
        unwritten: Those of the rows that are lacking, in the order of drawing.
        wanted: How many rows there are to be, with those that are there.
        endpoint: Who would be asked.
        console: Where to.
    """
    roles = writer.pattern.roles
    for number, role in enumerate(roles, start=1):
        console.print(Rule(f"{role.name} ({number} of {len(roles)}), made of {_made_of(role)}", align="left"))
        request = writer.request(role, first if role.reference == SOURCE else f"<{role.reference}>")
        _print_request(request, endpoint.model, console)
    console.print(Rule(align="left"))
    found = estimate(writer, unwritten)
    price, cost = endpoint.price, found.cost(endpoint.price)
    money = "unknown: llm.price is not set, as in llm.price={input: 0.5, output: 1.5} (USD per million tokens)"
    if price is not None and cost is not None:
        money = f"about {dollars(cost, least=2)}, at ${price['input']:g} and ${price['output']:g} per million tokens"
    for line in (
        f"rows: {wanted:,}, of which {wanted - len(unwritten):,} are there",
        f"calls: {found.calls:,} to {endpoint.address}; fewer where replies are kept from before, more where they are "
        f"rejected (up to {writer.samples} for a role, then another sentence takes the place)",
        f"tokens: about {_round(found.prompt_tokens):,} sent and {_round(found.completion_tokens):,} received",
        f"cost: {money}",
        "nothing was sent; without show_prompts=true, it is",
    ):
        console.print(Text(line), soft_wrap=True)


def _made_of(role: Role) -> str:
    return "the source" if role.reference == SOURCE else f"the {role.reference} that was written"


def _print_request(request: Request, model: str, console: Console) -> None:
    for who, text in request.messages:
        console.print(Text(f"[{who}]", style="bold"))
        console.print(Text(text), soft_wrap=True)
        console.print()
    sent = {"model": model, **request.parameters}
    console.print(Text(f"with {json.dumps(sent, ensure_ascii=False)}", style="dim"), soft_wrap=True)
    console.print()


def _tokens(text: str) -> float:
    return len(text.encode()) / _BYTES


def _round(count: float) -> int:
    """Return a number with two digits that count: an estimate has no more."""
    if count < 10:
        return round(count)
    digits = 1 - math.floor(math.log10(count))
    return int(round(count, digits))
