"""Nodes against the signatures of their classes; what the points of one process share."""

import sys

import pytest
import torch
from omegaconf import OmegaConf

from lightning_cse.data import corpora
from lightning_cse.engine.build import build, check_nodes, resolve_automatic
from lightning_cse.errors import ConfigError

# Points of one process


@pytest.fixture
def opened(monkeypatch):
    """Start with nothing kept, and note each corpus file that is opened."""
    paths = []

    def noting(path, real=corpora.examined, **options):
        paths.append(path)
        return real(path, **options)

    monkeypatch.setattr(corpora, "examined", noting)
    corpora._read_cached.cache_clear()

    return paths


@pytest.fixture
def point(compose, speaking_encoder):
    """Build the parts of a tiny point from weights on the disk, as a multirun does one after the
    other.
    """

    def built(seed):
        cfg = compose(
            "+experiment=gausscse",
            "+debug=tiny",
            "encoder=bert_base",
            f"seed={seed}",
            "trainer.max_steps=1",
        )

        cfg.encoder.source = str(speaking_encoder)
        cfg.encoder.max_length = 32
        cfg.paths.cache_dir = None
        torch.manual_seed(seed)

        return build(cfg)

    return built


def differing(one, other):
    """The names of the parameters that two modules do not share, bit for bit."""
    first = one.state_dict()
    second = other.state_dict()

    assert first.keys() == second.keys()

    return [name for name in first if not torch.equal(first[name], second[name])]


def test_later_point_opens_no_corpus_and_is_identical(point, opened):
    cold = point(3)
    state = torch.get_rng_state()

    assert len(opened) == len(set(opened)) > 3

    opened.clear()

    warm = point(3)
    assert opened == []
    assert torch.equal(torch.get_rng_state(), state)
    assert differing(cold.method, warm.method) == []

    for rows in ("train", "held_out", "counts"):
        assert list(getattr(cold.data, rows)) == list(getattr(warm.data, rows))

    assert (cold.digests, cold.encoder.digests) == (warm.digests, warm.encoder.digests)


# Tasks that are left out


def test_tasks_that_do_not_suit_the_method_are_left_out(compose):
    cfg = compose("+experiment=simcse_inli", "+debug=tiny", "suite=implicitness")
    cfg.paths.cache_dir = None
    cfg.monitor = "val/eis/accuracy"
    message = r"'val/eis/accuracy' is not a dev score: it needs implicitness.*\(choose from: val/"
    with pytest.raises(ConfigError, match=message):
        build(cfg)

    cfg.monitor = "val/rte/accuracy_all"
    reason = "it needs implicitness, which SimCSE does not give"
    assert build(cfg).left_out == {"eis": reason, "eis_wang": reason}


def test_a_list_of_gpus_on_a_cpu_is_refused(compose):
    cfg = compose("+experiment=gausscse", "trainer.accelerator=cpu", "trainer.devices=[0]")
    with pytest.raises(ConfigError, match=r"trainer\.devices: a list names GPUs"):
        resolve_automatic(cfg)


# Nodes against signatures

TARGETS = """
from typing import Literal, Sequence

class Loss:
    def __init__(self, temperature: float = 0.05, *, learn: bool = False): ...

class Method:
    def __init__(self, encoder: "Unknown", loss: Loss, optimizer, name: str = "x"): ...

def typed(i: int = 0, f: float = 0.0, s: str = "", b: bool = False, opt: int | None = None,
          seq: Sequence[str] = (), lit: Literal["cls", "mean"] | None = "cls",
          pair: tuple[float, float] = (0.0, 0.0), loss: Loss = None): ...

def anything(first: int, **rest): ...
"""
RIGHT = """
name: run
method:
  _target_: T.Method
  loss: {_target_: T.Loss, temperature: 1}
  optimizer: {_target_: torch.optim.AdamW, _partial_: true, betas: [0.9, 0.999]}
  name: ${name}
more:
- {_target_: T.anything, first: 1, whatever: 2}
- {_target_: T.typed, loss: null, opt: null, seq: [a, b]}
"""
WRONG = """
method:
  _target_: T.Method
  loss: {_target_: T.Loss, temprature: 0.1, learn: perhaps}
  optimizer: {_target_: torch.optim.AdamWW, _partial_: true}
again: {loss: "${method.loss}"}
more: [{_target_: T.anything}, {_target_: T.Method, loss: x, optimizer: x}]
suite: {a: {bar: 3}}
baselines: {foo: bar}
"""


@pytest.fixture
def faults(tmp_path, monkeypatch):
    """Check a config whose targets are those of above."""
    (tmp_path / "cse_targets.py").write_text(TARGETS)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "cse_targets", raising=False)

    def checked(text):
        try:
            check_nodes(OmegaConf.create(text.replace("T.", "cse_targets.")))
        except ConfigError as error:
            return error.faults

        return []

    return checked


def test_all_faults_are_reported_with_their_keys(faults):
    assert faults(RIGHT) == []
    starts = [
        "suite.a: has no _target_",
        "baselines.foo: has no _target_",
        "method.loss: Loss got an unexpected argument 'temprature' - did you mean 'temperature'?",
        "method.loss.learn: Loss takes bool, got 'perhaps'",
        "method.optimizer._target_: 'torch.optim.AdamWW' cannot be used (",
        "more.0: anything: missing a required argument: 'first'",
        "more.1: Method: missing a required argument: 'encoder'",
    ]

    for fault, start in zip(faults(WRONG), starts, strict=True):
        assert fault.startswith(start)


MISTYPED = [
    ("i", "abc"),
    ("i", 1.5),
    ("i", True),
    ("i", None),
    ("f", "hot"),
    ("b", 1),
    ("opt", "x"),
    ("seq", "a"),
    ("lit", "maen"),
    ("pair", [1, "x"]),
]


@pytest.mark.parametrize(("argument", "value"), MISTYPED)
def test_mistyped_argument_is_refused(faults, argument, value):
    node = {"_target_": "T.typed", argument: value}
    (fault,) = faults(OmegaConf.to_yaml(OmegaConf.create({"n": node})))

    assert fault.startswith(f"n.{argument}: typed takes ")
    assert fault.endswith("did you mean 'mean'?" if value == "maen" else f"got {value!r}")


def test_an_argument_that_the_trainer_does_not_have(compose):
    cfg = compose("+experiment=simcse_sup", "+trainer.max_epoch=3")
    with pytest.raises(
        ConfigError, match="unexpected argument 'max_epoch' - did you mean 'max_epochs'"
    ):
        check_nodes(cfg)
