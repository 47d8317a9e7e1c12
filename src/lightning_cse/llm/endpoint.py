"""The settings below ``llm``: where a language model answers, and how it is asked."""

import os
from collections.abc import Iterator
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, Field, ValidationError, field_validator

from lightning_cse.errors import did_you_mean
from lightning_cse.llm.requests import LLMError

_Limit = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Endpoint(BaseModel, extra="forbid", frozen=True):
    """One model at one OpenAI-compatible endpoint; conf/llm/default.yaml explains the settings."""

    model: str = Field(min_length=1)
    base_url: str | None = Field(default=None, validate_default=True)
    key_variable: str = "OPENAI_API_KEY"
    timeout: _Limit = 60.0
    retries: int = Field(default=5, ge=0)
    concurrency: int = Field(default=8, ge=1)
    requests_per_minute: _Limit | None = None
    tokens_per_minute: _Limit | None = None
    price: dict[Literal["input", "output"], Annotated[float, Field(ge=0)]] | None = Field(
        default=None, min_length=2
    )
    structured_output: Literal["auto", True, False] = "auto"
    parameters: dict[str, Any] = {}

    @field_validator("base_url")
    @classmethod
    def _is_address(cls, url: str | None) -> str | None:
        parts = urlsplit(url or os.environ.get("OPENAI_BASE_URL") or "http://localhost")
        # The address is not shown: it may hold a password.
        has_more = "@" in parts.netloc or parts.query or parts.fragment
        if parts.scheme not in {"http", "https"} or has_more:
            raise ValueError(
                "must be http://... or https://..., without user, password and '?'; "
                "null takes OPENAI_BASE_URL from the environment"
            )

        return url

    @property
    def address(self) -> str:
        """The address: from the settings, else from OPENAI_BASE_URL, else OpenAI's own."""
        default = os.environ.get("OPENAI_BASE_URL") or "https://api.openai.com/v1"
        return (self.base_url or default).rstrip("/")

    @property
    def sent(self) -> dict[str, Any]:
        """The parameters that are sent with every request; those that are null are not."""
        return {name: value for name, value in self.parameters.items() if value is not None}

    @property
    def here(self) -> bool:
        """Whether the endpoint is on this machine."""
        host = urlsplit(self.address).hostname or ""
        return host in {"localhost", "::1"} or host.startswith("127.")

    def key(self) -> str:
        """Return the key from the environment; raise LLMError if a remote endpoint has none."""
        key = os.environ.get(self.key_variable, "").strip()
        if not key and not self.here:
            raise LLMError(
                f"{self.address} needs a key in the environment variable {self.key_variable}"
            )

        return key or "none-needed"


def wrong_settings(llm: Any, cache_dir: str | None) -> Iterator[str]:
    """Yield all faults of the settings below ``llm``, given as plain values, and of the cache."""
    if cache_dir is None:
        yield "paths.cache_dir: must be a folder: replies that are not kept are paid for again"

    try:
        Endpoint.model_validate(llm)
    except ValidationError as error:
        for fault in error.errors(include_url=False, include_input=False):
            name = ".".join(["llm", *map(str, fault["loc"])])
            message = fault["msg"].removeprefix("Value error, ")
            if fault["type"] == "extra_forbidden":
                near = did_you_mean(str(fault["loc"][-1]), Endpoint.model_fields)
                message = f"unknown setting{near}; parameters of the model go under llm.parameters"

            if name == "llm.model":
                message = "must be set, as in llm.model=my-model"

            yield f"{name}: {message}"
