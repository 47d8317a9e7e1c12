"""Small trainings for the tests of this folder, and what their steps get."""

import pytest
from small_runs import SMALL

from lightning_cse.methods import DualCSE


@pytest.fixture
def run(run_tiny, tmp_path):
    """Train DualCSE for six steps, validated at every second; runs go below the test's folder."""
    return lambda *overrides, name="": run_tiny(tmp_path / name, *SMALL, *overrides)


class Batches:
    """The rows of every training batch, and the calls of the method in their order."""

    def __init__(self, monkeypatch):
        self.rows = []
        self.is_training = []
        self.calls = []
        training_step, validation_step = DualCSE.training_step, DualCSE.validation_step

        def recorded(method, batch, batch_idx):
            self.rows.append(batch["index"].tolist())
            self.is_training.append(all(module.training for module in method.modules()))
            self.calls.append("training")
            return training_step(method, batch, batch_idx)

        def counted(method, batch, batch_idx):
            self.calls.append("test" if method.trainer.testing else "validation")
            return validation_step(method, batch, batch_idx)

        monkeypatch.setattr(DualCSE, "training_step", recorded)
        monkeypatch.setattr(DualCSE, "validation_step", counted)


@pytest.fixture
def batches(monkeypatch):
    """What the steps of DualCSE get."""
    return Batches(monkeypatch)
