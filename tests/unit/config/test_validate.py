"""Every node against the signature of its target, all faults at once."""

# ruff: noqa: E501 - a fault stands on one line, as it is told

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from lightning_cse.config.resolvers import register
from lightning_cse.config.validate import validate
from lightning_cse.errors import ConfigError

_TARGETS = """
from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Annotated, Literal, Mapping, Optional, Sequence, Union

if TYPE_CHECKING:
    from nowhere import Unknown

class InfoNCE:
    def __init__(self, temperature: float = 0.05, *, learn: bool = False) -> None: ...

class Method:
    def __init__(self, encoder: Unknown, loss: InfoNCE, optimizer: Any, name: str = "x") -> None: ...

    @classmethod
    def build(cls, size: int) -> "Method": ...

@dataclass
class Schedule:
    warmup: float
    name: Literal["linear", "constant", 3] = "linear"
    steps: Optional[int] = None

def types(
    i: int = 0, f: float = 0.0, s: str = "", b: bool = False, opt: int | None = None, either: Union[int, str] = 0,
    lit: Literal["cls", "mean"] | None = "cls", many: list[int] = [], pair: tuple[float, float] = (0.0, 0.0),
    some: tuple[str, ...] = (), any_: Any = None, plain=None, implicit: str = None, unknown: Unknown = 0,
    path: Path = Path(), table: dict[str, int] = {}, mapping: Mapping[str, int] = {}, seq: Sequence[float] = (),
    loss: InfoNCE = None, noted: Annotated[int, "note"] = 0, bare: list = [], device: Union[str, InfoNCE] = "cpu",
): ...

def anything(first: int, **rest): ...

def positional(a: int, /, b: int, *, c: int = 0): ...

def wrapper(function):
    @functools.wraps(function)
    def inner(*args, **kwargs):
        return function(*args, **kwargs)
    return inner

class Wrapped:
    @wrapper
    def __init__(self, max_epochs: int | None = None, other: str = "") -> None: ...

class Child(Wrapped):
    pass

class Long:
    def __init__(self, a1=0, a2=0, a3=0, a4=0, a5=0, a6=0, a7=0, a8=0, a9=0, a10=0, a11=0, a12=0, max_epochs=0): ...

constant = 3
"""


@pytest.fixture(autouse=True)
def targets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "cse_targets").mkdir()
    (tmp_path / "cse_targets" / "__init__.py").write_text(_TARGETS)
    (tmp_path / "cse_targets" / "inner.py").write_text("class Inner: ...\n")
    (tmp_path / "cse_targets" / "needs_more.py").write_text("import a_package_that_is_not_installed\n")
    (tmp_path / "cse_targets" / "broken.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    for name in [name for name in sys.modules if name.partition(".")[0] == "cse_targets"]:
        del sys.modules[name]


Faults = Callable[..., list[str]]


@pytest.fixture
def faults() -> Faults:
    def check(text: str, **given: set[str]) -> list[str]:
        register()
        try:
            validate(OmegaConf.create(text.replace("T.", "cse_targets.")), given=given)
        except ConfigError as error:
            return error.faults
        return []

    return check


def test_a_config_without_faults(faults: Faults) -> None:
    text = """
    name: run
    method:
      _target_: T.Method
      loss: {_target_: T.InfoNCE, temperature: 1}
      optimizer: {_target_: T.Schedule, _partial_: true}
      name: ${name}
    callbacks: [{_target_: T.Wrapped, max_epochs: null}, {_target_: T.anything, first: 1, whatever: 2}]
    table: {x: {_target_: T.Method.build, size: 3}, y: {_target_: T.inner.Inner}}
    """
    assert faults(text, method={"encoder"}) == []


def test_all_faults_are_told_at_once_with_their_keys(faults: Faults) -> None:
    text = """
    name: ???
    method:
      _target_: T.Method
      loss: {_target_: T.InfoNCE, temprature: 0.1, learn: perhaps}
      optimizer: {_target_: T.Schedul}
    callbacks: [{_target_: T.Schedule, warmup: 1, name: linea}]
    lr: ${recipe:lr}
    other: ${name}
    """
    assert faults(text, method={"encoder"}) == [
        "name: not set, and it has no default (???)",
        "method.loss: InfoNCE got an unexpected argument 'temprature' - did you mean 'temperature'?"
        " (it takes: temperature, learn)",
        "method.loss.learn: InfoNCE takes bool, got 'perhaps' (str)",
        "method.optimizer._target_: cse_targets has no 'Schedul' - did you mean 'Schedule'?",
        "callbacks.0.name: Schedule takes 'linear' or 'constant' or 3, got 'linea' - did you mean 'linear'?",
        "lr: ${recipe:lr}: the config has no `recipe` - it comes with an experiment",
    ]


def test_the_message_counts_and_lists(faults: Faults) -> None:
    with pytest.raises(ConfigError, match=r"(?s)2 faults in the config:\n  a: not set.*\n  b\.c: not set"):
        validate(OmegaConf.create({"a": "???", "b": {"c": "???"}}))


@pytest.mark.parametrize(
    ("node", "fault"),
    [
        ("{_target_: T.Method, loss: x, optimizer: x}", "n: Method needs the argument 'encoder', which the config does not give"),
        ("{_target_: T.Schedule}", "n: Schedule needs the argument 'warmup', which the config does not give"),
        ("{_target_: T.Method.build}", "n: build needs the argument 'size', which the config does not give"),
        ("{_target_: T.Schedule, _partial_: false}", "n: Schedule needs the argument 'warmup', which the config does not give"),
        ("{_target_: T.anything, more: 1}", "n: anything needs the argument 'first', which the config does not give"),
        ("{_target_: T.Schedule, _partial_: true, warmpu: 1}", "n: Schedule got an unexpected argument 'warmpu' - did you mean 'warmup'? (it takes: warmup, name, steps)"),
        ("{_target_: T.InfoNCE, zzz: 1}", "n: InfoNCE got an unexpected argument 'zzz' (it takes: temperature, learn)"),
        ("{_target_: T.inner.Inner, zzz: 1}", "n: Inner got an unexpected argument 'zzz' (it takes: nothing)"),
        ("{_target_: T.Long, max_epoch: 1}", "n: Long got an unexpected argument 'max_epoch' - did you mean 'max_epochs'?"),
        ("{_target_: T.positional, _args_: [1], d: 2, b: 1}", "n: positional got an unexpected argument 'd' (it takes: b, c)"),
        # a wrapped __init__, also when inherited, is seen through
        ("{_target_: T.Wrapped, max_epoch: 1}", "n: Wrapped got an unexpected argument 'max_epoch' - did you mean 'max_epochs'? (it takes: max_epochs, other)"),
        ("{_target_: T.Child, max_epochs: three}", "n.max_epochs: Child takes int or null, got 'three' (str)"),
        # targets
        ("{_target_: T.InfoNC}", "n._target_: cse_targets has no 'InfoNC' - did you mean 'InfoNCE'?"),
        ("{_target_: T.iner.Inner}", "n._target_: cse_targets has no 'iner' - did you mean 'inner'?"),
        ("{_target_: T.inner.Iner}", "n._target_: cse_targets.inner has no 'Iner' - did you mean 'Inner'?"),
        ("{_target_: T.Method.biuld}", "n._target_: cse_targets.Method has no 'biuld' - did you mean 'build'?"),
        ("{_target_: no_such_package.X}", "n._target_: there is no module 'no_such_package' (in no_such_package.X)"),
        ("{_target_: T.needs_more.X}", "n._target_: importing cse_targets.needs_more failed: No module named 'a_package_that_is_not_installed'"),
        ("{_target_: T.broken.X}", "n._target_: importing cse_targets.broken failed: ZeroDivisionError: division by zero"),
        ("{_target_: T.constant}", "n._target_: cse_targets.constant is of type int and cannot be called"),
        ("{_target_: 3}", "n._target_: 3 is not the dotted path of a class or function"),
        ("{_target_: a..b}", "n._target_: 'a..b' is not the dotted path of a class or function"),
        ("{_target_: T.InfoNCE, temperature: '${gone}'}", "n.temperature: Interpolation key 'gone' not found"),
    ],
)  # fmt: skip
def test_one_mistake_gives_one_fault(faults: Faults, node: str, fault: str) -> None:
    assert faults(f"n: {node}") == [fault]


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("i", 3), ("f", 3), ("f", 1e-5), ("s", "x"), ("b", True), ("opt", None), ("opt", 3), ("either", "x"), ("either", 1),
        ("lit", "mean"), ("lit", None), ("many", [1, 2]), ("many", []), ("pair", [0.9, 1]), ("some", []), ("some", ["a"]),
        ("any_", {"x": 1}), ("plain", "x"), ("implicit", None), ("unknown", None), ("unknown", "x"), ("path", "a/b"),
        ("table", {"x": 1}), ("mapping", {"x": 1}), ("seq", [1, 2]), ("loss", None), ("loss", "x"), ("noted", 3),
        ("bare", ["a", 1]), ("device", "cuda"), ("i", {"_target_": "cse_targets.inner.Inner"}),
    ],
)  # fmt: skip
def test_values_that_fit(faults: Faults, argument: str, value: Any) -> None:
    text = OmegaConf.to_yaml(OmegaConf.create({"n": {"_target_": "cse_targets.types", argument: value}}))
    assert faults(text) == []


@pytest.mark.parametrize(
    ("argument", "value", "told"),
    [
        ("i", "abc", "int, got 'abc' (str)"),
        ("i", 1.5, "int, got 1.5 (float)"),
        ("i", True, "int, got true (bool)"),
        ("i", None, "int, got null"),
        ("f", "hot", "float, got 'hot' (str)"),
        ("f", False, "float, got false (bool)"),
        ("s", 3, "str, got 3 (int)"),
        ("b", 1, "bool, got 1 (int)"),
        ("opt", "x", "int or null, got 'x' (str)"),
        ("either", 1.5, "int or str, got 1.5 (float)"),
        ("lit", "maen", "'cls' or 'mean' or null, got 'maen' - did you mean 'mean'?"),
        ("many", [1, "x"], "list[int], got [1, 'x'] (list)"),
        ("many", 3, "list[int], got 3 (int)"),
        ("pair", [1], "tuple[float, float], got [1] (list)"),
        ("pair", [1, "x"], "tuple[float, float], got [1, 'x'] (list)"),
        ("some", "a", "tuple[str, ...], got 'a' (str)"),
        ("table", [1], "dict[str, int], got [1] (list)"),
        ("table", None, "dict[str, int], got null"),
        ("noted", "x", "int, got 'x' (str)"),
        ("path", None, "Path, got null"),
        ("bare", "x", "list, got 'x' (str)"),
    ],
)
def test_values_that_do_not_fit(faults: Faults, argument: str, value: Any, told: str) -> None:
    text = OmegaConf.to_yaml(OmegaConf.create({"n": {"_target_": "cse_targets.types", argument: value}}))
    (fault,) = faults(text)
    assert fault == f"n.{argument}: types takes {told}"


def test_a_given_argument_counts_only_for_its_node(faults: Faults) -> None:
    text = "a: {_target_: T.Schedule}\nb: {c: {_target_: T.Schedule}}"
    assert faults(text, **{"b.c": {"warmup"}}) == [
        "a: Schedule needs the argument 'warmup', which the config does not give"
    ]


def test_an_interpolated_node_is_judged_once_and_its_value_where_it_is_used(faults: Faults) -> None:
    text = "a: {_target_: T.InfoNCE, zzz: 1}\nb: ${a}\nn: {_target_: T.InfoNCE, temperature: '${t}'}\nt: hot"
    assert faults(text) == [
        "a: InfoNCE got an unexpected argument 'zzz' (it takes: temperature, learn)",
        "n.temperature: InfoNCE takes float, got 'hot' (str)",
    ]


def test_an_environment_variable_that_is_not_set(faults: Faults, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CSE_NOT_SET", raising=False)
    assert faults("paths: {x: '${oc.env:CSE_NOT_SET}'}") == [
        "paths.x: KeyError raised while resolving interpolation: \"Environment variable 'CSE_NOT_SET' not found\""
    ]


def test_the_config_is_left_as_it_was(faults: Faults) -> None:
    config = OmegaConf.create({"n": {"_target_": "cse_targets.InfoNCE", "temperature": "${t}"}, "t": 1})
    before = OmegaConf.to_yaml(config)
    validate(config)
    assert OmegaConf.to_yaml(config) == before


def test_lightning_s_trainer_and_torch_s_optimizer_have_readable_signatures(faults: Faults) -> None:
    pytest.importorskip("pytorch_lightning")
    text = """
    trainer: {_target_: pytorch_lightning.Trainer, max_epoch: 3, max_steps: many, accelerator: cpu, precision: 32-true}
    optimizer: {_target_: torch.optim.AdamW, _partial_: true, lr: 1e-5, betas: [0.9, 0.999], weight_deca: 0.0}
    """
    found = faults(text)
    assert found[:2] == [
        "trainer: Trainer got an unexpected argument 'max_epoch' - did you mean 'max_epochs'?",
        "trainer.max_steps: Trainer takes int, got 'many' (str)",
    ]
    assert len(found) == 3
    assert found[2].startswith(
        "optimizer: AdamW got an unexpected argument 'weight_deca' - did you mean 'weight_decay'?"
        " (it takes: params, lr, betas, eps, weight_decay,"
    )
