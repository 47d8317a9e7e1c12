"""Settings as they may be shown to others: plain values, without what looks like a secret by its key or by itself."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import yaml
from omegaconf import DictConfig, OmegaConf

__all__ = ["literal_secrets", "refusals", "told_overrides", "told_yaml", "without_secrets"]

# `tokenizer`, `max_tokens`, `author` and their kin name no secret, and `key_variable` names where one is.
_SECRET: Final = re.compile(
    r"key(?!_variable)|(?<!max_)token(?!i[sz])|secret|pass(?:w(?:or)?d|phrase)|credential|auth(?!or(?!i[sz]))|bearer",
    re.IGNORECASE,
)
_INSIDE: Final = re.compile(rf"(?:{_SECRET.pattern})\w*[\"']?\s*[:=]", re.IGNORECASE)  # a key of a mapping in a text
# Keys as OpenAI, Hugging Face, GitHub, GitLab, Slack, AWS and Google write them.
_KEY: Final = re.compile(
    r"(?<![A-Za-z0-9])(?:sk-(?=[\w-]*\d)[\w-]{20,}|hf_[A-Za-z0-9]{30,}|gh[pousr]_[A-Za-z0-9]{30,}|github_pat_\w{30,}"
    r"|glpat-[\w-]{20,}|xox[abprs]-[\w-]{20,}|AKIA[0-9A-Z]{16}|AIza[\w-]{35})"
)
_USER: Final = re.compile(r"(?<=://)[^/\s:@]*:[^/\s@]*@")  # user:password@ of an address
_INTERPOLATION: Final = re.compile(r"""["']?\$\{[^{}]*\}["']?""")
_VARIABLES: Final = {"llm": "OPENAI_API_KEY", "logger": "WANDB_API_KEY", "encoder": "HF_TOKEN", "model": "HF_TOKEN"}


def without_secrets(config: Any) -> Any:
    """Return plain containers without the strings that are secrets: by their key, or because they look like one.

    Under keys that look like secrets only strings, and lists with strings, are secrets: ``max_tokens: 5`` stays. Other
    strings go where they hold a key as the well-known services write it, and lose the ``user:password@`` of an
    address. What is no plain value becomes its text.

    Args:
        config: Mappings, lists and plain values, in one another as deep as they are.

    Example:
        >>> without_secrets({"llm": {"api_key": "hush", "base_url": "http://me:hush@host/v1", "max_tokens": 5}})
        {'llm': {'base_url': 'http://host/v1', 'max_tokens': 5}}
    """
    if isinstance(config, Mapping):
        kept = {}
        for key, value in config.items():
            strings = value if isinstance(value, list | tuple) else [value]
            if _SECRET.search(str(key)) and any(isinstance(item, str) for item in strings):
                continue
            if not _is_key(value):
                kept[str(key)] = without_secrets(value)
        return kept
    if isinstance(config, list | tuple):
        return [without_secrets(item) for item in config if not _is_key(item)]
    plain = _plain(config)
    return _USER.sub("", plain) if isinstance(plain, str) else plain


def told_yaml(cfg: DictConfig) -> str:
    """Return a resolved config as YAML, without its secrets."""
    plain = OmegaConf.to_container(cfg, resolve=True)
    told = without_secrets(plain)
    if told == plain:
        return OmegaConf.to_yaml(cfg, resolve=True)
    return yaml.safe_dump(told, sort_keys=False, allow_unicode=True)


def told_overrides(overrides: Iterable[str]) -> list[str]:
    """Return the overrides of a command line that set no secret.

    Example:
        >>> told_overrides(["seed=1", "+llm.api_key=hush", "llm.api_key=${oc.env:MY_KEY}"])
        ['seed=1', 'llm.api_key=${oc.env:MY_KEY}']
    """
    return [override for override in overrides if _tellable(override)]


def refusals(overrides: Iterable[str]) -> list[str]:
    """Return a fault for each override that sets a secret, without its value; an interpolation sets none.

    What a record would have to leave out cannot be given on a command line: the run could not be repeated from it, and
    shells and process lists keep what was typed.

    Example:
        >>> refusals(["llm.api_key=hush"])[0].partition(":")[0]
        'llm.api_key'
    """
    given = list(overrides)
    secret = [_key(override) for override in given if not _tellable(override)]
    variables = [o.partition("=")[2].strip("\"'") for o in given if _key(o) == "llm.key_variable" and _tellable(o)]
    named = _VARIABLES | ({"llm": variables[-1]} if variables and variables[-1].isidentifier() else {})
    return [f"{key}: {_advice(named.get(key.partition('.')[0]))}" for key in dict.fromkeys(secret)]


def literal_secrets(config: Any) -> list[str]:
    """Return a fault for each text of an unresolved config that looks like a key, or is an address with a password."""
    return [f"{path}: {_advice(_VARIABLES.get(path.partition('.')[0]))}" for path in _literal(config, "")]


def _literal(node: Any, path: str) -> Iterator[str]:
    if isinstance(node, Mapping | list):
        for key, value in node.items() if isinstance(node, Mapping) else enumerate(node):
            yield from _literal(value, f"{path}.{key}" if path else str(key))
    elif isinstance(node, str) and (_is_key(node) or _USER.search(node)):
        yield path


def _advice(variable: str | None) -> str:
    where = f"the environment variable {variable}" if variable else "environment variables"
    return (
        f"keys are read from {where}, never from a command line, a config or an address, which the run's folder would "
        "keep: set it there and leave this out"
    )


def _plain(value: Any) -> Any:
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def _is_key(value: Any) -> bool:
    return isinstance(value, str) and bool(_KEY.search(value))


def _key(override: str) -> str:
    return override.lstrip("+~").partition("=")[0].partition("@")[0].strip()


def _tellable(override: str) -> bool:
    """Tell whether an override sets nothing that looks like a secret."""
    text = override.partition("=")[2]
    if _INTERPOLATION.fullmatch(text.strip()):
        return True
    if _is_key(text) or _USER.search(text):
        return False
    try:
        value = yaml.safe_load(re.sub(r":(?=\S)", ": ", text))  # Hydra's grammar needs no space there
    except yaml.YAMLError:  # of Hydra's grammar, say, which may hold a mapping with any keys
        return not _SECRET.search(_key(override)) and not _INSIDE.search(text)
    value = value if isinstance(value, dict | list) else _plain(value)
    for name in reversed(_key(override).split(".")):
        value = {name: value}
    return bool(without_secrets(value) == value)
