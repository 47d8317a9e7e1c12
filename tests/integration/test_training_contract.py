"""What training guarantees beside its numbers: errors name rows and keys, evaluation has no
effect.
"""

import json
import logging
import re

import numpy as np
import pytest
import torch
from small_runs import curves

from lightning_cse.errors import ConfigError, TrainingError
from lightning_cse.losses import DualContrastive

pytestmark = pytest.mark.slow


# What is measured

MEASURED = {
    "default": "",
    "every_step": "eval_every=1",
    "with_dropout": "diag.dropout=true diag.evaluation=none",
    "more_sentences": "diag.sentences=50 data.held_out_rows=30 limits.dev_rows=30 ~suite.eis",
}


def test_evaluation_does_not_change_training(run, batches):
    trained = {}
    for name, line in MEASURED.items():
        batches.rows = []
        folder = run(*line.split(), "keep_last=true", name=name)
        last = torch.load(folder.checkpoints / "last.ckpt", weights_only=True)
        parameters = {key: tensor.tolist() for key, tensor in last["state_dict"].items()}
        trained[name] = (batches.rows, curves(folder)["train/loss"], parameters)

    expected = trained["default"]
    assert [len(batch) for batch in expected[0]] == [8, 8, 4] * 2
    assert [name for name, weights in trained.items() if weights != expected] == []


# Another model's weights


def test_start_from_the_weights_of_a_run(run, monkeypatch, caplog):
    first = run(name="first")
    step = first.read()["best"]["step"]
    monitor = first.read()["best"]["monitor"]
    second = run(f"init_from={first.path}", name="second")
    assert curves(second)[monitor][0] == curves(first)[monitor][step]
    assert curves(second)["train/loss"] != curves(first)["train/loss"]

    # What counts is the content of the weights, not the place.
    digest = first.read()["checkpoint"]["sha256"]
    assert second.read()["decisive"]["config"]["init_from"] == digest
    third = run(f"init_from={second.path}", name="third")
    assert len({folder.config_hash for folder in (first, second, third)}) == 3

    caplog.set_level(logging.INFO)
    gausscse = run("method=gausscse", "data=nli_triplets", f"init_from={first.path}", name="gauss")
    assert gausscse.read()["steps"]
    assert "newly drawn: model." in caplog.text


def test_start_from_an_encoder_that_does_not_fit(run, tmp_path):
    first = run(name="first")
    with pytest.raises(ConfigError, match=r"init_from: .* does not fit the encoder tiny: \d+ of"):
        run(f"init_from={first.path}", "encoder.width=16", name="narrow")

    with pytest.raises(ConfigError, match=r"init_from: .* has another .*, which is frozen here"):
        run(f"init_from={first.path}", "encoder.freeze_embeddings=true", name="frozen")


# Numbers that are not finite


class Broken(DualContrastive):
    """A loss that is, or whose gradient is, not a number at one batch."""

    def __init__(self, at, fault):
        super().__init__()
        self.at = at
        self.fault = fault
        self.calls = 0

    def forward(self, premise, *hypotheses, **named):
        self.calls += 1
        loss = super().forward(premise, *hypotheses, **named)
        if self.calls != self.at:
            return loss

        if self.fault == "gradient":
            return loss + (premise.explicit * 0).abs().sqrt().sum()  # 0 * inf on the way back

        return loss * float(self.fault)


@pytest.mark.parametrize(
    ("fault", "clip", "message"),
    [
        ("nan", "1.0", "the loss of step 4 is nan"),
        ("gradient", "null", "the norm of the gradient of step 4 is nan"),
    ],
)
def test_training_stops_at_a_number_that_is_not_finite(
    fault, clip, message, run, batches, tmp_path, monkeypatch
):
    line = f"trainer.gradient_clip_val={clip}"

    def broken(**options) -> Broken:
        return Broken(4, fault)

    with monkeypatch.context() as patch, pytest.raises(TrainingError, match=message) as caught:
        patch.setattr("lightning_cse.losses.DualContrastive", broken)
        run(line)

    assert f"training rows {batches.rows[-1]}" in str(caught.value)
    assert re.search(r"\(the first: \S*INLI/train\.csv:\d+", str(caught.value))
    assert len(batches.rows) == 4

    (last,) = tmp_path.rglob("last.ckpt")
    state = torch.load(last, weights_only=True)

    assert state["global_step"] == 2

    for tensor in state["state_dict"].values():
        assert torch.isfinite(tensor).all()

    failure = json.loads((last.parents[1] / "failed.json").read_text())
    assert message in failure["message"]

    if fault == "nan":  # with the right loss, the same command continues from there
        assert run(line).status == "finished"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            ("method.optimizer.lr=1e30", "eval_every=1"),
            "after step 1 some embeddings are not finite",
        ),
        (("trainer.limit_train_batches=0",), "no training step was made: see trainer.limit_train"),
    ],
)
def test_failed_training_leaves_no_checkpoint(line, message, run, tmp_path):
    with pytest.raises(TrainingError, match=message):
        run(*line)

    assert not list(tmp_path.rglob("*.ckpt"))


# Values that only their owner can refuse

REFUSED = [
    (["method.loss.temperature=0"], "method.loss: temperature must be positive and finite, got 0"),
    (["method.optimizer.betas=[1,2]"], "method.optimizer.betas.0: should be less than 1, got 1"),
    (["monitor=val/rte/acuracy_all"], "'val/rte/acuracy_all' is not a dev score"),
    (["data=inli_triplets"], "missing: explicit_entailment, implied_entailment"),
    (
        ["method=simcse_unsup", "data=wiki_sentences"],
        "diag.dropout: UnsupervisedSimCSE pairs two dropout passes",
    ),
    pytest.param(
        ["trainer.accelerator=cuda"],
        "trainer.accelerator: torch finds no cuda on this machine",
        marks=pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU"),
    ),
]


@pytest.mark.parametrize(("line", "message"), REFUSED)
def test_refused_values_are_named(line, message, run):
    with pytest.raises(ConfigError, match=re.escape(message)):
        run(*line)


def test_loss_of_accumulated_batches_is_their_mean(run, monkeypatch):
    losses = []
    original = DualContrastive.forward

    def forward(self, **named):
        loss = original(self, **named)
        losses.append(loss.item())
        return loss

    monkeypatch.setattr(DualContrastive, "forward", forward)
    accumulated = curves(run("trainer.accumulate_grad_batches=2", "eval_every=1"))

    assert len(losses) == 6  # batches 1 + 2, 3, 4 + 5, 6: an epoch ends with a step

    steps = [np.mean(losses[0:2]), losses[2], np.mean(losses[3:5]), losses[5]]
    assert list(accumulated["train/loss"].values()) == pytest.approx(steps, rel=1e-6)
    assert list(accumulated["val/rte/accuracy_all"]) == [0, 1, 2, 3, 4]

    rates = [5e-5 * share for share in (1, 0.75, 0.5, 0.25)]
    assert list(accumulated["train/learning_rate"].values()) == pytest.approx(rates)


def test_long_sentences_are_counted(run, caplog):
    caplog.set_level(logging.WARNING)
    rows = run("encoder.max_length=20").read()["rows"]
    assert rows["sentences_cut"] > 0
    assert rows["evaluation_sentences_cut"] > 0
    (message,) = [text for text in caplog.messages if "are longer than" in text]
    assert message.startswith(f"{rows['sentences_cut']} training sentences and ")

    cut = run("data.max_tokens=12").read()["rows"]  # in training alone
    assert cut["sentences_cut"] > 0
    assert cut["evaluation_sentences_cut"] == 0
    by_role = {name: count for name, count in cut.items() if name.startswith("cut to 12 tokens: ")}
    assert "cut to 12 tokens: premise" in by_role
    assert sum(by_role.values()) == cut["sentences_cut"]
