"""A learning rate that watches the dev score: InferSent's schedule in a run."""

import pytest
from small_runs import curves

from lightning_cse.errors import ConfigError
from lightning_cse.methods import DevSchedule

MONITOR = "val/snli_labels/accuracy"
TINY = (
    "+experiment=infersent",
    "encoder.lstm=6",
    "method.hidden=[8]",
    "data.train_rows=24",
    "eval_every=null",
    "baselines=none",
)


def test_learning_rate_follows_the_dev_score(run_tiny, tmp_path):
    folder = run_tiny(tmp_path, *TINY, "method.schedule.least=0.03", "trainer.max_epochs=30")
    columns = curves(folder)
    learning_rate = columns["train/learning_rate"]
    scores = {step: score for step, score in columns[MONITOR].items() if step}
    assert list(scores) == list(range(3, 3 * len(scores) + 1, 3))  # an epoch has three steps

    expected = 0.1
    best = -1.0
    for step, score in scores.items():
        assert learning_rate[step] == pytest.approx(expected)
        expected *= 0.99 if score > best else 0.99 / 5
        best = max(best, score)

    assert expected / 0.99 < 0.03 * 0.1
    assert "learning rate" in folder.read()["stopped_early"]


@pytest.mark.parametrize("options", [{"decay": 0}, {"shrink": 0.5}, {"least": 1}])
def test_options_are_checked(options):
    with pytest.raises(ConfigError, match=r"method\.schedule: needs decay"):
        DevSchedule(**options)
