"""Settings of an endpoint, and its key."""

import pytest
import yaml

from lightning_cse.llm import Endpoint, LLMError, wrong_settings


def test_the_config_has_the_defaults_of_the_fields(repository):
    config = yaml.safe_load((repository / "conf/llm/default.yaml").read_text(encoding="utf-8"))
    assert config == Endpoint(model="m").model_dump() | {
        "model": None,
        "parameters": config["parameters"],
    }


@pytest.mark.parametrize(
    ("settings", "faults"),
    [
        ({}, []),
        ({"price": {"input": 0, "output": 1.5}, "parameters": {"stop": ["a"], "seed": None}}, []),
        ({"model": None}, ["llm.model: must be set"]),
        (
            {
                "model": "",
                "base_url": "x",
                "retries": -1,
            },
            ["llm.model: ", "llm.base_url: ", "llm.retries: "],
        ),
        ({"base_url": "localhost:8000/v1"}, ["llm.base_url: must be http"]),
        ({"base_url": "https://ann:hush@host/v1"}, ["llm.base_url: must be http"]),
        ({"base_url": "http://host/v1?key=hush"}, ["llm.base_url: must be http"]),
        ({"timeout": 0}, ["llm.timeout: Input should be greater than 0"]),
        ({"timeout": float("inf")}, ["llm.timeout: "]),
        ({"concurrency": 1.5}, ["llm.concurrency: Input should be a valid integer"]),
        ({"tokens_per_minute": -1.5}, ["llm.tokens_per_minute: "]),
        ({"price": {"input": 1.0}}, ["llm.price: "]),
        ({"price": {"input": 1.0, "output": -1}}, ["llm.price.output: "]),
        ({"retry": 1}, ["llm.retry: unknown setting - did you mean 'retries'?"]),
        (
            {"top_p": 1},
            ["llm.top_p: unknown setting; parameters of the model go under llm.parameters"],
        ),
        ({"parameters": 3}, ["llm.parameters: "]),
    ],
)
def test_faults_name_the_key_and_show_no_password(settings, faults):
    found = list(wrong_settings({"model": "m", **settings}))
    assert [
        one[: len(fault)]
        for one, fault in zip(
            found,
            faults,
            strict=True,
        )
    ] == faults
    assert "hush" not in str(found)


def test_the_address_is_the_setting_then_the_environment_then_openai(monkeypatch):
    assert Endpoint(model="m").address == "https://api.openai.com/v1"
    monkeypatch.setenv("OPENAI_BASE_URL", "http://vllm:8000/v1/")
    assert Endpoint(model="m").address == "http://vllm:8000/v1"
    assert (
        Endpoint(
            model="m",
            base_url="http://other:1/v1",
        ).address
        == "http://other:1/v1"
    )


def test_the_address_of_the_environment_is_checked_too(monkeypatch):
    monkeypatch.setenv("OPENAI_BASE_URL", "https://ann:hush@host/v1")
    (fault,) = wrong_settings({"model": "m"})
    assert fault.startswith("llm.base_url: OPENAI_BASE_URL in the environment must be http")
    assert "hush" not in fault


@pytest.mark.parametrize(
    ("url", "key", "found"),
    [
        ("http://localhost:8000/v1", "", "none-needed"),
        ("http://127.1.2.3:1/v1", " ", "none-needed"),
        ("http://[::1]:11434/v1", "sk-mine\n", "sk-mine"),
        ("http://192.168.0.7/v1", "sk-mine", "sk-mine"),
        ("http://gpu1:8000/v1", " ", "needs a key in the environment variable MY_KEY"),
        ("http://localhost.example.org/v1", "", "needs a key"),
        ("http://localhost:8000/v1", "sk-sécret", "MY_KEY does not hold a key"),
        ("http://localhost:8000/v1", "sk\x1b[2J", "MY_KEY does not hold a key"),
    ],
)
def test_the_key_comes_from_the_named_variable(url, key, found, monkeypatch):
    monkeypatch.setenv("MY_KEY", key)
    endpoint = Endpoint(
        model="m",
        base_url=url,
        key_variable="MY_KEY",
    )
    if " " not in found:
        assert endpoint.key() == found
        return
    with pytest.raises(LLMError, match=found) as caught:
        endpoint.key()
    assert not key.strip() or key not in str(caught.value)
