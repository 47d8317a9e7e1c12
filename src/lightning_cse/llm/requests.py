"""What is asked of a language model, and what comes back."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lightning_cse.errors import LightningCSEError


class LLMError(LightningCSEError):
    """No further reply can be had: the endpoint, its key or the cache of replies is at fault."""


@dataclass(frozen=True)
class Request:
    """One call of a chat model."""

    messages: tuple[tuple[str, str], ...]  # role (system, user, assistant) and text
    parameters: Mapping[str, float | int | str] = field(default_factory=dict)  # sent, by the endpoint's own names
    sample: int = 0  # not sent: equal requests with different numbers are asked separately
    schema: Mapping[str, Any] | None = None  # a JSON schema of the reply, for endpoints with structured output

    def key(self, model: str) -> str:
        """Return the digest under which a model's reply is kept; 0 and 0.0 are the same parameter."""
        values = self.parameters.items()
        parameters = {name: int(v) if isinstance(v, float) and v.is_integer() else v for name, v in values}
        document = [model, self.messages, parameters, self.sample, *([] if self.schema is None else [self.schema])]
        return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class Reply:
    """What the model said."""

    text: str  # or the words of a refusal; it may be empty
    finish: str  # why it ended, in the endpoint's word: stop, length, content_filter, ...; or refusal
    model: str | None = None  # who answered, in the endpoint's word, if it said so
    prompt_tokens: int | None = None  # None: the endpoint did not report them
    completion_tokens: int | None = None
    endpoint: str | None = None  # the address that answered
    cached: bool = False  # whether it cost nothing now

    @property
    def refused(self) -> bool:
        """Whether the model or a filter of the endpoint refused to answer."""
        return self.finish in {"content_filter", "refusal"}


@dataclass(frozen=True)
class Failure:
    """No reply after all retries, and why; it is not kept.  ``final``: asking again does not help."""

    reason: str
    final: bool = False


def read_reply(content: bytes, endpoint: str) -> Reply:
    """Return the reply in the body of a chat completion; raise ValueError with the reason if there is none."""
    try:
        answer = json.loads(content)
        choice, usage, model = answer["choices"][0], answer.get("usage") or {}, answer.get("model")
        refusal = choice["message"].get("refusal")
        text = refusal or choice["message"].get("content") or ""
        reply = Reply(
            text=text.encode("utf-8", "replace").decode(),  # a reply cut off in an emoji ends with half a character
            finish="refusal" if refusal else choice.get("finish_reason") or "unknown",
            model=model if isinstance(model, str) else None,
            prompt_tokens=usage.get("prompt_tokens"),
            completion_tokens=usage.get("completion_tokens"),
            endpoint=endpoint,
        )
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise ValueError(f"the answer is not a chat completion; it begins {content[:80]!r}") from None
    if choice.get("error") or reply.finish == "error":
        raise ValueError(f"the reply was cut off by an error: {choice.get('error')}")
    return reply
