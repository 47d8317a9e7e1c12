"""What answers and errors mean, beyond what the local server can say."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest

from lightning_cse.llm import Reply
from lightning_cse.llm.troubles import Malformed, _retry_after, read_reply


def completion(message: Any, finish: Any = "stop", **rest: Any) -> bytes:
    return json.dumps({"choices": [{"message": message, "finish_reason": finish}], **rest}).encode()


def test_a_reply_is_read_without_what_is_not_needed() -> None:
    usage = {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4}
    assert read_reply(completion({"content": "yes"}, usage=usage)) == Reply("yes", "stop", None, 3, 1)
    assert read_reply(completion({"content": "yes"}, None)) == Reply("yes", "unknown")


@pytest.mark.parametrize("usage", [None, [], {"prompt_tokens": "3"}, {"prompt_tokens": -1}, {"prompt_tokens": True}])
def test_tokens_that_are_none_are_not_counted(usage: Any) -> None:
    reply = read_reply(completion({"content": "yes"}, usage=usage))
    assert (reply.prompt_tokens, reply.completion_tokens) == (None, None)


def test_a_filtered_reply_counts_as_refused_only_where_nothing_was_said() -> None:
    assert read_reply(completion({"content": ""}, "content_filter")).refusal == "content_filter"
    assert read_reply(completion({"content": "half of it"}, "content_filter")).refusal is None


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "no JSON"),
        (b"\xff\xfe\x00", "no JSON"),
        (b"[" * 100_000, "no JSON"),
        (b"null", "no chat completion"),
        (b'{"choices": [{"message": null}]}', "no message"),
        (b'{"choices": [null]}', "no message"),
        (b'{"choices": {}}', "no message"),
        (completion({"content": [{"type": "text"}]}), "no text"),
        (completion({"content": "yes", "refusal": 1}), "no text"),
        (b'{"error": {"message": "Provider\\u001b[2J is down"}}', "an error: .*Provider"),
    ],
)
def test_what_is_no_reply_is_told_as_such(content: bytes, reason: str) -> None:
    with pytest.raises(Malformed, match=reason) as caught:
        read_reply(content)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "7"}, 7),
        ({"retry-after": "0.25"}, 0.25),
        ({"retry-after": "9", "retry-after-ms": "1500"}, 1.5),
        ({"retry-after": "-3"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": format_datetime(datetime(2001, 1, 1, tzinfo=UTC))}, 0),
        ({}, None),
    ],
)
def test_how_long_an_endpoint_asks_to_wait(headers: dict[str, str], seconds: float | None) -> None:
    assert _retry_after(headers) == seconds


def test_how_long_it_asks_to_wait_by_date() -> None:
    date = format_datetime(datetime.now(UTC) + timedelta(seconds=30), usegmt=True)
    assert _retry_after({"retry-after": date}) == pytest.approx(30, abs=2)
