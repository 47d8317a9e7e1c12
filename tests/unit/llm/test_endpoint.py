"""Settings of an endpoint, and its key."""

import pytest
import yaml
from omegaconf import OmegaConf

from lightning_cse.config.compose import compose
from lightning_cse.llm import Endpoint, LLMError, wrong_settings


def test_the_config_has_the_defaults_of_the_fields(repository):
    config = yaml.safe_load((repository / "conf/llm/default.yaml").read_text(encoding="utf-8"))
    values = {"model": None, "parameters": config["parameters"]}
    assert config == Endpoint(model="m").model_dump() | values


@pytest.mark.parametrize(
    ("preset", "address", "at_once"),
    [
        ("openai", "https://api.openai.com/v1", 16),
        ("vllm", "http://localhost:8000/v1", 64),
        ("llama_cpp", "http://localhost:8080/v1", 4),
        ("ollama", "http://localhost:11434/v1", 1),
    ],
)
@pytest.mark.parametrize("command", ["generate", "evaluate"])
def test_presets(command, preset, address, at_once):
    cfg = compose(command, f"llm={preset}", "llm.model=m")
    endpoint = Endpoint.model_validate(OmegaConf.to_container(cfg.llm, resolve=True))
    assert (endpoint.address, endpoint.concurrency) == (address, at_once)
    assert endpoint.parameters["max_tokens"] == (256 if command == "generate" else 32)


@pytest.mark.parametrize(
    ("settings", "faults"),
    [
        ({"price": {"input": 0, "output": 1.5}, "parameters": {"stop": ["a"], "seed": None}}, []),
        ({"model": None}, ["llm.model: must be set"]),
        ({"base_url": "x", "retries": -1}, ["llm.base_url: must be http", "llm.retries: "]),
        ({"base_url": "https://ann:hush@host/v1"}, ["llm.base_url: must be http"]),
        ({"base_url": "https://:hush@host/v1"}, ["llm.base_url: must be http"]),
        ({"base_url": "http://host/v1#hush"}, ["llm.base_url: must be http"]),
        ({"structured_output": "maybe"}, ["llm.structured_output"]),
        ({"base_url": "http://host/v1?key=hush"}, ["llm.base_url: must be http"]),
        ({"timeout": 0}, ["llm.timeout: Input should be greater than 0"]),
        ({"price": {"input": 1.0}}, ["llm.price: "]),
        ({"retry": 1}, ["llm.retry: unknown setting - did you mean 'retries'?"]),
        ({"top_p": 1}, ["llm.top_p: unknown setting; parameters of the model go under llm."]),
    ],
)
def test_faults_name_the_key_and_show_no_password(settings, faults):
    got = list(wrong_settings({"model": "m", **settings}, "cache"))
    assert len(got) == len(faults)
    assert all(line.startswith(fault) for line, fault in zip(got, faults, strict=True))
    assert "hush" not in str(got)


def test_the_address_is_the_setting_then_the_environment_then_openai(monkeypatch):
    assert Endpoint(model="m").address == "https://api.openai.com/v1"
    monkeypatch.setenv("OPENAI_BASE_URL", "http://vllm:8000/v1/")
    assert Endpoint(model="m").address == "http://vllm:8000/v1"
    assert Endpoint(model="m", base_url="http://other:1/v1").address == "http://other:1/v1"
    monkeypatch.setenv("OPENAI_BASE_URL", "https://ann:hush@host/v1")
    assert "hush" not in str(list(wrong_settings({"model": "m"}, None)))


@pytest.mark.parametrize(
    ("url", "key", "expected"),
    [
        ("http://localhost:8000/v1", "", "none-needed"),
        ("http://[::1]:11434/v1", "sk-mine\n", "sk-mine"),
        ("http://gpu1:8000/v1", " ", None),
        ("http://localhost.example.org/v1", "", None),
    ],
)
def test_the_key_comes_from_the_named_variable(url, key, expected, monkeypatch):
    monkeypatch.setenv("MY_KEY", key)
    endpoint = Endpoint(model="m", base_url=url, key_variable="MY_KEY")
    if expected:
        assert endpoint.key() == expected
    else:
        with pytest.raises(LLMError, match="needs a key in the environment variable MY_KEY"):
            endpoint.key()
