"""Validation: when, with which dropout, what it stops and which step is the best."""

import itertools
import json

import pytest
import torch

from lightning_cse.errors import ConfigError
from lightning_cse.evaluation import Task, TaskResult
from lightning_cse.runs import Curves

STEPS = 6
STS = "val/stsb/spearman"
SCORE = "val/scripted/score"


def curves_of(folder):
    return Curves(folder.curves_path).read()


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
        return folder, curves_of(folder)

    return run


def test_a_monitor_that_the_method_cannot_give_is_named(run_tiny, tmp_path):
    line = ("+experiment=simcse_inli", "suite=inli_direction")
    with pytest.raises(ConfigError, match=r"inli_direction/accuracy has no value, .* both ways"):
        run_tiny(tmp_path, *line, "monitor=val/inli_direction/accuracy")


def test_dropout_is_for_diagnostics_alone(run_tiny, tmp_path):
    runs = {
        dropout: run_tiny(
            tmp_path / str(dropout),
            "+experiment=simcse_inli",
            "encoder.layers=1",
            "data.train_rows=24",
            "data.held_out_rows=4",
            "diag.sentences=16",
            "trainer.max_epochs=1",
            "eval_every=2",
            f"diag.dropout={dropout}",
            *("baselines=none", "keep_last=true", "suite=stsb", f"monitor={STS}"),
        )
        for dropout in (False, True)
    }
    last = [
        torch.load(run.checkpoints / "last.ckpt", weights_only=True)["state_dict"]
        for run in runs.values()
    ]
    torch.testing.assert_close(*last, rtol=0, atol=0)
    plain, noisy = ({key: dict(v) for key, v in curves_of(run).items()} for run in runs.values())
    assert noisy.keys() == plain.keys()
    assert noisy[STS] == plain[STS], "tasks are evaluated without"
    for side, measure in itertools.product(("held_out", "eval"), ("alignment", "uniformity")):
        key = f"diag/{side}/{measure}"
        assert list(plain[key]) == list(noisy[key]) == list(plain[STS])
        assert all(noisy[key][step] != value for step, value in plain[key].items()), key


@pytest.mark.slow
@pytest.mark.parametrize(
    ("every", "least", "steps", "want"),
    [
        (125, 1, 6, [0, 6]),
        (125, 3, 7, [0, 2, 4, 6, 7]),
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
        ([0.1, 0.5, 0.51, 0.52, 0.9, 0.9, 0.9], 2, 0.1, 3),
        ([0.1, 0.5, None, None, 0.9, 0.9, 0.9], 2, 0.0, 3),
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
