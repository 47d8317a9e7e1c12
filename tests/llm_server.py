"""A local server with the chat-completions protocol that fails on demand, as real ones do."""

import json
import random
import socket
import threading
import time
from collections import Counter
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from weakref import WeakSet

KEY = "sk-hush-0123456789abcdef"
"""A key that must not appear anywhere."""

TRANSIENT = (
    "stall",
    "limit",
    "error",
    "unavailable",
    "break",
    "break_body",
    "garbage",
    "deep",
    "html",
    "empty",
    "finish_error",
)
"""Faults that a retry overcomes: half a body without an end, 429, 500, 503 with an HTML page, a
connection closed before or in the body; and, with status 200, malformed JSON, deep JSON, HTML, no
choice, and half a reply.
"""

FAULTS = (*TRANSIENT, "silent", "trickle")
"""Faults without a reply; the added ones: silence, one byte at a time."""

ODD = ("refusal", "filter", "length", "null", "no_usage", "odd_usage", "surrogate")
"""Unusual but valid replies: a refusal, only `content_filter`, cut off, null content, no usage,
counts of tokens that are none, half an emoji.
"""

ODD_USAGE = {"prompt_tokens": "12", "completion_tokens": [3], "total_tokens": 10**20}

STATUSES = {  # with code and message
    "limit": (429, "rate_limit_exceeded", "Rate limit reached"),
    "error": (500, None, "The server had an error"),
    "unauthorized": (401, "invalid_api_key", "Incorrect API key provided: {held}."),
    "forbidden": (403, "forbidden", "Your country is not supported."),
    "filter_400": (400, "content_filter", "The response was filtered."),
    "too_long": (400, "x", "This model's maximum context length is 8 tokens."),
    "refused": (None, None, "This is not supported."),
    "no_path": (404, None, "Not Found"),
}
BODIES = {  # of answers with status 200
    "html": b"<html><body>Please log in</body></html>",
    "garbage": b'{"choices": [{"message"}',
    "empty": b'{"object": "chat.completion", "choices": [], "usage": null}',
    "huge": b'{"choices": [{"finish_reason": "stop", "message": {"content": "'
    + b"word " * 9_600_000
    + b'"}}]}',
    "deep": b'{"choices": ' + b"[" * 200_000,
    "finish_error": b'{"choices": [{"message": {}, "finish_reason": "error", "error": "Provider is down"}]}',
}


def prompt(body):
    """Return the text of the last message."""
    return str(body["messages"][-1]["content"])


def first(*faults):
    """Return a plan: the n-th call of each prompt meets the n-th of ``kinds``, and later calls
    succeed.
    """
    return lambda _, nth: faults[nth] if nth < len(faults) else None


def always(fault):
    """Return a plan in which every call meets the same fault."""
    return lambda *_: fault


def share(part, faults=TRANSIENT, *, times=2):
    """Return a plan: a part of all calls fails, at most ``times`` per prompt; prompt and count
    decide which.
    """

    def plan(body, nth):
        draw = random.Random(f"0 {nth} {prompt(body)}")
        return draw.choice(list(faults)) if nth < times and draw.random() < part else None

    return plan


class Call(NamedTuple):
    """A call that the server received, and the fault that the call met (None: an answer)."""

    body: dict[str, Any]
    fault: str | None
    authorization: str | None
    at: float  # time.monotonic()


class ChatServer(ThreadingHTTPServer):
    """A context manager that answers ``/v1/chat/completions`` on a free port of this machine.

    Args:
        answer: maps the body of a request to the text of the reply; by default, the last message
        reversed. plan: maps the body, and the number of earlier calls with its prompt, to a fault
        or None; it may be replaced. key: the required key; any other key gives status 401.
    """

    daemon_threads = True
    request_queue_size = 256
    block_on_close = False  # `stopped` releases stalled calls

    def __init__(
        self,
        answer=None,
        plan=None,
        *,
        key="",
        seconds=0.0,  # per answer
        refuses=(),  # some of response_format and system
        refusal=400,  # the status that it refuses them with
    ):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answer = answer or (lambda body: prompt(body)[::-1])
        self.plan = plan
        self.key = key
        self.seconds = seconds
        self.refuses = refuses
        self.refusal = refusal
        self.calls = []
        self.answered = Counter()  # how often each prompt was answered in full
        self.peak = 0  # the most simultaneous calls, without stalled ones
        self.lock = threading.Lock()
        self.stopped = threading.Event()
        self._seen = Counter()
        self._inside = 0
        self._connections = WeakSet()

    @property
    def url(self):
        """The value for ``llm.base_url``."""
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    def __enter__(self):
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_):
        self.stop()

    def stop(self):
        """Stop like a killed server, with all connections."""
        self.stopped.set()
        self.shutdown()
        self.server_close()
        for connection in list(self._connections):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def begin(self, body, authorization):
        """Record a call, and return the fault that it meets."""
        text = json.dumps(body["messages"])
        used = {*body, *(message["role"] for message in body["messages"])}
        with self.lock:
            self._inside += 1
            self.peak = max(self.peak, self._inside)
            fault = None if self.plan is None else self.plan(body, self._seen[text])
            self._seen[text] += 1
            if self.key and authorization != f"Bearer {self.key}":
                fault = "unauthorized"
            elif used & set(self.refuses):
                fault = "refused"

            self.calls.append(Call(body, fault, authorization, time.monotonic()))

        return fault

    def end(self, body, answered):
        """Record the end of a call, before its client can notice it."""
        with self.lock:
            self._inside -= 1
            self.answered[prompt(body)] += answered

    def process_request(self, request, client_address):
        self._connections.add(request)
        super().process_request(request, client_address)

    def handle_error(self, request, client_address):
        """Ignore clients that disconnect, which is what tests provoke."""


class _Handler(BaseHTTPRequestHandler):
    server: ChatServer
    protocol_version = "HTTP/1.1"  # connections stay open, as with real servers
    disable_nagle_algorithm = True

    def log_message(self, format, *args):
        pass

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        fault = self.server.begin(body, self.headers["Authorization"])
        fault = fault if self.path.endswith("/v1/chat/completions") else "no_path"
        time.sleep(self.server.seconds)
        reply = json.dumps(self._reply(body, fault)).encode()
        self.server.end(body, answered=fault is None or fault in ODD or fault == "filter_400")
        if fault in STATUSES:
            status, code, text = STATUSES[fault]
            status = status or self.server.refusal
            text = text.format(held=self.headers["Authorization"])
            error = {"message": text, "type": "x", "code": code}
            self._send(status, json.dumps({"error": error}).encode())
        elif fault == "unavailable":
            self._send(503, b"<html><body>503 Service Unavailable</body></html>")
        elif fault in FAULTS and fault not in BODIES:
            self._leave(fault, reply)
        else:
            self._send(200, BODIES.get(fault or "", reply))

    def _reply(self, body, odd):
        text = self.server.answer(body)
        texts = {"refusal": "", "filter": "", "null": "", "length": text[:3]}
        text = {**texts, "surrogate": "cut \ud83d"}.get(odd, text)
        finish = {"filter": "content_filter", "length": "length"}.get(odd, "stop")
        message = {
            "role": "assistant",
            "content": text or None,
            "refusal": "I cannot." if odd == "refusal" else None,
        }
        usage = {
            "prompt_tokens": sum(len(message_["content"].split()) for message_ in body["messages"]),
            "completion_tokens": len(text.split()),
        }

        return {
            "model": body["model"],
            "choices": [{"message": message, "finish_reason": finish}],
            "usage": {"no_usage": None, "odd_usage": ODD_USAGE}.get(odd, usage),
        }

    def _leave(self, fault, reply):
        """Leave a call without a complete answer."""
        self.close_connection = True
        if fault not in {"silent", "break"}:
            self._head(200, len(reply))
            self.wfile.write(reply[: len(reply) // 2])

        if fault in {"silent", "stall"}:
            self.connection.settimeout(60.0)  # or until the client leaves
            self.connection.recv(1)
        elif fault == "trickle":
            while not self.server.stopped.wait(0.02):
                self.wfile.write(b" ")
        else:
            self.connection.shutdown(socket.SHUT_RDWR)

    def _head(self, status, length):
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(length))
        if status == 429 or status >= 500:
            self.send_header("Retry-After", "0.05")

        self.end_headers()

    def _send(self, status, content):
        self._head(status, len(content))
        self.wfile.write(content)
