"""docs/glossary.md names every field of a record and every metric."""

import inspect
import json
import re
from pathlib import Path

from lightning_cse import evaluation
from lightning_cse.evaluation import Task
from lightning_cse.paths import kept_models

GLOSSARY = (Path(__file__).parents[1] / "docs" / "glossary.md").read_text(encoding="utf-8")
NAMED = {
    name
    for row in re.findall(r"(?m)^\|(.+?)\|", GLOSSARY)
    for name in re.findall(r"`([\w/]+)`", row)
}


def test_every_field_of_a_record(run_tiny, tmp_path):
    run = run_tiny(tmp_path, "+experiment=dualcse_cross", "trainer.max_steps=1")
    for folder in (run.path, *kept_models().values()):
        record = json.loads((folder / "record.json").read_text(encoding="utf-8"))
        assert record.keys() <= NAMED
        assert record["summary"].keys() <= {*re.findall(r"`(\w+)`", GLOSSARY)}
        assert {key.split("/", 2)[2] for key in record["metrics"]} <= NAMED


def test_every_metric_of_every_task():
    for name in evaluation.__all__:
        task = getattr(evaluation, name)
        if inspect.isclass(task) and issubclass(task, Task) and isinstance(task.metrics, tuple):
            assert set(task.metrics) <= NAMED, name
