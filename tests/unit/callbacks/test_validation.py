"""Validation: when, with which dropout, what it stops and which step is the best."""

import json
from functools import partial

import pytest
import pytorch_lightning as pl
import torch

from lightning_cse.callbacks import build_diagnostics
from lightning_cse.data import ContrastiveData, ContrastiveDataModule, Sentences, sample_dir
from lightning_cse.encoders import tiny_encoder
from lightning_cse.errors import ConfigError
from lightning_cse.evaluation import STSB, Task, TaskResult
from lightning_cse.loggers import CurvesLogger
from lightning_cse.losses import InfoNCE
from lightning_cse.methods import Schedule, UnsupervisedSimCSE
from lightning_cse.runs import Curves

pytestmark = pytest.mark.filterwarnings("ignore:.*LeafSpec")  # Lightning's own

STEPS = 6
STS = "val/stsb/spearman"
SCORE = "val/scripted/score"
OPTIONS = {"evaluation": "stsb_dev", "positive_score": 4.0, "negative_score": 1.0, "sentences": 40}


class Scripted(Task):
    """Gives these scores, one per validation; None is NaN, which a config cannot hold."""

    needs = ()
    splits = ("dev",)
    metrics = ("score",)

    def __init__(self, scores):
        self.scores = iter(scores)

    def sentences(self, split):
        return ["A dog runs.", "It rains."]

    def evaluate(self, embedded, split):
        return TaskResult({"score": float(next(self.scores) or "nan")})


@pytest.fixture
def scripted(run_tiny, tmp_path):
    """Train six steps whose validations give these scores; return the run and its curves."""

    def run(scores, *overrides):
        folder = run_tiny(
            tmp_path,
            "+experiment=simcse_unsup",
            "baselines=none",
            "encoder.layers=1",
            "data.train_rows=24",
            "diag.evaluation=none",
            "data.held_out_rows=2",
            "eval_every=1",
            f"+suite.scripted={{_target_: {__name__}.Scripted, scores: {json.dumps(scores)}}}",
            f"monitor={SCORE}",
            *overrides,
        )
        return folder, Curves(folder.curves_path).read()

    return run


class Parts:
    """Unsupervised SimCSE on the sentences of the sample corpus, with what watches it."""

    def __init__(self, *, dropout=True):
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
        tasks = {"stsb": STSB(data_dir=str(sample_dir()), dev_rows=60)}
        self.data = ContrastiveDataModule(settings, tokenize=encoder.tokenizer, seed=0, tasks=tasks)
        options = OPTIONS | {"dropout": True}
        self.diagnostics = build_diagnostics(self.method, self.data, options, str(sample_dir()))
        self.diagnostics.dropout = dropout
        self.data.watched_sentences = self.diagnostics.sentences()
        self.data.embeds_watched = not dropout

    def fit(self, folder):
        """Train and return every value that was logged, by key and step."""
        folder.mkdir(exist_ok=True)
        curves = Curves(folder / "curves.csv")
        off = ("enable_checkpointing", "enable_progress_bar", "enable_model_summary")
        trainer = pl.Trainer(
            max_epochs=-1,
            max_steps=STEPS,
            accelerator="cpu",
            default_root_dir=str(folder),
            num_sanity_val_steps=0,
            val_check_interval=2,
            check_val_every_n_epoch=None,
            log_every_n_steps=1,
            **dict.fromkeys(off, False),
            logger=CurvesLogger(curves),
            callbacks=[self.diagnostics],
        )
        method = self.method.eval()  # an encoder is loaded in this mode
        trainer.validate(method, self.data, verbose=False)
        torch.manual_seed(0)  # the masks of dropout
        trainer.fit(method, self.data)

        return {key: dict(values) for key, values in curves.read().items()}


def test_a_monitor_that_the_method_cannot_give_is_named(run_tiny, tmp_path):
    line = ("+experiment=simcse_inli", "suite=inli_direction")
    with pytest.raises(ConfigError, match=r"inli_direction/accuracy has no value, .* both ways"):
        run_tiny(tmp_path, *line, "monitor=val/inli_direction/accuracy")


def test_dropout_is_for_diagnostics_alone(tmp_path, one_thread):
    first = Parts(dropout=True)
    second = Parts(dropout=False)
    noisy = first.fit(tmp_path / "with")
    plain = second.fit(tmp_path / "without")
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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("every", "least", "steps", "want"),
    [
        (125, 1, 6, [0, 6]),
        (125, 3, 7, [0, 2, 4, 6, 7]),
        (2, 2, 6, [0, 2, 4, 6]),  # more often than at least is asked for
        (4, 1, 6, [0, 4, 6]),
        ("null", 1, 7, [0, 3, 6, 7]),  # after every epoch, and the last step
    ],
)
def test_short_run_is_evaluated_more_often(every, least, steps, want, scripted):
    length = ("trainer.max_epochs=-1", f"trainer.max_steps={steps}")
    _, curves = scripted([0.5] * 9, f"eval_every={every}", f"least_evaluations={least}", *length)
    validated = {key: points for key, points in curves.items() if not key.startswith("train/")}
    assert SCORE in validated
    for key, points in validated.items():
        is_later = "/rfd_" in key  # there is none at step 0
        assert [step for step, _ in points] == want[is_later:], key


@pytest.mark.slow
@pytest.mark.parametrize(
    ("scores", "patience", "min_delta", "last"),
    [
        # Step 0, before anything is learned, does not count.
        ([0.9, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6], 1, 0.0, None),
        ([0.1, 0.5, 0.4, 0.6, 0.6, 0.6, 0.6], 2, 0.0, 5),
        ([0.1, 0.5, 0.51, 0.52, 0.9, 0.9, 0.9], 2, 0.1, 3),
        ([0.1, 0.5, None, None, 0.9, 0.9, 0.9], 2, 0.0, 3),
        ([0.1, 0.1, 0.2, 0.3, 0.4, 0.4, 0.4], 2, 0.0, None),  # patience ends with training
        ([0.1, 0.5, 0.4, 0.3, 0.2, 0.1, 0.1], None, 0.0, None),
    ],
)
def test_early_stopping(scores, patience, min_delta, last, scripted):
    overrides = []
    if patience:
        overrides = [
            f"callbacks.early_stopping.patience={patience}",
            f"callbacks.early_stopping.min_delta={min_delta}",
        ]

    folder, curves = scripted(scores, *overrides)
    record = folder.read()
    assert record["steps"] == max(step for step, _ in curves[SCORE]) == (last or STEPS)
    if last is None:
        assert record["stopped_early"] is None
    else:
        by = f" by more than {min_delta:g}" if min_delta else ""
        want = f"{SCORE} has not improved{by} in {patience} evaluations"
        assert record["stopped_early"] == want


@pytest.mark.slow
@pytest.mark.parametrize(
    ("warmup", "scores", "best"),
    [
        # Six steps; those of the warm-up are 1 and 2 (warmup=0.4).
        (0.4, [0.9, 0.5, 0.8, 0.1, 0.3, 0.2, 0.3], 4),
        (0.0, [0.9, 0.5, 0.8, 0.1, 0.3, 0.2, 0.3], 2),
        (0.4, [0.9, 0.5, 0.8, *[None] * 4], 2),  # nothing else exists
        # As GaussCSE's paper describes it: every step belongs to the warm-up.
        (1.0, [0.9, 0.5, 0.8, 0.1, 0.3, 0.2, 0.3], 2),
    ],
)
def test_the_best_step_is_after_the_warm_up(warmup, scores, best, scripted):
    folder, _ = scripted(scores, f"method.schedule.warmup={warmup}")
    record = folder.read()
    assert record["best"]["step"] == best
    assert record["best"]["score"] == pytest.approx(scores[best])
    saved = torch.load(folder.checkpoints / "best.ckpt", weights_only=True)
    assert saved["global_step"] == best
