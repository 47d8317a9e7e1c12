"""Nodes against the classes that they name: arguments, annotations, and the right kind of class."""

import math
import sys
from typing import Any

import pytest
import yaml

from lightning_cse.config.nodes import faults as faults_of

TARGETS = """
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Sequence

import torch
from pydantic import Field

class Loss(torch.nn.Module):
    def __init__(self, temperature: float = 0.05, *, learn: bool = False): ...

class Method:
    def __init__(self, encoder: "Unknown", loss: Loss, optimizer, name: str = "x"): ...

class Parent:
    def __init__(self, loss: Loss | None = None, anything: Any = None): ...

@dataclass
class Typed:
    i: int = 0
    f: float = 0.0
    s: str = ""
    b: bool = False
    opt: int | None = None
    seq: Sequence[str] = ()
    lit: Literal["cls", "mean"] | None = "cls"
    pair: tuple[float, float] = (0.0, 0.0)
    loss: Loss = None
    least: Annotated[int, Field(ge=1)] = 1

def anything(first: int, **rest) -> Loss: ...
def undeclared(first: int): ...
"""
RIGHT = """
name: run
thing:
  _target_: T.Method
  encoder: x
  loss: {_target_: T.Loss, temperature: 1}
  optimizer: {_target_: torch.optim.AdamW, _partial_: true, betas: [0.9, 0.999]}
  name: name
more:
- {_target_: T.anything, first: 1, whatever: 2}
- {_target_: T.Typed, loss: null, opt: null, seq: [a, b]}
- {_target_: T.Parent, loss: {_target_: T.Loss}, anything: {_target_: T.Typed}}
"""
WRONG = """
thing:
  _target_: T.Method
  loss: {_target_: T.Loss, temprature: 0.1, learn: perhaps}
  optimizer: {_target_: torch.optim.AdamWW, _partial_: 3}
more: [{_target_: T.anything}, {_target_: T.undeclared, first: 1}]
typed: {_target_: T.Parent, loss: {_target_: T.Typed}}
plain: {_target_: T.Typed, s: {_target_: T.Loss}}
free: {_target_: T.Parent, anything: [1.0, {a: .nan}]}
"""
FAULTS = {
    "thing.encoder: is missing, and cannot be left out",
    "thing.loss.temprature: unknown key - did you mean 'temperature'?",
    "thing.loss.learn: should be a valid boolean, got 'perhaps'",
    "thing.optimizer._target_: 'torch.optim.AdamWW' cannot be used (module",
    "more.0.first: is missing, and cannot be left out",
    "more.1._target_: should be a class, or a function that declares which class it returns, got",
    "typed.loss._target_: should be Loss, got cse_targets.Typed",
    "plain.s._target_: should be str, got cse_targets.Loss",
    "free.anything: should be a finite number, got [1.0, {'a': nan}]",
}


@pytest.fixture
def faults(tmp_path, monkeypatch):
    """Check the nodes of a config whose targets are those of above."""
    (tmp_path / "cse_targets.py").write_text(TARGETS)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "cse_targets", raising=False)

    def lines(text):
        values = yaml.safe_load(text.replace("T.", "cse_targets."))
        return [f"{key}: {fault}" for key, fault in faults_of(values, "it", Any)]

    return lines


def test_right_nodes_have_no_fault(faults):
    assert faults(RIGHT) == []


def test_all_faults_are_reported_with_their_keys(faults):
    for fault, start in zip(sorted(faults(WRONG)), sorted(FAULTS), strict=True):
        assert fault.startswith(f"it.{start}")


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("i", "abc"),
        ("i", 1.5),
        ("i", True),
        ("i", None),
        ("f", "hot"),
        ("f", math.nan),
        ("b", 1),
        ("opt", "x"),
        ("seq", "a"),
        ("lit", "maen"),
        ("loss", 3),
        ("least", 0),
    ],
)
def test_mistyped_argument_is_refused(faults, argument, value):
    (fault,) = faults(yaml.safe_dump({"n": {"_target_": "T.Typed", argument: value}}))
    assert fault.startswith(f"it.n.{argument}: should be ")
    assert fault.endswith(f"got {value!r}")
