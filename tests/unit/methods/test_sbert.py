"""SBERT: what it learns from, and that its objectives are those of the losses package."""

import pytest
import pytorch_lightning as pl
import torch
from method_steps import TRAINING, batch_of, method_of

from lightning_cse.data import sample_dir
from lightning_cse.encoders import tiny_encoder
from lightning_cse.engine.build import build
from lightning_cse.errors import ConfigError
from lightning_cse.evaluation import Embedded, PairLabels
from lightning_cse.losses import CosineRegression, SoftInfoNCE
from lightning_cse.methods import SBERT, SBERTRegression


def make(method_class, **options):
    return method_of(method_class, encoder=tiny_encoder(pooling="mean"), **options)


@pytest.mark.parametrize(
    ("method", "targets"),
    [
        (make(SBERT, classes=5), torch.arange(5)),
        (make(SBERT, parts=["product"], hidden=[7], tanh=True), torch.arange(5) % 3),
        (make(SBERTRegression, loss=CosineRegression()), torch.linspace(0, 1, 5)),
        (make(SBERTRegression, loss=SoftInfoNCE()), torch.linspace(0.1, 1, 5)),
    ],
)
def test_step_is_the_loss_of_both_vectors_and_learns_the_targets(method, targets):
    method.eval()
    inputs = batch_of(method, targets=targets)
    outputs = method.training_step(inputs, 0)
    first, second = method.model.encode(*inputs["roles"].values())
    assert torch.equal(outputs["loss"], method.loss(first, second, targets))
    assert set(outputs["embeddings"]) == set(method.roles)

    optimizer = TRAINING["optimizer"](method.parameters())
    for _ in range(20):
        optimizer.zero_grad()
        loss = method.training_step(inputs, 0)["loss"]
        loss.backward()
        optimizer.step()

    assert loss < 0.7 * outputs["loss"]


def test_labels_of_pairs_are_those_of_the_largest_score():
    model = make(SBERT).model.eval()
    task = PairLabels(data_dir=str(sample_dir()), dev="snli/dev", test="snli/test", dev_rows=20)
    result = task.evaluate(Embedded(model, task.sentences("dev")), "dev")
    rows = task.rows("dev")
    hits = 0
    for row in rows:
        first, second = model.embed([row["premise"]]), model.embed([row["hypothesis"]])
        number = int(model.classifier.logits(first.vector, second.vector).argmax())
        hits += task.labels[number] == row["label"]

    assert result.metrics == {"accuracy": pytest.approx(hits / len(rows))}
    assert len(result.predictions["prediction"]) == len(rows) == 20
    assert "-" not in rows["label"]


def test_a_label_beyond_the_classes_stops_training_before_its_first_step(compose, monkeypatch):
    monkeypatch.setattr(SBERT, "training_step", lambda *_: pytest.fail("a step"))
    cfg = compose("+experiment=sbert", "+debug=tiny", "paths.cache_dir=null", "method.classes=2")
    parts = build(cfg)
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    trainer = pl.Trainer(max_steps=1, accelerator="cpu", **quiet)
    with pytest.raises(ConfigError, match="classes: 2, but a row has the label number 2"):
        trainer.fit(parts.method, parts.data)
