"""What a server sent, as a reply; and what a reply says, without thinking and JSON around it."""

import json
import re
from typing import Any

from lightning_cse.llm.requests import Reply

_TAG = r"(?:think|thinking|thought|reasoning)>"
_THINKING = re.compile(
    # Chat templates may open the thinking in the prompt, so that the reply has its end alone.
    rf"\A(?:.*</{_TAG}|\s*<{_TAG}.*)\s*",
    re.DOTALL | re.IGNORECASE,
)
_JSON = re.compile(
    r"\A\s*(?:```(?:json)?\s*)?(?=\{|\[\s*[\"\[{])"  # a reply that is nothing else
    r"|(?=\{\s*\"[^\"\\]*\"\s*:)"  # an object after other words
)
_DECODER = json.JSONDecoder(strict=False)  # models write line breaks in strings


def read_reply(content: bytes) -> Reply:
    """Return the reply in the body of a chat completion, or raise ValueError with the reason."""
    try:
        answer = json.loads(content)
        choice = answer["choices"][0]
        usage = answer.get("usage")
        usage = usage if isinstance(usage, dict) else {}
        model = answer.get("model")
        refusal = choice["message"].get("refusal")
        text = refusal or choice["message"].get("content") or ""
        finish = choice.get("finish_reason")
        reply = Reply(
            # A reply cut off in an emoji ends with half a character.
            text=text.encode("utf-8", "replace").decode(),
            finish="refusal" if refusal else finish if isinstance(finish, str) else "unknown",
            model=model if isinstance(model, str) else None,
            prompt_tokens=_token_count(usage.get("prompt_tokens")),
            completion_tokens=_token_count(usage.get("completion_tokens")),
        )
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise ValueError(
            f"the answer is not a chat completion; it begins {content[:80]!r}"
        ) from None

    if choice.get("error") or reply.finish == "error":
        raise ValueError(f"the reply was cut off by an error: {choice.get('error')}")

    return reply


def _token_count(value: Any) -> int | None:
    """Return a count, which some servers send as text; None if it cannot be one."""
    digits = str(value)

    return int(digits) if digits.isdecimal() and len(digits) <= 12 else None


def read_answer(text: str, key: str | None = None) -> str | None:
    """Return what the text of a reply says, without thinking before it.

    Of a JSON object, also after other words, it is the string or number under ``key``, by default
    under the only key. None: the JSON is broken, or has something else there.

    Examples:
        >>> read_answer('<think>Easy.</think>Here it is: {"sentence": "A boat leaves."}')
        'A boat leaves.'
        >>> read_answer('{"sentence": "A boat lea') is None
        True
    """
    text = _THINKING.sub("", text)
    start = _JSON.search(text)
    if start is None:
        return text

    try:
        document, _ = _DECODER.raw_decode(text, start.end())
        if key is None:
            (key,) = document

        value = document[key]
    except (ValueError, LookupError, TypeError, RecursionError):
        return None

    if isinstance(value, str):
        return read_answer(value, key)

    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)

    return str(value) if is_number else None
