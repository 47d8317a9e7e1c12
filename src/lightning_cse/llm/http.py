"""Calls to one endpoint by the openai client, with limits per minute, and limits on the time and size of each call."""

import asyncio
import logging
from collections.abc import Iterable
from functools import cached_property
from typing import Any, Final

from lightning_cse.llm.endpoint import Endpoint
from lightning_cse.llm.requests import Account, Failure, LLMError, Reply, Request, read_reply

try:
    import httpx2
    import openai
    from aiolimiter import AsyncLimiter
except ImportError as missing:
    raise LLMError(
        f"language models need further packages: pip install 'lightning_cse[llm]' ({missing})"
    ) from missing

_LARGEST: Final = 1_000_000  # bytes of an answer
_CONTINUES: Final = "The same command continues"
_ADVICE: Final = {
    401: "Correct the key in the environment variable {variable}, or name another with llm.key_variable=...",
    402: f"The endpoint asks for payment. {_CONTINUES}",
    403: "Is the key in the environment variable {variable} right?",
    404: "llm.base_url usually ends in /v1, and llm.model must be the endpoint's name for the model",
}
_CODES: Final = {
    "insufficient_quota": 402,
    "model_not_found": 404,
}  # error codes that say more than the status
_LATER: Final = frozenset(
    {408, 409, 429}
)  # statuses below 500 after which the next start may get a reply

log = logging.getLogger(__name__)


class Calls(openai.DefaultAsyncHttpxClient):
    """Asks an endpoint through the openai client, and makes the calls of that client, retries included."""

    def __init__(self, endpoint: Endpoint, account: Account) -> None:
        super().__init__(trust_env=not endpoint.here)  # a proxy cannot reach this machine
        for name in (
            "openai",
            "httpx2",
            "httpcore2",
        ):  # they log every call, and at DEBUG what is sent
            logging.getLogger(name).setLevel(logging.WARNING)
        self.endpoint, self.account = endpoint, account
        self.asked: dict[
            str, asyncio.Task[Reply | Failure]
        ] = {}  # by the request's key, also those that wait
        self.finished: asyncio.Queue[Any] = (
            asyncio.Queue()
        )  # tasks that use replies; None at the end
        self.ended = False
        self._under_way: set[asyncio.Task[Any] | None] = set()
        requests, tokens = endpoint.requests_per_minute, endpoint.tokens_per_minute
        self._requests = AsyncLimiter(1, 60 / requests) if requests else None
        self._tokens = AsyncLimiter(tokens / 60, 1) if tokens else None
        self._owed = 0.0  # tokens, estimated or used, that were not waited for yet
        self._line = asyncio.Lock()  # first come, first served
        self._reached = self._answered = False
        self._structured = True
        self._failed = 0  # in a row

    @cached_property
    def _openai(self) -> openai.AsyncOpenAI:
        here, limit = self.endpoint, httpx2.Timeout(None, connect=10)  # `send` limits the rest
        return openai.AsyncOpenAI(
            api_key=here.key(),
            base_url=here.address,
            max_retries=here.retries,
            timeout=limit,
            http_client=self,
        )

    def end(self) -> None:
        """Let no further call start."""
        self.ended = True
        for task in set(self.asked.values()) - self._under_way:
            task.cancel()
        self.finished.put_nowait(None)

    async def close(self, tasks: Iterable[asyncio.Task[Any]]) -> None:
        """End, cancel tasks that use replies, and wait for the calls under way."""
        self.end()
        for task in tasks:
            task.cancel()
        if self._under_way:
            wait = "waiting for %d calls that are paid for (at most %g s); Ctrl-C again aborts them"
            log.info(wait, len(self._under_way), self.endpoint.timeout)
        await asyncio.gather(*tasks, *self.asked.values(), return_exceptions=True)
        await self.aclose()

    async def call(self, request: Request) -> Reply | Failure:
        """Ask until there is a reply or asking again does not help; raise LLMError if no request can get a reply."""
        outcome: Reply | Failure
        try:
            outcome = await self._ask(request)
        except openai.APIStatusError as error:
            outcome = self._refused(error)
        except openai.OpenAIError as error:
            again = isinstance(error, openai.APIConnectionError)
            outcome = Failure(self._said(error.__cause__ or error), final=not again)
        if isinstance(outcome, Reply):
            self._answered, self._failed = True, 0
            return outcome
        self._failed += 1
        if self._failed >= max(8, 2 * self.endpoint.concurrency):  # two rounds
            last = f"the last {self._failed} requests to {self.endpoint.address} all failed, the last one: "
            raise LLMError(
                f"{last}{outcome.reason}. Is llm.base_url right? It usually ends in /v1. {_CONTINUES}"
            )
        return outcome

    async def _ask(self, request: Request) -> Reply:
        messages = [{"role": role, "content": text} for role, text in request.messages]
        body: dict[str, Any] = {
            "model": self.endpoint.model,
            "messages": messages,
            **request.parameters,
        }
        if request.schema is not None and self._structured:
            schema = {"name": "reply", "strict": True, "schema": request.schema}
            body["response_format"] = {"type": "json_schema", "json_schema": schema}
        try:
            response = await self._openai.post(
                "/chat/completions", cast_to=httpx2.Response, body=body
            )
        except (openai.BadRequestError, openai.UnprocessableEntityError):
            if body.pop("response_format", None) is None:
                raise
            response = await self._openai.post(
                "/chat/completions", cast_to=httpx2.Response, body=body
            )
            self._structured = False  # the endpoint does not offer it
        reply: Reply = response.extensions["reply"]
        return reply

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        """Make one call when the limits allow it; the response has the reply as an extension."""
        expected = used = len(request.content) // 3
        await self._turn(expected)
        self.account.retried += request.headers.get("x-stainless-retry-count", "0") != "0"
        self._under_way.add(task := asyncio.current_task())
        try:
            async with asyncio.timeout(self.endpoint.timeout):
                response = await super().send(request, **options | {"stream": True})
                self._reached, content = True, bytearray()
                async for part in response.aiter_bytes():
                    content += part
                    if len(content) > _LARGEST:
                        await response.aclose()
                        raise openai.OpenAIError(
                            f"the answer has more than {_LARGEST:,} bytes, and was cut off"
                        )
            if not response.is_error:
                reply = read_reply(bytes(content), self.endpoint.address)
                used = (reply.prompt_tokens or 0) + (reply.completion_tokens or 0) or expected
                return httpx2.Response(
                    response.status_code, extensions={"reply": reply}, request=request
                )
            used = 0
        except Exception as error:
            if self.ended:
                raise asyncio.CancelledError from None  # it is not asked again
            if isinstance(error, TimeoutError | ValueError):  # then it is asked again
                reason = str(error) or f"no answer within {self.endpoint.timeout:g} s"
                raise httpx2.RemoteProtocolError(reason) from error
            if isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout) and not self._reached:
                known = f"{self.endpoint.address} cannot be reached ({error!r})"
                raise LLMError(
                    f"{known}: is the server running, and is llm.base_url its address?"
                ) from error
            raise
        finally:
            self._under_way.discard(task)
            self._owed += used - expected
        if self.ended:
            raise asyncio.CancelledError
        headers = [
            each
            for each in response.headers.items()
            if not each[0].startswith(("content-", "transfer-"))
        ]
        return httpx2.Response(
            response.status_code, headers=headers, content=bytes(content), request=request
        )

    async def _turn(self, tokens: int) -> None:
        async with self._line:
            if self._requests is not None:
                await self._requests.acquire()
            self._owed += tokens
            while self._tokens is not None and self._owed > 0:
                part = min(self._owed, self._tokens.max_rate)
                await self._tokens.acquire(part)
                self._owed -= part

    def _refused(self, error: openai.APIStatusError) -> Reply | Failure:
        """Return what an error status means for one request; raise LLMError if it holds for all requests."""
        if error.code == "content_filter":
            return Reply("", error.code, endpoint=self.endpoint.address)
        body = error.body if isinstance(error.body, dict) else {}
        said = self._said(body.get("message") or body.get("detail") or error.response.text)
        reason, status = (
            f"status {error.status_code}: {said}",
            _CODES.get(error.code or "", error.status_code),
        )
        if status in _ADVICE and not (status == 403 and self._answered):
            advice = _ADVICE[status].format(variable=self.endpoint.key_variable)
            raise LLMError(f"{self.endpoint.address}, {self.endpoint.model}: {reason} {advice}")
        return Failure(reason, final=status < 500 and status not in _LATER)

    def _said(self, words: object) -> str:
        """Return a message from outside as one short line, without the key, which some servers repeat."""
        return " ".join(str(words).replace(self._openai.api_key, "***").split())[:300]
