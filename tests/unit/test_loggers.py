"""Curves and W&B as loggers of a run; W&B runs for real, offline."""

import json
import logging
import os
import struct
import sys
import time
from typing import Any

import pytest
import torch
import wandb
from pytorch_lightning import LightningModule, Trainer
from torch.utils.data import DataLoader
from wandb.proto import wandb_internal_pb2

from lightning_cse import loggers
from lightning_cse.loggers import CurvesLogger, WandbView, views
from lightning_cse.loggers.views import final_values
from lightning_cse.runs import Curves, Run


@pytest.fixture(autouse=True)
def nobody_logged_in(monkeypatch, tmp_path):
    """Hide this machine's own W&B account from the tests."""
    for variable in [name for name in os.environ if name.startswith("WANDB_")]:
        monkeypatch.delenv(variable)
    monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")  # else a failing W&B would call home
    monkeypatch.setenv("NETRC", str(tmp_path / "no-netrc"))


def view(root, *, name="dualcse_cross", seed=0, **options):
    """Return a view with the defaults of this file."""
    run = Run(
        root,
        name,
        "0123456789",
        seed,
    )
    run.path = root
    return WandbView(
        run=run,
        **{
            "group": "dualcse_cross/seeds",
            "settings": {},
            **options,
        },
    )


def written(folder):
    """Return the one offline run under a folder, and what it holds once W&B's own process has ended
    it.
    """
    deadline = time.monotonic() + 20
    while True:
        (run,) = (folder / "wandb").glob("offline-run-*")
        (file,) = run.glob("*.wandb")
        found = [
            wandb_internal_pb2.Record.FromString(record) for record in records(file.read_bytes())
        ]
        if of_type(found, "exit") or time.monotonic() > deadline:
            return run, found
        time.sleep(0.02)


def records(content):
    """Read LevelDB's log: blocks of 32 KiB, each part with crc, length and kind."""
    at, record = 7, b""
    while at + 7 <= len(content):
        left = 2**15 - at % 2**15
        if left < 7:
            at += left
            continue
        _, length, kind = struct.unpack_from(
            "<IHB",
            content,
            at,
        )
        record += content[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in {1, 4}:  # whole, or the last part
            yield record
            record = b""


def of_type(found, kind):
    """Return the records of one kind."""
    return [getattr(record, kind) for record in found if record.WhichOneof("record_type") == kind]


def history(found):
    """Return what was logged, without W&B's own values."""
    rows = []
    for row in of_type(found, "history"):
        values = {
            item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in row.item
        }
        rows.append({key: value for key, value in values.items() if not key.startswith("_")})
    return rows


class Line(LightningModule):
    """Fits nothing, logs the index of a batch."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)

    def training_step(self, batch, index):
        self.log("train/index", float(index))
        return self.layer(batch).sum()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def fit(used, folder):
    """Fit on four constant batches of one."""
    quiet = dict.fromkeys(
        ("enable_progress_bar", "enable_model_summary", "enable_checkpointing"), False
    )
    options: dict[str, Any] = {
        "accelerator": "cpu",
        "max_epochs": 1,
        "log_every_n_steps": 1,
        **quiet,
    }
    trainer = Trainer(
        logger=used,
        default_root_dir=folder,
        **options,
    )
    trainer.fit(Line(), DataLoader(torch.ones(4, 1)))


def test_two_runs_in_one_process_stay_apart(tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setattr(
        sys,
        "argv",
        ["train", "some.key=on-the-command-line"],
    )
    before = dict(os.environ)
    config = {"method": {"lr": 5e-5, "loss": {"temperature": 0.05}}}
    for seed in (0, 1):
        (tmp_path / f"s{seed}").mkdir()
        one = view(
            tmp_path / f"s{seed}",
            seed=seed,
            settings=config,
        )
        one.log_metrics({"train/loss": 1.0 + seed}, step=10)
        one.log_metrics({"train/loss": 0.5 + seed}, step=20)
        one.finalize("success")  # a Trainer's; the test is still to come
        one.log_metrics({"test/rte/accuracy_all": 0.75}, step=20)
        one.close(seed)
        one.close(0)
        one.log_metrics({"train/loss": 9.0}, step=30)
    assert dict(os.environ) == before
    assert wandb.run is None
    for seed in (0, 1):
        run, found = written(tmp_path / f"s{seed}")
        assert run.name.endswith(f"-dualcse_cross-0123456789-s{seed}")
        (start,) = of_type(found, "run")[:1]
        assert start.run_id == f"dualcse_cross-0123456789-s{seed}"
        assert (start.display_name, start.run_group) == (
            f"dualcse_cross-s{seed}",
            "dualcse_cross/seeds",
        )
        assert (start.project, start.job_type) == ("lightning_cse", "train")
        settings = {item.key: json.loads(item.value_json) for item in start.config.update}
        assert settings["method"] == config["method"]
        assert history(found) == [
            {"train/loss": 1.0 + seed, "trainer/global_step": 10},
            {"train/loss": 0.5 + seed, "trainer/global_step": 20},
            {"test/rte/accuracy_all": 0.75, "trainer/global_step": 20},
        ]
        axes = {
            metric.name: metric.step_metric for metric in of_type(found, "metric") if metric.name
        }
        step = "trainer/global_step"
        assert axes == {
            step: "",
            "train/loss": step,
            "test/rte/accuracy_all": step,
        }
        assert [end.exit_code for end in of_type(found, "exit")] == [seed]
        assert not any(
            "on-the-command-line" in record.SerializeToString().decode("latin-1")
            for record in found
        )
        assert not of_type(found, "output_raw")


def test_same_values_as_the_curves(tmp_path):
    one, curves = view(tmp_path), Curves(tmp_path / "curves.csv")
    logger = CurvesLogger(curves)
    fit([logger, one], tmp_path)
    one.close()
    assert curves.read()["train/index"] == [(step, float(step)) for step in range(4)]
    rows = history(written(tmp_path)[1])
    for key, points in curves.read().items():
        assert [(row["trainer/global_step"], row[key]) for row in rows] == points
    logger.log_metrics({"test/rte/accuracy_all": 0.5}, step=4)  # after the Trainer has finished
    assert curves.read()["test/rte/accuracy_all"] == [(4, 0.5)]
    with pytest.raises(ValueError, match=r"\['a', 'b'\] must be logged with a step"):
        logger.log_metrics({"b": 1.0, "a": 2.0})


class Broken:
    """A W&B run of which one method fails."""

    url = "nowhere"

    def __init__(self, method):
        self.method = method
        self.calls: list[str] = []

    def called(self, name):
        self.calls.append(name)
        if name == self.method:
            raise ConnectionError(f"no {name}")
        return {}

    def __getattr__(self, name):
        return lambda *_, **__: self.called(name)

    @property
    def summary(self):
        return self.called("summary")


RECORD: dict[str, Any] = {
    "metrics": {"test/rte/accuracy_all": 0.75, "test/eis/accuracy": float("nan")},
    "best": {
        "step": 20,
        "score": 0.8,
        "monitor": "val/rte/accuracy_all",
    },
    "summary": {
        "rfd_alignment": 0.25,
        "rfd_uniformity": None,
        "final_score": 0.7,
        "best_score": 0.8,
        "best_step": 20,
    },
    "steps": 20,
}


def summary(found):
    """Return what stands in the run's line of the table at the end, without W&B's own values."""
    values = {
        item.key or "/".join(item.nested_key): json.loads(item.value_json)
        for update in of_type(found, "summary")
        for item in update.update
    }
    return {key: value for key, value in values.items() if not key.startswith("_")}


def test_what_stands_in_the_table_of_runs(tmp_path):
    settings = {
        "method": {"_target_": "lightning_cse.methods.DualCSE"},
        "encoder": {"name": "small"},
    }
    one = view(
        tmp_path,
        settings=settings,
        tags=[
            "small",
            "",
            "t" * 80,
        ],
    )
    keys = (
        "val/rte/accuracy_all",
        "val/rte/threshold",
        "train/loss",
        "train/learning_rate",
        "diag/eval/uniformity",
    )
    for step, value in enumerate((1.0, 3.0, 2.0)):
        one.log_metrics(dict.fromkeys(keys, value), step=step)
    one.conclude(RECORD)
    one.close()
    found = written(tmp_path)[1]
    assert summary(found) == {
        "val/rte/accuracy_all": {"max": 3.0, "last": 2.0},
        "val/rte/threshold": 2.0,
        "train/loss": {"min": 1.0, "last": 2.0},
        "train/learning_rate": 2.0,
        "diag/eval/uniformity": 2.0,
        "trainer/global_step": 2,
        **final_values(RECORD),
    }
    assert final_values(RECORD) == {
        "test/rte/accuracy_all": 0.75,
        "best/score": 0.8,
        "best/step": 20,
        "summary/rfd_alignment": 0.25,
        "summary/final_score": 0.7,
    }
    (start,) = of_type(found, "run")[:1]
    assert list(start.tags) == [
        "dualcse",
        "small",
        "t" * 64,
    ]


@pytest.mark.parametrize(
    "method",
    [
        "init",
        "define_metric",
        "log",
        "summary",
        "finish",
    ],
)
def test_one_warning_and_then_silence(tmp_path, monkeypatch, caplog, method):
    run = Broken(method)

    def init(**_):
        if method == "init":
            raise wandb.errors.CommError("no init")
        return run

    monkeypatch.setattr(
        wandb,
        "init",
        init,
    )
    one = view(tmp_path, offline=True)
    with caplog.at_level(logging.WARNING):
        fit([one], tmp_path)
        one.log_metrics({"a": 1.0}, step=9)
        one.conclude(RECORD)
        one.close(0)
        one.close(0)
    mine = [record.message for record in caplog.records if record.name == loggers.__name__]
    assert len(mine) == 1
    assert f"no {method}" in mine[0]
    assert run.calls.count(method) == (0 if method == "init" else 1)


@pytest.mark.parametrize(
    ("variable", "offline", "logged_in", "want"),
    [
        (None, None, False, "offline"),
        (None, None, True, "online"),
        (None, True, True, "offline"),
        (None, False, False, "offline"),
        ("offline", False, True, "offline"),
        ("online", None, False, "offline"),
        ("online", True, True, "offline"),
        ("disabled", True, True, "disabled"),
    ],
)
def test_who_decides_the_mode(monkeypatch, variable, offline, logged_in, want):
    for name, value in (
        ("WANDB_MODE", variable),
        ("WANDB_API_KEY", "0" * 40 if logged_in else None),
    ):
        if value is not None:
            monkeypatch.setenv(name, value)
    assert views._mode(offline) == want


def test_netrc(tmp_path, monkeypatch):
    place = tmp_path / "netrc"
    monkeypatch.setenv("NETRC", str(place))
    assert not views.is_logged_in()
    place.write_text("machine api.wandb.ai login user password abc\n")
    place.chmod(0o600)
    assert views.is_logged_in()
    monkeypatch.setenv("WANDB_BASE_URL", "https://wandb.example.org")
    assert not views.is_logged_in()
    place.write_text("machine 'broken\n")
    assert not views.is_logged_in()


def test_disabled_does_not_even_load_wandb(tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("WANDB_MODE", "disabled")
    monkeypatch.setitem(
        sys.modules,
        "wandb",
        None,
    )
    one = view(tmp_path)
    one.log_metrics({"a": 1.0}, step=1)
    one.close(1)
    assert (list(tmp_path.iterdir()), caplog.records) == ([], [])


def test_long_and_odd_names_fit(tmp_path):
    one = view(
        tmp_path,
        name="paper/row:" + "x" * 200,
        seed=12345,
        group="g" * 300,
        offline=True,
    )
    assert one.version is not None
    assert one.version == f"paper-row-{'x' * 100}"[: 128 - 18] + "-0123456789-s12345"
    one.log_metrics({"a": 1.0}, step=1)
    one.close()
    (start,) = of_type(written(tmp_path)[1], "run")[:1]
    assert start.run_id == one.version
