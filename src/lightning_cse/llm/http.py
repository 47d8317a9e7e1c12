"""Calls to one endpoint by the openai client, with limits per minute and per call."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Collection, Mapping
from functools import cached_property
from typing import Any

from lightning_cse.llm.endpoint import Endpoint
from lightning_cse.llm.probe import Abilities, probe, response_format
from lightning_cse.llm.requests import Account, Failure, LLMError, Reply, Request, read_reply

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

log = logging.getLogger(__name__)


class Calls(openai.DefaultAsyncHttpxClient):
    """Asks an endpoint through the openai client, and makes the calls of that client."""

    def __init__(
        self, endpoint: Endpoint, account: Account, abilities: Abilities | None = None
    ) -> None:
        super().__init__(trust_env=not endpoint.here)  # a proxy cannot reach this machine
        # They log every call, and at DEBUG what is sent.
        for name in ("openai", "httpx2", "httpcore2"):
            logging.getLogger(name).setLevel(logging.WARNING)

        self.endpoint = endpoint
        self.account = account
        self.abilities = abilities  # None: the first request has the endpoint probed
        # Held while a request is asked, by its key.
        self.asked: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self.ended = False
        requests = endpoint.requests_per_minute
        tokens = endpoint.tokens_per_minute
        self._requests = AsyncLimiter(1, 60 / requests) if requests else None
        self._tokens = AsyncLimiter(tokens / 60, 1) if tokens else None
        self._owed = 0.0  # tokens that were used and not waited for yet
        self._line = asyncio.Lock()  # first come, first served
        self._answered = False
        self._probing: asyncio.Future[Abilities] | None = None
        self._failed = 0  # requests without a reply, in a row

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
        await self.aclose()

    async def call(self, request: Request) -> Reply | Failure:
        """Return a reply or a failure; raise LLMError if no request can get a reply."""
        outcome: Reply | Failure

        try:
            abilities = self.abilities or await self._probed(request)
            outcome = await self._post(_body(request, self.endpoint.model, abilities))
        except openai.APIStatusError as error:
            if error.code == "content_filter":
                outcome = Reply("", error.code)
            else:
                final = error.status_code in _OF_THE_REQUEST
                outcome = Failure(self._short(error), final)
        except openai.APIConnectionError as error:
            outcome = Failure(self._short(error))

        if isinstance(outcome, Reply):
            self._answered = True
            self._failed = 0
            return outcome

        self._failed += 1
        if self._failed >= max(8, 2 * self.endpoint.concurrency):  # two rounds
            raise LLMError(
                f"the last {self._failed} requests to {self.endpoint.address} all failed, "
                f"the last one: {outcome.reason}. The same command continues"
            )

        return outcome

    async def _probed(self, request: Request) -> Abilities:
        """Return what the endpoint accepts; the first request has it probed."""
        if self._probing is None:
            self._probing = asyncio.ensure_future(self._probe(request))

        return await self._probing

    async def _probe(self, request: Request) -> Abilities:
        """Probe the endpoint; raise LLMError if it does not answer."""
        try:
            abilities = await probe(self._post, self.endpoint, request.schema)
        except (openai.APIStatusError, openai.APIConnectionError) as error:
            raise LLMError(
                f"{self.endpoint.address}, {self.endpoint.model}: {self._short(error)}. Check "
                "llm.model, llm.base_url (it usually ends in /v1), llm.parameters and the key in "
                f"{self.endpoint.key_variable}"
            ) from error

        self._answered = True
        self.abilities = abilities

        return abilities

    async def _post(self, body: Mapping[str, Any], retries: int | None = None) -> Reply:
        client = self._openai if retries is None else self._openai.with_options(max_retries=retries)
        response = await client.post("/chat/completions", cast_to=httpx2.Response, body=body)
        reply: Reply = response.extensions["reply"]

        return reply

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        """Make one call when the limits allow it; the reply is an extension of the response.

        The openai client calls this again after an error of httpx2 or a status that may pass.
        """
        await self._wait_for_turn()
        self.account.retried += request.headers.get("x-stainless-retry-count", "0") != "0"

        try:
            async with asyncio.timeout(self.endpoint.timeout):
                response = await super().send(request, **options)

            if response.is_success:
                reply = read_reply(response.content)
                self._owed += reply.tokens
                response.extensions["reply"] = reply
        except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
            if self._answered:
                raise

            raise LLMError(
                f"{self.endpoint.address} cannot be reached ({error!r}): "
                "is the server running, and is llm.base_url its address?"
            ) from error
        except (TimeoutError, ValueError) as error:
            reason = str(error) or f"no answer within {self.endpoint.timeout:g} s"
            raise httpx2.RemoteProtocolError(reason) from error

        return response

    async def _wait_for_turn(self) -> None:
        """Wait until the limits per minute allow a call; at the end, let no further call start."""
        async with self._line:
            if self.ended:
                raise asyncio.CancelledError

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


def _body(request: Request, model: str, abilities: Abilities) -> dict[str, Any]:
    """Return the body of a request in the form that the endpoint accepts."""
    messages = [{"role": role, "content": text} for role, text in request.messages]
    if not abilities.system_messages and messages[0]["role"] == "system":
        system, first, *others = messages
        first = {**first, "content": f"{system['content']}\n\n{first['content']}"}
        messages = [first, *others]

    body: dict[str, Any] = {"model": model, "messages": messages, **request.parameters}
    if request.schema is not None and abilities.structured_output:
        body["response_format"] = response_format(request.schema)

    return body
