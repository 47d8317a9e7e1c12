"""What requests took, counted by hand."""

from __future__ import annotations

import pytest

from lightning_cse.llm import Account, Failure, Reply, price_of

PRICE = {"input": 2.0, "output": 10.0}


def test_every_kind_of_outcome_is_counted_apart() -> None:
    account = Account()
    account.add(Reply("yes", "stop", None, 100, 7, served="m-2", endpoint="http://b"), retried=2)
    account.add(Reply("yes", "stop", None, 100, 7, cached=True, served="m-1", endpoint="http://b"))
    account.add(Failure("status 500", 4), retried=3)
    account.add(Reply("no", "stop"))
    assert account.as_dict() == {
        "requests": 4,
        "cached": 1,
        "failed": 1,
        "retried": 5,
        "unmetered": 1,
        "prompt_tokens": 100,
        "completion_tokens": 7,
        "cached_prompt_tokens": 100,
        "cached_completion_tokens": 7,
        "served": {"m-1": 1, "m-2": 1},
        "endpoints": {"http://b": 2},
    }
    assert account.cost(PRICE) == pytest.approx((100 * 2 + 7 * 10) / 1e6)


def test_prices_are_per_million_tokens_and_differ_by_their_way() -> None:
    assert price_of(PRICE, 1_000_000, 500_000) == 7.0
    assert price_of({"input": 0.15, "output": 0.6}, 0, 10) == pytest.approx(6e-6)
    assert price_of(PRICE, 0, 0) == 0.0


def test_cached_replies_cost_nothing() -> None:
    account = Account()
    account.add(Reply("yes", "stop", None, 100, 7, cached=True))
    assert account.cost(PRICE) == 0


def test_no_cost_is_told_that_nobody_knows() -> None:
    account = Account()
    account.add(Reply("yes", "stop", None, 100, 7))
    assert account.cost(None) is None
    unmetered = Account()
    unmetered.add(Reply("yes", "stop", None, 100, None))
    assert unmetered.cost(PRICE) is None
