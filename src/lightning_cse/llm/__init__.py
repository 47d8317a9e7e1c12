"""Language models: a client for any OpenAI-compatible endpoint, a cache of every reply, and an account of the cost."""

from lightning_cse.llm.client import LLM
from lightning_cse.llm.endpoint import Endpoint, wrong_settings
from lightning_cse.llm.requests import (
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
    "Endpoint",
    "Failure",
    "LLMError",
    "Reply",
    "Request",
    "commonest",
    "dollars",
    "price_of",
    "wrong_settings",
]
