"""Calls to one endpoint by the openai client, with limits per minute and per call."""

import logging
import threading
import time
from collections.abc import Mapping
from functools import cached_property
from typing import Any, NamedTuple

from lightning_cse.llm.endpoint import Endpoint
from lightning_cse.llm.reading import read_reply
from lightning_cse.llm.requests import Failure, LLMError, Reply, Request

try:
    import httpx2
    import openai
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

LARGEST = 2**20
"""Bytes of an answer that are read; a sentence has a hundred, long thinking some hundred thousand.
"""

log = logging.getLogger(__name__)


class Stopped(Exception):  # noqa: N818 - no error
    """No further call may start."""


class Form(NamedTuple):
    """The form of requests: with a JSON schema of the reply, and with system messages or with these
    in front of the user's.
    """

    structured_output: bool
    system_messages: bool


class Calls(openai.DefaultHttpxClient):
    """Asks an endpoint through the openai client, and makes the calls of that client.

    openai repeats a call after an error of httpx2 or a status that may pass. So an answer that is
    no chat completion is made an error of httpx2 here.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        super().__init__(trust_env=not endpoint.here)  # a proxy cannot reach this machine
        # They log every call, and at DEBUG what is sent.
        for name in ("openai", "httpx2", "httpcore2"):
            logging.getLogger(name).setLevel(logging.WARNING)

        self.endpoint = endpoint
        self.form: Form | None = None  # None: the first reply decides it
        self.stopping = threading.Event()
        self.retried = 0  # calls beyond the first of a request
        self._failures = 0  # requests without a reply, in a row
        self._next_call = 0.0  # when the limits per minute allow one
        self._lock = threading.Lock()

    @cached_property
    def _openai(self) -> openai.OpenAI:
        return openai.OpenAI(
            api_key=self.endpoint.key(),
            base_url=self.endpoint.address,
            max_retries=self.endpoint.retries,
            timeout=httpx2.Timeout(self.endpoint.timeout, connect=5),
            http_client=self,
        )

    def call(self, request: Request) -> Reply | Failure:
        """Return a reply or a failure; raise LLMError if no request can get a reply."""
        try:
            reply = self._post(request)
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
        endpoint = self.endpoint
        reason = f"status {status}: {error.body}" if status else str(error.__cause__)
        # Some servers repeat the key.
        reason = " ".join(reason.replace(self._openai.api_key, "***").split())[:300]
        check = (
            "Check llm.model, llm.base_url (it usually ends in /v1), llm.parameters, "
            f"llm.structured_output and the key in {endpoint.key_variable}"
        )
        self._failures += 1
        if status in _OF_THE_SETTINGS and self.form is None:
            raise LLMError(f"{endpoint.address}, {endpoint.model}: {reason}. {check}") from error

        if self._failures >= max(8, 2 * endpoint.concurrency):  # two rounds
            advice = check if self.form is None else "The same command continues"
            raise LLMError(
                f"the last {self._failures} requests to {endpoint.address} all failed, the last "
                f"one: {reason}. {advice}"
            )

        return Failure(reason, status in _OF_THE_REQUEST)

    def _post(self, request: Request) -> Reply:
        """Send a request in the first form that the endpoint accepts, which is then that of all."""
        forms = [self.form] if self.form else self._forms(request)
        for form in forms:
            body = _body(request, self.endpoint.model, form)
            try:
                response = self._openai.post(
                    "/chat/completions", cast_to=httpx2.Response, body=body
                )
                break
            except openai.APIStatusError as error:
                if form == forms[-1] or error.status_code in _OF_ANY_FORM:
                    raise

        if self.form is None:
            self.form = form
            refused = [
                name for name in form._fields if getattr(form, name) < getattr(forms[0], name)
            ]
            if refused:
                log.info("%s refuses %s", self.endpoint.address, " and ".join(refused))

        reply: Reply = response.extensions["reply"]

        return reply

    def _forms(self, request: Request) -> list[Form]:
        """Return the forms of a request that the endpoint may accept, the best one first."""
        setting = self.endpoint.structured_output
        is_open = setting == "auto" and request.schema is not None
        schemas = [True, False] if is_open else [bool(setting)]
        systems = [True, False] if request.messages[0][0] == "system" else [True]

        return [Form(schema, system) for system in systems for schema in schemas]

    def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        """Make one call when the limits allow it; the reply is an extension of the response."""
        self._wait_for_turn(is_retry=request.headers.get("x-stainless-retry-count", "0") != "0")
        try:
            streamed = super().send(request, **options | {"stream": True})
            response = _read(streamed, time.monotonic() + self.endpoint.timeout)
            if response.is_success:
                # Whoever sends more is stopped, and has said nothing.
                is_whole = len(response.content) < LARGEST
                reply = read_reply(response.content) if is_whole else Reply("", "length")
                response.extensions["reply"] = reply
                self._use_tokens(reply.tokens)
        except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
            if self.form is not None:
                raise

            raise LLMError(
                f"{self.endpoint.address} cannot be reached ({error!r}): "
                "is the server running, and is llm.base_url its address?"
            ) from error
        except httpx2.TimeoutException as error:
            reason = f"no answer within {self.endpoint.timeout:g} s"
            raise httpx2.RemoteProtocolError(reason) from error
        except ValueError as error:
            raise httpx2.RemoteProtocolError(str(error)) from error

        return response

    def pause(self, seconds: float) -> None:
        """Wait; raise `Stopped` if no further call may start."""
        if self.stopping.wait(seconds):
            raise Stopped

    def _wait_for_turn(self, *, is_retry: bool) -> None:
        """Wait until the limits per minute allow a call."""
        requests = self.endpoint.requests_per_minute
        with self._lock:
            present = time.monotonic()
            start = max(present, self._next_call)
            self._next_call = start + (60 / requests if requests else 0)
            self.retried += is_retry

        self.pause(start - present)

    def _use_tokens(self, count: int) -> None:
        """Let the next call wait for as long as the limit takes to allow these tokens."""
        if limit := self.endpoint.tokens_per_minute:
            with self._lock:
                self._next_call += count * 60 / limit


def _read(streamed: httpx2.Response, deadline: float) -> httpx2.Response:
    """Return a response with its content, of which no more than `LARGEST` bytes are read."""
    content = bytearray()
    try:
        for chunk in streamed.iter_bytes():
            content += chunk
            if len(content) >= LARGEST:
                break
            if time.monotonic() > deadline:
                raise httpx2.ReadTimeout("the answer takes too long")
    finally:
        streamed.close()

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
        system = messages.pop(0)
        messages[0]["content"] = f"{system['content']}\n\n{messages[0]['content']}"

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
