"""The first requests to an endpoint: does it answer, and what does it accept?"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import openai

from lightning_cse.llm.endpoint import Endpoint
from lightning_cse.llm.requests import LLMError, Reply

log = logging.getLogger(__name__)

QUESTION = "Answer with the word yes."
"""The last message of every probe."""

PATIENCE = 8.0
"""Seconds after which a log line names an endpoint that has not answered yet."""

_SYSTEM = {"role": "system", "content": "You answer briefly."}
_BUSY = frozenset({429, 503})
"""Statuses of an endpoint that may accept the same request later; 503 also says that a server is
loading its model.
"""

Post = Callable[[Mapping[str, Any], int], Awaitable[Reply]]
"""Sends the body of a request with a number of retries; raises the openai client's errors."""


@dataclass(frozen=True)
class Abilities:
    """What an endpoint accepts: a JSON schema of the reply, system messages, and a seed.

    ``structured_output`` is None if no request of this command has a schema.
    """

    structured_output: bool | None
    system_messages: bool
    seed: bool

    def __str__(self) -> str:
        words = []
        for name, has in vars(self).items():
            if has is not None:
                words.append(f"{name.replace('_', ' ')}: {'yes' if has else 'no'}")

        return ", ".join(words)


def response_format(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameter that asks for a reply of a JSON schema."""
    return {
        "type": "json_schema",
        "json_schema": {"name": "reply", "strict": True, "schema": schema},
    }


async def probe(post: Post, endpoint: Endpoint, schema: Mapping[str, Any] | None) -> Abilities:
    """Find out by up to four short requests what an endpoint accepts, and log it in one line.

    The first request has the parameters of all later ones and nothing else that an endpoint may
    refuse; its error is the caller's to explain. Any status means that a feature is refused, since
    servers differ. An endpoint that ignores the ``schema`` counts as one without structured output.
    Raises LLMError if ``llm.structured_output`` is true and the endpoint has none.
    """
    question = {"role": "user", "content": QUESTION}
    body = {"model": endpoint.model, "messages": [question], **endpoint.sent}
    late = asyncio.get_running_loop().call_later(
        PATIENCE,
        log.warning,
        "%s has not answered for %g s; a call may take %g s (llm.timeout)",
        endpoint.address,
        PATIENCE,
        endpoint.timeout,
    )
    try:
        await _post_when_free(post, body, endpoint)
    finally:
        late.cancel()

    bodies = {
        "system_messages": {**body, "messages": [_SYSTEM, question]},
        "seed": {"seed": 0, **body},
    }
    if schema is not None and endpoint.structured_output is not False:
        bodies["structured_output"] = {**body, "response_format": response_format(schema)}

    outcomes = await asyncio.gather(*(_refusal(post, one, endpoint) for one in bodies.values()))
    refusals = dict(zip(bodies, outcomes, strict=True))
    of_schema = refusals.get("structured_output")
    if of_schema and endpoint.structured_output is True:
        raise LLMError(
            f"llm.structured_output is true, but {endpoint.address} {of_schema}; "
            "llm.structured_output=auto asks for plain text"
        )

    abilities = Abilities(
        structured_output=None if schema is None else of_schema == "",
        system_messages=not refusals["system_messages"],
        seed=not refusals["seed"],
    )
    log.info("%s, %s: answers; %s", endpoint.address, endpoint.model, abilities)

    return abilities


async def _refusal(post: Post, body: Mapping[str, Any], endpoint: Endpoint) -> str:
    """Return how an endpoint refuses a request; empty if it accepts it."""
    try:
        try:
            reply = await _post_when_free(post, body, endpoint)
        except openai.APIConnectionError:  # one broken connection refuses no feature
            reply = await _post_when_free(post, body, endpoint)
    except openai.APIStatusError as error:
        return f"answers it with status {error.status_code}"
    except openai.APIConnectionError as error:
        return f"gives no answer to it ({error.__cause__})"

    is_ignored = "response_format" in body and not reply.text.lstrip().startswith("{")

    return "ignores it" if is_ignored else ""


async def _post_when_free(post: Post, body: Mapping[str, Any], endpoint: Endpoint) -> Reply:
    """Send a request once, and again only to a busy endpoint: other faults are named at once."""
    try:
        return await post(body, 0)
    except openai.APIStatusError as error:
        if error.status_code not in _BUSY:
            raise

    return await post(body, endpoint.retries)
