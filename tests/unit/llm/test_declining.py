"""Replies in which a model declines."""

from __future__ import annotations

import pytest

from lightning_cse.llm import declines


@pytest.mark.parametrize(
    "text",
    [
        "I'm sorry, but I can't help with that.",
        "I can’t help with that.",
        "I cannot judge this.",
        "I'd rather not; I apologise.",
        "I won't answer that.",
        "I am UNABLE to say.",
        "As an assistant, I will not take part.",
        "I must decline.",
    ],
)
def test_what_declines(text: str) -> None:
    assert declines(text)


@pytest.mark.parametrize("text", ["", "Hm, hard to say.", "A canter through the Declination.", "No."])
def test_what_does_not(text: str) -> None:
    assert not declines(text)
