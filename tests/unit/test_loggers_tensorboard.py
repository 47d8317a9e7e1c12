"""TensorBoard as a view on a run; what it writes is read back."""

import re

import pytest

pytest.importorskip("tensorboard", reason="needs the extra `tensorboard`")

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.custom_scalar import layout_pb2
from tensorboard.plugins.hparams import plugin_data_pb2

from lightning_cse.loggers import TensorBoardView
from lightning_cse.runs import Run

RECORD = {
    "metrics": {"test/rte/accuracy_all": 0.75},
    "best": {"step": 2, "score": 0.5, "monitor": "val/rte/accuracy_all"},
    "summary": {"rfd_alignment": 0.25, "rfd_uniformity": None},
    "steps": 3,
}


def view(root, resumed_at=None):
    """Return a view with the defaults of this file."""
    run = Run(root, "dualcse_cross", "0123456789", 0)
    run.path = root
    settings = {"seed": 0, "monitor": "val/stsb/spearman", "method": {"lr": 5e-5}}
    given = {"group": "dualcse_cross/seeds", "settings": settings, "tags": ["a"]}

    return TensorBoardView(run=run, resumed_at=resumed_at, **given)


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
    content = found["_hparams_/session_start_info"].plugin_data.content
    hparams = plugin_data_pb2.HParamsPluginData.FromString(content).session_start_info.hparams

    return {key: getattr(value, value.WhichOneof("kind")) for key, value in hparams.items()}


def test_custom_scalars_show_rfd_over_all_runs(tmp_path):
    keys = {
        "diag/rfd_alignment": "RFD of alignment",
        "diag/implicit/rfd_uniformity": "RFD of uniformity",
        "diag/implicit/held_out/alignment": "alignment, held-out training rows",
        "diag/eval/alignment": "alignment, evaluation set",
        "diag/held_out/uniformity": "uniformity, held-out training rows",
        "diag/eval/uniformity": "uniformity, evaluation set",
        "val/stsb/spearman": "val/stsb/spearman, which chooses the checkpoint",
        "val/stsb/spearman_all": "other dev scores",
        "train/loss": "loss",
    }
    one = view(tmp_path)
    one.log_metrics(dict.fromkeys([*keys, "val/rte/threshold", "test/rte/auc"], 0.5), step=0)
    one.close()

    read = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    (event,) = read.Tensors("custom_scalars__config__")
    layout = layout_pb2.Layout.FromString(event.tensor_proto.string_val[0])
    charts = {chart.title: chart for part in layout.category for chart in part.chart}
    shown = {
        key: title
        for title, chart in charts.items()
        for key in read.Tags()["scalars"]
        if any(re.match(pattern, key) for pattern in chart.multiline.tag)
    }

    assert shown == keys
    assert charts.keys() == set(keys.values())


def test_every_value_is_there(tmp_path):
    one = view(tmp_path)
    one.log_metrics({"train/loss": 1.0, "diag/rfd_alignment": 0.5}, step=0)
    one.finalize("success")  # a Trainer's; the test is still to come
    one.log_metrics({"train/loss": 4.0}, step=3)
    one.conclude(RECORD)
    one.close()
    one.close()
    one.log_metrics({"train/loss": 9.0}, step=4)
    found = curves(tmp_path)
    assert found["train/loss"] == [(0, 1.0), (3, 4.0)]
    assert found["test/rte/accuracy_all"] == [(3, 0.75)]
    assert found["summary/rfd_alignment"] == [(3, 0.25)]
    assert "summary/rfd_uniformity" not in found
    group = {"group": "dualcse_cross/seeds", "tags": "a"}
    shown = {"seed": 0, "monitor": "val/stsb/spearman", "method/lr": 5e-5}
    assert settings_of(tmp_path) == {**shown, **group}


def test_no_step_is_there_twice_after_a_resume(tmp_path):
    for values, resumed_at in ((range(6), None), (range(14, 18), 3)):  # killed at 5, saved at 3
        one = view(tmp_path, resumed_at)
        for value in values:
            one.log_metrics({"train/loss": float(value)}, step=value % 10)

        one.close(1)

    want = [(0, 0), (1, 1), (2, 2), (3, 3), (4, 14), (5, 15), (6, 16), (7, 17)]
    assert curves(tmp_path)["train/loss"] == want
    anew = view(tmp_path)
    anew.log_metrics({"train/loss": 2.0}, step=0)
    anew.close()
    assert curves(tmp_path) == {"train/loss": [(0, 2.0)]}


def test_a_folder_that_cannot_be_written(tmp_path, caplog):
    (tmp_path / "tensorboard").write_text("a file where the folder should be")
    one = view(tmp_path, resumed_at=1)
    one.log_metrics({"a": 1.0}, step=1)
    one.conclude(RECORD)
    one.close(0)
    assert caplog.text.count("TensorBoard could not") == 1
