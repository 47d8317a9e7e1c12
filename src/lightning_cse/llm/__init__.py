"""Language models: a client for OpenAI-compatible endpoints, a cache of replies, an account."""

from lightning_cse.llm.client import LLM
from lightning_cse.llm.endpoint import Endpoint, wrong_settings
from lightning_cse.llm.reading import read_answer
from lightning_cse.llm.requests import (
    Account,
    Failure,
    LLMError,
    Reply,
    Request,
    commonest,
    dollars,
    price_of,
)

__all__ = [
    "LLM",
    "Account",
    "Endpoint",
    "Failure",
    "LLMError",
    "Reply",
    "Request",
    "commonest",
    "dollars",
    "price_of",
    "read_answer",
    "wrong_settings",
]
