"""The callback that evaluates: when, with which dropout, and what it leaves behind."""

import math
from functools import partial

import pytest
import pytorch_lightning as pl
import torch

from lightning_cse.callbacks import Diagnostics, Evaluation, build_diagnostics
from lightning_cse.data import ContrastiveData, ContrastiveDataModule, Sentences, sample_dir
from lightning_cse.encoders import tiny_encoder
from lightning_cse.errors import ConfigError
from lightning_cse.evaluation import STSB
from lightning_cse.loggers import CurvesLogger
from lightning_cse.losses import InfoNCE
from lightning_cse.methods import Schedule, UnsupervisedSimCSE
from lightning_cse.runs import Curves

pytestmark = pytest.mark.filterwarnings("ignore:.*LeafSpec")  # Lightning's own

STEPS = 6
STS = "val/stsb/spearman"
OPTIONS = {
    "evaluation": "stsb_dev",
    "dropout": True,
    "positive_score": 4.0,
    "negative_score": 1.0,
    "sentences": 40,
}


def measuring(scores, monkeypatch):
    """Let evaluations measure these scores, by step; return the list of those that did."""
    seen = []

    def measured(self, method):
        seen.append(self)
        return {STS: scores[self.step]}

    monkeypatch.setattr(Evaluation, "_measure", measured)

    return seen


class Parts:
    """Unsupervised SimCSE on the sentences of the sample corpus, with what watches it."""

    def __init__(self):
        torch.manual_seed(0)
        optimizer = partial(torch.optim.AdamW, lr=1e-3)
        encoder = tiny_encoder(layers=1)
        self.method = UnsupervisedSimCSE(
            encoder, InfoNCE(), optimizer=optimizer, schedule=Schedule()
        )
        settings = ContrastiveData(
            train=["wiki1m/train"],
            rows=Sentences(),
            batch_size=8,
            drop_last=False,
            data_dir=str(sample_dir()),
            held_out_share=0.2,
        )
        self.data = ContrastiveDataModule(settings, tokenize=encoder.tokenizer, seed=0)
        self.diagnostics = build_diagnostics(self.method, self.data, OPTIONS, str(sample_dir()))
        self.task = STSB(data_dir=str(sample_dir()), dev_rows=60)

    def fit(self, folder, *others, steps=STEPS, **options):
        """Train and return every value that was logged, by key and step."""
        evaluation = Evaluation(
            {"stsb": self.task}, self.diagnostics, monitor=STS, **({"every": 2} | options)
        )
        folder.mkdir(exist_ok=True)
        curves = Curves(folder / "curves.csv")
        off = ("enable_checkpointing", "enable_progress_bar", "enable_model_summary")
        trainer = pl.Trainer(
            max_epochs=-1,
            max_steps=steps,
            accelerator="cpu",
            default_root_dir=str(folder),
            limit_val_batches=0,
            num_sanity_val_steps=0,
            log_every_n_steps=1,
            **dict.fromkeys(off, False),
            logger=CurvesLogger(curves),
            callbacks=[*others, evaluation],
        )
        torch.manual_seed(0)  # the masks of dropout
        trainer.fit(self.method.eval(), self.data)  # an encoder is loaded in this mode

        return {key: dict(values) for key, values in curves.read().items()}


def test_a_monitor_that_the_method_cannot_give_is_named(run_tiny, tmp_path):
    line = ("experiment=simcse_inli", "suite=inli_direction")
    with pytest.raises(ConfigError, match=r"inli_direction/accuracy has no value, .* both ways"):
        run_tiny(tmp_path, *line, "monitor=val/inli_direction/accuracy")


def test_dropout_is_for_diagnostics_alone(tmp_path, one_thread):
    first = Parts()
    second = Parts()
    noisy = first.fit(tmp_path / "with", dropout=True)
    plain = second.fit(tmp_path / "without", dropout=False)
    for name, parameter in first.method.named_parameters():
        assert torch.equal(parameter, second.method.get_parameter(name)), name

    assert noisy.keys() == plain.keys()
    assert noisy[STS] == plain[STS], "tasks are evaluated without"
    held_out = "diag/held_out/alignment"
    assert list(plain[STS]) == list(noisy[held_out]) == [0, 2, 4, 6]
    # A pair of a sentence with itself.
    assert set(plain[held_out].values()) == {0.0}
    assert min(noisy[held_out].values()) > 0.01
    for key in ("diag/eval/alignment", "diag/held_out/uniformity", "diag/eval/uniformity"):
        assert all(noisy[key][step] != value for step, value in plain[key].items()), key


@pytest.mark.parametrize(
    ("every", "least", "steps", "want"),
    [
        (125, 1, 6, [0, 6]),
        (125, 3, 7, [0, 2, 4, 6, 7]),
        (2, 2, 6, [0, 2, 4, 6]),  # more often than at least is asked for
        (4, 1, 6, [0, 4, 6]),
    ],
)
def test_short_run_is_evaluated_more_often(every, least, steps, want, tmp_path):
    parts = Parts()
    parts.diagnostics = Diagnostics(None, None)
    values = parts.fit(tmp_path, every=every, least=least, steps=steps)
    assert {key: list(points) for key, points in values.items()} == {STS: want}


@pytest.mark.parametrize(
    ("scores", "patience", "min_delta", "last"),
    [
        # Step 0, before anything is learned, does not count.
        ([0.9, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6], 1, 0.0, None),
        ([0.0, 0.5, 0.4, 0.6, 0.6, 0.6, 0.6], 2, 0.0, 5),
        ([0.0, 0.5, 0.51, 0.52, 0.9, 0.9, 0.9], 2, 0.1, 3),
        ([0.0, 0.5, math.nan, math.nan, 0.9, 0.9, 0.9], 2, 0.0, 3),
        ([0.0, 0.1, 0.2, 0.3, 0.4, 0.4, 0.4], 2, 0.0, None),  # patience ends with training
        ([0.0, 0.5, 0.4, 0.3, 0.2, 0.1, 0.0], None, 0.0, None),
    ],
)
def test_early_stopping(scores, patience, min_delta, last, tmp_path, monkeypatch):
    seen = measuring(scores, monkeypatch)
    values = Parts().fit(tmp_path, every=1, patience=patience, min_delta=min_delta)
    stopped = seen[0].stopped
    assert max(values[STS]) == (last or STEPS)
    if last is None:
        assert stopped is None
    else:
        by = f" by more than {min_delta}" if min_delta else ""
        assert stopped == f"{STS} has not improved{by} in {patience} evaluations"


@pytest.mark.parametrize(
    ("warmup", "scores", "best"),
    [
        # Six steps; those of the warm-up are 1 and 2 (warmup=0.4).
        (0.4, [0.9, 0.5, 0.8, 0.1, 0.3, 0.2, 0.3], 4),
        (0.0, [0.9, 0.5, 0.8, 0.1, 0.3, 0.2, 0.3], 2),
        (0.4, [0.9, 0.5, 0.8, *[math.nan] * 4], 2),  # nothing else exists
        # As GaussCSE's paper describes it: every step belongs to the warm-up.
        (1.0, [0.9, 0.5, 0.8, 0.1, 0.3, 0.2, 0.3], 2),
    ],
)
def test_the_best_step_is_after_the_warm_up(warmup, scores, best, tmp_path, monkeypatch):
    seen = measuring(scores, monkeypatch)
    parts = Parts()
    parts.method.schedule = Schedule(warmup=warmup)
    parts.fit(tmp_path, every=1)
    assert (seen[0].best_step, seen[0].best_score) == (best, scores[best])
