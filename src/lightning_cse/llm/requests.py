"""What is asked of a language model, and what comes back."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from lightning_cse.errors import LightningCSEError

_CUT_OFF: Final = frozenset({"error", "abort", "aborted", "cancelled", "canceled"})


class LLMError(LightningCSEError):
    """No further reply can be had: the endpoint, its key or the cache of replies is at fault."""


@dataclass(frozen=True)
class Request:
    """One call of a chat model.

    Attributes:
        messages: pairs of role (``system``, ``user``, ``assistant``) and text, in their order.
        parameters: sent beside them, by the endpoint's own names: ``temperature``, ``max_tokens``, ``seed``, ...
        sample: not sent; equal requests with different numbers are asked separately.
        schema: a JSON schema of the reply, which is sent where the endpoint offers structured output.
    """

    messages: tuple[tuple[str, str], ...]
    parameters: Mapping[str, float | int | str] = field(default_factory=dict)
    sample: int = 0
    schema: Mapping[str, Any] | None = None

    def key(self, model: str) -> str:
        """Return the digest under which a model's reply is kept; 0 and 0.0 are the same parameter."""
        parameters = {
            name: int(value) if isinstance(value, float) and value.is_integer() else value
            for name, value in self.parameters.items()
        }
        document = [model, self.messages, parameters, self.sample, *([] if self.schema is None else [self.schema])]
        return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class Reply:
    """What the model said.

    Attributes:
        text: the reply, or the words of a refusal; it may be empty.
        finish: why it ended, in the endpoint's word: ``stop``, ``length``, ``content_filter``, ...; or ``refusal``.
        model: who answered, in the endpoint's word; None: it did not say.
        prompt_tokens: the endpoint's count; None: it did not report one.
        completion_tokens: likewise.
        endpoint: the address that answered.
        cached: whether it cost nothing now.
    """

    text: str
    finish: str
    model: str | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    endpoint: str | None = None
    cached: bool = False

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
    """Return the reply in the body of a chat completion.

    Raises:
        ValueError: if there is none, with the reason.
    """
    try:
        answer = json.loads(content)
        choice = answer["choices"][0]
        message, usage, model = choice["message"], answer.get("usage") or {}, answer.get("model")
        text, refusal = message.get("content"), message.get("refusal")
        reply = Reply(
            text=_whole(refusal or text or ""),
            finish="refusal" if refusal else _whole(choice.get("finish_reason") or "unknown"),
            model=_whole(model) if isinstance(model, str) else None,
            prompt_tokens=_count(usage.get("prompt_tokens")),
            completion_tokens=_count(usage.get("completion_tokens")),
            endpoint=endpoint,
        )
        failed = choice.get("error")
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise ValueError(f"the answer is not a chat completion; it begins {content[:80]!r}") from None
    if failed or reply.finish.lower() in _CUT_OFF:
        raise ValueError(f"the reply was cut off by an error: {failed or reply.finish}")
    return reply


def _whole(text: str) -> str:
    """Replace halves of characters, which no file takes; a reply cut off in the middle of an emoji has one."""
    return text.encode("utf-8", "replace").decode()


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and 0 <= value < 2**63 else None
