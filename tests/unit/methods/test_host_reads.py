"""A training step never waits for a GPU: it reads no tensor from the device."""

import json
import os
import subprocess
import sys

import pytest
from host_reads import host_reads

from lightning_cse.engine.build import build
from lightning_cse.paths import conf_dir

EXPERIMENTS = [
    "claif",
    "clhaif",
    "consert",
    "consert_joint",
    "consert_joint_adversarial",
    "dino",
    "dualcse_bi",
    "dualcse_cross",
    "dualgauss",
    "gausscse",
    "impscore",
    "impscore_inli",
    "infersent",
    "infocse",
    "ngcse_nli_dropout",
    "ngcse_nli_sts_ht",
    "ngcse_wiki_nli",
    "promptbert",
    "sbert",
    "sbert_regression",
    "simcse_sup",
    "simcse_unsup",
]


def reads(cfg):
    """The reads of a step: forward, loss and backward pass."""
    parts = build(cfg)
    method = parts.method.train()
    batch = next(iter(parts.data.train_dataloader()))
    with host_reads() as names:
        method.training_step(batch, 0)["loss"].backward()

    return names


@pytest.mark.slow
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_a_step_reads_nothing_from_the_device(name, compose):
    names = reads(compose(f"+experiment={name}", "+debug=tiny", "paths.cache_dir=null"))
    assert not names


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        ("+experiment=dualcse_cross", "method.chunk_size=5"),
        ("+experiment=gausscse", "method.loss.reduce=sim_of_sum"),
        ("+experiment=impscore_inli", "method.frozen=false"),
        ("+experiment=ngcse_nli_sts_ht", "method.contrastive=multiple_positive"),
        ("+experiment=simcse_sup", "trainer.precision=bf16-mixed"),
    ],
)
def test_options_read_nothing_from_the_device(options, compose):
    names = reads(compose(*options, "+debug=tiny", "paths.cache_dir=null"))
    assert not names


@pytest.mark.slow
def test_a_step_runs_on_a_pretended_gpu(repository):
    # The tensors of an LSTM have shapes that depend on lengths, which fake ones do not have.
    names = [name for name in EXPERIMENTS if name != "infersent"]
    command = [sys.executable, str(repository / "tests" / "pretended_gpu.py"), *names]
    completed = subprocess.run(
        command,
        env=os.environ | {"PYTHONPATH": str(repository / "src")},
        capture_output=True,
        text=True,
    )
    assert completed.returncode == 0, completed.stderr[-4000:]
    assert json.loads(completed.stdout.splitlines()[-1]) == {name: [] for name in names}


def test_every_method_is_counted():
    files = (conf_dir() / "experiment" / f"{name}.yaml" for name in EXPERIMENTS)
    used = {
        line.split()[-1]
        for file in files
        for line in file.read_text().splitlines()
        if "override /method:" in line
    }
    assert used >= {file.stem for file in (conf_dir() / "method").glob("[!_]*.yaml")} - {"ngcse"}
