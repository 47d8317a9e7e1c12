"""Averages of a suite: by hand, where parts are missing, and names that are wrong."""

import pytest
from oracles import Numbers

from lightning_cse.errors import ConfigError
from lightning_cse.evaluation import Average, Task, TaskResult, check_parts, run_tasks


class Fixed(Task):
    """Always measures the same."""

    metrics = ("value",)

    def __init__(self, value, needs=()):
        self.value = value
        self.needs = needs  # type: ignore[misc]

    @property
    def digests(self):
        return {}

    def sentences(self, split):
        return ["a 1"]

    def evaluate(self, embedded, split):
        return TaskResult({"value": self.value})


def suite(**overrides):
    average = Average(of=["a/value", "b/value", "c/value"], metric="mean")
    # The average stands first: it is computed last all the same.
    return {"avg": average, "a": Fixed(0.12345), "b": Fixed(0.5), "c": Fixed(-0.2)} | overrides


def test_the_mean_is_of_unrounded_values_and_has_no_part_in_dev():
    result = run_tasks(suite(), Numbers(), "test")["avg"]
    assert result.metrics == {"mean": pytest.approx((0.12345 + 0.5 - 0.2) / 3, abs=1e-15)}
    assert result.predictions == {}
    assert set(run_tasks(suite(), Numbers(), "dev")) == {"a", "b", "c"}
    average = suite()["avg"]
    assert (average.sentences("test"), average.digests, average.metrics) == ([], {}, ("mean",))


def test_a_wrong_part_is_reported():
    tasks = suite(avg=Average(of=["a/valeu", "b/value"], metric="mean"))
    with pytest.raises(ConfigError) as raised:
        check_parts(tasks)

    assert "'a/valeu' is not a metric of this suite" in str(raised.value)
    check_parts(suite())
