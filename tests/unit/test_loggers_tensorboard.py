"""TensorBoard as a view on a run; what it writes is read back."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("tensorboard", reason="needs the extra `tensorboard`")

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams import plugin_data_pb2

from lightning_cse.loggers import TensorBoardView

RECORD: dict[str, Any] = {
    "metrics": {"test/rte/accuracy_all": 0.75},
    "best": {"step": 2, "score": 0.5, "monitor": "val/rte/accuracy_all"},
    "summary": {"rfd_alignment": 0.25, "rfd_uniformity": None},
    "steps": 3,
}


def view(folder: Path, **options: Any) -> TensorBoardView:
    """Return a view with the defaults of this file."""
    given: dict[str, Any] = {
        "identity": "0123456789",
        "name": "dualcse_cross",
        "seed": 0,
        "group": "dualcse_cross/seeds",
        "settings": {"seed": 0, "method": {"lr": 5e-5}, "llm": {"api_key": "hush", "max_tokens": 5}},
        "resume": False,
        "tags": ["small"],
    }
    return TensorBoardView(folder=folder, **{**given, **options})


def curves(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """Return every curve under a run folder as TensorBoard shows it."""
    read = EventAccumulator(str(folder / "tensorboard")).Reload()
    return {key: [(event.step, event.value) for event in read.Scalars(key)] for key in read.Tags()["scalars"]}


def settings_of(folder: Path) -> dict[str, Any]:
    """Return the settings in TensorBoard's table of runs."""
    found = EventAccumulator(str(folder / "tensorboard")).Reload().summary_metadata
    content = plugin_data_pb2.HParamsPluginData.FromString(found["_hparams_/session_start_info"].plugin_data.content)
    return {key: getattr(value, value.WhichOneof("kind")) for key, value in content.session_start_info.hparams.items()}


class TestCurves:
    def test_every_value_is_there(self, tmp_path: Path) -> None:
        one = view(tmp_path)
        assert one.experiment is None  # a Trainer asks before there is a value
        for step in range(3):
            one.log_metrics({"train/loss": 1.0 + step, "diag/rfd_alignment": 0.5}, step=step)
        one.finalize("success")  # a Trainer's; the test is still to come
        assert curves(tmp_path)["train/loss"] == [(0, 1.0), (1, 2.0), (2, 3.0)]
        one.log_metrics({"train/loss": 4.0}, step=3)
        one.close()
        one.close()
        one.log_metrics({"train/loss": 9.0}, step=4)
        assert curves(tmp_path)["train/loss"] == [(0, 1.0), (1, 2.0), (2, 3.0), (3, 4.0)]
        assert (one.name, one.version, one.save_dir) == ("dualcse_cross", "0123456789-s0", str(tmp_path))

    def test_no_step_is_there_twice_after_a_resume(self, tmp_path: Path) -> None:
        killed = view(tmp_path)
        for step in range(6):
            killed.log_metrics({"train/loss": float(step)}, step=step)
        killed.finalize("success")  # written, and then killed: the checkpoint is of step 3
        resumed = view(tmp_path, resume=True)
        for step in range(4, 8):
            resumed.log_metrics({"train/loss": 10.0 + step}, step=step)
        resumed.close()
        assert curves(tmp_path)["train/loss"] == [(0, 0), (1, 1), (2, 2), (3, 3), (4, 14), (5, 15), (6, 16), (7, 17)]

    def test_a_run_begun_anew_shows_nothing_of_before(self, tmp_path: Path) -> None:
        for loss in (1.0, 2.0):
            one = view(tmp_path)
            one.log_metrics({"train/loss": loss}, step=5 if loss == 1.0 else 0)
            one.close()
        assert curves(tmp_path) == {"train/loss": [(0, 2.0)]}

    def test_resumed_after_the_last_step_keeps_all_of_before(self, tmp_path: Path) -> None:
        one = view(tmp_path)
        one.log_metrics({"train/loss": 1.0}, step=3)
        one.close(1)
        again = view(tmp_path, resume=True)
        again.conclude(RECORD)
        again.close()
        assert curves(tmp_path)["train/loss"] == [(3, 1.0)]
        assert curves(tmp_path)["test/rte/accuracy_all"] == [(3, 0.75)]


class TestTable:
    def test_settings_and_final_values(self, tmp_path: Path) -> None:
        one = view(tmp_path)
        one.log_metrics({"train/loss": 1.0}, step=3)
        one.conclude(RECORD)
        one.close()
        found = curves(tmp_path)
        assert found["test/rte/accuracy_all"] == [(3, 0.75)]
        assert found["best/score"] == [(3, 0.5)]
        assert found["summary/rfd_alignment"] == [(3, 0.25)]
        assert "summary/rfd_uniformity" not in found
        assert settings_of(tmp_path) == {
            "seed": 0,
            "method/lr": 5e-5,
            "llm/max_tokens": 5,
            "group": "dualcse_cross/seeds",
            "tags": "small",
        }
        assert not any(b"hush" in path.read_bytes() for path in (tmp_path / "tensorboard").rglob("*") if path.is_file())


class TestHarmless:
    def test_not_installed(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        monkeypatch.setattr("pytorch_lightning.loggers.tensorboard._TENSORBOARD_AVAILABLE", False)
        monkeypatch.setattr("lightning_fabric.loggers.tensorboard._TENSORBOARD_AVAILABLE", False)
        monkeypatch.setattr("lightning_fabric.loggers.tensorboard._TENSORBOARDX_AVAILABLE", False)
        monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
        one = view(tmp_path)
        with caplog.at_level(logging.WARNING):
            one.log_metrics({"a": 1.0}, step=1)
            one.log_metrics({"a": 1.0}, step=2)
            one.conclude(RECORD)
            one.close(0)
        (told,) = [record.message for record in caplog.records if record.name == "lightning_cse.loggers"]
        assert "TensorBoard could not start (ModuleNotFoundError" in told
        assert "lightning_cse[tensorboard]" in told

    def test_a_folder_that_cannot_be_written(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        (tmp_path / "tensorboard").write_text("a file where the folder should be")
        one = view(tmp_path, resume=True)
        one.log_metrics({"a": 1.0}, step=1)
        one.close(0)
        assert "TensorBoard could not start" in caplog.text
        assert str(tmp_path) in caplog.text
