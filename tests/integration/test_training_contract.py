"""What training promises beside its numbers: watching changes nothing, bad batches and bad values are named."""

import json
import logging
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from omegaconf import DictConfig
from small_runs import LITTLE, SMALL, curves
from torch import Tensor

from lightning_cse.encoders import tiny_encoder
from lightning_cse.engine import train as training
from lightning_cse.errors import ConfigError, EncoderError, TrainingError
from lightning_cse.losses import DualContrastive
from lightning_cse.methods import DualCSE
from lightning_cse.runs import Run

Compose = Callable[..., DictConfig]
Train = Callable[..., Run]

# Methods in the place of DualCSE, watched by the same tasks of INLI.
CROSS, BI = (("method=dualcse_cross",), ("method=dualcse_bi",))
GAUSSCSE = ("method=gausscse", "data=nli_triplets")
ENTAILED = (*GAUSSCSE, "method.loss.sets=[ent]")
IMPSCORE = ("method=impscore", "data=inli_implicit_pairs", "monitor=val/eis/accuracy")
UNSUPERVISED = ("method=simcse_unsup", "data=wiki_sentences")
TRIPLETS = ("method=simcse", "data=inli_triplets")


class Watch:
    """Notes the rows of every batch while a run goes on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rows: list[list[int]] = []
        original = DualCSE.training_step

        def training_step(method: DualCSE, batch: dict[str, Any], batch_idx: int) -> dict[str, Any]:
            self.rows.append(batch["index"].tolist())
            return original(method, batch, batch_idx)

        monkeypatch.setattr(DualCSE, "training_step", training_step)


@pytest.fixture
def run(run_tiny: Train, tmp_path: Path) -> Train:
    """Train DualCSE for six steps, with overrides; the runs go below the test's folder."""
    return lambda *overrides, place="": run_tiny(tmp_path / place, *SMALL, *overrides)


# Watching

WATCHED = {
    "as it is": (),
    "at every step": ("eval_every=1",),
    "at the ends only": ("eval_every=1000",),
    "without evaluation side": ("diag.evaluation=none",),
    "with dropout": ("diag.dropout=true",),
    "without EIS": ("~suite.eis",),
    "more sentences": ("diag.sentences=50", "data.held_out_rows=30", "limits.dev_rows=30"),
}


def test_evaluation_does_not_change_training(run: Train, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = {}
    for name, overrides in WATCHED.items():
        with monkeypatch.context() as patch:
            watch = Watch(patch)
            folder = run(*overrides, "keep_last=true", place=name.replace(" ", "_"))
        parameters = torch.load(folder.checkpoints / "last.ckpt", weights_only=True)["state_dict"]
        seen[name] = (
            watch.rows,
            curves(folder)["train/loss"],
            {k: v.tolist() for k, v in parameters.items()},
        )
    want = seen.pop("as it is")
    assert [len(batch) for batch in want[0]] == [8, 8, 4] * 2
    assert [name for name, found in seen.items() if found != want] == []


@pytest.mark.parametrize("limit", ["2", "0.7"])
def test_a_limited_epoch_is_the_start_of_its_order(
    limit: str, run: Train, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        whole = Watch(patch)
        run("trainer.max_epochs=3", place="whole")
    with monkeypatch.context() as patch:
        watch = Watch(patch)
        folder = run(
            f"trainer.limit_train_batches={limit}", "trainer.max_epochs=3", place="limited"
        )
    assert watch.rows == [rows for epoch in range(3) for rows in whole.rows[3 * epoch :][:2]]
    assert folder.read()["steps"] == 6, "as the schedule was told"


def test_an_encoder_without_dropout_is_a_warning_where_pairs_do_not_need_it(run: Train) -> None:
    folder = run("encoder.dropout=0")
    warning = "the encoder tiny has no dropout; set encoder.dropout=0.1 to train with it"
    assert folder.log_path.read_text().count(warning) == 1
    assert folder.status == "finished"
    pairs = (*UNSUPERVISED, "diag.dropout=true")
    message = r"UnsupervisedSimCSE .* the encoder tiny has no dropout: set encoder\.dropout=0\.1"
    with pytest.raises(EncoderError, match=message):
        run(*pairs, "encoder.dropout=0.0")
    assert run(*pairs, "encoder.dropout=0.2").status == "finished"


# Numbers that are none


class Broken(DualContrastive):
    """A loss that is, or whose gradient is, not a number at one batch."""

    def __init__(self, at: int, how: str) -> None:
        super().__init__()
        self.at, self.how, self.calls = at, how, 0

    def forward(self, premise: Any, *others: Any, **named: Any) -> Tensor:
        self.calls += 1
        loss = super().forward(premise, *others, **named)
        if self.calls != self.at:
            return loss
        if self.how == "gradient":
            return loss + (premise.explicit * 0).abs().sqrt().sum()  # 0 * inf on the way back
        return loss * float(self.how)


@pytest.mark.parametrize(
    ("how", "clip", "told"),
    [
        ("nan", "1.0", "the loss of step 4 is nan"),
        ("inf", "null", "the loss of step 4 is inf"),
        ("gradient", "1.0", "the gradient of step 4 has the norm nan"),
        ("gradient", "null", "the gradient of step 4 has the norm nan"),
    ],
)
def test_a_number_that_is_none_stops_the_run_and_keeps_the_last_checkpoint(
    how: str, clip: str, told: str, run: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    overrides = (f"trainer.gradient_clip_val={clip}",)
    with monkeypatch.context() as patch, pytest.raises(TrainingError, match=told) as caught:
        watch = Watch(patch)
        patch.setattr("lightning_cse.losses.DualContrastive", lambda **options: Broken(4, how))
        run(*overrides)
    assert f"training rows {watch.rows[-1]}" in str(caught.value)
    assert re.search(r"\(the first: \S*INLI/train\.csv:\d+", str(caught.value))
    assert len(watch.rows) == 4
    (last,) = tmp_path.rglob("last.ckpt")
    state = torch.load(last, weights_only=True)
    assert state["global_step"] == 2
    assert all(bool(torch.isfinite(tensor).all()) for tensor in state["state_dict"].values())
    assert told in json.loads((last.parents[1] / "failed.json").read_text())["message"]
    if how == "nan":  # with a sound loss, the same command goes on from there
        assert run(*overrides).status == "finished"


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            ["method.optimizer.lr=1e30", "eval_every=1"],
            "after step 1 some embeddings are not finite",
        ),
        (
            ["+trainer.limit_train_batches=0"],
            r"no training step was made: see trainer\.limit_train_batches",
        ),
    ],
)
def test_what_cannot_be_trained_leaves_no_checkpoint(
    overrides: list[str], message: str, run: Train, tmp_path: Path
) -> None:
    with pytest.raises(TrainingError, match=message):
        run(*overrides)
    assert not list(tmp_path.rglob("*.ckpt"))


# Values that no type refuses


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            ["method.loss.temperature=0"],
            r"method\.loss: temperature must be positive and finite, got 0",
        ),
        (["encoder.width=33"], r"encoder: The hidden size \(33\) is not a multiple"),
        (
            ["method.optimizer.betas=[1,2]"],
            r"method\.optimizer: Invalid beta parameter at index 0: 1",
        ),
        (
            ["monitor=val/rte/acuracy_all"],
            r"monitor: 'val/rte/acuracy_all' .* did you mean 'val/rte/accuracy_all'",
        ),
        (
            ["data=inli_triplets"],
            r"data: the method trains on premise, .*implied_entailment, contradiction, but this data has premise, "
            r"entailment, contradiction; missing: explicit_entailment, implied_entailment",
        ),
        (
            [*GAUSSCSE, "method.loss.sets=[ent,cont]"],
            r"method\.loss: sets must be a list of ent, con, rev .*'cont'",
        ),
        (
            [*GAUSSCSE, "suite=nli"],
            r"monitor: 'val/rte/accuracy_all' is not a dev score .*val/snli/auprc",
        ),
        ([*UNSUPERVISED], r"diag\.dropout: the pairs of UnsupervisedSimCSE are dropout passes"),
        (["diag.evaluation=corpus_dev"], r"corpus_dev is already the held-out side"),
        (["diag.positive_score=9"], r"diag\.positive_score: 9 is above"),
        pytest.param(
            ["trainer.accelerator=cuda"],
            r"trainer\.accelerator: torch finds no cuda on this machine",
            marks=pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU"),
        ),
    ],
)
def test_values_that_only_their_owner_can_refuse_are_named(
    overrides: list[str], message: str, run: Train
) -> None:
    with pytest.raises(ConfigError, match=message):
        run(*overrides)


# Batches and losses


def test_a_batch_that_is_larger_than_the_data_is_all_of_it_and_reported(
    run: Train, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        folder = run("data.batch_size=32", "data.drop_last=true")
    assert folder.read()["steps"] == 2  # one an epoch
    assert "data.batch_size=32, but an epoch has only 20 rows: all are one batch" in caplog.text


@pytest.mark.parametrize("method", [CROSS, BI, TRIPLETS, ENTAILED, GAUSSCSE, IMPSCORE])
def test_twenty_steps_lower_the_loss(method: tuple[str, ...], run: Train) -> None:
    overfit = (
        "data.train_rows=16",
        "trainer.max_epochs=-1",
        "trainer.max_steps=20",
        "eval_every=20",
    )
    rate = ("method.optimizer.lr=5e-3", "method.schedule.name=constant", "encoder.dropout=0.0")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*has no dropout")
        losses = list(curves(run(*overfit, *rate, *method))["train/loss"].values())
    assert len(losses) == 20
    assert np.mean(losses[-4:]) < 0.7 * np.mean(losses[:4])


def test_accumulated_batches_log_the_mean_of_their_losses(
    run: Train, monkeypatch: pytest.MonkeyPatch
) -> None:
    losses: list[float] = []
    forward = DualContrastive.forward

    def noting(self: DualContrastive, **named: Any) -> Tensor:
        loss = forward(self, **named)
        losses.append(loss.item())
        return loss

    monkeypatch.setattr(DualContrastive, "forward", noting)
    found = curves(run("trainer.accumulate_grad_batches=2", "eval_every=1"))
    assert len(losses) == 6  # batches 1 + 2, 3, 4 + 5, 6: an epoch ends with a step
    steps = [np.mean(losses[0:2]), losses[2], np.mean(losses[3:5]), losses[5]]
    assert list(found["train/loss"].values()) == pytest.approx(steps, rel=1e-6)
    assert list(found["val/rte/accuracy_all"]) == [0, 1, 2, 3, 4]
    assert list(found["train/learning_rate"].values()) == pytest.approx(
        [5e-5 * k / 4 for k in (4, 3, 2, 1)]
    )


# Long sentences and other corpora


@pytest.mark.parametrize(
    ("overrides", "specials"), [(["method=dualcse_cross"], None), (TRIPLETS, 2)]
)
def test_sentences_that_are_too_long_are_counted_and_reported_once(
    overrides: list[str],
    specials: int | None,
    run: Train,
    compose: Compose,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        folder = run("encoder.max_length=20", *overrides)
    data = training.build(compose("+debug=tiny", "paths.cache_dir=null", *SMALL, *overrides)).data
    encoder = tiny_encoder()
    specials = specials or max(len(encoder.template(word)) for word in ("explicit", "implicit"))
    sentences = [sentence for role in data.roles for sentence in data.train.column(role)]
    long = sum(len(ids) > 20 - specials for ids in encoder.tokenizer(sentences))
    assert 0 < long < len(sentences)
    rows = folder.read()["rows"]
    assert rows["sentences_cut"] == long
    assert rows["evaluation_sentences_cut"] > 0
    (told,) = [record.getMessage() for record in caplog.records if "longer" in record.getMessage()]
    assert told.startswith(f"{long} of {len(sentences)} training sentences and ")
    assert f" and {rows['evaluation_sentences_cut']} of " in told
    cut = run("data.max_tokens=12").read()["rows"]  # in training alone
    assert (cut["sentences_cut"] > 0, cut["evaluation_sentences_cut"]) == (True, 0)


def test_a_method_of_triplets_trains_on_inli_too(
    compose: Compose, tmp_path: Path, capsys: pytest.CaptureFixture[str], one_thread: None
) -> None:
    overrides = (
        "+debug=tiny",
        "paths.cache_dir=null",
        "+experiment=gausscse",
        *LITTLE,
        "data=inli_triplets",
    )
    cfg = compose(*overrides)
    cfg.paths.runs_dir = str(tmp_path)
    outcome = training.run(cfg)
    folder = Run.at(Path(outcome.folder))
    record = folder.read()
    assert (record["rows"]["used"], record["rows"]["training_rows"]) == (20, 40)
    read = {"INLI/train.csv", "INLI/val.csv", "INLI/test.csv", "SNLI/snli_1.0/snli_1.0_test.jsonl"}
    assert read <= set(record["data"])
    assert {"test/snli/auprc", "test/stsb/spearman", "test/sick_direction/accuracy"} <= set(
        record["metrics"]
    )
    # A sweeper gets the best dev score.
    points, best = curves(folder)["val/snli/auprc"], record["best"]
    assert best == {"monitor": "val/snli/auprc", "score": outcome.score, "step": best["step"]}
    assert (
        outcome.score
        == max(value for step, value in points.items() if step > 0)
        == points[best["step"]]
    )
    assert outcome.status == "finished"
    assert str(folder.record_path) in capsys.readouterr().out.replace("\n", "")
