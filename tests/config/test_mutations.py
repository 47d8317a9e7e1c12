"""Wrong values for every key: each ends in one line per fault before training, and no class of
another kind is called.
"""

import copy
import random

import pytest
from omegaconf import DictConfig, OmegaConf

from lightning_cse.config.check import check
from lightning_cse.config.compose import complete
from lightning_cse.errors import ConfigError

TINY = ("+experiment=simcse_inli", "+debug=tiny")

VALUES = [
    float("nan"),
    float("inf"),
    -float("inf"),
    -1,
    0,
    1,
    10**30,
    0.5,
    True,
    None,
    "",
    "x",
    "nan",
    "${seed}",
    "${nothing}",
    "???",
    [],
    [1],
    [[]],
    ["a", None],
    {},
    {"a": 1},
    {"_target_": "os.getcwd"},
    {"_target_": "os.mkdir", "path": "made"},
    {"_target_": "torch.load", "f": "evil.pt", "weights_only": False},
    {"_target_": "subprocess.Popen", "args": "ls"},
    {"_target_": "torch.nn.Identity"},
    {"_target_": [1]},
    {"_target_": "nothing.at.all"},
]


def leaves(node, prefix=""):
    """The dotted keys of all values, and of the mappings that have them."""
    for key in node:
        yield f"{prefix}{key}"
        if not OmegaConf.is_interpolation(node, key) and isinstance(node.get(key), DictConfig):
            yield from leaves(node[key], f"{prefix}{key}.")


def mutated(cfg, key, value):
    """Check a config with another value; return the lines of its faults."""
    cfg = copy.deepcopy(cfg)
    OmegaConf.update(cfg, key, value, merge=False)
    try:
        complete(cfg, [])
        check(cfg, "train")
    except ConfigError as error:
        return error.faults

    return []


def refused(key, value):
    """Whether a value is wrong for every key."""
    if isinstance(value, dict):
        return str(value.get("_target_", "")).partition(".")[0] in ("os", "subprocess", "nothing")

    return isinstance(value, float) and value * 0 != 0


def test_groups_that_do_not_resolve(compose):
    cfg = compose(*TINY)
    for key in ("data", "encoder", "method", "suite", "trainer"):
        (fault,) = mutated(cfg, key, "${nothing}")
        assert "'nothing' not found" in fault, fault


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_wrong_values(compose, tmp_path, monkeypatch):
    cfg = compose(*TINY)
    every = [(key, value) for key in leaves(cfg) for value in VALUES]
    assert len(every) > 3000
    monkeypatch.chdir(tmp_path)
    for key, value in random.Random(0).sample(every, 200):  # a quarter of a second each
        faults = mutated(cfg, key, value)
        assert all("\n" not in fault and ": " in fault for fault in faults), (key, value, faults)
        # recipe and limits of other tasks are values that no node takes
        assert faults or not refused(key, value), (key, value)

    assert not list(tmp_path.iterdir())
