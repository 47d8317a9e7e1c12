"""A local server that speaks the chat-completions protocol, and fails on demand in every way real ones do."""

from __future__ import annotations

import json
import random
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

FAULTS = (
    "silent",  # takes the request and never answers
    "stall",  # begins its answer and stops in the middle of the body
    "trickle",  # sends one byte at a time, for ever
    "limit",  # 429 with `Retry-After: <server.retry_after>`
    "quota",  # 429 that no waiting mends
    "error",  # 500
    "unavailable",  # 503 with an HTML page
    "break",  # closes the connection without an answer
    "break_body",  # closes it in the middle of the body
    "garbage",  # status 200, malformed JSON
    "html",  # status 200, an HTML page
    "array",  # status 200, JSON of another shape
    "empty",  # status 200, `choices` is empty
    "numbers",  # status 200, the content is no text
    "finish_error",  # status 200, half a reply, and `finish_reason` is "error"
)
"""Faults of the way: no reply comes of them."""

TRANSIENT = (
    "stall",
    "limit",
    "error",
    "unavailable",
    "break",
    "break_body",
    "garbage",
    "html",
    "empty",
    "finish_error",
)
"""Those that a client mends by asking again."""

REFUSALS = ("unauthorized", "forbidden", "payment", "too_long", "bad_request", "no_model", "no_path")
"""Statuses that asking again does not mend: 401, 403, 402, 400, 400, 404, 404."""

ODD = ("refusal", "filter", "filter_400", "length", "null", "no_usage", "huge_usage", "surrogate")
"""Replies that are replies: a refusal, nothing but `content_filter`, the same as Azure's status 400, cut off, null
content, no usage, more tokens than there are, half an emoji."""

Plan = Callable[[dict[str, Any], int], "str | None"]
Answer = Callable[[dict[str, Any]], str]


def prompt(body: dict[str, Any]) -> str:
    """Return the last message's text."""
    return str(body["messages"][-1]["content"])


def first(*kinds: str | None) -> Plan:
    """Return a plan: the n-th call of each prompt meets the n-th of ``kinds``, and later ones meet nothing."""
    return lambda _, nth: kinds[nth] if nth < len(kinds) else None


def always(kind: str) -> Plan:
    """Return a plan in which every call meets the same fault."""
    return lambda _, nth: kind


def share(part: float, kinds: Sequence[str] = TRANSIENT, *, times: int = 2, seed: int = 0) -> Plan:
    """Return a plan: a part of all calls fails, in mixed ways, decided by the prompt and by how often it came.

    A prompt's first ``times`` calls may fail; after that it is answered, so that a client with as many retries
    gets through.
    """

    def plan(body: dict[str, Any], nth: int) -> str | None:
        draw = random.Random(f"{seed} {nth} {prompt(body)}")
        return draw.choice(list(kinds)) if nth < times and draw.random() < part else None

    return plan


@dataclass(frozen=True)
class Call:
    """What the server got and when, what it met it with (None: an answer), and what stood in its ``Authorization``."""

    body: dict[str, Any]
    fault: str | None
    authorization: str | None
    at: float  # time.monotonic()


class ChatServer(ThreadingHTTPServer):
    """Answers ``/v1/chat/completions`` and ``/v1/models`` on a free port of this machine; a context manager.

    Args:
        answer: from the request's body to the reply's text; the last message, backwards, if not given.
        plan: from the body, and how often its prompt came before, to a fault's name or None; may change meanwhile.
        models: the names it knows; another model is a 404. None: any name will do.
        key: the key it wants; another one is a 401. None: any will do.
        seconds: how long an answer takes.
        retry_after: what ``limit`` sends; ``0`` and dates that are over, too.
        served: the model's name in its answers; None: the one that was asked for.
        padding: how many letters stand before the message of ``unauthorized``, which repeats the key.
        port: 0 for a free one.

    Attributes:
        calls: every call in the order of coming.
        answered: how often each prompt was answered in full.
        peak: the most calls that it worked on at once; one that stalls is no longer worked on.
    """

    daemon_threads = True
    request_queue_size = 256
    block_on_close = False  # stalled calls are let go by `stopped`

    def __init__(
        self,
        answer: Answer | None = None,
        plan: Plan | None = None,
        *,
        models: Sequence[str] | None = None,
        key: str | None = None,
        seconds: float = 0.0,
        retry_after: str = "0.05",
        served: str | None = None,
        padding: int = 0,
        port: int = 0,
    ) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.answer = answer or (lambda body: prompt(body)[::-1])
        self.plan = plan
        self.models = models
        self.key = key
        self.seconds = seconds
        self.retry_after = retry_after
        self.served = served
        self.padding = padding
        self.calls: list[Call] = []
        self.answered: Counter[str] = Counter()
        self.peak = 0
        self.lock = threading.Lock()
        self.stopped = threading.Event()
        self._seen: Counter[str] = Counter()
        self._inside = 0
        self._connections: set[socket.socket] = set()

    @property
    def url(self) -> str:
        """What ``llm.base_url`` is to be."""
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    def __enter__(self) -> ChatServer:
        threading.Thread(target=self.serve_forever, args=(0.01,), name="chat server", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Stop as a killed server does: every connection breaks off, and new ones are refused."""
        self.stopped.set()
        self.shutdown()
        self.server_close()
        with self.lock:
            open_ones = list(self._connections)
        for connection in open_ones:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue

    def begin(self, body: dict[str, Any], authorization: str | None) -> str | None:
        """Note a call, and return what it shall meet."""
        text = json.dumps(body["messages"])
        with self.lock:
            nth = self._seen[text]
            self._seen[text] += 1
            self._inside += 1
            self.peak = max(self.peak, self._inside)
            fault = self.plan(body, nth) if self.plan is not None else None
            if self.key is not None and authorization != f"Bearer {self.key}":
                fault = "unauthorized"
            elif self.models is not None and body["model"] not in self.models:
                fault = "no_model"
            self.calls.append(Call(body, fault, authorization, time.monotonic()))
        return fault

    def end(self, body: dict[str, Any], answered: bool) -> None:
        """Note that a call is over, before its client can know."""
        with self.lock:
            self._inside -= 1
            self.answered[prompt(body)] += answered

    def process_request(self, request: Any, client_address: Any) -> None:
        with self.lock:
            self._connections.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self.lock:
            self._connections.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: clients that leave are what is tested."""


class _Handler(BaseHTTPRequestHandler):
    server: ChatServer
    protocol_version = "HTTP/1.1"  # connections are kept, as those of real servers are
    wbufsize = 1 << 16
    disable_nagle_algorithm = True

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        models = self.server.models
        if not self.path.endswith("/v1/models") or models is None:
            self._send(404, {"detail": "Not Found"})
        else:
            self._send(200, {"object": "list", "data": [{"id": name, "object": "model"} for name in models]})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if not self.path.endswith("/v1/chat/completions"):
            self._send(404, {"detail": "Not Found"})
            return
        fault = self.server.begin(body, self.headers["Authorization"])
        if self.server.seconds:
            self.server.stopped.wait(self.server.seconds)
        failed = fault in FAULTS or fault in REFUSALS
        reply = self._reply(body, fault)
        self.server.end(body, answered=not failed)
        if fault in FAULTS:
            self._fail(fault)
        elif fault in REFUSALS or fault == "filter_400":
            self._refuse(fault)
        else:
            self._send(200, reply)

    def _reply(self, body: dict[str, Any], odd: str | None) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": self.server.answer(body), "refusal": None}
        finish = "stop"
        if odd == "refusal":
            message |= {"content": None, "refusal": "I cannot help with that."}
        elif odd == "filter":
            message["content"], finish = None, "content_filter"
        elif odd == "length":
            message["content"], finish = message["content"][:3], "length"
        elif odd == "null":
            message["content"] = None
        elif odd == "surrogate":
            message["content"] = "cut \ud83d"
        counts = {
            "prompt_tokens": sum(len(each["content"].split()) for each in body["messages"]),
            "completion_tokens": len((message["content"] or "").split()),
        }
        if odd == "huge_usage":
            counts = dict.fromkeys(counts, 2**63)
        return {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": int(time.time()),
            "model": self.server.served or body["model"],
            "choices": [{"index": 0, "message": message, "finish_reason": finish, "logprobs": None}],
            "usage": None if odd == "no_usage" else counts | {"total_tokens": sum(counts.values())},
        }

    def _refuse(self, kind: str) -> None:
        held = self.headers["Authorization"]
        status, code, text = {
            "unauthorized": (
                401,
                "invalid_api_key",
                "x" * self.server.padding + f"Incorrect API key provided: {held}.",
            ),
            "forbidden": (403, "forbidden", "Your country is not supported."),
            "payment": (402, "insufficient_balance", "Insufficient Balance"),
            "filter_400": (400, "content_filter", "The response was filtered."),
            "too_long": (400, "context_length_exceeded", "This model's maximum context length is 8 tokens."),
            "bad_request": (400, "unsupported_parameter", "Unsupported parameter: 'max_tokens'."),
            "no_model": (404, "model_not_found", "The model does not exist."),
            "no_path": (404, None, "Not Found"),
        }[kind]
        self._send(status, {"error": {"message": text, "type": "invalid_request_error", "param": None, "code": code}})

    def _fail(self, kind: str) -> None:
        whole = json.dumps(self._reply({"model": "m", "messages": [{"content": "half"}]}, None)).encode()
        if kind == "limit":
            error = {"message": "Rate limit reached", "type": "requests", "code": "rate_limit_exceeded"}
            self._send(429, {"error": error}, retry_after=self.server.retry_after)
        elif kind == "quota":
            error = {"message": "You exceeded your current quota", "type": "x", "code": "insufficient_quota"}
            self._send(429, {"error": error}, retry_after="1")
        elif kind == "error":
            self._send(500, {"error": {"message": "The server had an error", "type": "server_error", "code": None}})
        elif kind == "unavailable":
            self._send(503, b"<html><body>503 Service Unavailable</body></html>", "text/html")
        elif kind == "html":
            self._send(200, b"<html><body>Please log in</body></html>", "text/html")
        elif kind == "finish_error":
            body = json.loads(whole)
            body["choices"][0] |= {"finish_reason": "error", "error": {"code": 502, "message": "Provider is down"}}
            self._send(200, body)
        elif kind in {"garbage", "array", "empty", "numbers"}:
            self._send(200, {
                "garbage": whole[: len(whole) // 2] + b"}",
                "array": b"[1, 2]",
                "empty": b'{"object": "chat.completion", "choices": [], "usage": null}',
                "numbers": b'{"choices": [{"message": {"role": "assistant", "content": 7}, "finish_reason": "stop"}]}',
            }[kind])  # fmt: skip
        else:
            self._leave(kind, whole)

    def _leave(self, kind: str, whole: bytes) -> None:
        """Do not come to an end."""
        self.close_connection = True
        if kind in {"stall", "break_body", "trickle"}:
            self._head(200, len(whole) if kind != "trickle" else 1 << 20, "application/json")
            self.wfile.write(whole[: len(whole) // 2])
            self.wfile.flush()
        if kind in {"silent", "stall"}:
            self._until_left(60.0)
        while kind == "trickle" and not self.server.stopped.wait(0.02):
            self.wfile.write(b" ")
            self.wfile.flush()
        if kind in {"break", "break_body"}:
            self.connection.shutdown(socket.SHUT_RDWR)

    def _until_left(self, seconds: float) -> None:
        """Wait until the client goes away or the server stops."""
        self.connection.settimeout(seconds)
        try:
            self.connection.recv(1)
        except OSError:
            return

    def _head(self, status: int, length: int, kind: str, retry_after: str | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(length))
        if retry_after is not None:
            self.send_header("Retry-After", retry_after)
        self.end_headers()

    def _send(
        self, status: int, content: object, kind: str = "application/json", retry_after: str | None = None
    ) -> None:
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        self._head(status, len(body), kind, retry_after)
        self.wfile.write(body)
        self.wfile.flush()
