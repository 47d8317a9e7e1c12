"""What is asked of a language model, and what comes back."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from lightning_cse.llm.errors import LLMError

_OURS: Final = frozenset({"messages", "model", "n", "stream"})


@dataclass(frozen=True)
class Request:
    """One call of a chat model.

    Attributes:
        messages: pairs of role (``system``, ``user``, ``assistant``) and text, in their order.
        parameters: what goes to the endpoint beside them, by the endpoint's own names: ``temperature``, ``max_tokens``,
            ``seed``, ...
        sample: tells requests apart that ask the same again because another reply is wanted; it is not sent.

    Raises:
        LLMError: if there is no message, if a text is no Unicode, or if a parameter would make the reply another thing
            than one text.
    """

    messages: tuple[tuple[str, str], ...]
    parameters: Mapping[str, float | int | str] = field(default_factory=dict)
    sample: int = 0

    def __post_init__(self) -> None:
        if not self.messages:
            raise LLMError("a request without a message")
        if wrong := sorted(_OURS & set(self.parameters)):
            raise LLMError(
                f"the parameter {wrong[0]!r} is not for the parameters: a request is one text from one model"
            )
        for _, text in self.messages:
            try:
                text.encode()
            except UnicodeEncodeError as error:
                raise LLMError(f"{text[:60]!r} cannot be sent: it holds half a character ({error.reason})") from None

    def key(self, model: str) -> str:
        """Return the digest under which the reply of a model to this is kept.

        Whole floats count as integers, so that ``temperature`` 0 and 0.0 are one; the order of parameters is no matter.
        """
        parameters = {name: _plain(value) for name, value in self.parameters.items()}
        document = [model, self.messages, parameters, self.sample]
        return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class Reply:
    """What the model said.

    Attributes:
        text: the reply; empty where the model said nothing.
        finish_reason: why it ended, in the endpoint's word: ``stop``, ``length``, ``content_filter``, ...
        refusal: what stands in the place of a reply that is refused, by the model or by a filter; None otherwise.
        prompt_tokens: the endpoint's count; None where it tells none.
        completion_tokens: likewise.
        cached: whether it cost nothing now: it was in the cache, or an equal request was under way.
        served: the model that answered, by the answer's own word, which may be more than the name that was asked for
            (a version, say) or another; None where it tells none.
        endpoint: the address where it was asked; None if nobody asked.
    """

    text: str
    finish_reason: str
    refusal: str | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached: bool = False
    served: str | None = None
    endpoint: str | None = None


@dataclass(frozen=True)
class Failure:
    """No reply, after all retries; it is not kept, so that the next start asks again.

    Attributes:
        reason: what went wrong last, for a message.
        attempts: how often it was asked.
        final: whether asking again cannot mend it, because the request itself is refused or too long; else the fault is
            of the way, and another day may bring a reply.
    """

    reason: str
    attempts: int
    final: bool = False


def _plain(value: float | str) -> float | int | str:
    return int(value) if isinstance(value, float) and value.is_integer() else value
