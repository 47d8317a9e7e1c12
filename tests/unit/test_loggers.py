"""W&B and other loggers of a run; W&B runs for real, offline."""

import json
import os
import struct
import sys
import time
from unittest.mock import MagicMock

import pytest
import wandb
from pytorch_lightning import Trainer
from pytorch_lightning.demos.boring_classes import BoringModel
from pytorch_lightning.loggers import CSVLogger
from wandb.proto import wandb_internal_pb2

from lightning_cse.engine.reporting import final_values
from lightning_cse.loggers import build, build_loggers, log_final
from lightning_cse.runs import Run


@pytest.fixture(autouse=True)
def nobody_logged_in(monkeypatch, tmp_path):
    """Hide this machine's own W&B account from the tests."""
    for variable in [name for name in os.environ if name.startswith("WANDB_")]:
        monkeypatch.delenv(variable)

    monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")  # else a failing W&B would call home
    monkeypatch.setenv("NETRC", str(tmp_path / "no-netrc"))


WANDB = {"wandb": {"_target_": "pytorch_lightning.loggers.WandbLogger"}}


def built(root, nodes=WANDB, *, seed=0, settings=None, tags=()):
    """Return the loggers of a run with the defaults of this file."""
    run = Run(root, "dualcse_cross", "0123456789", seed)
    run.path = root

    return build_loggers(
        nodes, run, settings or {}, group="dualcse_cross/seeds", tags=tags, resumed_at=None
    )


def wandb_of(root, **options):
    """Return the logger of W&B, of the project of the config."""
    node = WANDB["wandb"] | {"project": "lightning_cse", "entity": None, "offline": None}
    (logger,) = built(root, {"wandb": node}, **options)

    return logger


def written(folder):
    """Return what the one offline run under a folder holds once W&B's own process has ended it."""
    deadline = time.monotonic() + 20
    while True:
        (file,) = (folder / "wandb").glob("offline-run-*/*.wandb")
        parts = records(file.read_bytes())
        sent = [wandb_internal_pb2.Record.FromString(record) for record in parts]
        if of_type(sent, "exit") or time.monotonic() > deadline:
            return sent

        time.sleep(0.02)


def records(content):
    """Read LevelDB's log: blocks of 32 KiB, each part with crc, length and kind."""
    at, record = 7, b""
    while at + 7 <= len(content):
        remaining = 2**15 - at % 2**15
        if remaining < 7:
            at += remaining
            continue

        _, length, record_type = struct.unpack_from("<IHB", content, at)
        record += content[at + 7 : at + 7 + length]
        at += 7 + length
        if record_type in {1, 4}:  # whole, or the last part
            yield record
            record = b""


def of_type(records, record_type):
    """Return the records of one kind."""
    return [
        getattr(record, record_type)
        for record in records
        if record.WhichOneof("record_type") == record_type
    ]


def values_of(items):
    """Return values by key, without W&B's own."""
    values = {item.key or "/".join(item.nested_key): item.value_json for item in items}
    return {key: json.loads(value) for key, value in values.items() if not key.startswith("_")}


def history(records):
    """Return what was logged."""
    return [values_of(row.item) for row in of_type(records, "history")]


@pytest.mark.slow
def test_two_runs_in_one_process_stay_apart(tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setattr(sys, "argv", ["train", "some.key=on-the-command-line"])
    config = {"method": {"lr": 5e-5, "loss": {"temperature": 0.05}}}
    for seed in (0, 1):
        (tmp_path / f"s{seed}").mkdir()
        logger = wandb_of(tmp_path / f"s{seed}", seed=seed, settings=config)
        logger.log_metrics({"train/loss": 1.0 + seed}, step=10)
        logger.finalize("success")  # a Trainer's; the test is still to come
        logger.log_metrics({"test/rte/accuracy_all": 0.75}, step=20)
        logger.close(seed)
        logger.close(0)
        logger.log_metrics({"train/loss": 9.0}, step=30)

    for seed in (0, 1):
        sent_records = written(tmp_path / f"s{seed}")
        (start,) = of_type(sent_records, "run")[:1]
        assert start.run_id == f"dualcse_cross-0123456789-s{seed}"
        assert start.display_name == f"dualcse_cross-s{seed}"
        assert (start.project, start.run_group) == ("lightning_cse", "dualcse_cross/seeds")
        assert values_of(start.config.update)["method"] == config["method"]
        assert history(sent_records) == [
            {"train/loss": 1.0 + seed, "trainer/global_step": 10},
            {"test/rte/accuracy_all": 0.75, "trainer/global_step": 20},
        ]
        assert [end.exit_code for end in of_type(sent_records, "exit")] == [seed]
        sent = b"".join(record.SerializeToString() for record in sent_records)
        assert b"on-the-command-line" not in sent


RECORD = {
    "metrics": {"test/rte/accuracy_all": 0.75, "test/eis/accuracy": float("nan")},
    "best": {"step": 20, "score": 0.8, "monitor": "val/rte/accuracy_all"},
    "summary": {"rfd_alignment": 0.25, "rfd_uniformity": None},
    "steps": 20,
}


def test_what_stands_in_the_table_of_runs(tmp_path):
    method = {"_target_": "lightning_cse.methods.DualCSE"}
    settings = {"method": method, "encoder": {"name": "small"}}
    logger = wandb_of(tmp_path, settings=settings, tags=["small", "", "t" * 80])
    keys = ("val/rte/accuracy_all", "val/rte/threshold", "train/loss", "train/learning_rate")
    for step, value in enumerate((1.0, 3.0, 2.0)):
        logger.log_metrics(dict.fromkeys(keys, value), step=step)

    log_final(logger, final_values(RECORD), 20)
    logger.close()
    sent_records = written(tmp_path)
    summary = {}
    for update in of_type(sent_records, "summary"):
        summary |= values_of(update.update)

    assert summary == {
        "val/rte/accuracy_all": {"max": 3.0, "last": 2.0},
        "val/rte/threshold": 2.0,
        "train/loss": {"min": 1.0, "last": 2.0},
        "train/learning_rate": 2.0,
        "trainer/global_step": 20,
        "test/rte/accuracy_all": 0.75,
        "best/score": 0.8,
        "best/step": 20,
        "summary/rfd_alignment": 0.25,
    }
    (start,) = of_type(sent_records, "run")[:1]
    assert list(start.tags) == ["dualcse", "small", "t" * 64]


@pytest.mark.parametrize("method", ["init", "log", "finish"])
def test_one_warning_and_then_silence(tmp_path, monkeypatch, caplog, method):
    run = MagicMock()
    run.configure_mock(**{f"{method}.side_effect": ConnectionError(f"no {method}")})
    monkeypatch.setattr(wandb, "init", run.init if method == "init" else lambda **_: run)
    logger = wandb_of(tmp_path)
    trainer = Trainer(
        accelerator="cpu",
        max_steps=2,
        limit_val_batches=0,
        logger=logger,
        default_root_dir=tmp_path,
        enable_progress_bar=False,
    )
    trainer.fit(BoringModel())
    log_final(logger, final_values(RECORD), 20)
    logger.close(0)
    logger.close(0)
    (warning,) = [message for message in caplog.messages if f"no {method}" in message]
    assert warning.endswith("the run continues without it")
    assert getattr(run, method).call_count == 1


class Mine(CSVLogger):
    """A logger of one's own, which is not W&B's."""


def test_a_missing_package_is_named_with_its_extra(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr("pytorch_lightning.loggers.tensorboard._TENSORBOARD_AVAILABLE", False)
    monkeypatch.setattr("lightning_fabric.loggers.tensorboard._TENSORBOARD_AVAILABLE", False)
    monkeypatch.setattr("lightning_fabric.loggers.tensorboard._TENSORBOARDX_AVAILABLE", False)
    nodes = {"tensorboard": {"_target_": "pytorch_lightning.loggers.TensorBoardLogger"}}
    assert built(tmp_path, nodes) == []
    (warning,) = caplog.messages
    assert "pip install 'lightning_cse[tensorboard]'" in warning


def test_several_loggers_and_one_that_cannot_be_built(tmp_path, caplog):
    nodes = WANDB | {
        "mine": {"_target_": f"{__name__}.Mine", "save_dir": str(tmp_path / "mine")},
        "broken": {"_target_": f"{__name__}.Mine", "save": "no such argument"},
    }
    loggers = built(tmp_path, nodes, settings={"seed": 0})
    assert [type(logger).__name__ for logger in loggers] == ["WandbLogger", "Mine"]
    (message,) = [text for text in caplog.messages if text.startswith("logger.broken: ")]
    assert "unexpected keyword argument 'save'" in message
    for logger in loggers:
        logger.log_metrics({"train/loss": 0.5}, step=3)
        logger.save()
        logger.close()

    (file,) = (tmp_path / "mine").rglob("metrics.csv")
    assert file.read_text().split() == ["step,train/loss", "3,0.5"]


@pytest.mark.parametrize(
    ("variable", "offline", "logged_in", "want"),
    [
        ("", None, False, "offline"),
        ("", None, True, "online"),
        ("", True, True, "offline"),
        ("offline", False, True, "offline"),
        ("online", None, False, "offline"),
        ("disabled", True, True, "disabled"),
    ],
)
def test_who_decides_the_mode(monkeypatch, variable, offline, logged_in, want):
    monkeypatch.setenv("WANDB_MODE", variable)
    monkeypatch.setenv("WANDB_API_KEY", "0" * 40 if logged_in else "")
    assert build._mode(offline) == want
