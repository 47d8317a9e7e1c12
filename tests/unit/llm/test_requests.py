"""Keys of requests, and what an account counts."""

from dataclasses import replace

import pytest

from lightning_cse.llm import Failure, Reply, Request, dollars
from lightning_cse.llm.requests import Account

MESSAGES = (("system", "Be brief."), ("user", "Is it raining?"))
REQUEST = Request(MESSAGES, {"temperature": 0, "max_tokens": 5})
NEW = Reply(
    "yes",
    "stop",
    "m-1",
    1000,
    10,
)


def test_keys_are_stable():
    # Replies on disk are found by it.
    assert REQUEST.key("m") == "83793e89561bb9f62f6f26c497ba4bf390321c6b8a6a9d60d423244acff8c8d2"
    assert Request(MESSAGES, {"max_tokens": 5.0, "temperature": 0.0}).key("m") == REQUEST.key("m")


@pytest.mark.parametrize(
    "other",
    [
        replace(REQUEST, parameters={"temperature": 0.5, "max_tokens": 5}),
        replace(REQUEST, parameters={"temperature": 0}),
        replace(REQUEST, parameters={"temperature": "0", "max_tokens": 5}),
        replace(REQUEST, messages=MESSAGES[::-1]),
        replace(REQUEST, messages=(("system", "Be brief.Is it raining?"),)),
        replace(REQUEST, sample=1),
        replace(REQUEST, schema={"type": "object"}),
    ],
)
def test_a_key_depends_on_everything_that_is_sent(other):
    assert other.key("m") != REQUEST.key("m")
    assert REQUEST.key("m") != REQUEST.key("n")


@pytest.mark.parametrize(
    ("outcomes", "counts", "cost", "if_new"),
    [
        (
            [NEW, NEW],
            {
                "requests": 2,
                "prompt_tokens": 2000,
                "completion_tokens": 20,
            },
            0.0026,
            0.0026,
        ),
        (
            [NEW, replace(NEW, cached=True)],
            {"cached": 1, "cached_prompt_tokens": 1000},
            0.0013,
            0.0026,
        ),
        ([NEW, Failure("no")], {"requests": 2, "failed": 1}, 0.0013, 0.0013),
        ([NEW, Reply("yes", "stop")], {"unmetered": 1}, 0.0013, 0.0013),
        ([Reply("yes", "stop"), Failure("no")], {"unmetered": 1}, None, None),
        ([Reply("yes", "stop"), replace(NEW, cached=True)], {"unmetered": 1}, None, 0.0013),
    ],
)
def test_account_and_cost(outcomes, counts, cost, if_new):
    account, price = Account(), {"input": 1.0, "output": 30.0}
    for outcome in outcomes:
        account.add(outcome)
    assert {name: getattr(account, name) for name in counts} == counts
    assert account.cost(price) == pytest.approx(cost)
    assert account.cost(price, if_new=True) == pytest.approx(if_new)
    assert account.cost(None) is None


def test_small_sums_show_two_digits():
    assert [dollars(12.5), dollars(0.0000421), dollars(3.14159, least=2), dollars(0),] == [
        "$12.5000", "$0.000042", "$3.14", "$0.00",
    ]  # fmt: skip
