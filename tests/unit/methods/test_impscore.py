"""ImpScore: its loss by hand, a frozen encoder that encodes once, and a run from config to
record.
"""

from functools import partial

import pytest
import pytorch_lightning as pl
import torch
from method_steps import batch_of, method_of
from oracles import SENTENCES

from lightning_cse.data import ContrastiveData, ContrastiveDataModule, INLIImplicitPairs, sample_dir
from lightning_cse.encoders import SentenceEncoder, tiny_encoder
from lightning_cse.losses import ImplicitnessRanking
from lightning_cse.methods import ImpScore, Schedule

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
