"""Local servers and clients of them, with a key that must not be seen anywhere."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from llm_server import ChatServer

from lightning_cse.llm import ChatClient, Endpoint, Failure, Reply, ReplyCache, Request

KEY = "sk-hush-0123456789abcdef"

Serve = Callable[..., ChatServer]
Client = Callable[..., ChatClient]


@pytest.fixture(autouse=True)
def _surroundings(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A key in the environment, no other endpoint, and no thread left behind by any test."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    for name in ("OPENAI_BASE_URL", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID", "OPENAI_LOG"):
        monkeypatch.delenv(name, raising=False)
    # A call to this machine through it would fail.
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.delenv("NO_PROXY", raising=False)
    yield
    assert [thread.name for thread in threading.enumerate() if thread.name.startswith(("llm", "AnyIO"))] == []


@pytest.fixture
def key() -> str:
    return KEY


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Start servers that end with the test."""
    with ExitStack() as stack:
        yield lambda *arguments, **named: stack.enter_context(ChatServer(*arguments, **named))


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[ReplyCache]:
    with ReplyCache(tmp_path / "cache" / "replies.sqlite") as made:
        yield made


@pytest.fixture
def client() -> Client:
    """A client of a server with short waits, so that faults do not take long."""

    def make(server: ChatServer | str, cache: ReplyCache | None = None, **settings: Any) -> ChatClient:
        url = server if isinstance(server, str) else server.url
        settings = {"model": "m", "timeout": 60.0, "backoff": 0.001, **settings}
        return ChatClient(Endpoint(base_url=url, **settings), cache)

    return make


def ask(client: ChatClient, requests: Sequence[Request]) -> list[Reply | Failure]:
    """Return the outcomes in the order of the requests, each of which has exactly one."""
    got = list(client.ask(requests))
    assert sorted(index for index, _ in got) == list(range(len(requests)))
    return [outcome for _, outcome in sorted(got, key=lambda pair: pair[0])]


@pytest.fixture
def asked() -> Callable[[ChatClient, Sequence[Request]], list[Reply | Failure]]:
    return ask
