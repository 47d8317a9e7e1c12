"""What answers and errors mean, beyond what the local server can say."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest

from lightning_cse.llm import Reply
from lightning_cse.llm.troubles import Malformed, _retry_after, read_reply


def read(content: bytes) -> Reply:
    return read_reply(content, hide=str)


def completion(message: Any, finish: Any = "stop", **rest: Any) -> bytes:
    return json.dumps({"choices": [{"message": message, "finish_reason": finish}], **rest}).encode()


def test_a_reply_is_read_without_what_is_not_needed() -> None:
    usage = {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4}
    assert read(completion({"content": "yes"}, usage=usage)) == Reply("yes", "stop", None, 3, 1)
    assert read(completion({"content": "yes"}, None)) == Reply("yes", "unknown")
    assert read(completion({"content": "yes"}, usage={"prompt_tokens": 2**63 - 1})).prompt_tokens == 2**63 - 1


@pytest.mark.parametrize(
    ("model", "served"), [("m-1", "m-1"), ("m\x1b[2J", "m [2J"), ("", None), (" ", None), (None, None), (3, None)]
)
def test_who_answered_is_read(model: Any, served: str | None) -> None:
    assert read(completion({"content": "yes"}, model=model)).served == served


@pytest.mark.parametrize(
    "usage",
    [None, [], {"prompt_tokens": "3"}, {"prompt_tokens": -1}, {"prompt_tokens": True}, {"prompt_tokens": 2**63}],
)
def test_tokens_that_are_none_are_not_counted(usage: Any) -> None:
    reply = read(completion({"content": "yes"}, usage=usage))
    assert (reply.prompt_tokens, reply.completion_tokens) == (None, None)


def test_a_filtered_reply_counts_as_refused_only_where_nothing_was_said() -> None:
    assert read(completion({"content": ""}, "content_filter")).refusal == "content_filter"
    assert read(completion({"content": "half of it"}, "content_filter")).refusal is None


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
        (completion({"content": "half a"}, "error"), "broke off: its finish_reason is 'error'"),
        (completion({"content": "half a"}, "abort"), "broke off"),
        (completion({"content": "half a"}, "CANCELLED"), "broke off"),
        (b'{"choices": [{"message": {"content": "half"}, "error": {"message": "Down"}}]}', "with an error: .*Down"),
        (b'{"error": {"message": "Provider\\u001b[2J is down"}}', "an error: .*Provider"),
    ],
)
def test_what_is_no_reply_is_told_as_such(content: bytes, reason: str) -> None:
    with pytest.raises(Malformed, match=reason) as caught:
        read(content)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 400


def test_what_is_hidden_is_hidden_before_a_text_is_cut() -> None:
    plain = [b"x" * before + b"sk-hush" for before in range(70, 82)]
    errors = [json.dumps({"error": "x" * before + "sk-hush"}).encode() for before in range(280, 302)]
    for content in plain + errors:
        with pytest.raises(Malformed) as caught:
            read_reply(content, hide=lambda text: text.replace("sk-hush", "***"))
        assert "sk-" not in str(caught.value)


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
