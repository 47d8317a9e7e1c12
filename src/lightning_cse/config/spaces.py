"""What a search may choose from: the values, ranges and intervals that Hydra's grammar has for a sweep.

data.batch_size=16,32,64                         # one of these
data.llm_rows=range(0,20000,2500)                # whole numbers, a step apart
method.optimizer.lr=tag(log,interval(1e-5,1e-3)) # any number between, drawn evenly in its logarithm
data.max_tokens=int(interval(16,64))             # any whole number between
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from hydra.core.override_parser.types import ChoiceSweep, IntervalSweep, Override, RangeSweep

from lightning_cse.errors import ConfigError

Value = str | int | float
_NOT_SEARCHED = ("seed",)


@dataclass(frozen=True)
class Choices:
    """One of several values, in no order; each is text as Hydra reads it."""

    key: str
    values: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.values)

    def __iter__(self) -> Iterator[str]:
        return iter(self.values)


@dataclass(frozen=True)
class Whole:
    """Whole numbers from ``low`` to ``high``, both included, ``step`` apart."""

    key: str
    low: int
    high: int
    step: int = 1
    log: bool = False

    def __len__(self) -> int:
        return (self.high - self.low) // self.step + 1

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.low, self.high + 1, self.step))


@dataclass(frozen=True)
class Real:
    """Any number from ``low`` to ``high``."""

    key: str
    low: float
    high: float
    log: bool = False


Axis = Choices | Whole | Real


def size(axes: Iterable[Axis]) -> float:
    """How many points there are: infinity where an axis is an interval of real numbers."""
    return math.prod(math.inf if isinstance(axis, Real) else len(axis) for axis in axes)


def all_points(axes: Sequence[Axis]) -> Iterator[dict[str, Value]]:
    """Every point of a finite space, the last axis changing fastest."""
    finite: list[Iterable[Value]] = [axis for axis in axes if not isinstance(axis, Real)]
    for values in itertools.product(*finite):
        yield {axis.key: value for axis, value in zip(axes, values, strict=True)}


def lines(values: Mapping[str, object]) -> list[str]:
    """A point as overrides."""
    return [f"{key}={value}" for key, value in values.items()]


def split(overrides: Iterable[Override]) -> tuple[list[Override], list[Axis]]:
    """Part what is fixed from what is searched; a later override of a key replaces an earlier one.

    Raises:
        ConfigError: with every axis that is none, or if nothing is searched.
    """
    last = {override.get_key_element(): override for override in overrides}
    fixed = [override for override in last.values() if not override.is_sweep_override()]
    axes, faults = [], []
    for key, override in last.items():
        if not override.is_sweep_override():
            continue
        if key.lstrip("+") in _NOT_SEARCHED:
            faults.append(
                f"{key}: the luckiest seed is no setting; search with one, {key}=0, and repeat the best point"
            )
            continue
        try:
            axes.append(_axis(key, override))
        except ValueError as error:
            faults.append(f"{override.input_line}: {error}")
    if not axes and not faults:
        faults.append("hydra/sweeper=tpe: nothing to search; give several values: data.batch_size=16,32,64")
    if faults:
        raise ConfigError(faults)
    return fixed, axes


def _axis(key: str, override: Override) -> Axis:
    value = override.value()
    if isinstance(value, IntervalSweep):
        return _interval(key, value)
    # The order in which values are listed means nothing to a search, and Hydra would shuffle them without a seed.
    if isinstance(value, ChoiceSweep | RangeSweep) and value.shuffle:
        override = dataclasses.replace(override, _value=dataclasses.replace(value, shuffle=False))
        value = override.value()
    texts = tuple(dict.fromkeys(override.sweep_string_iterator()))
    if not texts:
        raise ValueError("there is no value to choose")
    if isinstance(value, RangeSweep) and all(isinstance(n, int) for n in (value.start, value.stop, value.step)):
        numbers = sorted(int(text) for text in texts)
        return Whole(key, numbers[0], numbers[-1], abs(int(value.step)))
    return Choices(key, texts)


def _interval(key: str, value: IntervalSweep) -> Axis:
    unknown = sorted(set(value.tags) - {"log"})
    if unknown:
        raise ValueError(f"there is no tag '{unknown[0]}'; an interval may have the tag log")
    low, high, log = value.start, value.end, "log" in value.tags
    if low is None or high is None or not low < high or not math.isfinite(high - low):
        raise ValueError(f"an interval goes from a smaller number to a larger one, not from {low} to {high}")
    if log and low <= 0:
        raise ValueError(f"with the tag log an interval starts above 0, not at {low}")
    if isinstance(low, int) and isinstance(high, int):
        return Whole(key, low, high, log=log)
    return Real(key, float(low), float(high), log)
