"""Calls to one endpoint by the openai client, with limits per minute and per call."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Collection, Mapping
from functools import cached_property
from typing import Any, NamedTuple

from lightning_cse.llm.endpoint import Endpoint
from lightning_cse.llm.reading import read_reply
from lightning_cse.llm.requests import Account, Failure, LLMError, Reply, Request

try:
    import httpx2
    import openai
    from aiolimiter import AsyncLimiter
except ImportError as missing:
    raise LLMError(
        f"language models need further packages: pip install 'lightning_cse[llm]' ({missing})"
    ) from missing

_OF_THE_REQUEST = frozenset({400, 403, 413, 422})
"""Statuses of one request that another attempt does not change."""
_OF_THE_SETTINGS = frozenset({401, 404})
"""Statuses of a wrong key, address or model, which all requests have in common."""
_OF_ANY_FORM = _OF_THE_SETTINGS | {403, 429, 503}
"""Statuses that do not depend on the form of a request."""

PATIENCE = 8.0
"""Seconds after which a log line names an endpoint that has not answered yet."""

LARGEST = 2**20
"""Bytes of an answer that are read; a sentence has a hundred, long thinking some hundred thousand.
"""

log = logging.getLogger(__name__)


class Form(NamedTuple):
    """The form of requests: with a JSON schema of the reply, and with system messages or with these
    in front of the user's.
    """

    structured_output: bool
    system_messages: bool


class Calls(openai.DefaultAsyncHttpxClient):
    """Asks an endpoint through the openai client, and makes the calls of that client."""

    def __init__(self, endpoint: Endpoint, account: Account, form: Form | None = None) -> None:
        super().__init__(trust_env=not endpoint.here)  # a proxy cannot reach this machine
        # They log every call, and at DEBUG what is sent.
        for name in ("openai", "httpx2", "httpcore2"):
            logging.getLogger(name).setLevel(logging.WARNING)

        self.endpoint = endpoint
        self.account = account
        self.form = form  # None: the first reply decides it
        # Held while a request is asked, by its key.
        self.locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self.ended = False
        requests = endpoint.requests_per_minute
        tokens = endpoint.tokens_per_minute
        self._requests = AsyncLimiter(1, 60 / requests) if requests else None
        self._tokens = AsyncLimiter(tokens / 60, 1) if tokens else None
        self._owed = 0.0  # tokens that were used and not waited for yet
        self._line = asyncio.Lock()  # first come, first served
        self._warning: asyncio.TimerHandle | None = None
        self._failures = 0  # requests without a reply, in a row

    @cached_property
    def _openai(self) -> openai.AsyncOpenAI:
        return openai.AsyncOpenAI(
            api_key=self.endpoint.key(),
            base_url=self.endpoint.address,
            max_retries=self.endpoint.retries,
            timeout=httpx2.Timeout(None, connect=5),  # `send` limits the rest
            http_client=self,
        )

    async def close(self, tasks: Collection[asyncio.Task[Any]]) -> None:
        """Let no further call start, and wait for the tasks whose calls are under way."""
        self.ended = True

        if tasks:
            log.info("waiting for %d calls; Ctrl-C aborts them", len(tasks))

        await asyncio.gather(*tasks, return_exceptions=True)
        if self._warning is not None:
            self._warning.cancel()

        await self.aclose()

    async def call(self, request: Request) -> Reply | Failure:
        """Return a reply or a failure; raise LLMError if no request can get a reply."""
        try:
            reply = await self._post(request)
        except openai.APIStatusError as error:
            if error.code == "content_filter":
                reply = Reply("", error.code)
            else:
                return self._failure(error, error.status_code)
        except openai.APIConnectionError as error:
            return self._failure(error)

        self._failures = 0

        return reply

    def _failure(self, error: openai.APIError, status: int | None = None) -> Failure:
        """Return the failure of a request; raise LLMError if all others will fail, too."""
        reason = self._short(error)
        address = self.endpoint.address
        check = (
            "Check llm.model, llm.base_url (it usually ends in /v1), llm.parameters, "
            f"llm.structured_output and the key in {self.endpoint.key_variable}"
        )
        self._failures += 1
        if status in _OF_THE_SETTINGS and self.form is None:
            raise LLMError(f"{address}, {self.endpoint.model}: {reason}. {check}") from error

        if self._failures >= max(8, 2 * self.endpoint.concurrency):  # two rounds
            advice = check if self.form is None else "The same command continues"
            raise LLMError(
                f"the last {self._failures} requests to {address} all failed, the last one: "
                f"{reason}. {advice}"
            )

        return Failure(reason, status in _OF_THE_REQUEST)

    async def _post(self, request: Request) -> Reply:
        """Send a request in the first form that the endpoint accepts, which is then that of all."""
        best, *others = self._forms(request)
        for form in (best, *others):
            body = _body(request, self.endpoint.model, form)
            try:
                response = await self._openai.post(
                    "/chat/completions", cast_to=httpx2.Response, body=body
                )
                break
            except openai.APIStatusError as error:
                if form == [best, *others][-1] or error.status_code in _OF_ANY_FORM:
                    raise

        if self.form is None:
            self.form = form
            refused = [name for name in form._fields if getattr(form, name) < getattr(best, name)]
            if refused:
                log.info("%s refuses %s", self.endpoint.address, " and ".join(refused))

        reply: Reply = response.extensions["reply"]

        return reply

    def _forms(self, request: Request) -> list[Form]:
        """Return the forms of a request that the endpoint may accept, the best one first."""
        if self.form is not None:
            return [self.form]

        setting = self.endpoint.structured_output
        is_open = setting == "auto" and request.schema is not None
        schemas = [True, False] if is_open else [bool(setting)]
        systems = [True, False] if request.messages[0][0] == "system" else [True]

        return [Form(schema, system) for system in systems for schema in schemas]

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        """Make one call when the limits allow it; the reply is an extension of the response.

        The openai client calls this again after an error of httpx2 or a status that may pass.
        """
        await self._wait_for_turn()
        self.account.retried += request.headers.get("x-stainless-retry-count", "0") != "0"
        if self._warning is None:
            self._warning = asyncio.get_running_loop().call_later(
                PATIENCE,
                log.warning,
                "%s has not answered for %g s; a call may take %g s (llm.timeout)",
                self.endpoint.address,
                PATIENCE,
                self.endpoint.timeout,
            )

        try:
            async with asyncio.timeout(self.endpoint.timeout):
                streamed = await super().send(request, **options | {"stream": True})
                response = await _read(streamed)

            self._warning.cancel()
            if response.is_success:
                # Whoever sends more is stopped, and has said nothing.
                is_whole = len(response.content) < LARGEST
                reply = read_reply(response.content) if is_whole else Reply("", "length")
                self._owed += reply.tokens
                response.extensions["reply"] = reply
        except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
            if self.form is not None:
                raise

            raise LLMError(
                f"{self.endpoint.address} cannot be reached ({error!r}): "
                "is the server running, and is llm.base_url its address?"
            ) from error
        except (TimeoutError, ValueError) as error:
            reason = str(error) or f"no answer within {self.endpoint.timeout:g} s"
            raise httpx2.RemoteProtocolError(reason) from error

        return response

    async def pause(self, seconds: float) -> None:
        """Wait, unless no further call may start."""
        if self.ended:
            raise asyncio.CancelledError

        await asyncio.sleep(seconds)

    async def _wait_for_turn(self) -> None:
        """Wait until the limits per minute allow a call; at the end, let no further call start."""
        async with self._line:
            await self.pause(0)
            if self._requests is not None:
                await self._requests.acquire()

            while self._tokens is not None and self._owed > 0:
                part = min(self._owed, self._tokens.max_rate)
                await self._tokens.acquire(part)
                self._owed -= part

    def _short(self, error: openai.APIError) -> str:
        """Return an error as one short line, without the key, which some servers repeat."""
        reason = str(error.__cause__)
        if isinstance(error, openai.APIStatusError):
            reason = f"status {error.status_code}: {error.body}"

        return " ".join(reason.replace(self._openai.api_key, "***").split())[:300]


async def _read(streamed: httpx2.Response) -> httpx2.Response:
    """Return a response with its content, of which no more than `LARGEST` bytes are read."""
    content = bytearray()
    try:
        async for chunk in streamed.aiter_bytes():
            content += chunk
            if len(content) >= LARGEST:
                break
    finally:
        await streamed.aclose()

    headers = streamed.headers.copy()
    headers.pop("Content-Encoding", None)  # the content is decoded

    return httpx2.Response(
        streamed.status_code,
        headers=headers,
        content=bytes(content[:LARGEST]),
        request=streamed.request,
    )


def _body(request: Request, model: str, form: Form) -> dict[str, Any]:
    """Return the body of a request in a form."""
    messages = [{"role": role, "content": text} for role, text in request.messages]
    if not form.system_messages and messages[0]["role"] == "system":
        system, first, *others = messages
        first = {**first, "content": f"{system['content']}\n\n{first['content']}"}
        messages = [first, *others]

    body: dict[str, Any] = {"model": model, "messages": messages, **request.parameters}
    if request.schema is not None and form.structured_output:
        body["response_format"] = response_format(request.schema)

    return body


def response_format(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameter that asks for a reply of a JSON schema."""
    return {
        "type": "json_schema",
        "json_schema": {"name": "reply", "strict": True, "schema": schema},
    }
