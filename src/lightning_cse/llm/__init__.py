"""Asking language models: a client for any OpenAI-compatible endpoint, a cache of every reply, and an account."""

from lightning_cse.llm.account import Account, dollars, price_of
from lightning_cse.llm.asking import Asking
from lightning_cse.llm.budget import Budget
from lightning_cse.llm.cache import ReplyCache
from lightning_cse.llm.client import ChatClient
from lightning_cse.llm.declining import declines, refuses
from lightning_cse.llm.endpoint import Endpoint
from lightning_cse.llm.errors import LLMError
from lightning_cse.llm.pace import Pace
from lightning_cse.llm.requests import Failure, Reply, Request

__all__ = [
    "Account",
    "Asking",
    "Budget",
    "ChatClient",
    "Endpoint",
    "Failure",
    "LLMError",
    "Pace",
    "Reply",
    "ReplyCache",
    "Request",
    "declines",
    "dollars",
    "price_of",
    "refuses",
]
