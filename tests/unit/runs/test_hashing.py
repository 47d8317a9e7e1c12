"""What a run's hash depends on."""

import json

import pytest
from omegaconf import OmegaConf

from lightning_cse.runs import config_hash, decisive
from lightning_cse.runs.hashing import NEUTRAL

CONFIG = {
    "name": "dualcse_cross",
    "seed": 0,
    "force": False,
    "least_evaluations": 1,
    "diag": {},
    "paths": {"data_dir": "/a", "runs_dir": "/b"},
    "logger": {"project": "p"},
    "method": {
        "_target_": "lightning_cse.DualCSE",
        "loss": {"temperature": 0.05, "both": True},
        "lr": 5e-5,
        "sets": ["a", "b"],
    },
    "data": {
        "name": "inli",
        "batch_size": 64,
        "data_dir": "/a",
        "reader": {"cache_dir": "/c", "limit": None},
    },
    "encoder": {"name": "minilm_l6", "pooling": "mean", "source": "hub/name", "package": "pkg/sub"},
    "trainer": {"accelerator": "auto", "devices": 1, "precision": "32-true", "max_epochs": 3},
}
DATA = {"inli/train": "aa", "inli/dev": "bb"}
ENCODER = {"weights": "cc", "tokenizer": "dd"}
RESOLVED = {"trainer.accelerator": "cpu"}


def changed(path, value):
    """Return CONFIG with one dotted key set."""
    config = json.loads(json.dumps(CONFIG))
    *parents, last = path.split(".")
    node = config
    for parent in parents:
        node = node.setdefault(parent, {})

    node[last] = value

    return config


def of(config, **changes):
    parts = {"data": DATA, "encoder": ENCODER, "resolved": RESOLVED, **changes}
    return config_hash(decisive(config, **parts))


def test_hash_is_pinned():
    # A change here orphans every finished run: make it only on purpose.
    config = {"a": 1, "b": {"_target_": "lightning_cse.x.Y"}}
    assert config_hash(decisive(config)) == "0c466da208"


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("seed", 7),
        ("figures", False),
        ("baselines", {}),
        ("logger", None),
        ("paths.data_dir", "/b"),
        ("data.reader.cache_dir", "/b"),
        ("encoder.source", "/local/copy"),
        ("trainer.devices", 4),
        ("method.chunk_size", 8),
        ("trainer.accelerator", "cpu"),
        ("method.lr", 0.00005),
        ("trainer.max_epochs", 3.0),
        ("method._target_", "lightning_cse.elsewhere.DualCSE"),
        ("method.new", None),
        ("trainer.accumulate_grad_batches", 1),
        ("callbacks.early_stopping", {"patience": None, "min_delta": 0}),
    ],
)
def test_hash_ignores_irrelevant_settings(path, value):
    assert of(changed(path, value)) == of(CONFIG)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("name", "dualcse_bi"),
        ("method._target_", "lightning_cse.SimCSE"),
        ("method._target_", "mine.DualCSE"),
        ("method.loss.temperature", 0.06),
        ("method.loss.both", 1),
        ("method.loss.both", None),
        ("method.sets", ["b", "a"]),
        ("method.lr", "5e-5"),
        ("data.reader.limit", 10),
        ("encoder.pooling", "cls"),
        ("trainer.precision", "bf16-mixed"),
        ("callbacks.early_stopping", {"patience": 3, "min_delta": 0.0}),
        ("least_evaluations", True),
    ],
)
def test_hash_depends_on_decisive_settings(path, value):
    assert of(changed(path, value)) != of(CONFIG)


@pytest.mark.parametrize(
    "changes",
    [
        {"data": {**DATA, "inli/dev": "b2"}},
        {"data": {"inli/train": "aa"}},
        {"encoder": {**ENCODER, "weights": "c2"}},
        {"resolved": {"trainer.accelerator": "cuda"}},
    ],
)
def test_hash_depends_on_files_encoder_and_machine(changes):
    assert of(CONFIG, **changes) != of(CONFIG)
    # An encoder without digests is known by its source.
    assert of(changed("encoder.source", "other"), encoder={}) != of(CONFIG, encoder={})


def test_hash_ignores_precision_of_evaluation():
    def of_evaluation(resolved, **config):
        return config_hash(decisive({"suite": {}, **config}, resolved=resolved))

    want = of_evaluation({})
    assert of_evaluation({}, precision="32") == of_evaluation({}, precision="bf16") == want
    assert of_evaluation({"precision": "bf16"}) == want


def test_neutral_values_are_config_defaults(compose):
    cfg = compose("+experiment=simcse_sup", "data=file", "least_evaluations=1")
    exceptions = {"data.shuffle_buffer", "data.streaming", "method.contrastive_negatives"}
    exceptions |= {"data.bad_rows", "encoder.bidirectional"}  # of version 0.1
    neutral = {key: value for key, value in NEUTRAL.items() if key not in exceptions}
    assert {key: OmegaConf.select(cfg, key) for key in neutral} == neutral
    ngcse = compose("+experiment=ngcse_wiki_sts_ht").method
    assert ngcse.contrastive_negatives is NEUTRAL["method.contrastive_negatives"]


def test_limit_of_one_batch_differs_from_all():
    assert of(changed("trainer.limit_train_batches", 1)) != of(
        changed("trainer.limit_train_batches", 1.0)
    )
