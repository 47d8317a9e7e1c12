"""The calls of one endpoint: the openai client's, with limits a minute, and a limit to the time and size of each call."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final

import httpx2
import openai
from aiolimiter import AsyncLimiter

from lightning_cse.errors import did_you_mean
from lightning_cse.llm.account import Account
from lightning_cse.llm.endpoint import Endpoint
from lightning_cse.llm.requests import Failure, LLMError, Reply, Request, read_reply

LARGEST: Final = 1_000_000
"""Bytes of an answer; a larger one is cut off."""

_AGAIN: Final = "Then give the same command again, which continues"

log = logging.getLogger(__name__)


class _TooLargeError(Exception):
    """The openai client does not know it, and so does not ask again."""


class Calls(openai.DefaultAsyncHttpxClient):
    """Asks an endpoint through the openai client, and sends what that wants to send, each retry too."""

    def __init__(self, endpoint: Endpoint, account: Account) -> None:
        super().__init__(trust_env=not endpoint.here)  # a proxy does not see this machine
        for name in ("openai", "httpx2", "httpcore2"):  # a line for every call, and at DEBUG what is sent
            logging.getLogger(name).setLevel(logging.WARNING)
        self.endpoint = endpoint
        self.account = account
        self.ended = False  # no call may start
        self.under_way: set[asyncio.Task[Any] | None] = set()
        self._key = endpoint.key()
        self._openai = openai.AsyncOpenAI(
            api_key=self._key,
            base_url=endpoint.address,
            timeout=endpoint.timeout,
            max_retries=endpoint.retries,
            http_client=self,
        )
        self._limits = _Limits(endpoint)
        self._reached = self._answered = False
        self._structured = True
        self._failed = 0  # in a row

    async def call(self, request: Request) -> Reply | Failure:
        """Ask until there is a reply or asking again does not help.

        Raises:
            LLMError: if no further request will be answered.
        """
        try:
            reply = await self._ask(request)
        except openai.APIStatusError as error:
            if error.code != "content_filter":
                return self._failure(await self._refused(error))
            reply = Reply("", "content_filter", endpoint=self.endpoint.address)
        except _TooLargeError as error:
            return self._failure(Failure(str(error), final=True))
        except openai.APIConnectionError as error:
            return self._failure(Failure(self._line(error.__cause__ or error)))
        self._answered, self._failed = True, 0
        return reply

    async def _ask(self, request: Request) -> Reply:
        messages = [{"role": role, "content": text} for role, text in request.messages]
        body = {"model": self.endpoint.model, "messages": messages, **request.parameters}
        if request.schema is None or not self._structured:
            return await self._post(body)
        schema = {"name": "reply", "strict": True, "schema": request.schema}
        try:
            return await self._post(body | {"response_format": {"type": "json_schema", "json_schema": schema}})
        except (openai.BadRequestError, openai.UnprocessableEntityError):
            reply = await self._post(body)
        self._structured = False
        log.info("%s offers no structured output, and is asked without it", self.endpoint.address)
        return reply

    async def _post(self, body: dict[str, Any]) -> Reply:
        response = await self._openai.post("/chat/completions", cast_to=httpx2.Response, body=body)
        reply: Reply = response.extensions["reply"]
        return reply

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        """Make one call, and return its whole answer; that of a chat completion has the reply as an extension."""
        expected = used = len(request.content) // 3
        await self._limits.turn(expected)
        self.account.retried += request.headers.get("x-stainless-retry-count", "0") != "0"
        task = asyncio.current_task()
        self.under_way.add(task)
        try:
            async with asyncio.timeout(self.endpoint.timeout):
                response, content = await self._received(request, options)
            if response.is_error:
                used = 0
            elif request.method == "POST":
                reply = read_reply(content, self.endpoint.address)
                used = (reply.prompt_tokens or 0) + (reply.completion_tokens or 0) or expected
                return httpx2.Response(response.status_code, extensions={"reply": reply}, request=request)
        except Exception as error:
            self._check_end()
            if isinstance(error, TimeoutError):
                raise httpx2.ReadTimeout(f"no answer within {self.endpoint.timeout:g} s") from error
            if isinstance(error, ValueError):
                raise httpx2.RemoteProtocolError(str(error)) from error
            if isinstance(error, httpx2.ConnectError) and not self._reached:
                raise LLMError(
                    f"{self.endpoint.address} cannot be reached ({error}): is the server running, and is llm.base_url "
                    f"its address, as in llm.base_url=http://localhost:8000/v1? {_AGAIN}"
                ) from error
            raise
        finally:
            self.under_way.discard(task)
            self._limits.owed += used - expected
        self._check_end()
        return httpx2.Response(response.status_code, headers=response.headers, content=content, request=request)

    def _check_end(self) -> None:
        if self.ended:
            raise asyncio.CancelledError  # the openai client would ask again

    async def _received(self, request: httpx2.Request, options: dict[str, Any]) -> tuple[httpx2.Response, bytes]:
        response = await super().send(request, **options | {"stream": True})
        self._reached = True
        content = bytearray()
        try:
            async for part in response.aiter_bytes():
                content += part
                if len(content) > LARGEST:
                    raise _TooLargeError(f"the answer has more than {LARGEST:,} bytes, and was cut off")
        finally:
            await response.aclose()
        for name in ("content-encoding", "content-length", "transfer-encoding"):
            response.headers.pop(name, None)
        return response, bytes(content)

    def _failure(self, failure: Failure) -> Failure:
        """Count a request without a reply; raise LLMError after two rounds of them."""
        self._failed += 1
        if self._failed >= max(8, 2 * self.endpoint.concurrency):
            raise LLMError(
                f"the last {self._failed} requests to {self.endpoint.address} all failed; the last reason: "
                f"{failure.reason}. Fix that (llm.base_url as a rule ends in /v1). {_AGAIN}"
            )
        return failure

    async def _refused(self, error: openai.APIStatusError) -> Failure:
        """Return what a status means for one request; raise LLMError where it holds for all."""
        status, who, variable = error.status_code, self.endpoint.address, self.endpoint.key_variable
        body = error.body if isinstance(error.body, dict) else {}
        reason = f"status {status}: {self._line(body.get('message') or body.get('detail') or error.response.text)}"
        if status == 401 or (status == 403 and not self._answered):
            correct = f"correct the environment variable {variable}, or name another with llm.key_variable=..."
            raise LLMError(f"{who} does not accept the key ({reason}): {correct}")
        if status == 402 or error.code == "insufficient_quota":
            raise LLMError(f"{who} asks for payment first ({reason}). {_AGAIN}")
        if status == 404 or error.code == "model_not_found":
            raise LLMError(f"{who} does not know the address or the model ({reason}). {await self._models()}")
        return Failure(reason, final=status < 500 and status not in {408, 409, 429})

    async def _models(self) -> str:
        model = self.endpoint.model
        try:
            names = sorted(each.id for each in (await self._openai.models.list()).data)
        except openai.OpenAIError:
            return f"llm.base_url as a rule ends in /v1, and llm.model={model} must be the endpoint's own name"
        return f"llm.model={model}{did_you_mean(model, names)}; it offers {', '.join(names[:20])}"

    def _line(self, said: object) -> str:
        """Return what somebody else wrote as a short line, without the key, which some servers repeat."""
        text = str(said).replace(self._key, "***")
        return " ".join("".join(c if c.isprintable() else " " for c in text).split())[:300]


class _Limits:
    """Spaces calls evenly, as the limits a minute allow: ``owed`` are tokens estimated or taken, and not waited for."""

    def __init__(self, endpoint: Endpoint) -> None:
        requests, tokens = endpoint.requests_per_minute, endpoint.tokens_per_minute
        self.owed = 0.0
        self._requests = None if requests is None else AsyncLimiter(1, 60 / requests)
        self._tokens = None if tokens is None else AsyncLimiter(tokens / 60, 1)
        self._line = asyncio.Lock()  # first come, first served

    async def turn(self, tokens: int) -> None:
        """Return when the next call may start."""
        async with self._line:
            if self._requests is not None:
                await self._requests.acquire()
            self.owed += tokens
            while self._tokens is not None and self.owed > 0:
                part = min(self.owed, self._tokens.max_rate)
                await self._tokens.acquire(part)
                self.owed -= part
