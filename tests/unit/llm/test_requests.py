"""Keys of requests, and what an account counts."""

from dataclasses import replace

import pytest

from lightning_cse.llm import Account, Failure, Reply, Request

MESSAGES = (("system", "Be brief."), ("user", "Is it raining?"))
REQUEST = Request(MESSAGES, {"temperature": 0, "max_tokens": 5})
NEW = Reply("yes", "stop", "m-1", 1000, 10)


def test_keys_are_stable():
    # Replies on disk are found by it.
    assert REQUEST.key("m") == "83793e89561bb9f62f6f26c497ba4bf390321c6b8a6a9d60d423244acff8c8d2"
    assert Request(MESSAGES, {"max_tokens": 5.0, "temperature": 0.0}).key("m") == REQUEST.key("m")


def test_a_key_depends_on_everything_that_is_sent():
    requests = [
        replace(REQUEST, parameters={"temperature": 0.5, "max_tokens": 5}),
        replace(REQUEST, parameters={"temperature": "0", "max_tokens": 5}),
        replace(REQUEST, messages=MESSAGES[::-1]),
        replace(REQUEST, sample=1),
        replace(REQUEST, schema={"type": "object"}),
    ]
    keys = {REQUEST.key("n"), *(request.key("m") for request in [REQUEST, *requests])}
    assert len(keys) == len(requests) + 2


@pytest.mark.parametrize(
    ("outcomes", "counts", "cost"),
    [
        ([NEW, NEW], {"requests": 2, "prompt_tokens": 2000, "completion_tokens": 20}, 0.0026),
        ([NEW, replace(NEW, cached=True)], {"cached": 1, "prompt_tokens": 1000}, 0.0013),
        ([NEW, Failure("no")], {"requests": 2, "failed": 1}, 0.0013),
        ([Reply("yes", "stop"), Failure("no")], {"failed": 1}, None),
    ],
)
def test_account_and_cost(outcomes, counts, cost):
    account = Account()
    for outcome in outcomes:
        account.add(outcome)

    assert {name: getattr(account, name) for name in counts} == counts
    assert account.cost({"input": 1.0, "output": 30.0}) == pytest.approx(cost)
    assert account.cost(None) is None
