"""Settings as they may be shown to others: plain values, without what is a secret by its name or looks like one.

A name is that of a secret where its last words say so, whatever stands before them. Words are what underscores, other
signs and capitals part: ``hfToken`` has two.

- ``secret``, ``password``, ``passwd``, ``passphrase``, ``credential`` (or several of them), ``auth``,
  ``authorization``, ``bearer``: ``client_secret``, ``db_password``.
- ``key`` and ``token`` after a word that makes them one, such as ``api``, ``access``, ``private``, or a service's name:
  ``api_key``, ``HF_TOKEN``, ``aws_secret_access_key``.
- ``key`` and ``token`` alone.

All else is a setting like any other, which identities and records keep: ``mask_token``, ``sort_key``, ``max_tokens``,
``key_variable``, ``password_file``. What a secret's name holds is left out of both, so a config may give it only by an
interpolation; a text that stands there is refused (`literal_secrets`), since it may decide a result.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import yaml
from omegaconf import DictConfig, OmegaConf

__all__ = ["literal_secrets", "refusals", "told_overrides", "told_yaml", "without_secrets"]

_ONE: Final = (  # what makes a key or a token one that opens something
    *("access", "account", "api", "auth", "bearer", "client", "encryption", "private", "refresh", "secret"),
    *("service", "session", "signing", "ssh", "subscription"),
    *("anthropic", "aws", "azure", "deepseek", "gemini", "github", "gitlab", "google", "hf", "hub", "huggingface"),
    *("mistral", "openai", "slack", "wandb"),
)
_NAME: Final = re.compile(
    rf"(?:key|token|(?:\w+_)?(?:(?:{'|'.join(_ONE)})_?(?:key|token)s?|secrets?|pass_?(?:word|phrase)s?|passwd|credentials?"
    r"|auth|authori[sz]ation|bearer))"
)
_WORDS: Final = re.compile(r"[\W_]+|(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_INSIDE: Final = re.compile(r"[\w.-]+(?=[\"']?\s*[:=])")  # a key of a mapping in a text
# Keys as OpenAI, Hugging Face, GitHub, GitLab, Slack, AWS and Google write them.
_KEY: Final = re.compile(
    r"(?<![A-Za-z0-9])(?:sk-(?=[\w-]*\d)[\w-]{20,}|hf_[A-Za-z0-9]{30,}|gh[pousr]_[A-Za-z0-9]{30,}|github_pat_\w{30,}"
    r"|glpat-[\w-]{20,}|xox[abprs]-[\w-]{20,}|AKIA[0-9A-Z]{16}|AIza[\w-]{35})"
)
_USER: Final = re.compile(r"(?<=://)[^/\s:@]*:[^/\s@]*@")  # user:password@ of an address
# Of a header, the name of its scheme stands before the secret.
_INTERPOLATION: Final = re.compile(r"""["']?(?:(?:Bearer|Basic|Token)\s+)?\$\{(?:[^{}]|\$\{[^{}]*\})*\}["']?""")
_MISSING: Final = "???"
_VARIABLES: Final = {"llm": "OPENAI_API_KEY", "logger": "WANDB_API_KEY", "encoder": "HF_TOKEN", "model": "HF_TOKEN"}


def without_secrets(config: Any) -> Any:
    """Return plain containers without the strings that are secrets: by their name, or because they look like one.

    Under the name of a secret only strings, and lists with strings, are secrets: ``token: 5`` stays. Other strings go
    where they hold a key as the well-known services write it, and lose the ``user:password@`` of an address. What is no
    plain value becomes its text.

    Args:
        config: Mappings, lists and plain values, in one another as deep as they are.

    Example:
        >>> without_secrets({"llm": {"api_key": "hush", "base_url": "http://me:hush@host/v1", "max_tokens": 5}})
        {'llm': {'base_url': 'http://host/v1', 'max_tokens': 5}}
    """
    if isinstance(config, Mapping):
        kept = {}
        for key, value in config.items():
            if not _is_key(str(key)) and not _is_key(value) and not (_names_one(str(key)) and any(_texts(value))):
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
    secret = [override for override in given if not _tellable(override)]
    variables = [o.partition("=")[2].strip("\"'") for o in given if _key(o) == "llm.key_variable" and _tellable(o)]
    variable = variables[-1] if variables and variables[-1].isidentifier() else None
    faults = (_fault(_key(o), by_name=not _shows(o.partition("=")[2]), llm_key=variable) for o in secret)
    return list(dict.fromkeys(faults))


def literal_secrets(config: Any) -> list[str]:
    """Return a fault for each text of an unresolved config that nobody may read, or that would be left out unseen.

    Those are a text that looks like a key, an address with a password, and a text under the name of a secret that is
    no interpolation: identities leave it out, and two configs that differ in it alone would be one run.

    Example:
        >>> literal_secrets({"a": {"api_key": "${oc.env:MY_KEY}", "mask_token": "[A]"}})
        []
        >>> [fault.partition(":")[0] for fault in literal_secrets({"a": {"api_key": "hush"}})]
        ['a.api_key']
    """
    return list(_literal(config, "", named=False))


def _literal(node: Any, path: str, *, named: bool) -> Iterator[str]:
    if isinstance(node, Mapping):
        for key, value in node.items():
            yield from _literal(value, f"{path}.{key}" if path else str(key), named=_names_one(str(key)))
    elif isinstance(node, list):
        for index, value in enumerate(node):
            yield from _literal(value, f"{path}.{index}" if path else str(index), named=named)
    elif isinstance(node, str):
        if _shows(node):
            yield _fault(path, by_name=False)
        elif named and node not in ("", _MISSING) and not _INTERPOLATION.fullmatch(node.strip()):
            yield _fault(path, by_name=True)


def _fault(path: str, *, by_name: bool, llm_key: str | None = None) -> str:
    node = path.partition(".")[0]
    variable = llm_key if llm_key and node == "llm" else _VARIABLES.get(node)
    where = f"the environment variable {variable}" if variable else "environment variables"
    instead = "set it there and leave this out" if variable or not by_name else "give it by ${oc.env:NAME}"
    rename = ", or rename the key if it holds no secret" if by_name else ""
    return (
        f"{path}: keys are read from {where}, never from a command line, a config or an address, which the run's "
        f"folder would keep: {instead}{rename}"
    )


def _names_one(name: str) -> bool:
    """Tell whether a name is that of a secret, as the head of this module says."""
    return bool(_NAME.fullmatch("_".join(filter(None, _WORDS.split(name))).lower()))


def _texts(value: Any) -> Iterator[str]:
    """Yield the texts of a value that say something, and those of lists."""
    if isinstance(value, str):
        yield from [value] if value else []
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _texts(item)


def _shows(text: str) -> bool:
    """Tell whether a text holds a key or a password, wherever it stands."""
    return _is_key(text) or bool(_USER.search(text))


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
    if _shows(text):
        return False
    try:
        value = yaml.safe_load(re.sub(r":(?=\S)", ": ", text))  # Hydra's grammar needs no space there
    except yaml.YAMLError:  # of Hydra's grammar, say, which may hold a mapping with any keys
        return not any(map(_names_one, (*_key(override).split("."), *_INSIDE.findall(text))))
    value = value if isinstance(value, dict | list) else _plain(value)
    for name in reversed(_key(override).split(".")):
        value = {name: value}
    return bool(without_secrets(value) == value)
