"""ImpScore: its loss by hand, a frozen encoder that encodes once, and a run from config to
record.
"""

import json
from collections.abc import Callable
from functools import partial

import pytest
import pytorch_lightning as pl
import torch
from oracles import SENTENCES
from torch import Tensor

from lightning_cse.data import (
    ContrastiveData,
    ContrastiveDataModule,
    INLIImplicitPairs,
    sample_dir,
)
from lightning_cse.embeddings import PragmaticEmbedding
from lightning_cse.encoders import SentenceEncoder, tiny_encoder
from lightning_cse.engine.load import load
from lightning_cse.errors import DataError, EncoderError
from lightning_cse.losses import ImplicitnessRanking
from lightning_cse.methods import ImpScore, Schedule
from lightning_cse.runs import Run
from lightning_cse.tokens import Tokens

RunTiny = Callable[..., Run]

ROLES = ("pos_implicit", "pos_explicit", "neg_implicit", "neg_explicit")
MAPS = {
    "p2s": {"pragmatic", "semantic", "from_pragmatic"},
    "s2p": {"pragmatic", "semantic", "from_semantic"},
    "third_space": {"pragmatic", "semantic", "from_pragmatic", "from_semantic"},
}


def make(lr=1e-2, **options):
    torch.manual_seed(0)
    optimizer = partial(
        torch.optim.Adam,
        lr=lr,
        weight_decay=1e-3,
    )
    schedule = Schedule("constant")
    return ImpScore(
        tiny_encoder(),
        ImplicitnessRanking(),
        optimizer=optimizer,
        schedule=schedule,
        dim=8,
        **options,
    )


def batch(method):
    ids = method.model.encoder.tokenizer(SENTENCES)
    explicit, other = Tokens.pad(ids[1:] + ids[:1]), Tokens.pad(ids[3:] + ids[:3])
    roles = dict(
        zip(
            ROLES,
            (Tokens.pad(ids), explicit, Tokens.pad(ids), other),
            strict=True,
        )
    )
    return {"roles": roles, "index": torch.arange(len(SENTENCES))}


def pairs(rows=12, batch_size=5, **options):
    settings = ContrastiveData(
        train=["inli/train"],
        held_out=["inli/val"],
        rows=INLIImplicitPairs(**options),
        batch_size=batch_size,
        drop_last=False,
        data_dir=str(sample_dir()),
        train_rows=rows,
    )
    return ContrastiveDataModule(
        settings,
        tokenize=tiny_encoder().tokenizer,
        seed=0,
    )


def fit(method, data, epochs=1, callback=None):
    data.use(method.roles)
    quiet = ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary")
    trainer = pl.Trainer(
        accelerator="cpu",
        max_epochs=epochs,
        callbacks=callback,
        **dict.fromkeys(quiet, False),
    )
    trainer.fit(method, data)
    return method


def test_equal_sentences_have_a_finite_gradient():
    method = make(
        pragmatic_metric="euclidean",
        implicitness_metric="euclidean",
    )
    given = batch(method)
    # A distance of 0 has a gradient of 0.
    given["roles"]["pos_explicit"] = given["roles"]["pos_implicit"]
    method.training_step(given, 0)["loss"].backward()
    assert all(torch.isfinite(p.grad).all() for p in method.parameters() if p.grad is not None)


@pytest.mark.parametrize("frozen", [True, False])
@pytest.mark.parametrize("direction", MAPS)
def test_maps_learn_and_the_encoder_unless_it_is_frozen(frozen, direction):
    method = make(
        direction=direction,
        frozen=frozen,
    ).train()
    outputs = method.training_step(batch(method), 0)
    assert set(outputs["embeddings"]) == set(ROLES)
    assert outputs["sentences"] == 4 * len(SENTENCES)
    outputs["loss"].backward()
    learning = set()
    for name, parameter in method.model.named_parameters():
        if parameter.grad is not None and parameter.grad.any():
            learning.add(name.partition(".")[0])
    assert learning == (MAPS[direction] if frozen else MAPS[direction] | {"encoder"})
    assert method.model.encoder.training is not frozen


@pytest.mark.parametrize("metrics", [("cosine", "euclidean"), ("euclidean", "cosine")])
def test_loss_is_that_of_the_scores(metrics):
    method = make(
        implicitness_metric=metrics[0],
        pragmatic_metric=metrics[1],
    ).train()
    given = batch(method)
    a, b, c, d = method.model.encode(*given["roles"].values())
    i = method.model.implicitness
    near = method.model.pragmatic_distance(a, b)
    far = method.model.pragmatic_distance(c, d)
    ranks = (0.5 - i(a) + i(b)).relu() + (0.5 - i(c) + i(d)).relu()
    want = (ranks + (0.7 - far + near).relu()).mean()
    torch.testing.assert_close(method.training_step(given, 0)["loss"], want)


class Watching(pl.Callback):
    """Embed the same sentences, and others, after every epoch."""

    def __init__(self):
        self.seen: list[tuple[PragmaticEmbedding, dict[str, Tensor]]] = []

    def on_train_epoch_end(self, trainer, pl_module):
        pl_module.model.embed(SENTENCES[:2])
        state = {name: value.clone() for name, value in pl_module.state_dict().items()}
        self.seen.append((pl_module.model.embed(SENTENCES), state))


def test_frozen_encoder_encodes_every_sentence_once(monkeypatch):
    counts: list[int] = []
    forward = SentenceEncoder.forward

    def counted(self, requests, **options):
        assert not torch.is_grad_enabled()
        assert not self.training
        counts.extend(len(tokens) for tokens, _ in requests)
        return forward(
            self,
            requests,
            **options,
        )

    monkeypatch.setattr(
        SentenceEncoder,
        "forward",
        counted,
    )
    data = pairs()
    watching = Watching()
    method = fit(
        make(),
        data,
        epochs=3,
        callback=watching,
    )
    distinct = set().union(*(data.train.column(role) for role in ROLES))
    assert counts == [
        len(distinct),
        2,
        len(SENTENCES),
    ]
    assert len(distinct) < len(ROLES) * len(data.train)
    assert method._kept is None
    # Neither the vectors nor the encoder are in a checkpoint, and its maps give the embeddings.
    assert set(method.state_dict()) == {f"model.{name}.weight" for name in MAPS["p2s"]}
    for got, state in watching.seen:
        method.load_state_dict(state)
        torch.testing.assert_close(got.fields(), method.model.embed(SENTENCES).fields())
    assert not torch.allclose(watching.seen[0][0].pragmatic, watching.seen[-1][0].pragmatic)


def test_kept_vectors_give_the_loss_of_encoding(monkeypatch):
    losses: list[tuple[float, float]] = []
    step = ImpScore.training_step

    def both(self, batch, batch_idx):
        kept = self._kept
        self._kept = None
        encoded = step(self, batch, batch_idx)["loss"].item()
        self._kept = kept
        outputs = step(self, batch, batch_idx)
        losses.append((outputs["loss"].item(), encoded))
        return outputs

    monkeypatch.setattr(
        ImpScore,
        "training_step",
        both,
    )
    fit(
        make(),
        pairs(batch_size=5),
        epochs=2,
    )
    assert len(losses) > 4
    for looked_up, encoded in losses:
        assert looked_up == pytest.approx(encoded, rel=1e-5)


@pytest.mark.parametrize("frozen", [True, False])
def test_row_without_a_sentence_is_an_error(frozen):
    data = pairs()
    columns = {role: data.train.column(role) for role in ROLES}
    columns["neg_explicit"][3] = None
    data.train = data.train.with_columns(**columns)
    with pytest.raises(DataError, match="no neg_explicit, which the method trains on; 1 of 24"):
        fit(make(frozen=frozen), data)


def test_run_needs_the_encoder_that_it_was_trained_with(run_tiny, tmp_path):
    few = (
        "baselines=none",
        "encoder.layers=1",
        "data.train_rows=16",
        "data.held_out_rows=8",
        "diag.sentences=16",
    )
    folder = run_tiny(
        tmp_path,
        "+experiment=impscore_inli",
        *few,
    )
    record = folder.read()
    assert (record["steps"], record["best"]["monitor"]) == (8, "val/eis/accuracy")
    assert "diag/semantic/rfd_alignment" in folder.curves_path.read_text()
    assert len(load(str(folder.path)).answers.embed(SENTENCES)) == len(SENTENCES)
    record["encoder"]["weights"] = "0" * 64
    folder.record_path.write_text(json.dumps(record))
    with pytest.raises(EncoderError, match="the weights of the encoder tiny changed since"):
        load(str(folder.path))
