"""Asking a language model, apart from what it is asked for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from llm_server import ChatServer, first

from lightning_cse.llm import LLMError, Reply, Request
from lightning_cse.llm.asker import Asker, wrong_settings


@pytest.fixture
def server() -> Iterator[ChatServer]:
    with ChatServer() as running:
        yield running


def asking(server: ChatServer, cache_dir: Path | None, **more: Any) -> Asker:
    llm = {"model": "m", "base_url": server.url, "backoff": 0.001, "parameters": {"top_p": 1, "seed": None}, **more}
    assert list(wrong_settings(llm)) == []
    return Asker(llm, None if cache_dir is None else str(cache_dir))


def questions(asked: Asker, count: int, taken: list[int] | None = None) -> Iterator[Request]:
    for number in range(count):
        if taken is not None:
            taken.append(number)
        yield Request((("user", f"q{number}"),), asked.parameters)


def test_questions_are_taken_as_calls_become_free(server: ChatServer, tmp_path: Path) -> None:
    asked, taken = asking(server, tmp_path, concurrency=2), list[int]()
    replies = asked.ask(questions(asked, 1000, taken), "test")
    for _ in range(3):
        next(replies)
    replies.close()  # type: ignore[attr-defined]  # a generator's
    assert len(taken) <= 3 + 2 + 2, "no list of all"
    assert asked.parameters == {"top_p": 1}


def test_an_announcement_counts_what_is_there(
    server: ChatServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    asked = asking(server, tmp_path)
    assert asked.announce("test", questions(asked, 0)) == 0
    got = dict(asked.ask(questions(asked, 3), "test"))
    assert {number: reply.text for number, reply in got.items() if isinstance(reply, Reply)} == {
        0: "0q",
        1: "1q",
        2: "2q",
    }
    caplog.clear()
    with caplog.at_level("INFO"):
        assert asked.announce("test", [*questions(asked, 5), *questions(asked, 5)]) == 10
    assert caplog.messages == ["test: 5 questions to m, 3 of them answered before: 2 calls"]


def test_accounts_are_of_what_came_since(server: ChatServer, tmp_path: Path) -> None:
    asked = asking(server, tmp_path, price={"input": 1e6, "output": 0.0})
    list(asked.ask(questions(asked, 2), "test"))
    list(asked.ask(questions(asked, 3), "test"))
    taken = asked.taken()
    assert (taken["requests"], taken["cached"], taken["cost"], taken["cost_if_new"]) == (5, 2, 3.0, 5.0)
    list(asked.ask(questions(asked, 1), "test"))
    again = asked.taken()
    assert (again["requests"], again["cached"], again["cost"], again["cost_if_new"]) == (1, 1, 0.0, 1.0)


def test_an_outage_is_told_after_all_the_others_came(server: ChatServer, tmp_path: Path) -> None:
    server.plan = lambda body, nth: first("error")(body, nth) if body["messages"][-1]["content"] == "q0" else None
    asked, came = asking(server, tmp_path, retries=0, concurrency=1), list[int]()
    with pytest.raises(LLMError, match=r"^1 of 4 questions have no reply: status 500: .* \(1\); the replies that came"):
        came.extend(number for number, _ in asked.ask(questions(asked, 4), "test"))
    assert len(list(asked.ask(questions(asked, 4), "test"))) == 4
    assert asked.taken()["cached"] == 3
    assert len(server.calls) == 5
