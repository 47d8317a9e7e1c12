"""Calls to one endpoint by the openai client, with limits per minute and per call."""

import asyncio
import logging
from collections.abc import Iterable, Mapping
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

_CONTINUES: Final = "The same command continues"
_ADVICE: Final = {
    401: "Correct the key in the environment variable {variable}, or set llm.key_variable",
    402: f"The endpoint asks for payment. {_CONTINUES}",
    403: "Is the key in the environment variable {variable} right?",
    404: "llm.base_url usually ends in /v1; llm.model must be the endpoint's name of the model",
}
_CODES: Final = {  # error codes that say more than the status
    "insufficient_quota": 402,
    "model_not_found": 404,
}
_LATER: Final = frozenset({408, 409, 429})  # statuses below 500 that may pass

log = logging.getLogger(__name__)


class Calls(openai.DefaultAsyncHttpxClient):
    """Asks an endpoint through the openai client, and makes the calls of that client."""

    def __init__(
        self,
        endpoint: Endpoint,
        account: Account,
    ) -> None:
        super().__init__(trust_env=not endpoint.here)  # a proxy cannot reach this machine
        # They log every call, and at DEBUG what is sent.
        for name in ("openai", "httpx2", "httpcore2"):
            logging.getLogger(name).setLevel(logging.WARNING)

        self.endpoint = endpoint
        self.account = account
        # The requests that are being asked or wait for it, by their keys.
        self.asked: dict[str, asyncio.Task[Reply | Failure]] = {}
        # Tasks that use replies, as they finish; None at the end.
        self.finished: asyncio.Queue[Any] = asyncio.Queue()
        self.ended = False
        self._under_way: set[asyncio.Task[Any] | None] = set()
        requests = endpoint.requests_per_minute
        tokens = endpoint.tokens_per_minute
        self._requests = AsyncLimiter(1, 60 / requests) if requests else None
        self._tokens = AsyncLimiter(tokens / 60, 1) if tokens else None
        self._owed = 0.0  # tokens, estimated or used, that were not waited for yet
        self._line = asyncio.Lock()  # first come, first served
        self._reached = False
        self._answered = False
        self._structured = True
        self._failed = 0  # requests without a reply, in a row

    @cached_property
    def _openai(self) -> openai.AsyncOpenAI:
        return openai.AsyncOpenAI(
            api_key=self.endpoint.key(),
            base_url=self.endpoint.address,
            max_retries=self.endpoint.retries,
            timeout=httpx2.Timeout(None, connect=10),  # `send` limits the rest
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
            message = "waiting for %d calls under way (at most %g s); Ctrl-C again aborts them"
            log.info(
                message,
                len(self._under_way),
                self.endpoint.timeout,
            )

        await asyncio.gather(
            *tasks,
            *self.asked.values(),
            return_exceptions=True,
        )
        await self.aclose()

    async def call(self, request: Request) -> Reply | Failure:
        """Return a reply or a failure; raise LLMError if no request can get a reply."""
        outcome: Reply | Failure

        try:
            outcome = await self._ask(request)
        except openai.APIStatusError as error:
            outcome = self._refused(error)
        except openai.OpenAIError as error:
            passing = isinstance(error, openai.APIConnectionError)
            outcome = Failure(self._short(error.__cause__ or error), final=not passing)

        if isinstance(outcome, Reply):
            self._answered = True
            self._failed = 0
            return outcome

        self._failed += 1
        if self._failed >= max(8, 2 * self.endpoint.concurrency):  # two rounds
            raise LLMError(
                f"the last {self._failed} requests to {self.endpoint.address} all failed, "
                f"the last one: {outcome.reason}. Is llm.base_url right? It usually ends in /v1. "
                f"{_CONTINUES}"
            )

        return outcome

    async def _ask(self, request: Request) -> Reply:
        body: dict[str, Any] = {
            "model": self.endpoint.model,
            "messages": [{"role": role, "content": text} for role, text in request.messages],
            **request.parameters,
        }
        if request.schema is not None and self._structured:
            try:
                return await self._post(body | {"response_format": _json_schema(request.schema)})
            except (openai.BadRequestError, openai.UnprocessableEntityError):
                reply = await self._post(body)
                self._structured = False  # the endpoint does not offer it
                return reply

        return await self._post(body)

    async def _post(self, body: Mapping[str, Any]) -> Reply:
        response = await self._openai.post(
            "/chat/completions",
            cast_to=httpx2.Response,
            body=body,
        )
        reply: Reply = response.extensions["reply"]
        return reply

    async def send(
        self,
        request: httpx2.Request,
        **options: Any,
    ) -> httpx2.Response:
        """Make one call when the limits allow it; the reply is an extension of the response."""
        estimate = len(request.content) // 3
        await self._wait_for_turn(estimate)
        self.account.retried += request.headers.get("x-stainless-retry-count", "0") != "0"
        task = asyncio.current_task()
        self._under_way.add(task)
        used = estimate

        try:
            async with asyncio.timeout(self.endpoint.timeout):
                response = await super().send(request, **options)
            self._reached = True
            if response.is_error:
                used = 0
            else:
                reply = read_reply(response.content, self.endpoint.address)
                used = reply.tokens or estimate
                response.extensions["reply"] = reply
        except Exception as error:
            translated = self._translated(error)
            if translated is error:
                raise
            raise translated from error
        finally:
            self._under_way.discard(task)
            self._owed += used - estimate

        if response.is_error and self.ended:  # it is not asked again
            raise asyncio.CancelledError

        return response

    def _translated(self, error: Exception) -> BaseException:
        """Return the exception that makes the openai client try again, or give up."""
        if self.ended:
            return asyncio.CancelledError()

        if isinstance(error, TimeoutError | ValueError):
            reason = str(error) or f"no answer within {self.endpoint.timeout:g} s"
            return httpx2.RemoteProtocolError(reason)

        no_connection = isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout)
        if no_connection and not self._reached:
            return LLMError(
                f"{self.endpoint.address} cannot be reached ({error!r}): "
                "is the server running, and is llm.base_url its address?"
            )

        return error

    async def _wait_for_turn(self, tokens: int) -> None:
        """Wait until the limits per minute allow a call of this estimated size."""
        async with self._line:
            if self._requests is not None:
                await self._requests.acquire()

            self._owed += tokens
            while self._tokens is not None and self._owed > 0:
                part = min(self._owed, self._tokens.max_rate)
                await self._tokens.acquire(part)
                self._owed -= part

    def _refused(self, error: openai.APIStatusError) -> Reply | Failure:
        """Return what an error status means for one request; raise LLMError if for all."""
        if error.code == "content_filter":
            return Reply(
                "",
                error.code,
                endpoint=self.endpoint.address,
            )

        body = error.body if isinstance(error.body, dict) else {}
        message = self._short(body.get("message") or body.get("detail") or error.response.text)
        reason = f"status {error.status_code}: {message}"
        status = _CODES.get(error.code or "", error.status_code)
        forbidden_here = status == 403 and self._answered  # other requests were answered
        if status in _ADVICE and not forbidden_here:
            advice = _ADVICE[status].format(variable=self.endpoint.key_variable)
            raise LLMError(f"{self.endpoint.address}, {self.endpoint.model}: {reason} {advice}")

        return Failure(reason, final=status < 500 and status not in _LATER)

    def _short(self, message: object) -> str:
        """Return a message as one short line, without the key, which some servers repeat."""
        return " ".join(str(message).replace(self._openai.api_key, "***").split())[:300]


def _json_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    named = {
        "name": "reply",
        "strict": True,
        "schema": schema,
    }
    return {"type": "json_schema", "json_schema": named}
