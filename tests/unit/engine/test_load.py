"""A model by its name: what is checked before anything heavy is imported, and records that are
refused.
"""

import hashlib
import json
import subprocess
import sys

import pytest

from lightning_cse.engine.load import CHECKPOINT, CONFIG, find_run, load, read_run
from lightning_cse.errors import ConfigError, DataError, EncoderError

RECORD = {
    "name": "a_run",
    "seed": 0,
    "model": {"_target_": "lightning_cse.models.point.PointModel", "has_head": False},
    "encoder": {"weights": "w", "tokenizer": "t"},
    "config_hash": "0a",
    "checkpoint": {"sha256": hashlib.sha256(b"weights").hexdigest()},
}


@pytest.fixture
def run(tmp_path):
    """A folder that looks like a finished run."""
    folder = tmp_path / "runs" / "a_run"
    (folder / CHECKPOINT).parent.mkdir(parents=True)
    (folder / CHECKPOINT).write_bytes(b"weights")
    (folder / CONFIG).write_text("encoder: {}\n")
    (folder / "record.json").write_text(json.dumps(RECORD))

    return folder


def test_runs_and_encoders_are_distinguished(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert find_run("runs/a_run") == run
    assert read_run(run) == RECORD
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain" / "config.json").write_text("{}")
    for encoder in ("./plain", "tiny", "no-such-name", "sentence-transformers/all-MiniLM-L6-v2"):
        assert find_run(encoder) is None


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("runs", {}, r"runs contains runs; give one of them:\n  model=runs/a_run"),
        ("./none", {}, "there is no folder /.*none; give one of a run or of an encoder"),
        ("tinny", {}, "there is no model 'tinny' - did you mean 'tiny'"),
        ("length", {}, "length has no encoder"),
        ("runs/a_run", {"pooling": "mean"}, "is a run, which is evaluated as it was"),
        ("runs/a_run", {"prompt": "{} {mask}"}, "is a run"),
    ],
)
def test_wrong_names_and_options(name, options, message, run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises((ConfigError, EncoderError), match=message):
        load(name, "cpu", **options)


@pytest.mark.parametrize("part", [CONFIG, CHECKPOINT, "record.json"])
def test_unfinished_run(part, run):
    (run / part).unlink()
    with pytest.raises(EncoderError, match=f"the run {run} has no {part}: finish it"):
        load(run)


@pytest.mark.parametrize(
    ("part", "error"), [(CHECKPOINT, EncoderError), ("record.json", DataError)]
)
def test_damaged_run(part, error, run):
    (run / part).write_bytes(b"weightz")
    with pytest.raises(error, match=f"{part} is damaged"):
        load(run)


LIGHTNING = ("pytorch_lightning", "hydra")


@pytest.mark.parametrize(
    ("code", "unused"),
    [
        (
            "import lightning_cse.engine.load as l, lightning_cse.export, lightning_cse.baselines\n"
            "l.find_run('tiny')",
            {"torch", "transformers", "numpy", *LIGHTNING},
        ),
        (
            "import lightning_cse\n"
            "from lightning_cse import evaluation, export\n"
            "from lightning_cse.analysis import exporting\n"
            "model = lightning_cse.load('tiny')\n"
            "model.similarity('a', 'b')",
            {"lightning_cse.methods", *LIGHTNING},
        ),
        (
            "from lightning_cse import metrics\n"
            "from lightning_cse.evaluation import EIS, NLI, RTE, STSB, Direction, Transfer\n"
            "metrics.alignment, metrics.spearman, metrics.mcnemar([1, 0], [1, 1])",
            {"torchmetrics", "scipy.stats", "pytorch_lightning"},
        ),
    ],
    ids=["name", "model", "metrics"],
)
def test_unused_libraries_are_not_imported(code, unused):
    line = [sys.executable, "-c", f"import sys\n{code}\nprint(*sys.modules)"]
    done = subprocess.run(line, capture_output=True, text=True, check=True)
    assert not unused & set(done.stdout.split())
