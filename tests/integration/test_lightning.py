"""Lightning's callbacks, loggers and arguments of the Trainer work here as Lightning documents
them; a Method works in a person's own Trainer.
"""

import json

import pytest
import pytorch_lightning as pl
import torch
from pytorch_lightning import Callback
from pytorch_lightning.callbacks import ModelCheckpoint
from pytorch_lightning.loggers import CSVLogger, Logger
from small_runs import LITTLE, SMALL, curves

from lightning_cse.data import sentence_batches
from lightning_cse.engine import build as building
from lightning_cse.engine import train as training
from lightning_cse.engine.build import build
from lightning_cse.errors import ConfigError, TrainingError
from lightning_cse.evaluation import Task, TaskResult, keyed, run_tasks
from lightning_cse.methods import Method

pytestmark = pytest.mark.slow
OF_LIGHTNING = "pytorch_lightning.callbacks"
MONITOR = "val/rte/accuracy_all"


def added(name, **options):
    """Return the override that adds a callback of Lightning, or of this file."""
    module = __name__ if name in globals() else OF_LIGHTNING
    items = {"_target_": f"{module}.{name}", **options}.items()
    node = ", ".join(f"{key}: {json.dumps(value)}" for key, value in items)

    return f"+callbacks.{name}={{{node}}}"


def state_of(path):
    return torch.load(path, map_location="cpu", weights_only=True)["state_dict"]


def dev_scores(cfg, weights):
    """Return the dev scores of weights, evaluated without a Trainer."""
    parts = build(cfg)
    parts.method.load_state_dict(weights)
    results = run_tasks(parts.tasks, parts.method.eval().model, "dev")

    return keyed({name: result.metrics for name, result in results.items()}, "val/")


class Weights(Task):
    """Measures the weights of the model that is asked, all of them."""

    needs = ()
    metrics = ("mean",)

    def evaluate(self, embedded, split):
        weights = [weight.double().flatten() for weight in embedded.answers.parameters()]
        return TaskResult({"mean": torch.cat(weights).mean().item()})


class Steps(Callback):
    """Records the weights before the first step and after each."""

    weights: list[dict[str, torch.Tensor]]

    def on_train_start(self, trainer, method):
        type(self).weights = []
        self.on_train_batch_end(trainer, method)

    def on_train_batch_end(self, trainer, method, *_):
        self.weights.append({name: part.double() for name, part in method.state_dict().items()})


# Callbacks -----------------------------------------------------------------------------------


def test_early_stopping(run):
    folder = run("method.optimizer.lr=0", "callbacks.early_stopping.patience=1")
    record = folder.read()
    assert record["steps"] == 4
    assert record["stopped_early"] == f"{MONITOR} has not improved in 1 evaluations"
    assert list(curves(folder)[MONITOR]) == [0, 2, 4]


def test_a_second_checkpoint_by_another_score(run):
    folder = run(added("ModelCheckpoint", monitor="val/eis/accuracy", mode="max", filename="mine"))
    (path,) = folder.path.rglob("mine*.ckpt")
    checkpoint = torch.load(path, weights_only=True)
    scores = curves(folder)["val/eis/accuracy"]
    best = max(step for step in (2, 4, 6) if scores[step] == max(scores[s] for s in (2, 4, 6)))
    assert scores[checkpoint["global_step"]] == scores[best]
    assert state_of(folder.checkpoints / "best.ckpt").keys() == checkpoint["state_dict"].keys()


def test_averaged_weights_are_validated_chosen_and_tested(run_tiny, compose, tmp_path, one_thread):
    monitor = "val/weights/mean"
    line = (
        "+experiment=sbert",
        *LITTLE,
        "method.optimizer.lr=1e-2",
        "method.schedule.name=constant",
        "limits.dev_rows=40",
        f"+suite.weights={{_target_: {__name__}.Weights}}",
        f"monitor={monitor}",
    )
    average = added("EMAWeightAveraging", decay=0.9)
    folder = run_tiny(tmp_path, *line, added("Steps"), average)
    averages = []
    for weights in Steps.weights[1:]:
        if not averages:
            averages.append(weights)
        else:
            last = averages[-1]
            averages.append({k: 0.9 * last[k] + 0.1 * weights[k] for k in weights})

    cfg = compose("+debug=tiny", "paths.cache_dir=null", *line)
    logged = curves(folder)
    assert len(averages) == 6
    assert list(logged[monitor]) == [0, 2, 4, 6]
    for step in (2, 4, 6):
        scores = dev_scores(cfg, averages[step - 1])
        assert monitor in scores
        for key, score in scores.items():
            assert logged[key][step] == pytest.approx(score, abs=1e-6), (step, key)

    step = folder.read()["best"]["step"]
    assert logged[monitor][step] == max(logged[monitor][step] for step in (2, 4, 6))
    assert_best_and_tested(folder, cfg, averages[step - 1])
    current = Steps.weights[step]
    moved = [(average - current[name]).abs().max() for name, average in averages[step - 1].items()]
    assert max(moved) > 1e-3, "the current weights are others"


def assert_best_and_tested(folder, cfg, weights):
    """Assert that the best checkpoint has these weights, and that the test scores are theirs."""
    best = state_of(folder.checkpoints / "best.ckpt")
    for name, weight in weights.items():
        assert torch.allclose(best[name].double(), weight, atol=1e-6), name

    parts = build(cfg)
    parts.method.load_state_dict(best)
    for name, result in run_tasks(parts.tasks, parts.method.eval().model, "test").items():
        for metric, value in result.metrics.items():
            assert folder.read()["metrics"][f"test/{name}/{metric}"] == pytest.approx(value)


def test_learning_rates_are_those_of_the_schedule_at_each_logged_step(run):
    warm = ("method.schedule.warmup=0.5", "method.optimizer.lr=6e-5")
    rates = [0, 2e-5, 4e-5, 6e-5, 4e-5, 2e-5]
    assert list(curves(run(*warm))["train/learning_rate"].items()) == [
        (step, pytest.approx(rate)) for step, rate in enumerate(rates, start=1)
    ]
    rare = curves(run(*warm, "trainer.log_every_n_steps=3", name="rare"))
    assert list(rare["train/learning_rate"]) == list(rare["train/loss"]) == [3, 6]
    assert rare["train/learning_rate"] == {3: pytest.approx(4e-5), 6: pytest.approx(2e-5)}


class Seen(Callback):
    """Notes what each validation has logged."""

    metrics: list[tuple[int, dict[str, float]]]

    def on_validation_end(self, trainer, method):
        if trainer.global_step == 0:
            type(self).metrics = []

        values = {key: float(value) for key, value in trainer.callback_metrics.items()}
        self.metrics.append((trainer.global_step, values))


def test_bars_timers_statistics_and_a_callback_of_ones_own(run):
    folder = run(
        added("Seen"),
        added("RichProgressBar"),
        added("Timer", duration="00:01:00:00"),
        added("DeviceStatsMonitor", cpu_stats=True),
        "+trainer.enable_progress_bar=true",
    )
    logged = curves(folder)
    assert [step for step, _ in Seen.metrics] == [0, 2, 4, 6]
    for step, metrics in Seen.metrics:
        for key in (MONITOR, "diag/eval/uniformity"):
            assert metrics[key] == pytest.approx(logged[key][step])

        assert ("train/loss" in metrics) == (step > 0)

    statistics = [key for key in logged if key.startswith("DeviceStatsMonitor.")]
    assert len(statistics) > 3


class Stop(Callback):
    """Ends training after three steps, as a callback may."""

    def on_train_batch_end(self, trainer, *_):
        trainer.should_stop = trainer.global_step == 3


def test_the_last_step_is_validated_wherever_a_callback_ends_training(run):
    folder = run(added("Stop"))
    assert folder.read()["steps"] == 3
    assert list(curves(folder)[MONITOR]) == [0, 2, 3]


def test_no_time_for_a_step(run):
    with pytest.raises(TrainingError, match=r"no training step was made: see .*trainer\.max_time"):
        run("trainer.max_time=00:00:00:00")


REFUSED = {
    "BatchSizeFinder": ({}, "another batch is another loss; set data.batch_size"),
    "LearningRateFinder": ({}, "sweep over method.optimizer.lr"),
    "StochasticWeightAveraging": ({"swa_lrs": 1e-2}, "use EMAWeightAveraging"),
    "ModelPruning": ({"pruning_fn": "l1_unstructured"}, "it renames the weights"),
    "BackboneFinetuning": ({}, "it changes which weights are trained"),
    "GradientAccumulationScheduler": ({"scheduling": {1: 2}}, "use trainer.accumulate_grad_batche"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_callbacks_that_cannot_work_are_refused_before_data_is_read(name, run, monkeypatch):
    for part in ("build_tasks", "build_data"):
        monkeypatch.setattr(building, part, lambda *_: pytest.fail("it read the data"))

    options, reason = REFUSED[name]
    line = added(name, **options).replace('"1"', "1")  # a number as a key
    with pytest.raises(ConfigError, match=rf"callbacks\.{name}: {name} cannot be used: .*{reason}"):
        run(line)


# Arguments of the Trainer --------------------------------------------------------------------


def test_fast_dev_run_makes_one_step_and_leaves_nothing(compose, batches, tmp_path):
    cfg = compose("+debug=tiny", "paths.cache_dir=null", *SMALL, "+trainer.fast_dev_run=true")
    cfg.paths.runs_dir = str(tmp_path / "runs")
    outcome = training.train(cfg)
    assert outcome.status == "finished"
    assert batches.calls == ["training", "validation", "test"]
    assert not list(tmp_path.iterdir())


def test_overfitted_batches_are_the_same_in_each_epoch(run, batches):
    folder = run("+trainer.overfit_batches=2", "trainer.max_epochs=3", "eval_every=null")
    first = batches.rows[:2]
    assert first[0] != first[1]
    assert batches.rows == first * 3
    assert list(curves(folder)[MONITOR]) == [0, 2, 4, 6]


def test_limits_profiler_anomalies_and_time(run_tiny, tmp_path, monkeypatch):
    counts = []
    validation_step = Method.validation_step

    def counted(method, batch, batch_idx):
        counts.append((method.trainer.testing, len(batch["sentences"])))
        return validation_step(method, batch, batch_idx)

    monkeypatch.setattr(Method, "validation_step", counted)
    monkeypatch.setattr(sentence_batches, "TOKENS_AT_ONCE", 300)
    folder = run_tiny(
        tmp_path,
        "+experiment=simcse_sup",
        *LITTLE,
        "limits.dev_rows=60",
        "+trainer.limit_val_batches=3",
        "+trainer.limit_test_batches=4",
        "+trainer.profiler=simple",
        "+trainer.detect_anomaly=true",
        "trainer.max_time=00:01:00:00",
    )
    logged = curves(folder)
    assert list(logged["val/stsb/spearman"]) == [0, 2, 4, 6]
    assert [is_test for is_test, _ in counts] == [False] * 4 * 3 + [True] * 4
    assert not any(key.startswith("diag/") for key in logged), "some of its sentences are left out"
    assert folder.status == "finished"


@pytest.mark.parametrize(
    ("line", "steps"),
    [
        ("+trainer.val_check_interval=2", [0, 2, 4, 6]),
        ("+trainer.val_check_interval=0.67", [0, 2, 5, 6]),  # after two of three batches
        ("trainer.accumulate_grad_batches=2 eval_every=1", [0, 1, 2, 3, 4]),
        ("eval_every=null", [0, 3, 6]),
        ("eval_every=4", [0, 4, 6]),
    ],
)
def test_when_it_validates(line, steps, run):
    folder = run(*line.split())
    logged = curves(folder)
    assert list(logged[MONITOR]) == list(logged["diag/eval/uniformity"]) == steps
    assert folder.read()["steps"] == steps[-1]


# A Trainer of one's own, and loggers ---------------------------------------------------------


def test_a_method_in_a_trainer_of_ones_own(compose, tmp_path):
    line = ("+experiment=simcse_sup", *LITTLE, "limits.dev_rows=20")
    cfg = compose("+debug=tiny", "paths.cache_dir=null", *line)
    parts = build(cfg)
    method, data = parts.method, parts.data
    best = ModelCheckpoint(monitor="val/stsb/spearman", mode="max")
    trainer = pl.Trainer(
        max_epochs=3,
        accelerator="cpu",
        callbacks=[best],
        logger=CSVLogger(tmp_path),
        log_every_n_steps=1,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(method, data)
    metrics = trainer.callback_metrics
    assert {"train/loss", "val/stsb/spearman"} <= metrics.keys()
    (file,) = tmp_path.rglob("metrics.csv")
    header, *rows = [row.split(",") for row in file.read_text().splitlines()]
    losses = [row[header.index("train/loss")] for row in rows]
    assert len(list(filter(None, losses))) == 9
    scores = [float(row[header.index("val/stsb/spearman")] or "nan") for row in rows]
    assert max(score for score in scores if score == score) == pytest.approx(
        float(best.best_model_score)
    )

    restored = build(cfg).method
    assert isinstance(restored, Method)
    restored.load_state_dict(state_of(best.best_model_path))
    (tested,) = trainer.validate(restored, data, verbose=False)
    assert tested["val/stsb/spearman"] == pytest.approx(float(best.best_model_score))
    (tested,) = trainer.test(restored, data, verbose=False)
    assert any(key.startswith("test/") for key in tested)


class Failing(Logger):
    """A logger whose server is away."""

    name = "failing"
    version = 0

    def log_hyperparams(self, *_, **__):
        pass

    def log_metrics(self, metrics, step=None):
        raise ConnectionError("the server is away")


def test_a_failing_logger_is_reported_once(run, caplog):
    folder = run(f"+logger.mine={{_target_: {__name__}.Failing}}")
    assert folder.status == "finished"
    warnings = [text for text in caplog.messages if "the server is away" in text]
    assert len(warnings) == 1
    assert warnings[0].endswith("the run continues without it")
    assert list(curves(folder)["train/loss"]) == [1, 2, 3, 4, 5, 6]
