"""Where a language model answers, and what it takes to ask it."""

from __future__ import annotations

import ipaddress
import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import SplitResult, urlsplit

from lightning_cse.errors import ConfigError, did_you_mean
from lightning_cse.llm.errors import LLMError

OPENAI: Final = "https://api.openai.com/v1"
NO_KEY: Final = "none-needed"
"""What is sent to endpoints on this machine where there is no key; the protocol wants something."""

_PRICES: Final = ("input", "output")


@dataclass(frozen=True)
class Endpoint:
    """One model at one OpenAI-compatible endpoint: OpenAI, vLLM, llama.cpp, Ollama, and most vendors.

    The key is read from the environment when the first call is made; it is in no attribute, message, record or log.

    Attributes:
        model: the model, by the endpoint's name.
        base_url: as a rule it ends in ``/v1``; None: that of the environment's OPENAI_BASE_URL, else OpenAI's.
        key_variable: the environment variable that holds the key; an endpoint on this machine needs none.
        timeout: seconds that one call may take from its start to the last byte.
        retries: how often a call that failed is made again.
        concurrency: the most calls that are under way at once.
        backoff: seconds before the first retry, doubled before each further one.
        price: USD per million tokens, of ``input`` and ``output``; None: the cost is unknown.
        requests_per_minute: the endpoint's limit, to which one client keeps with evenly spaced calls; None: no limit.
        tokens_per_minute: likewise, of prompts and completions together.

    Raises:
        ConfigError: with all faults at once, as keys below ``llm``.
    """

    model: str
    base_url: str | None = None
    key_variable: str = "OPENAI_API_KEY"
    timeout: float = 60.0
    retries: int = 5
    concurrency: int = 8
    backoff: float = 0.5
    price: Mapping[str, float] | None = None
    requests_per_minute: float | None = None
    tokens_per_minute: float | None = None

    def __post_init__(self) -> None:
        if faults := list(self._faults()):
            raise ConfigError(faults)

    @property
    def url(self) -> str:
        """The address, whoever gives it."""
        return self.base_url or os.environ.get("OPENAI_BASE_URL") or OPENAI

    @property
    def address(self) -> str:
        """The address as it is kept with replies, written the same way each time."""
        return self.url.rstrip("/")

    @property
    def here(self) -> bool:
        """Whether it is on this machine."""
        host = urlsplit(self.url).hostname or ""
        try:
            return ipaddress.ip_address(host).is_loopback
        except ValueError:
            return host == "localhost" or host.endswith(".localhost")

    def key(self) -> str:
        """Return the key from the environment.

        Raises:
            LLMError: if there is none and the endpoint is not on this machine, or if it cannot be a key.
        """
        key = os.environ.get(self.key_variable, "").strip()
        if not key and self.here:
            return NO_KEY
        if not key:
            raise LLMError(
                f"{self.url} wants a key, and the environment variable {self.key_variable} holds none: set it (to any "
                "word, if that server needs none), or name another with llm.key_variable=..."
            )
        if not (key.isascii() and key.isprintable() and " " not in key):
            raise LLMError(
                f"the environment variable {self.key_variable} holds no key: there are spaces or characters in it that "
                "no key has"
            )
        return key

    def _faults(self) -> Iterator[str]:
        if not isinstance(self.model, str) or not self.model:
            yield "llm.model: say which model, by the endpoint's name, as in llm.model=my-model"
        name = "llm.base_url" if self.base_url else "OPENAI_BASE_URL in the environment"
        if fault := _fault_of_url(self.url):
            yield f"{name}: {fault}"
        if not self.key_variable:
            yield "llm.key_variable: the name of an environment variable, as OPENAI_API_KEY"
        for field, least, kind in (("retries", 0, int), ("concurrency", 1, int), ("backoff", 0, (int, float))):
            if not _is_number(getattr(self, field), kind) or getattr(self, field) < least:
                whole = "a whole number" if kind is int else "a number"
                yield f"llm.{field}: {getattr(self, field)!r} is not {whole} of at least {least}"
        if not _is_number(self.timeout, (int, float)) or self.timeout <= 0:
            yield f"llm.timeout: {self.timeout!r} is not a number of seconds above 0"
        for field in ("requests_per_minute", "tokens_per_minute"):
            limit = getattr(self, field)
            if limit is not None and (not _is_number(limit, (int, float)) or limit <= 0):
                yield f"llm.{field}: {limit!r} is not a number above 0; null is no limit"
        yield from _faults_of_price(self.price)


def _fault_of_url(url: str) -> str | None:
    try:
        parts: SplitResult = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        return f"is no address ({error})"
    # Not shown: whoever puts a password there does not want it on a screen.
    if "@" in parts.netloc:
        return "has a user or a password in it: leave them out, and put the key into the variable of llm.key_variable"
    if parts.scheme not in {"http", "https"} or not host:
        return f"{url!r} is no address: it begins with http:// or https:// and, as a rule, ends in /v1"
    if parts.query or parts.fragment:
        return "has a '?' or a '#' in it, and calls go to paths below it: leave them out"
    return None


def _faults_of_price(price: Any) -> Iterator[str]:
    if price is None:
        return
    if not isinstance(price, Mapping):
        yield f"llm.price: {price!r} is not null and has no input and output, as in llm.price={{input: 0.5, output: 2}}"
        return
    for name in price:
        if name not in _PRICES:
            yield f"llm.price.{name}: there are input and output{did_you_mean(str(name), _PRICES)}"
    for name in _PRICES:
        if name not in price:
            yield f"llm.price.{name}: is missing; both are USD per million tokens"
        elif not _is_number(price[name], (int, float)) or price[name] < 0:
            yield f"llm.price.{name}: {price[name]!r} is not a number of at least 0, in USD per million tokens"


def _is_number(value: Any, kind: type[int] | tuple[type[int], type[float]]) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool) and math.isfinite(value)
