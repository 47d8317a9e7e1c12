"""Requests to a server that answers, stalls, limits and breaks off; and how a series of requests
ends.
"""

import logging
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from llm_server import FAULTS, KEY, TRANSIENT, ChatServer, always, first, prompt, share

from lightning_cse.llm import Failure, LLMError, Reply, Request

ENDLESS = {"silent", "stall", "trickle"}
EIGHT = r"the last 8 requests to \S+/v1 all failed, the last one:"
SCHEMA = {"type": "object", "properties": {"sentence": {"type": "string"}}}


def questions(count, start=0):
    return [
        Request((("user", f"question {k}"),), {"temperature": 0})
        for k in range(start, start + count)
    ]


def ask(llm, requests):
    """Return the outcomes in the order of the requests, each of which has exactly one."""

    def numbered(item):
        return item[0], llm.reply(item[1])

    got = sorted(llm.each(numbered, enumerate(requests)), key=lambda pair: pair[0])
    assert [number for number, _ in got] == list(range(len(requests)))

    return [outcome for _, outcome in got]


def texts(outcomes):
    return [getattr(outcome, "text", outcome) for outcome in outcomes]


def answers(count):
    return [f"question {k}"[::-1] for k in range(count)]


# What is sent, and what comes back


def test_a_request_and_its_reply(serve, model):
    server = serve()
    parameters = {"temperature": 0.5, "min_p": 0.1, "stop": "\n"}
    messages = (("system", "Reverse."), ("user", "one two"))
    request = Request(messages, parameters, schema=SCHEMA)
    llm = model(server, model="some/model")
    assert ask(llm, [request]) == [Reply("owt eno", "stop", "some/model", 3, 2)]
    (call,) = server.calls
    form = call.body.pop("response_format")
    assert (form["type"], form["json_schema"]["schema"]) == ("json_schema", SCHEMA)
    sent = [{"role": role, "content": text} for role, text in messages]
    assert call.body == {"model": "some/model", "messages": sent, **parameters}
    assert call.authorization == f"Bearer {KEY}"


@pytest.mark.parametrize("status", [400, 500])
@pytest.mark.parametrize(
    "refuses", [["response_format"], ["system"], ["response_format", "system"]]
)
def test_an_endpoint_is_asked_without_what_it_refuses(serve, model, caplog, refuses, status):
    server = serve(refuses=refuses, refusal=status)
    llm = model(server, retries=0)
    messages = (("system", "Reverse."), ("user", "one two"))
    with caplog.at_level("INFO"):
        replies = ask(llm, [Request(messages, schema=SCHEMA)])
        replies += ask(llm, [Request(messages, sample=1, schema=SCHEMA)])

    is_merged = "system" in refuses
    assert texts(replies) == [("Reverse.\n\none two" if is_merged else "one two")[::-1]] * 2
    *refused, first_accepted, second_accepted = server.calls
    assert len(refused) == {"response_format": 1, "system": 2}[refuses[0]] + len(refuses) // 2 * 2
    assert {call.fault for call in refused} == {"refused"}
    assert first_accepted.body == second_accepted.body
    assert ("response_format" in first_accepted.body) == ("response_format" not in refuses)
    (line,) = caplog.messages
    assert ("structured_output" in line, "system_messages" in line) == (
        "response_format" in refuses,
        is_merged,
    )


@pytest.mark.parametrize(
    ("setting", "structured"), [("auto", [True, False]), (True, [True]), (False, [False])]
)
def test_structured_output_is_never_given_up_or_never_sent(serve, model, setting, structured):
    server = serve(refuses=["response_format"])
    (outcome,) = ask(
        model(server, structured_output=setting), [replace(questions(1)[0], schema=SCHEMA)]
    )
    assert ["response_format" in call.body for call in server.calls] == structured
    reason = "status 400: {'message': 'This is not supported.', 'type': 'x', 'code': None}"
    assert outcome == (Failure(reason, True) if structured == [True] else outcome)
    assert isinstance(outcome, Failure) == (structured == [True])


def test_a_busy_endpoint_refuses_no_feature(serve, model):
    server = serve(plan=lambda *_: "unavailable" if len(server.calls) < 2 else None)
    llm = model(server)
    requests = [replace(request, schema=SCHEMA) for request in questions(2)]
    assert texts(ask(llm, requests)) == answers(2)
    assert llm.calls.form.structured_output


def test_a_silent_endpoint_is_named(serve, model, caplog, monkeypatch):
    monkeypatch.setattr("lightning_cse.llm.client.PATIENCE", 0.1)
    server = serve(plan=always("silent"))
    (failure,) = ask(model(server, timeout=0.5, retries=0), questions(1))
    assert failure == Failure("no answer within 0.5 s")
    assert caplog.messages == [
        f"{server.url} has not answered for 0.1 s; a call may take 0.5 s (llm.timeout)"
    ]


def test_equal_requests_share_a_call_and_other_samples_do_not(serve, model):
    server = serve(seconds=0.02)
    llm = model(server)
    got = ask(llm, [*questions(1), *questions(2), replace(questions(1)[0], sample=1)])
    assert texts(got) == [*answers(1), *answers(2), *answers(1)]
    assert server.answered == {"question 0": 2, "question 1": 1}
    assert sum(outcome.cached for outcome in got) == 1
    assert (llm.account.requests, llm.account.cached) == (4, 1)


def test_models_with_one_cache_pay_for_a_reply_once(serve, model):
    server = serve(seconds=0.05)
    models = [model(server, concurrency=concurrency) for concurrency in (3, 5)]
    with ThreadPoolExecutor() as pool:
        outcomes = list(pool.map(lambda llm: texts(ask(llm, questions(30))), models))

    assert outcomes == [answers(30)] * 2
    assert len(server.calls) == 30
    assert sum(llm.account.cached for llm in models) == 30


def test_a_failed_request_is_asked_by_the_other_model(serve, model):
    server = serve(plan=first("too_long"), seconds=0.2)
    models = [model(server) for _ in range(2)]
    with ThreadPoolExecutor() as pool:
        outcomes = list(pool.map(lambda llm: ask(llm, questions(1)), models))

    assert sorted(type(outcome).__name__ for (outcome,) in outcomes) == ["Failure", "Reply"]
    assert len(server.calls) == 2


@pytest.mark.parametrize(
    ("odd", "reply"),
    [
        ("filter_400", Reply("", "content_filter", None)),
        ("refusal", Reply("I cannot.", "refusal", "m", 2, 0)),
        ("filter", Reply("", "content_filter", "m", 2, 0)),
        ("length", Reply("0 n", "length", "m", 2, 2)),
        ("null", Reply("", "stop", "m", 2, 0)),
        ("no_usage", Reply("0 noitseuq", "stop", "m")),
        ("odd_usage", Reply("0 noitseuq", "stop", "m", 12)),
        ("huge", Reply("", "length")),
        ("surrogate", Reply("cut ?", "stop", "m", 2, 2)),
    ],
)
def test_unusual_replies_are_kept(serve, model, odd, reply):
    server = serve(plan=lambda *_: odd)
    assert ask(model(server), questions(1)) == [reply]
    assert ask(model(server), questions(1)) == [replace(reply, cached=True)]
    assert len(server.calls) == 1
    assert reply.refused == (odd in {"refusal", "filter", "filter_400"})


# Faults


def test_many_requests_to_an_unreliable_server(serve, model, caplog):
    fault_names = tuple(fault for fault in TRANSIENT if fault not in ENDLESS)
    server = serve(plan=share(0.2, fault_names, times=4), seconds=0.002)
    llm = model(server, concurrency=16)
    with caplog.at_level("INFO"):
        assert texts(ask(llm, questions(200))) == answers(200)

    faults = [call.fault for call in server.calls if call.fault is not None]
    assert set(faults) == set(fault_names)
    assert len(server.answered) == server.answered.total() == 200
    assert server.peak <= 16
    assert (llm.account.requests, llm.account.failed, llm.calls.retried) == (200, 0, len(faults))
    assert caplog.messages == [], "calls are not logged one by one"


@pytest.mark.parametrize("fault", FAULTS)
def test_a_retry_overcomes_every_fault(serve, model, fault):
    server = serve(plan=first(fault))
    llm = model(server, timeout=0.5 if fault in ENDLESS else 60.0)
    assert texts(ask(llm, questions(1))) == answers(1)
    assert [call.fault for call in server.calls] == [fault, None]


@pytest.mark.parametrize(
    ("fault", "reason", "final"),
    [
        ("trickle", "no answer within 0.5 s", False),
        ("unavailable", "status 503: <html><body>503 Service", False),
        ("break_body", "peer closed connection", False),
        ("html", "the answer is not a chat completion; it begins b'<html>", False),
        ("deep", "the answer is not a chat completion; it begins b'{", False),
        ("finish_error", "the reply was cut off by an error: Provider is down", False),
        ("too_long", "This model's maximum context length is 8 tokens", True),
        ("forbidden", "Your country is not supported", True),
    ],
)
def test_a_failed_request_leaves_the_others_alone(serve, model, fault, reason, final):
    server = serve(plan=lambda body, _: fault if prompt(body) == "question 1" else None)
    timeout = 0.5 if fault in ENDLESS else 60.0
    llm = model(server, retries=1, concurrency=1, timeout=timeout)
    good, failed, last = ask(llm, questions(3))
    assert texts([good, last]) == answers(3)[::2]
    assert isinstance(failed, Failure)
    assert reason in failed.reason
    assert failed.final == final
    assert len(server.calls) == (3 if final else 4)
    server.plan = None
    assert texts(ask(model(server), questions(3))) == answers(3), "a failure is not kept"


@pytest.mark.parametrize(
    ("fault", "calls", "message"),
    [
        ("unauthorized", 2, r"status 401: .*\*\*\*.* Check .*the key in OPENAI_API_KEY"),
        ("no_path", 2, "status 404: .*Check .*llm.base_url"),
        ("forbidden", 20, rf"{EIGHT} status 403: .*Your country is not supported"),
        ("too_long", 20, rf"{EIGHT} status 400: .*Check .*llm.parameters"),
        ("error", 20, rf"{EIGHT} status 500: .*Check llm.model"),
        ("html", 20, rf"{EIGHT} the answer is not a chat completion; it begins .* Check llm.model"),
    ],
)
def test_a_wrong_endpoint_ends_all_requests(serve, model, fault, calls, message):
    server = serve(plan=always(fault))
    with pytest.raises(LLMError, match=message) as caught:
        ask(model(server, concurrency=2, retries=1), questions(50))

    assert len(server.calls) <= calls
    assert KEY not in str(caught.value)


def test_faults_after_a_reply_keep_the_reply(serve, model):
    server = serve(plan=lambda body, _: None if prompt(body) == "question 0" else "html")
    llm = model(server, concurrency=2, retries=0)
    with pytest.raises(LLMError, match=r"8 requests .* all failed.*\. The same command continues"):
        ask(llm, questions(50))

    assert texts(ask(llm, questions(1))) == answers(1)


def test_an_endpoint_that_cannot_be_reached(model):
    with ChatServer() as server:
        pass

    with pytest.raises(LLMError, match=r"cannot be reached .*is llm\.base_url its address"):
        ask(model(server, retries=100), questions(1))


def test_kept_replies_need_neither_a_key_nor_a_network(serve, model, monkeypatch):
    ask(model(serve()), questions(5))
    monkeypatch.delenv("OPENAI_API_KEY")
    elsewhere = model("https://api.example.org/v1")
    assert texts(ask(elsewhere, questions(5))) == answers(5)
    with pytest.raises(LLMError, match="needs a key"):
        ask(elsewhere, questions(6))


def test_the_key_appears_nowhere(serve, model, tmp_path, caplog, capfd):
    caplog.set_level(logging.DEBUG)
    llm = model(serve(plan=first("error", "break", "limit"), key=KEY))
    got = ask(llm, questions(3))
    files = [path.read_bytes().decode("latin-1") for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) >= 1
    outputs = [caplog.text, *capfd.readouterr(), repr(got), repr(vars(llm)), *files]
    assert [output for output in outputs if KEY[:8] in output] == []


# Limits


@pytest.mark.parametrize(
    ("limits", "seconds"),
    [
        ({"requests_per_minute": 600, "concurrency": 8}, 0.7),
        # Before the last call 714 tokens were used.
        ({"tokens_per_minute": 60 * 500, "concurrency": 1}, 1.43),
        ({}, 0.0),
    ],
)
def test_calls_keep_to_the_limits(serve, model, limits, seconds):
    server = serve(lambda _: "word " * 100)
    assert len(ask(model(server, **limits), questions(8))) == 8
    times = [call.at for call in server.calls]
    assert seconds * 0.9 <= times[-1] - times[0] < seconds + 3  # on a busy machine


# How it ends


SCRIPT = """
import signal, sys
from lightning_cse.errors import reported
from lightning_cse.llm import LLM, Request
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job of a shell inherits an ignored one
@reported
def main():
    requests = (Request((("user", f"question {k}"),), {"temperature": 0}) for k in range(1000))
    for number, _ in LLM({"model": "m", "base_url": sys.argv[1]}, sys.argv[2]).ask(requests, "a test"):
        print(number, flush=True)
sys.exit(main())
"""


def stopped(server, folder, signals, release):
    """Run the script until it waits for its calls, send the signals; return exit code and
    stderr.
    """
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, server.url, str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    for _ in range(20):
        process.stdout.readline()

    while len(server.calls) < 28:
        time.sleep(0.01)

    for signum in signals:
        assert process.poll() is None
        process.send_signal(signum)
        time.sleep(0.3)

    release.start()
    _, errors = process.communicate(timeout=30)

    return process.returncode, errors


@pytest.mark.parametrize(
    ("signals", "code", "expected"),
    [
        ([signal.SIGINT], 130, 28),
        ([signal.SIGTERM], 143, 28),
        ([signal.SIGINT, signal.SIGINT], 130, 20),
        ([signal.SIGKILL], -9, 20),
    ],
)
def test_a_stopped_process_loses_no_reply(serve, model, tmp_path, signals, code, expected):
    go = threading.Event()
    # Eight calls get no answer before the signals: the process waits for all of them.
    server = serve(lambda body: str(int(prompt(body).split()[1]) < 20 or go.wait(30)))
    release = threading.Timer(0 if expected == 28 else 3, go.set)
    returned, errors = stopped(server, tmp_path, signals, release)
    assert returned == code
    assert "Traceback" not in errors
    assert len(server.calls) == 28
    later = serve()
    assert len(ask(model(later), questions(28))) == 28
    assert len(later.calls) == 28 - expected
