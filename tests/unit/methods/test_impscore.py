"""ImpScore: its loss by hand, a frozen encoder that encodes once, and a run from config to
record.
"""

import json
from functools import partial

import pytest
import pytorch_lightning as pl
import torch
from method_steps import batch_of, method_of
from oracles import SENTENCES

from lightning_cse.data import ContrastiveData, ContrastiveDataModule, INLIImplicitPairs, sample_dir
from lightning_cse.encoders import SentenceEncoder, tiny_encoder
from lightning_cse.encoders.passes import Passes
from lightning_cse.engine.load import load
from lightning_cse.errors import EncoderError
from lightning_cse.evaluation import STSB
from lightning_cse.loggers import CurvesLogger
from lightning_cse.losses import ImplicitnessRanking
from lightning_cse.methods import ImpScore, Schedule
from lightning_cse.runs import Curves

ROLES = ("pos_implicit", "pos_explicit", "neg_implicit", "neg_explicit")
MAPS = {
    "p2s": {"pragmatic", "semantic", "from_pragmatic"},
    "s2p": {"pragmatic", "semantic", "from_semantic"},
    "third_space": {"pragmatic", "semantic", "from_pragmatic", "from_semantic"},
}


def make(lr=1e-2, **options):
    optimizer = partial(torch.optim.Adam, lr=lr, weight_decay=1e-3)
    training = {"optimizer": optimizer, "schedule": Schedule("constant")}
    return method_of(ImpScore, ImplicitnessRanking(), dim=8, **training, **options)


def pairs(**tasks):
    settings = ContrastiveData(
        train=["inli/train"],
        held_out=["inli/val"],
        rows=INLIImplicitPairs(),
        batch_size=5,
        drop_last=False,
        data_dir=str(sample_dir()),
        train_rows=12,
    )
    tokenizer = tiny_encoder().tokenizer
    return ContrastiveDataModule(settings, tokenize=tokenizer, seed=0, tasks=tasks)


def fit(method, data, epochs, **options):
    data.use(method.roles)
    quiet = ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary")
    trainer = pl.Trainer(
        accelerator="cpu", max_epochs=epochs, **dict.fromkeys(quiet, False) | options
    )
    if data.tasks:
        trainer.validate(method, data, verbose=False)

    trainer.fit(method, data)

    return method


def test_equal_sentences_have_a_finite_gradient():
    method = make(pragmatic_metric="euclidean", implicitness_metric="euclidean")
    inputs = batch_of(method)
    inputs["roles"]["pos_explicit"] = inputs["roles"]["pos_implicit"]
    method.training_step(inputs, 0)["loss"].backward()  # a distance of 0 has a gradient of 0
    assert all(p.grad.isfinite().all() for p in method.parameters() if p.grad is not None)


@pytest.mark.parametrize("frozen", [True, False])
@pytest.mark.parametrize("direction", MAPS)
def test_maps_learn_and_the_encoder_unless_it_is_frozen(frozen, direction):
    method = make(direction=direction, frozen=frozen).train()
    outputs = method.training_step(batch_of(method), 0)
    assert set(outputs["embeddings"]) == set(ROLES)
    assert outputs["sentences"] == 4 * len(SENTENCES)
    outputs["loss"].backward()
    learning = set()
    for name, parameter in method.model.named_parameters():
        if parameter.grad is not None and parameter.grad.any():
            learning.add(name.partition(".")[0])

    assert learning == (MAPS[direction] if frozen else MAPS[direction] | {"encoder"})
    assert method.model.encoder.training is not frozen


def test_frozen_encoder_encodes_every_training_sentence_once(monkeypatch):
    counts = []
    losses = []
    forward = SentenceEncoder.forward
    step = ImpScore.training_step

    def counted(self, requests, **options):
        counts.append(sum(len(tokens) for tokens, _ in requests))
        return forward(self, requests, **options)

    def both(self, batch, batch_idx):
        outputs = step(self, batch, batch_idx)
        losses.append((outputs["loss"].item(), batch))
        return outputs

    monkeypatch.setattr(SentenceEncoder, "forward", counted)
    monkeypatch.setattr(ImpScore, "training_step", both)
    data = pairs()
    method = fit(make(lr=0.0), data, epochs=2)
    distinct = set().union(*(data.train[role] for role in ROLES))
    assert counts == [len(distinct)]
    assert set(method.state_dict()) == {f"model.{name}.weight" for name in MAPS["p2s"]}
    assert len(losses) > 4
    method.trainer = None  # it logs no more
    for looked_up, batch in losses:  # the maps have not changed
        assert step(method, batch, 0)["loss"].item() == pytest.approx(looked_up, rel=1e-5)


@pytest.mark.slow
def test_frozen_encoder_makes_one_pass_for_all_evaluations(monkeypatch, tmp_path):
    passes = []
    encode = Passes.encode

    def counted(self, parts):
        passes.append(sum(len(part.ids) for part in parts))
        return encode(self, parts)

    monkeypatch.setattr(Passes, "encode", counted)
    task = STSB(data_dir=str(sample_dir()), dev_rows=20)

    def scores(name):
        passes.clear()
        curves = Curves(tmp_path / name)
        often = {"val_check_interval": 2, "check_val_every_n_epoch": None}
        options = {"num_sanity_val_steps": 0, "logger": CurvesLogger(curves), **often}
        fit(make(), pairs(stsb=task), epochs=2, **options)

        return curves.read()["val/stsb/spearman"]

    cached = scores("kept.csv")
    evaluated = len(set(task.sentences("dev")))
    trained = sum(passes) - evaluated
    assert passes == [evaluated, trained]
    monkeypatch.setattr(SentenceEncoder, "is_fixed", False)
    assert scores("repeated.csv") == cached, "to the last bit"
    assert passes == [evaluated, trained, *[evaluated] * (len(cached) - 1)]
    assert [step for step, _ in cached] == [0, 2, 4, 6, 8, 10]
    assert len({score for _, score in cached}) > 1, "the maps learn"


@pytest.mark.slow
def test_run_needs_the_encoder_that_it_was_trained_with(run_tiny, tmp_path):
    options = (
        "baselines=none",
        "encoder.layers=1",
        "data.train_rows=16",
        "data.held_out_rows=8",
        "diag.sentences=16",
    )
    folder = run_tiny(tmp_path, "+experiment=impscore_inli", *options)
    record = folder.read()
    assert (record["steps"], record["best"]["monitor"]) == (8, "val/eis/accuracy")
    assert "diag/semantic/rfd_alignment" in folder.curves_path.read_text()
    assert len(load(str(folder.path)).answers.embed(SENTENCES)) == len(SENTENCES)
    record["encoder"]["weights"] = "0" * 64
    folder.record_path.write_text(json.dumps(record))
    with pytest.raises(EncoderError, match="the weights of the encoder tiny changed since"):
        load(str(folder.path))
