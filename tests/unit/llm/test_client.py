"""Requests to a server that answers, stalls, limits and breaks off; and how a series of requests
ends.
"""

import itertools
import logging
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace

import pytest
from llm_server import FAULTS, KEY, TRANSIENT, ChatServer, always, first, prompt, share

from lightning_cse.llm import Failure, LLMError, Reply, Request

ENDLESS = {"silent", "stall", "trickle"}
SCHEMA = {"type": "object", "properties": {"sentence": {"type": "string"}}}


def questions(count, start=0):
    return [
        Request((("user", f"question {k}"),), {"temperature": 0})
        for k in range(start, start + count)
    ]


def ask(llm, requests):
    """Return the outcomes in the order of the requests, each of which has exactly one."""

    async def one(item):
        return item[0], await llm.reply(item[1])

    got = sorted(llm.each(one, enumerate(requests)), key=lambda pair: pair[0])
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


@pytest.mark.parametrize("status", [400, 422, 500, 501])
@pytest.mark.parametrize(
    "refuses", [["response_format"], ["system"], ["response_format", "system", "seed"]]
)
def test_an_endpoint_is_asked_without_what_it_refuses(serve, model, caplog, refuses, status):
    server = serve(refuses=refuses, refusal=status)
    messages = (("system", "Reverse."), ("user", "one two"))
    with caplog.at_level("INFO"):
        (reply,) = ask(model(server), [Request(messages, schema=SCHEMA)])

    is_merged = "system" in refuses
    assert reply.text == ("Reverse.\n\none two" if is_merged else "one two")[::-1]
    (call,) = server.calls
    assert call.fault is None
    assert ("response_format" in call.body) == ("response_format" not in refuses)
    assert len(server.probes) == 4
    (line,) = caplog.messages
    for word, name in (
        ("structured output", "response_format"),
        ("system messages", "system"),
        ("seed", "seed"),
    ):
        assert f"{word}: {'no' if name in refuses else 'yes'}" in line


@pytest.mark.parametrize(
    ("setting", "server", "structured"),
    [
        ("auto", {}, True),
        ("auto", {"ignores": ["response_format"]}, False),
        (True, {}, True),
        (False, {}, False),
        (True, {"refuses": ["response_format"]}, "answers it with status 400"),
        (True, {"ignores": ["response_format"]}, "ignores it"),
    ],
)
def test_structured_output(serve, model, setting, server, structured):
    endpoint = serve(**server)
    llm = model(endpoint, structured_output=setting)
    requests = [Request((("user", "one"),), schema=SCHEMA)]
    if isinstance(structured, str):
        with pytest.raises(LLMError, match=structured):
            ask(llm, requests)

        assert endpoint.calls == []
        return

    ask(llm, requests)
    assert ("response_format" in endpoint.calls[0].body) == structured
    assert llm.abilities.structured_output == structured


def test_one_probe_serves_all_requests_of_a_model(serve, model):
    server = serve()
    llm = model(server)
    ask(llm, questions(20))
    ask(llm, questions(40))
    assert len(server.probes) == 3, "no request has a schema"
    assert str(llm.abilities) == "system messages: yes, seed: yes"
    ask(model(server), questions(40))
    assert len(server.probes) == 3, "kept replies need no probe"


def test_a_busy_endpoint_is_waited_for(serve, model):
    left = [2]

    def loading(body, nth):
        left[0] -= 1
        return "unavailable" if left[0] >= 0 else None

    loading.meets_probes = True
    assert texts(ask(model(serve(plan=loading)), questions(2))) == answers(2)


def test_one_broken_connection_refuses_no_feature(serve, model):
    broken = []

    def plan(body, nth):
        if "response_format" in body and not broken:
            broken.append(body)
            return "break_body"

        return None

    plan.meets_probes = True
    llm = model(serve(plan=plan))
    ask(llm, [Request((("user", "one"),), schema=SCHEMA)])
    assert len(broken) == 1
    assert llm.abilities.structured_output


def test_a_silent_endpoint_is_named(serve, model, caplog, monkeypatch):
    monkeypatch.setattr("lightning_cse.llm.probe.PATIENCE", 0.1)
    server = serve(plan=always("silent"))
    with pytest.raises(LLMError, match=r"no answer within 0\.5 s"):
        ask(model(server, timeout=0.5), questions(1))

    assert f"{server.url} has not answered for 0.1 s" in caplog.text


def test_equal_requests_share_a_call_and_other_samples_do_not(serve, model):
    server = serve(seconds=0.02)
    llm = model(server)
    got = ask(llm, [*questions(1), *questions(2), replace(questions(1)[0], sample=1)])
    assert texts(got) == [*answers(1), *answers(2), *answers(1)]
    assert server.answered == {"question 0": 2, "question 1": 1}
    assert [outcome.cached for outcome in got] == [False, True, False, False]
    assert (llm.account.requests, llm.account.cached) == (4, 1)


@pytest.mark.parametrize(
    ("odd", "reply"),
    [
        ("filter_400", Reply("", "content_filter", None)),
        ("refusal", Reply("I cannot.", "refusal", "m", 2, 0)),
        ("filter", Reply("", "content_filter", "m", 2, 0)),
        ("length", Reply("0 n", "length", "m", 2, 2)),
        ("null", Reply("", "stop", "m", 2, 0)),
        ("no_usage", Reply("0 noitseuq", "stop", "m")),
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
    kinds = tuple(kind for kind in TRANSIENT if kind not in ENDLESS)
    server = serve(plan=share(0.2, kinds, times=4), seconds=0.002)
    llm = model(server, concurrency=16)
    with caplog.at_level("INFO"):
        assert texts(ask(llm, questions(200))) == answers(200)

    faults = [call.fault for call in server.calls if call.fault is not None]
    assert set(faults) == set(kinds)
    assert len(server.answered) == server.answered.total() == 200
    assert server.peak <= 16
    assert (llm.account.requests, llm.account.failed, llm.account.retried) == (200, 0, len(faults))
    assert len(caplog.messages) == 1, "calls are not logged one by one"


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
    ("kind", "message"),
    [
        ("unauthorized", r"status 401: .*\*\*\*.* Check .*the key in OPENAI_API_KEY"),
        ("forbidden", "status 403: .*Your country is not supported"),
        ("no_path", "status 404: .*Check .*llm.base_url"),
        ("too_long", "status 400: .*Check .*llm.parameters"),
        ("error", "status 500: .*Check llm.model"),
        ("html", "the answer is not a chat completion; it begins .* Check llm.model"),
    ],
)
def test_a_wrong_endpoint_is_named_after_one_call(serve, model, kind, message):
    server = serve(plan=always(kind))
    with pytest.raises(LLMError, match=message) as caught:
        ask(model(server, concurrency=2), questions(50))

    assert (len(server.probes), server.calls) == (1, [])
    assert KEY not in str(caught.value)


def test_faults_in_a_row_end_all_requests(serve, model):
    server = serve(plan=lambda *_: "html")
    with pytest.raises(LLMError, match=r"the last 8 requests to \S+/v1 all failed"):
        ask(model(server, concurrency=2, retries=1), questions(50))

    assert len(server.calls) <= 20


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
    shown = [caplog.text, *capfd.readouterr(), repr(got), repr(vars(llm)), *files]
    assert [one for one in shown if KEY[:8] in one] == []


# Limits


@pytest.mark.parametrize(
    ("limits", "seconds"),
    [
        ({"requests_per_minute": 600, "concurrency": 8}, 0.7),
        # Before the last call 714 tokens were used; 500 of them go at once, and then 500 a second.
        ({"tokens_per_minute": 60 * 500, "concurrency": 1}, 0.45),
        ({}, 0.0),
    ],
)
def test_calls_keep_to_the_limits(serve, model, limits, seconds):
    server = serve(lambda _: "word " * 100)
    assert len(ask(model(server, **limits), questions(8))) == 8
    times = [call.at for call in server.calls]
    assert seconds * 0.9 <= times[-1] - times[0] < seconds + 1
    waits = [b - a for a, b in itertools.pairwise(times)]
    assert "requests_per_minute" not in limits or min(waits) > 0.05


# How it ends


def test_calls_under_way_at_an_error_are_kept(serve, model):
    def answer(body):
        time.sleep(0.2 if prompt(body) == "question 0" else 0.6)
        return "yes"

    def plan(body, _):
        return "unauthorized" if prompt(body) in faults else None

    server = serve(answer, plan)
    faults = {f"question {number}" for number in range(1, 100)}
    llm = model(server, concurrency=4, retries=0)
    with pytest.raises(LLMError):
        ask(llm, questions(100))

    calls = len(server.calls)
    assert texts(ask(llm, questions(1))) == ["yes"]
    assert len(server.calls) == calls


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

    for one in signals:
        assert process.poll() is None
        process.send_signal(one)
        time.sleep(0.3)

    release.start()
    _, errors = process.communicate(timeout=30)

    return process.returncode, errors


@pytest.mark.parametrize(
    ("signals", "code", "kept"),
    [
        ([signal.SIGINT], 130, 28),
        ([signal.SIGTERM], 143, 28),
        ([signal.SIGINT, signal.SIGINT], 130, 20),
        ([signal.SIGKILL], -9, 20),
    ],
)
def test_a_stopped_process_loses_no_reply(serve, model, tmp_path, signals, code, kept):
    go = threading.Event()
    # Eight calls get no answer before the signals: the process waits for all of them.
    server = serve(lambda body: str(int(prompt(body).split()[1]) < 20 or go.wait(30)))
    release = threading.Timer(0 if kept == 28 else 3, go.set)
    returned, errors = stopped(server, tmp_path, signals, release)
    assert returned == code
    assert "Traceback" not in errors
    assert len(server.calls) == 28
    other = serve()
    assert len(ask(model(other), questions(28))) == 28
    assert len(other.calls) == 28 - kept
