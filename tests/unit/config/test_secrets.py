"""Settings as they may be shown to others."""

from __future__ import annotations

from pathlib import Path

import pytest
from omegaconf import OmegaConf

from lightning_cse import runs
from lightning_cse.config.check import check, check_evaluation
from lightning_cse.config.overrides import check_overrides
from lightning_cse.config.paths import conf_dir
from lightning_cse.config.secrets import literal_secrets, refusals, told_overrides, told_yaml, without_secrets
from lightning_cse.config.validate import validate
from lightning_cse.errors import ConfigError

LIKE_KEYS = (  # none of them was ever anybody's
    "sk-" + "proj-" + "a1B2" * 8,
    "hf" + "_" + "aB3d" * 9,
    "gh" + "p_" + "aB3d" * 9,
    "AK" + "IA" + "ABCD1234" * 2,
)


def test_strings_under_keys_that_look_like_secrets_are_left_out() -> None:
    config = {
        "api_key": "x",
        "api_tokens": ["x", "y"],
        "auth": [["x"]],
        "max_tokens": 5,
        "hfToken": "x",
        "Password": "x",
        "client_secret": "x",
        "token": {"value": "kept, for its key is another"},
        "tokenizer": "bert",
        "rows": [{"key": "x", "n": None}],
        "path": Path("a"),
        "secret": "",
    }
    assert without_secrets(config) == {
        "max_tokens": 5,
        "token": {"value": "kept, for its key is another"},
        "tokenizer": "bert",
        "rows": [{"n": None}],
        "path": "a",
        "secret": "",
    }
    assert config["api_key"] == "x"  # the run goes on with its own
    assert without_secrets({LIKE_KEYS[0]: 1, "rows": {LIKE_KEYS[1]: {"n": 2}}}) == {"rows": {}}


OF_SECRETS = (
    *("key", "token", "Key", "api_key", "api-key", "x-api-key", "apiKey", "APIKey", "apikey", "api_keys", "API_KEY"),
    *("OPENAI_API_KEY", "HF_TOKEN", "hfToken", "hub_token", "wandb_key", "github_token", "use_auth_token", "auth_key"),
    *(
        "access_token",
        "access_tokens",
        "refresh_token",
        "aws_secret_access_key",
        "private_key",
        "ssh_key",
        "session_key",
    ),
    *("secret", "secrets", "client_secret", "clientSecret", "password", "passwd", "db_password", "passphrase"),
    *("credential", "credentials", "my_credentials", "auth", "basic_auth", "authorization", "Authorization", "bearer"),
)
OF_NONE = (
    *("mask_token", "sort_key", "keys", "tokens", "max_tokens", "max_completion_tokens", "special_tokens", "cls_token"),
    *("user_token", "pad_token_id", "token_cutoff", "tokenizer", "tokenize", "tokenisation", "key_variable", "keyed"),
    *("api_key_variable", "password_file", "secretary", "monkey", "donkey_key_path", "author", "authors", "authority"),
    *("rapi_key", "compass", "bypass", "forbearer", "metric_key", "text_key", "group_by_key"),
)


@pytest.mark.parametrize("name", OF_SECRETS)
def test_names_of_secrets(name: str) -> None:
    assert without_secrets({"a": {name: "x"}}) == {"a": {}}
    assert without_secrets({name: 5, "b": 1}) == {name: 5, "b": 1}
    assert [fault.partition(":")[0] for fault in literal_secrets({"a": {name: "x"}})] == [f"a.{name}"]
    assert told_overrides([f"+a.{name}=x", f"+a={{{name}: x}}", f"+a={{{name}: x, broken"]) == []


@pytest.mark.parametrize("name", OF_NONE)
def test_names_that_only_sound_like_those_of_secrets(name: str) -> None:
    assert without_secrets({name: "x"}) == {name: "x"}
    assert literal_secrets({name: "x"}) == []
    harmless = [f"+a.{name}=x", f"+a={{{name}: x}}", f"+a={{{name}: x, broken"]
    assert told_overrides(harmless) == harmless


def test_settings_that_only_sound_like_secrets_are_a_part_of_the_identity() -> None:
    def identity(mask: str, order: str) -> str:
        config = {"encoder": {"mask_token": mask}, "data": {"sort_key": order}}
        return runs.identity(without_secrets(config), data={}, encoder={}, resolved={})

    assert len({identity(*given) for given in (("[A]", "length"), ("[B]", "length"), ("[A]", "words"))}) == 3


@pytest.mark.parametrize(
    "text", ["x", "[A]", " ", "x${oc.env:A}", "${oc.env:A}x", "Bearer x", "Else ${oc.env:A}", "${a", "${a} ${b}"]
)
def test_a_text_under_the_name_of_a_secret_is_a_fault_since_it_would_be_left_out_unseen(text: str) -> None:
    (fault,) = literal_secrets({"encoder": {"token": text}})
    assert fault.startswith("encoder.token: keys are read from the environment variable HF_TOKEN, ")
    assert fault.endswith(": set it there and leave this out, or rename the key if it holds no secret")
    (fault,) = literal_secrets({"data": {"auth": ["${oc.env:A}", [text]], "n": 1}})
    assert fault.startswith("data.auth.1.0: keys are read from environment variables, ")
    assert fault.endswith(": give it by ${oc.env:NAME}, or rename the key if it holds no secret")


@pytest.mark.parametrize(
    "value", ["${oc.env:A}", "${oc.env:A,null}", "${oc.env:${b}}", "Bearer ${oc.env:A}", "", "???", None, 5, True]
)
def test_what_is_given_otherwise_is_no_fault(value: object) -> None:
    assert literal_secrets({"x": {"token": value, "auth": [value, {"value": "its own key tells"}]}}) == []


def test_the_checks_of_a_run_and_of_an_evaluation_tell_a_text_under_the_name_of_a_secret() -> None:
    trainer = {"max_epochs": 1, "max_steps": -1, "devices": 1, "accelerator": "cpu"}
    of_run = {"seed": 0, "trainer": trainer, "diag": {"evaluation": "none", "positive_score": 1, "negative_score": 0}}
    of_evaluation = {"accelerator": "cpu", "precision": "32-true"}
    cfg = OmegaConf.create(of_run | of_evaluation | {"suite": {"stsb": {"n": 1}}, "data": {"sort_key": "length"}})
    check(cfg, given={})
    check_evaluation(cfg, [])
    cfg.data.key = "length"
    for refuse in (lambda: check(cfg, given={}), lambda: check_evaluation(cfg, [])):
        with pytest.raises(ConfigError) as refused:
            refuse()
        assert [fault.partition(" from ")[0] for fault in refused.value.faults] == ["data.key: keys are read"]


@pytest.mark.parametrize("value", LIKE_KEYS)
def test_texts_that_look_like_keys_are_left_out_wherever_they_stand(value: str) -> None:
    assert without_secrets({"model": value, "tags": ["a", value], "note": f"with {value} in it"}) == {"tags": ["a"]}
    assert literal_secrets({"a": {"model": value}, "b": ["x", value], "c": "x"}) == [
        f"{place}: {literal_secrets({'x': value})[0].partition(': ')[2]}" for place in ("a.model", "b.1")
    ]


@pytest.mark.parametrize(
    "value", ["hf_internal-testing/tiny", "org/task-sk-learn", "sk-learn", "ghp_short", "http://a.b/c@d", "git@host:x"]
)
def test_texts_that_are_no_keys_stay(value: str) -> None:
    assert without_secrets({"model": value}) == {"model": value}
    assert literal_secrets({"model": value}) == []
    assert refusals([f"model={value}"]) == []


def test_an_address_loses_user_and_password() -> None:
    told = without_secrets({"base_url": "https://me:hush@host:80/v1?x=a@b", "other": "https://host:80/v1"})
    assert told == {"base_url": "https://host:80/v1?x=a@b", "other": "https://host:80/v1"}


def test_a_config_is_told_as_it_is_unless_it_has_a_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLANTED", "hush")
    cfg = OmegaConf.create({"a": {"rate": 1e-5, "b": "${a.rate}"}, "c": "Äther"})
    assert told_yaml(cfg) == OmegaConf.to_yaml(cfg, resolve=True)
    cfg.a.api_key = "${oc.env:PLANTED}"
    told = told_yaml(cfg)
    assert "hush" not in told
    assert OmegaConf.to_container(OmegaConf.create(told)) == {"a": {"rate": 1e-5, "b": 1e-5}, "c": "Äther"}


SECRET = (
    "+llm.api_key=hush",
    "++llm.api_key='hush'",
    "llm.api_key=hush,shush",
    "+llm={model: m, api_key: hush}",
    "+llm={model:m,api_key:hush}",
    "llm={secret: hush, broken",
    "llm={'api_key' : hush, broken",
    "llm.api_key={hush",
    "llm.base_url=http://me:hush@host/v1",
    "llm.base_url='http://me:hush@host/v1'",
    "+x.headers.Authorization=hush",
    *(f"model={value}" for value in LIKE_KEYS),
)
HARMLESS = (
    "seed=1,2",
    "seed=range(0,5)",
    "data.max_tokens=32,64",
    "data.max_tokens=null",
    "+llm.api_key=null",
    "+x.date=2020-01-01",
    "+x.nan=.nan",
    "llm.api_key=${oc.env:KEY}",
    "llm.api_key='${oc.env:KEY}'",
    "llm.key_variable=MY_KEY",
    "llm.base_url=http://host:8000/v1",
    "encoder.source=/a b/c",
    "method={a: 1, b: [x, y]}",
    "~logger",
    "prompt={the key token of {} is {mask}",
    "+experiment=dualcse_cross",
    "prompt='This sentence : \"{}\" means {mask} .'",
)


@pytest.mark.parametrize("override", SECRET)
def test_overrides_that_set_a_secret(override: str) -> None:
    assert told_overrides(["seed=1", override]) == ["seed=1"]
    (fault,) = refusals(["seed=1", override])
    key = override.lstrip("+").partition("=")[0]
    assert fault.startswith(f"{key}: keys are read from ")
    assert not any(value in fault for value in ("hush", *LIKE_KEYS))


@pytest.mark.parametrize("override", HARMLESS)
def test_overrides_that_set_none(override: str) -> None:
    assert told_overrides([override]) == [override]
    assert refusals([override]) == []


def test_the_message_says_to_rename_only_what_its_name_alone_makes_a_secret() -> None:
    renamed = [refusals([override])[0].endswith("rename the key if it holds no secret") for override in SECRET]
    assert renamed == [not ("://" in override or override.startswith("model=")) for override in SECRET]


def test_the_message_names_the_variable() -> None:
    assert "environment variable OPENAI_API_KEY," in refusals(["+llm.api_key=x"])[0]
    assert "environment variable MY_KEY," in refusals(["+llm.api_key=x", "llm.key_variable=MY_KEY"])[0]
    assert "environment variable WANDB_API_KEY," in refusals(["+logger.key=x"])[0]
    assert "read from environment variables," in refusals(["+x.key=x"])[0]
    unlike = refusals(["llm.base_url=http://a:b@c", "llm.key_variable=" + LIKE_KEYS[0]])
    assert [fault.partition(":")[0] for fault in unlike] == ["llm.base_url", "llm.key_variable"]
    assert LIKE_KEYS[0] not in "".join(unlike)


@pytest.mark.parametrize("flags", [(), ("-m",)])
def test_a_command_line_with_a_secret_is_refused_and_never_repeated(flags: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError) as refused:
        check_overrides([*flags, "+experiment=nothing", "+llm.api_key=hush", "seeed=1"], conf_dir(), "train")
    assert refused.value.faults == refusals(["+llm.api_key=hush"])


def test_a_listed_point_with_a_secret_is_refused_and_never_repeated(tmp_path: Path) -> None:
    points = tmp_path / "points.yaml"
    points.write_text("- [+experiment=gausscse, seed=1]\n- [+llm.api_key=hush]\n")
    with pytest.raises(ConfigError) as refused:
        check_overrides(["-m", "hydra/sweeper=points", f"hydra.sweeper.file={points}"], conf_dir(), "train")
    assert "hush" not in str(refused.value)
    assert [fault.partition(": keys are")[0] for fault in refused.value.faults] == [f"{points}, point 1: llm.api_key"]


def test_a_value_of_the_wrong_type_is_not_told_where_its_key_is_a_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLANTED", "hush")
    target = {"_target_": f"{__name__}.keyed", "api_key": "${oc.env:PLANTED}", "count": "${oc.env:PLANTED}"}
    with pytest.raises(ConfigError) as refused:
        validate(OmegaConf.create({"node": target}))
    shown, hidden = sorted(refused.value.faults, key=lambda fault: "api_key" in fault)
    assert "'hush'" in shown
    assert hidden == "node.api_key: keyed takes int, got a text that is not told, by its key a secret"


def keyed(api_key: int, count: int) -> None:
    """What the config above builds."""


def test_no_config_of_the_project_has_what_looks_like_a_secret() -> None:
    files = sorted(conf_dir().rglob("*.yaml"))
    for file in files:
        config = OmegaConf.to_container(OmegaConf.load(file), resolve=False)
        # Equal, so that neither an identity nor a record of a run changes by what is left out of them.
        assert without_secrets(config) == config, file
        assert literal_secrets(config) == []
    assert len(files) > 60
