"""Local servers and models behind them, with a key that must not appear anywhere."""

import pytest
from llm_server import KEY

from lightning_cse.llm import LLM


@pytest.fixture(autouse=True)
def _surroundings(monkeypatch):
    """Set a key, no other endpoint, a proxy that local calls must not use, and short waits."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.setattr("openai._base_client.INITIAL_RETRY_DELAY", 0.01)


@pytest.fixture
def model(tmp_path):
    """A model behind a server, with the test's folder for caches."""

    def make(server, **settings):
        url = server if isinstance(server, str) else server.url
        return LLM({"model": "m", "base_url": url, **settings}, str(tmp_path))

    return make
