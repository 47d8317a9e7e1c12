"""Settings of an endpoint, and where its key comes from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from lightning_cse.errors import ConfigError
from lightning_cse.llm import Endpoint, LLMError


def test_the_config_holds_the_fields_with_their_defaults(repository: Path) -> None:
    config = yaml.safe_load((repository / "conf/llm/default.yaml").read_text(encoding="utf-8"))
    fields = {name: field.default for name, field in Endpoint.__dataclass_fields__.items() if name != "model"}
    assert config["model"] is None
    assert {name: config[name] for name in fields} == fields


@pytest.mark.parametrize(
    ("settings", "fault"),
    [
        ({"model": None}, "llm.model: say which model"),
        ({"model": ""}, "llm.model: say which model"),
        ({"base_url": "localhost:8000/v1"}, "llm.base_url: 'localhost:8000/v1' is no address"),
        ({"base_url": "ftp://host/v1"}, "llm.base_url: 'ftp://host/v1' is no address"),
        ({"base_url": "http:///v1"}, "llm.base_url: 'http:///v1' is no address"),
        ({"base_url": "http://[::1/v1"}, "llm.base_url: is no address"),
        ({"base_url": "http://host:port/v1"}, "llm.base_url: is no address"),
        ({"base_url": "https://host/v1?key=1"}, r"llm.base_url: has a '\?'"),
        ({"key_variable": ""}, "llm.key_variable: the name"),
        ({"timeout": 0}, "llm.timeout: 0 is not a number of seconds above 0"),
        ({"timeout": float("inf")}, "llm.timeout: inf is not"),
        ({"timeout": "60"}, "llm.timeout: '60' is not"),
        ({"retries": -1}, "llm.retries: -1 is not a whole number of at least 0"),
        ({"retries": 1.5}, "llm.retries: 1.5 is not a whole number"),
        ({"retries": True}, "llm.retries: True is not a whole number"),
        ({"concurrency": 0}, "llm.concurrency: 0 is not a whole number of at least 1"),
        ({"backoff": -0.1}, "llm.backoff: -0.1 is not a number of at least 0"),
        ({"price": {"input": 1.0}}, "llm.price.output: is missing"),
        ({"price": {"input": 1.0, "output": -1}}, "llm.price.output: -1 is not"),
        ({"price": {"input": 1.0, "outptu": 1, "output": 2}}, "llm.price.outptu: .* did you mean 'output'"),
        ({"requests_per_minute": 0}, "llm.requests_per_minute: 0 is not a number above 0; null is no limit"),
        ({"requests_per_minute": "60"}, "llm.requests_per_minute: '60' is not"),
        ({"requests_per_minute": float("inf")}, "llm.requests_per_minute: inf is not"),
        ({"tokens_per_minute": -1.5}, "llm.tokens_per_minute: -1.5 is not a number above 0"),
        ({"tokens_per_minute": True}, "llm.tokens_per_minute: True is not"),
        ({"price": 3}, "llm.price: 3 is not null and has no input and output"),
    ],
)
def test_a_wrong_setting_is_told_with_its_key(settings: dict[str, Any], fault: str) -> None:
    with pytest.raises(ConfigError, match=fault):
        Endpoint(**{"model": "m", **settings})


def test_all_faults_are_told_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        Endpoint("", base_url="x", retries=-1)
    assert [fault.split(":")[0] for fault in caught.value.faults] == ["llm.model", "llm.base_url", "llm.retries"]


@pytest.mark.parametrize("where", ["setting", "environment"])
def test_an_address_with_a_password_is_refused_and_not_shown(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    url = "https://ann:hush@host/v1"
    monkeypatch.setenv("OPENAI_BASE_URL", url)
    with pytest.raises(ConfigError, match="has a user or a password in it") as caught:
        Endpoint("m", base_url=url if where == "setting" else None)
    assert ("OPENAI_BASE_URL" in str(caught.value)) == (where == "environment")
    assert "hush" not in str(caught.value)
    assert "ann" not in str(caught.value)


def test_the_address_is_the_setting_then_the_environment_then_openai(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Endpoint("m").url == "https://api.openai.com/v1"
    monkeypatch.setenv("OPENAI_BASE_URL", "http://vllm:8000/v1")
    assert Endpoint("m").url == "http://vllm:8000/v1"
    assert Endpoint("m", base_url="http://other:1/v1").url == "http://other:1/v1"


@pytest.mark.parametrize(
    ("url", "here"),
    [
        ("http://localhost:8000/v1", True),
        ("http://127.0.0.1/v1", True),
        ("http://127.1.2.3:1/v1", True),
        ("http://[::1]:11434/v1", True),
        ("http://gpu1:8000/v1", False),
        ("http://192.168.0.7/v1", False),
        ("http://localhost.example.org/v1", False),
    ],
)
def test_only_this_machine_needs_no_key(url: str, here: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "  ")
    endpoint = Endpoint("m", base_url=url, key_variable="MY_KEY")
    assert endpoint.here == here
    if here:
        assert endpoint.key()
    else:
        with pytest.raises(LLMError, match=r"the environment variable MY_KEY holds none: set it .* llm.key_variable="):
            endpoint.key()


def test_the_key_is_taken_from_the_named_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "sk-mine\n")
    endpoint = Endpoint("m", base_url="http://localhost/v1", key_variable="MY_KEY")
    assert endpoint.key() == "sk-mine"
    assert "sk-mine" not in repr(endpoint)


@pytest.mark.parametrize("wrong", ["two words", "sk-sécret", "sk\x1b[2J"])
def test_what_cannot_be_a_key_is_told_without_showing_it(wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", wrong)
    with pytest.raises(LLMError, match="MY_KEY holds no key") as caught:
        Endpoint("m", key_variable="MY_KEY").key()
    assert wrong not in str(caught.value)
