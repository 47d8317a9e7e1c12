"""Requests and their keys."""

from __future__ import annotations

import pytest

from lightning_cse.llm import LLMError, Request

MESSAGES = (("system", "Be brief."), ("user", "Is it raining?"))


def test_a_key_stays_as_it_is() -> None:
    # Replies on disk are found by it: a change of the key is a change of `cache.VERSION`.
    request = Request(MESSAGES, {"temperature": 0, "max_tokens": 5})
    assert request.key("m") == "83793e89561bb9f62f6f26c497ba4bf390321c6b8a6a9d60d423244acff8c8d2"


def test_a_key_does_not_depend_on_how_parameters_are_written() -> None:
    one = Request(MESSAGES, {"temperature": 0, "max_tokens": 5})
    assert one.key("m") == Request(MESSAGES, {"max_tokens": 5.0, "temperature": 0.0}).key("m")


@pytest.mark.parametrize(
    "other",
    [
        Request(MESSAGES, {"temperature": 0.5, "max_tokens": 5}),
        Request(MESSAGES, {"temperature": 0}),
        Request(MESSAGES[::-1], {"temperature": 0, "max_tokens": 5}),
        Request(MESSAGES, {"temperature": 0, "max_tokens": 5}, sample=1),
        Request((("system", "Be brief.Is it raining?"),), {"temperature": 0, "max_tokens": 5}),
        Request(MESSAGES, {"temperature": "0", "max_tokens": 5}),
    ],
)
def test_a_key_depends_on_all_that_decides_the_reply(other: Request) -> None:
    one = Request(MESSAGES, {"temperature": 0, "max_tokens": 5})
    assert one.key("m") != other.key("m")
    assert one.key("m") != one.key("n")


@pytest.mark.parametrize("name", ["stream", "n", "model", "messages"])
def test_parameters_that_make_it_another_request_are_refused(name: str) -> None:
    with pytest.raises(LLMError, match=f"the parameter '{name}'"):
        Request(MESSAGES, {name: 1})


def test_what_cannot_be_sent_is_refused() -> None:
    with pytest.raises(LLMError, match="without a message"):
        Request(())
    with pytest.raises(LLMError, match=r"'half \\ud83d' cannot be sent: .* \(surrogates not allowed\)"):
        Request((("user", "half \ud83d"),))
