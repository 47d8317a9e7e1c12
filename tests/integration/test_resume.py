"""A run that is stopped, in whatever way and at whatever moment, and started again: the same to the
last bit.
"""

import functools
import json
import os
import random
import shutil
import signal
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import small_runs
import torch
from small_runs import STEPS, Killed, assert_same, dies_at

from lightning_cse.callbacks import AtomicCheckpointIO, BestCheckpoint, Timing
from lightning_cse.engine import record
from lightning_cse.engine import train as training
from lightning_cse.errors import DataError, Interrupted, LightningCSEError, TrainingError
from lightning_cse.loggers import CurvesLogger
from lightning_cse.methods import DualCSE
from lightning_cse.runs import Run

pytestmark = pytest.mark.slow
SMALL = (*small_runs.SMALL, "keep_last=true")
MOMENTS = (
    (DualCSE, "training_step"),
    (Timing, "on_train_batch_end"),  # the step is made, nothing of it is logged
    (
        CurvesLogger,
        "log_metrics",
    ),  # before the step's values, and between these and the evaluation's
    (DualCSE, "on_validation_epoch_end"),
    (BestCheckpoint, "on_validation_end"),  # evaluated and logged, not saved
    (AtomicCheckpointIO, "save_checkpoint"),  # before the best, and between the best and the last
    (DualCSE, "on_train_epoch_end"),
    (DualCSE, "on_train_end"),
    (training, "test"),
    (record.runs, "write_predictions"),
    (Run, "finish"),
    (training, "_clean_up"),
)
STEP = ((DualCSE, "training_step"),)


@contextmanager
def killed_at(moment, calls, moments=MOMENTS):
    """Die when this many of the moments have passed; ``calls`` gets their names."""

    def mortal(original, name):
        @functools.wraps(original)
        def called(*args, **kwargs):
            if len(calls) == moment:
                raise Killed

            calls.append(name)
            return original(*args, **kwargs)

        return called

    with pytest.MonkeyPatch.context() as patch:
        for owner, name in moments:
            patch.setattr(owner, name, mortal(getattr(owner, name), name))

        yield


@pytest.fixture(scope="module")
def reference(tmp_path_factory, run_tiny):
    """The run of the same overrides that is never stopped."""
    return functools.cache(
        lambda *overrides: run_tiny(tmp_path_factory.mktemp("reference"), *SMALL, *overrides)
    )


@pytest.fixture
def run(run_tiny, tmp_path, heard_interrupts):
    """Train for six steps, with overrides; the runs go below the test's folder."""
    return lambda *overrides, name="": run_tiny(tmp_path / name, *SMALL, *overrides)


# Killed


@pytest.mark.timeout(900)  # some thirty runs, for a machine that is busy
def test_kill_at_every_moment(run, tmp_path):
    calls = []
    with killed_at(-1, calls):
        uninterrupted = run(name="whole")

    assert calls.count("training_step") == STEPS
    assert calls.count("on_train_epoch_end") == 2
    # The learning rate and the loss of each step, validations at 0, 2, 4, 6, and the test.
    assert calls.count("log_metrics") == 2 * STEPS + 4 + 1
    assert {method for _, method in MOMENTS} == set(calls)

    saved = calls.index("save_checkpoint")  # all moments before it go back to the very start

    for moment in (0, 1, 4, saved - 1, *range(saved, len(calls))):
        name = f"{moment}-{calls[moment]}"
        with killed_at(moment, []), pytest.raises(Killed):
            run(name=name)

        assert_same(run(name=name), uninterrupted)
        shutil.rmtree(tmp_path / name)


VARIANTS = {
    # Epochs of 3 batches make steps after batches 2, 3, 5 and 6.
    "accumulated": "trainer.accumulate_grad_batches=2 eval_every=1",
    "drop_last": "data.drop_last=true trainer.max_epochs=3",
    "saved at the end of an epoch": "eval_every=3",
    "a trailing row joins": "data.train_rows=17",
    "bi-encoder, dropout while measuring": "method=dualcse_bi diag.dropout=true "
    "diag.evaluation=none",
    "a head": "method=simcse data=inli_triplets data.rows.positive=implied",
    "stopped early": "eval_every=1 callbacks.early_stopping.patience=2",
    "by steps": "trainer.max_epochs=-1 trainer.max_steps=5",
    "bfloat16": "trainer.precision=bf16-mixed",
    # Two heads, warm-up and weight decay, and an accuracy of the determinant per direction.
    "GaussCSE": "method=gausscse data=nli_triplets suite=nli monitor=val/snli/auprc",
    # Four terms of Gaussians, and directions of three corpora evaluated or tested.
    "DualGauss": "method=dualgauss suite=inli_direction",
    # Vectors of a frozen encoder, which are in no checkpoint and are computed again.
    "ImpScore": "method=impscore data=inli_implicit_pairs data.rows.explicit=implied "
    "monitor=val/eis/accuracy",
    # LLM rows that wait when the run is killed, over the end of an epoch too.
    "NGCSE": "method=ngcse method.contrastive=hierarchical_triplet data=ngcse_wiki_sts "
    "method.roles=[anchor,positive,intermediate,negative] data.llm_rows_together=6 "
    "suite=stsb monitor=val/stsb/spearman diag.dropout=true",
    # A learning rate that follows the dev score, over labels.
    "InferSent": "method=infersent data=nli_pairs suite=sts_labels "
    "monitor=val/snli_labels/accuracy encoder.lstm=5 encoder.pooling=max method.hidden=[6] "
    "method.schedule.least=0 eval_every=1",
    # Two passes with dropout a step, and evaluations that draw masks of their own in between.
    "unsupervised SimCSE": "method=simcse_unsup data=wiki_sentences "
    "suite=stsb monitor=val/stsb/spearman diag.dropout=true",
    "several sources, rows that lack sentences": "data=quadruples data.train_rows=36 "
    "data.train=[inli/train,{quadruples}]",
    "several negatives": "method=simcse data=file data.train={negatives} data.train_rows=null "
    "data.held_out_rows=4",
}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Files of one's own, by name: quadruples that lack some hypotheses, and rows with up to two
    hard negatives.
    """
    folder = tmp_path_factory.mktemp("own")
    quadruples = ["premise,explicit_entailment,implied_entailment,contradiction"]
    for row in range(400):
        hypotheses = [f"Lamp {row} is red.", f"Nobody may enter room {row}.", f"It is {row} green."]
        hypotheses[row % 3] = ""
        quadruples.append(",".join([f"The lamp above door {row} turned red.", *hypotheses]))

    negatives = []
    for row in range(24):
        cells = {"query": f"Who has key {row // 2}?", "pos": f"Ann has key {row}."}
        cells |= {f"negative_{k}": f"No key {row}{k}." for k in range(1, 1 + row % 3)}
        negatives.append(json.dumps(cells))

    paths = {"quadruples": folder / "quadruples.csv", "negatives": folder / "negatives.jsonl"}
    paths["quadruples"].write_text("\n".join(quadruples))
    paths["negatives"].write_text("\n".join(negatives))

    return paths


@pytest.mark.parametrize("variant", VARIANTS)
def test_resume_matches_uninterrupted_run(variant, run, reference, files):
    overrides = VARIANTS[variant].format(**files).split()
    uninterrupted = reference(*overrides)
    steps = uninterrupted.read()["steps"]
    assert steps >= 3
    for step in sorted({steps // 2, steps - 1}):
        with dies_at(step):
            run(*overrides)

    assert_same(run(*overrides), uninterrupted)


def test_random_generators_are_resumed(run, monkeypatch):
    step = DualCSE.training_step
    states = []

    def draw(self, batch, batch_idx):
        numbers = (
            random.random(),
            random.gauss(0, 1),
            np.random.random(),  # noqa: NPY002 - an augmentation might
            np.random.standard_normal(),  # noqa: NPY002
            torch.rand(1).item(),
        )

        states.append((self.global_step, *numbers))
        return step(self, batch, batch_idx)

    monkeypatch.setattr(DualCSE, "training_step", draw)
    run(name="whole")
    expected = list(states)
    states.clear()

    with killed_at(5, [], STEP), pytest.raises(Killed):
        run(name="killed")

    assert states == expected[:5]

    states.clear()
    run(name="killed")

    assert states == expected[4:]


@pytest.mark.parametrize("name", ["best.ckpt", "last.ckpt", "curves.csv"])
def test_damaged_file_is_reported_before_it_is_used(name, run, reference, tmp_path):
    with dies_at(5):
        run()

    (path,) = tmp_path.rglob(name)
    original = path.read_bytes()
    offsets = random.Random(0).sample(range(len(original)), 3)
    damaged = [
        original[:offset] + bytes([original[offset] ^ 4]) + original[offset + 1 :]
        for offset in offsets
    ]
    damaged += [original[: len(original) // 2], None]  # cut, and deleted
    if name == "last.ckpt":
        damaged.pop()  # without it, the run begins again
    if name == "curves.csv":
        damaged[0] = original.replace(b"0.", b"1.", 1)  # still a table of numbers

    for content in damaged:
        path.unlink(missing_ok=True)
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(DataError, match=rf"{name} is (damaged|missing)"):
            run()

    path.write_bytes(original)  # restored from a copy, as the message says
    assert_same(run(), reference())


def test_checkpoint_of_another_version_is_refused(run, tmp_path):
    with dies_at(5):
        run()

    (path,) = tmp_path.rglob("last.ckpt")
    checkpoint = torch.load(path, weights_only=True)
    del checkpoint["is_over"]
    torch.save(checkpoint, path)
    with pytest.raises(TrainingError, match=r"last\.ckpt was written by another version"):
        run()


def test_what_changes_the_last_digits_is_reported(run, tmp_path, monkeypatch, caplog):
    with dies_at(5):
        run()

    caplog.set_level("WARNING", "lightning_cse")
    monkeypatch.setattr(DualCSE, "version", 99)
    run()
    assert "the method's version was 1 when the run was started, now it is 99" in caplog.text


def test_run_with_other_data_names_the_interrupted_one(run, tmp_path, caplog):
    rows = tmp_path / "rows.csv"
    lines = ["anchor,positive", *(f"a dog runs {n},a dog is running {n}" for n in range(30))]
    rows.write_text("\n".join(lines))
    line = ("method=simcse", "data=file", f"data.train={rows}", "data.held_out_rows=4")
    with dies_at(3):
        run(*line)

    (interrupted,) = tmp_path.rglob("last.ckpt")
    rows.write_text("\n".join([*lines, "a cat sits,a cat is sitting"]))
    caplog.set_level("WARNING", "lightning_cse")
    run(*line)
    folder = interrupted.parents[1]
    assert f"an interrupted run of these settings with other data is in {folder}" in caplog.text


# Failed


# Before the first checkpoint, and after the second.
@pytest.mark.parametrize(("moment", "checkpoints"), [(2, []), (5, [4])])
def test_failed_run_is_resumed(moment, checkpoints, run, reference, tmp_path):
    original = DualCSE.training_step

    def fail(self, batch, batch_idx):
        if self.global_step + 1 == moment:
            raise RuntimeError("a bug")

        return original(self, batch, batch_idx)

    with pytest.MonkeyPatch.context() as patch, pytest.raises(RuntimeError, match="a bug"):
        patch.setattr(DualCSE, "training_step", fail)
        run()

    (failed,) = tmp_path.rglob("failed.json")
    failure = json.loads(failed.read_text())
    assert (failure["type"], failure["message"]) == ("RuntimeError", "a bug")
    assert not list(tmp_path.rglob("record.json"))
    assert [saved(path) for path in tmp_path.rglob("last.ckpt")] == checkpoints
    assert Run.at(failed.parent).status == "failed"

    folder = run()
    assert folder.status == "finished"
    assert not folder.failed_path.exists()

    assert_same(folder, reference())


def saved(checkpoint):
    step: int = torch.load(checkpoint, weights_only=True)["global_step"]
    return step


@pytest.mark.parametrize(("which", "time", "steps"), [("best", 1, []), ("last", 2, [2])])
def test_full_disk_keeps_the_previous_checkpoint(which, time, steps, run, reference, tmp_path):
    save, written = torch.save, []

    def fills_up(checkpoint, file):
        written.append("last" if "optimizer_states" in checkpoint else "best")
        if written[-1] == which and written.count(which) == time:
            with Path("/dev/full").open("wb", buffering=0) as full:
                save(checkpoint, full)

        save(checkpoint, file)

    message = rf"no space left to write .*{which}\.ckpt .*give the same command again"
    with pytest.MonkeyPatch.context() as patch, pytest.raises(LightningCSEError, match=message):
        patch.setattr(torch, "save", fills_up)
        run()

    assert [saved(path) for path in tmp_path.rglob("last.ckpt")] == steps
    assert not list(tmp_path.rglob("*.tmp"))

    assert_same(run(), reference())


# Ctrl-C and SIGTERM


def stopped_at(run, owner, name, count, *overrides, n=1):
    """Send a signal, or several, when a method is called this many times; return what the run
    says.
    """
    original, calls = getattr(owner, name), []
    signum = signal.SIGINT if count % 2 else signal.SIGTERM

    def stops(*args, **kwargs):
        calls.append(name)
        if len(calls) == count:
            for _ in range(n):
                os.kill(os.getpid(), signum)

        return original(*args, **kwargs)

    with pytest.MonkeyPatch.context() as patch, pytest.raises(Interrupted) as caught:
        patch.setattr(owner, name, stops)
        run(*overrides)

    assert caught.value.signum == signum
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler

    return str(caught.value)


@pytest.mark.parametrize("step", [1, 2, STEPS])  # the second and the last are evaluated
def test_signal_in_a_step_saves_that_step(step, run, reference, tmp_path):
    message = stopped_at(run, DualCSE, "training_step", step)
    assert message == f"stopped at step {step}; the same command continues from the last checkpoint"
    assert [saved(path) for path in tmp_path.rglob("last.ckpt")] == [step]

    assert_same(run(), reference())


def test_signals_outside_of_steps(run, reference, tmp_path):
    continues = "stopped; the same command continues from the last checkpoint"
    assert stopped_at(run, training, "build", 1) == continues
    assert not list(tmp_path.rglob("*.*"))

    assert stopped_at(run, DualCSE, "on_validation_epoch_end", 1) == continues
    assert stopped_at(run, DualCSE, "training_step", 3, n=2) == continues  # the second stops it
    assert [saved(path) for path in tmp_path.rglob("last.ckpt")] == [2]
    assert stopped_at(run, training, "test", 1) == continues

    assert_same(run(), reference())
