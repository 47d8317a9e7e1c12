"""Nodes against the classes that they name: arguments, annotations, and the right kind of class."""

import math
import sys

import pytest
import yaml

from lightning_cse.config.nodes import node_faults

TARGETS = """
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Sequence

import torch
from pydantic import AllowInfNan, Field

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
    unbounded: Annotated[float, AllowInfNan(True)] = 0.0

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
- {_target_: T.Typed, loss: null, opt: null, seq: [a, b], unbounded: .inf}
- {_target_: T.Parent, loss: {_target_: torch.nn.Identity}, anything: {_target_: T.Typed}}
callbacks:
  early_stopping: {_target_: pytorch_lightning.callbacks.EarlyStopping, monitor: x, patience: null}
logger:
  csv: {_target_: pytorch_lightning.loggers.CSVLogger, save_dir: x}
"""
WRONG = """
thing:
  _target_: T.Method
  loss: {_target_: T.Loss, temprature: 0.1, learn: perhaps}
  optimizer: {_target_: torch.optim.AdamWW, _partial_: 3}
more: [{_target_: T.anything}, {_target_: T.undeclared, first: 1}]
typed: {_target_: T.Parent, loss: {_target_: T.Typed}}
plain: {_target_: T.Typed, s: {_target_: T.Loss}}
callbacks: {a: {_target_: T.Loss}}
logger: {a: {_target_: T.Loss}}
trainer: {_target_: T.Loss}
"""
FAULTS = [
    "thing.loss: Loss got an unexpected argument 'temprature' - did you mean 'temperature'?",
    "thing.loss.learn: should be a valid boolean, got 'perhaps'",
    "thing.optimizer._target_: 'torch.optim.AdamWW' cannot be used (",
    "thing: Method: missing a required argument: 'encoder'",
    "more.0: anything: missing a required argument: 'first'",
    "more.1._target_: cse_targets.undeclared is not a class, or a function that declares",
    "typed.loss._target_: cse_targets.Typed is not a Module",
    "plain.s._target_: cse_targets.Loss is not a str",
    "callbacks.a._target_: cse_targets.Loss is not a Callback",
    "logger.a._target_: cse_targets.Loss is not a Logger",
    "trainer._target_: cse_targets.Loss is not a Trainer",
]


@pytest.fixture
def faults(tmp_path, monkeypatch):
    """Check the nodes of a config whose targets are those of above."""
    (tmp_path / "cse_targets.py").write_text(TARGETS)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "cse_targets", raising=False)

    return lambda text: node_faults(yaml.safe_load(text.replace("T.", "cse_targets.")))


def test_right_nodes_have_no_fault(faults):
    assert faults(RIGHT) == []


def test_all_faults_are_reported_with_their_keys(faults):
    for fault, start in zip(faults(WRONG), FAULTS, strict=True):
        assert fault.startswith(start)


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
    assert fault.startswith(f"n.{argument}: should be ")
    assert fault.endswith("did you mean 'mean'?" if value == "maen" else f"got {value!r}")
