"""TensorBoard as a view on a run; what it writes is read back."""

from typing import Any

import pytest

pytest.importorskip("tensorboard", reason="needs the extra `tensorboard`")

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams import plugin_data_pb2

from lightning_cse.loggers import TensorBoardView
from lightning_cse.runs import Run

RECORD: dict[str, Any] = {
    "metrics": {"test/rte/accuracy_all": 0.75},
    "best": {
        "step": 2,
        "score": 0.5,
        "monitor": "val/rte/accuracy_all",
    },
    "summary": {"rfd_alignment": 0.25, "rfd_uniformity": None},
    "steps": 3,
}


def view(root, **options):
    """Return a view with the defaults of this file."""
    run = Run(
        root,
        "dualcse_cross",
        "0123456789",
        0,
    )
    run.path = root
    settings = {"seed": 0, "method": {"lr": 5e-5}}
    return TensorBoardView(
        run=run,
        **{
            "group": "dualcse_cross/seeds",
            "settings": settings,
            "tags": ["a"],
            **options,
        },
    )


def curves(folder):
    """Return every curve under a run folder as TensorBoard shows it."""
    read = EventAccumulator(str(folder / "tensorboard")).Reload()
    return {
        key: [(event.step, event.value) for event in read.Scalars(key)]
        for key in read.Tags()["scalars"]
    }


def settings_of(folder):
    """Return the settings in TensorBoard's table of runs."""
    found = EventAccumulator(str(folder / "tensorboard")).Reload().summary_metadata
    content = plugin_data_pb2.HParamsPluginData.FromString(
        found["_hparams_/session_start_info"].plugin_data.content
    )
    return {
        key: getattr(value, value.WhichOneof("kind"))
        for key, value in content.session_start_info.hparams.items()
    }


def test_every_value_is_there(tmp_path):
    one = view(tmp_path)
    for step in range(3):
        one.log_metrics({"train/loss": 1.0 + step, "diag/rfd_alignment": 0.5}, step=step)
    one.finalize("success")  # a Trainer's; the test is still to come
    one.log_metrics({"train/loss": 4.0}, step=3)
    one.conclude(RECORD)
    one.close()
    one.close()
    one.log_metrics({"train/loss": 9.0}, step=4)
    found = curves(tmp_path)
    assert found["train/loss"] == [
        (0, 1.0),
        (1, 2.0),
        (2, 3.0),
        (3, 4.0),
    ]
    assert found["test/rte/accuracy_all"] == [(3, 0.75)]
    assert found["summary/rfd_alignment"] == [(3, 0.25)]
    assert "summary/rfd_uniformity" not in found
    assert settings_of(tmp_path) == {
        "seed": 0,
        "method/lr": 5e-5,
        "group": "dualcse_cross/seeds",
        "tags": "a",
    }


def test_no_step_is_there_twice_after_a_resume(tmp_path):
    killed = view(tmp_path)
    for step in range(6):
        killed.log_metrics({"train/loss": float(step)}, step=step)
    killed.close(1)  # the checkpoint is of step 3
    resumed = view(tmp_path, resumed_at=3)
    for step in range(4, 8):
        resumed.log_metrics({"train/loss": 10.0 + step}, step=step)
    resumed.close()
    assert curves(tmp_path)["train/loss"] == [
        (0, 0),
        (1, 1),
        (2, 2),
        (3, 3),
        (4, 14),
        (5, 15),
        (6, 16),
        (7, 17),
    ]
    begun_anew = view(tmp_path)
    begun_anew.log_metrics({"train/loss": 2.0}, step=0)
    begun_anew.close()
    assert curves(tmp_path) == {"train/loss": [(0, 2.0)]}


def test_a_folder_that_cannot_be_written(tmp_path, caplog):
    (tmp_path / "tensorboard").write_text("a file where the folder should be")
    one = view(tmp_path, resumed_at=1)
    one.log_metrics({"a": 1.0}, step=1)
    one.conclude(RECORD)
    one.close(0)
    assert caplog.text.count("TensorBoard could not") == 1
