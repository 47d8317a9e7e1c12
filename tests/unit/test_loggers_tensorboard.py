"""TensorBoard as a logger of a run; what it writes is read back."""

import pytest

pytest.importorskip("tensorboard", reason="needs the extra `tensorboard`")

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams import plugin_data_pb2

from lightning_cse.engine.reporting import final_values
from lightning_cse.loggers import build_loggers, log_final
from lightning_cse.runs import Run

RECORD = {
    "metrics": {"test/rte/accuracy_all": 0.75},
    "best": {"step": 2, "score": 0.5, "monitor": "val/rte/accuracy_all"},
    "summary": {"rfd_alignment": 0.25, "rfd_uniformity": None},
    "steps": 3,
}


def tensorboard_of(root, resumed_at=None):
    """Return the logger of a run with the defaults of this file."""
    run = Run(root, "dualcse_cross", "0123456789", 0)
    run.path = root
    nodes = {"tensorboard": {"_target_": "pytorch_lightning.loggers.TensorBoardLogger"}}
    settings = {"seed": 0, "monitor": "val/stsb/spearman", "method": {"lr": 5e-5}}
    options = {"group": "dualcse_cross/seeds", "tags": ["a"], "resumed_at": resumed_at}
    (logger,) = build_loggers(nodes, run, settings, **options)

    return logger


def curves(folder):
    """Return every curve under a run folder as TensorBoard shows it."""
    read = EventAccumulator(str(folder / "tensorboard")).Reload()
    return {
        key: [(event.step, event.value) for event in read.Scalars(key)]
        for key in read.Tags()["scalars"]
    }


def settings_of(folder):
    """Return the settings in TensorBoard's table of runs."""
    read = EventAccumulator(str(folder / "tensorboard")).Reload().summary_metadata
    content = read["_hparams_/session_start_info"].plugin_data.content
    hparams = plugin_data_pb2.HParamsPluginData.FromString(content).session_start_info.hparams

    return {key: getattr(value, value.WhichOneof("kind")) for key, value in hparams.items()}


def test_every_value_is_there(tmp_path):
    logger = tensorboard_of(tmp_path)
    logger.log_metrics({"train/loss": 1.0, "diag/rfd_alignment": 0.5}, step=0)
    logger.finalize("success")  # a Trainer's; the test is still to come
    logger.log_metrics({"train/loss": 4.0}, step=3)
    log_final(logger, final_values(RECORD), 3)
    logger.close()
    logger.close()
    logger.log_metrics({"train/loss": 9.0}, step=4)
    values = curves(tmp_path)
    assert values["train/loss"] == [(0, 1.0), (3, 4.0)]
    assert values["test/rte/accuracy_all"] == [(3, 0.75)]
    assert values["summary/rfd_alignment"] == [(3, 0.25)]
    assert "summary/rfd_uniformity" not in values
    group = {"group": "dualcse_cross/seeds", "tags": "a"}
    settings = {"seed": 0, "monitor": "val/stsb/spearman", "method/lr": 5e-5}
    assert settings_of(tmp_path) == {**settings, **group}


def test_no_step_is_there_twice_after_a_resume(tmp_path):
    for values, resumed_at in ((range(6), None), (range(14, 18), 3)):  # killed at 5, saved at 3
        logger = tensorboard_of(tmp_path, resumed_at)
        for value in values:
            logger.log_metrics({"train/loss": float(value)}, step=value % 10)

        logger.close(1)

    want = [(0, 0), (1, 1), (2, 2), (3, 3), (4, 14), (5, 15), (6, 16), (7, 17)]
    assert curves(tmp_path)["train/loss"] == want
    anew = tensorboard_of(tmp_path)
    anew.log_metrics({"train/loss": 2.0}, step=0)
    anew.close()
    assert curves(tmp_path) == {"train/loss": [(0, 2.0)]}


def test_a_folder_that_cannot_be_written(tmp_path, caplog):
    (tmp_path / "tensorboard").write_text("a file where the folder should be")
    logger = tensorboard_of(tmp_path, resumed_at=1)
    logger.log_metrics({"a": 1.0}, step=1)
    log_final(logger, final_values(RECORD), 3)
    logger.close(0)
    (message,) = caplog.messages
    assert message.startswith("TensorBoardLogger: start (")
    assert message.endswith("): the run continues without it")
