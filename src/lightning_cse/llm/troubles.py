"""What a call that brings no reply says about the call, the endpoint and what to do next."""

from __future__ import annotations

import email.utils
import json
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Final

from lightning_cse.llm.requests import Reply

if TYPE_CHECKING:
    import openai

_SHOWN: Final = 300
_UNREACHED: Final = frozenset({"ConnectError", "ConnectTimeout", "ProxyError"})
_BEGINNING: Final = 80
_MOST_TOKENS: Final = 2**63 - 1  # that a file of replies can hold
_CUT_OFF: Final = frozenset({"error", "abort", "aborted", "cancelled", "canceled"})
_TOO_LONG: Final = ("context length", "context_length", "context window", "context size", "too long")
_NO_MODEL: Final = frozenset({"model_not_found", "unknown_model", "invalid_model"})


Hide = Callable[[str], str]
"""Returns a text of somebody else without what nobody may read."""


class Kind(Enum):
    """What follows from a trouble."""

    FAULT = auto()  # of the way: ask again
    UNREACHED = auto()  # no connection: ask again, and wonder whether there is a server
    LIMITED = auto()  # too many calls: wait, and ask again
    REFUSED = auto()  # asking this again does not help
    TOO_LONG = auto()  # neither, and it says nothing about other requests
    FILTERED = auto()  # a filter stands before the model, and this is its reply
    KEY = auto()  # here and below: no request will be answered
    FORBIDDEN = auto()  # or this one only, where others were answered
    MODEL = auto()
    MONEY = auto()


@dataclass(frozen=True)
class Trouble:
    """One call that brought no reply: of which kind, why, and how many seconds the endpoint asks to wait."""

    kind: Kind
    reason: str
    wait: float | None = None


class Malformed(Exception):  # noqa: N818 - said of an answer, which is the server's fault and never reaches a user
    """The answer came with status 200, and there is no reply in it."""


def trouble_of(error: Exception, timeout: float, hide: Hide) -> Trouble:
    """Return what an exception of one call means.

    Args:
        error: of the call, or `Malformed`.
        timeout: seconds that the call could take.
        hide: what texts of the endpoint pass before they are cut; of a text cut first, a part would stay.

    Raises:
        Exception: the same, if no call is known to end so.
    """
    import openai

    if isinstance(error, openai.APIStatusError):
        return _of_status(error, hide)
    if isinstance(error, Malformed):
        return Trouble(Kind.FAULT, str(error))
    cause = type(error.__cause__).__name__
    if cause in _UNREACHED:
        return Trouble(Kind.UNREACHED, f"no connection: {_line(hide(str(error.__cause__) or cause))}")
    if isinstance(error, TimeoutError | openai.APITimeoutError):
        return Trouble(Kind.FAULT, f"no answer within {timeout:g} s")
    if isinstance(error, openai.APIConnectionError):
        return Trouble(Kind.FAULT, f"the connection broke off ({_line(hide(str(error.__cause__) or cause))})")
    raise error


def _of_status(error: openai.APIStatusError, hide: Hide) -> Trouble:
    status = error.status_code
    body = error.body if isinstance(error.body, dict) else {}
    said = body.get("message") or body.get("detail")
    reason = f"status {status}: {_line(hide(str(said or error.response.text)))}"
    code = str(error.code or "")
    by_status = {401: Kind.KEY, 402: Kind.MONEY, 403: Kind.FORBIDDEN, 404: Kind.MODEL}
    if status in by_status:
        return Trouble(by_status[status], reason)
    if code == "insufficient_quota":
        return Trouble(Kind.MONEY, reason)
    if code in _NO_MODEL:
        return Trouble(Kind.MODEL, reason)
    if code == "content_filter":
        return Trouble(Kind.FILTERED, reason)
    wait = _retry_after(error.response.headers)
    if status == 429:
        return Trouble(Kind.LIMITED, reason, wait)
    if status in {408, 409} or status >= 500:
        return Trouble(Kind.FAULT, reason, wait)
    too_long = status == 413 or any(words in f"{code} {said}".lower() for words in _TOO_LONG)
    return Trouble(Kind.TOO_LONG if too_long else Kind.REFUSED, reason)


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds of `Retry-After`, which are a number or a date, or of OpenAI's `Retry-After-Ms`."""
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            seconds = float(headers.get(name, "")) * unit
        except ValueError:
            continue
        if math.isfinite(seconds) and seconds >= 0:
            return seconds
    try:
        return max(0.0, email.utils.parsedate_to_datetime(headers.get("retry-after", "")).timestamp() - time.time())
    except (ValueError, OverflowError):
        return None


def read_reply(content: bytes, hide: Hide) -> Reply:
    """Return the reply that an answer with status 200 holds.

    Args:
        content: the answer.
        hide: what is told of an answer passes it before it is cut; the reply itself stays as it is.

    Raises:
        Malformed: if it holds none.
    """
    try:
        answer = json.loads(content)
    except (ValueError, RecursionError):
        raise Malformed(f"the answer is no JSON; it begins {_beginning(content, hide)}") from None
    if not isinstance(answer, dict):
        raise Malformed(f"the answer is no chat completion; it begins {_beginning(content, hide)}")
    if answer.get("error"):
        raise Malformed(f"the answer is an error: {_of_json(answer['error'], hide)}")
    choices = answer.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    message = choice.get("message") if isinstance(choice, dict) else None
    if not isinstance(choice, dict) or not isinstance(message, dict):
        raise Malformed(f"there is no message in the answer; it begins {_beginning(content, hide)}")
    text, refusal = message.get("content"), message.get("refusal")
    if not isinstance(text, str | None) or not isinstance(refusal, str | None):
        raise Malformed(f"the message is no text; the answer begins {_beginning(content, hide)}")
    finish = choice.get("finish_reason")
    if choice.get("error"):
        raise Malformed(f"the reply broke off with an error: {_of_json(choice['error'], hide)}")
    if isinstance(finish, str) and finish.lower() in _CUT_OFF:
        raise Malformed(f"the reply broke off: its finish_reason is {finish.lower()!r}")
    if not text and not refusal and finish == "content_filter":
        refusal = "content_filter"
    usage = answer.get("usage")
    usage = usage if isinstance(usage, dict) else {}
    served = answer.get("model")
    return Reply(
        text=_whole(text or ""),
        finish_reason=_whole(finish) if isinstance(finish, str) else "unknown",
        refusal=_whole(refusal) if refusal else None,
        prompt_tokens=_count(usage.get("prompt_tokens")),
        completion_tokens=_count(usage.get("completion_tokens")),
        served=_line(hide(served)) or None if isinstance(served, str) else None,
    )


def _whole(text: str) -> str:
    """Replace halves of characters, which no file takes; a reply cut off in the middle of an emoji has one."""
    return text.encode("utf-8", "replace").decode()


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MOST_TOKENS else None


def _of_json(value: Any, hide: Hide) -> str:
    return _line(hide(json.dumps(value, ensure_ascii=False)))


def _beginning(content: bytes, hide: Hide) -> str:
    return repr(_line(hide(content.decode("utf-8", "replace"))[:_BEGINNING]))


def _line(text: str) -> str:
    """Return what somebody else wrote as one short line that does nothing to a terminal."""
    plain = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return plain if len(plain) <= _SHOWN else f"{plain[: _SHOWN - 3]}..."
