"""A model by its name: what is checked before anything is loaded, and loading it."""

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from lightning_cse.engine.load import (
    CHECKPOINT,
    CONFIG,
    check_device,
    check_model,
    load_model,
    read_run,
)
from lightning_cse.errors import ConfigError, EncoderError

RECORD = {
    "name": "a_run",
    "seed": 0,
    "model": {"class": "PointModel", "has_head": False},
    "encoder": {"weights": "w", "tokenizer": "t"},
    "config_hash": "0a",
    "checkpoint": {"sha256": hashlib.sha256(b"weights").hexdigest()},
}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A folder that looks like a whole run."""
    folder = tmp_path / "runs" / "a_run"
    (folder / CHECKPOINT).parent.mkdir(parents=True)
    (folder / CHECKPOINT).write_bytes(b"weights")
    (folder / CONFIG).write_text("encoder: {}\n")
    (folder / "record.json").write_text(json.dumps(RECORD))
    return folder


def test_a_run_and_an_encoder_are_distinguished(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert check_model("runs/a_run") == run
    assert read_run(run) == RECORD
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain" / "config.json").write_text("{}")
    for encoder in ("./plain", "tiny", "no-such-name", "sentence-transformers/all-MiniLM-L6-v2"):
        assert check_model(encoder) is None
    assert check_model("./plain", pooling="mean", prompt="{} {mask}") is None


@pytest.mark.parametrize(
    "name", ["./none", "../none", "runs/none/0-s0", "~/none-of-this-name", "/none"]
)
def test_what_can_only_be_a_path_must_be_there(name: str) -> None:
    with pytest.raises(
        EncoderError,
        match=r"^model: there is no folder /.*none.*; give one of a run or of an encoder",
    ):
        check_model(name)


@pytest.mark.parametrize("part", [CONFIG, CHECKPOINT, "record.json"])
def test_a_run_must_be_whole_and_is_read_as_it_was_trained(part: str, run: Path) -> None:
    for option in ({"pooling": "mean"}, {"prompt": "{} {mask}"}):
        with pytest.raises(
            ConfigError,
            match=f"{next(iter(option))}: .* is a run, which is evaluated as it was trained",
        ):
            check_model(str(run), **option)
    with pytest.raises(EncoderError, match=rf"contains runs; give one of them:\n  model={run}"):
        check_model(str(run.parent))
    (run / part).unlink()
    with pytest.raises(EncoderError, match=f"the run {run} has no {part}: finish it"):
        check_model(str(run))


def test_a_device_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    for where in (torch.cuda, torch.backends.mps):
        monkeypatch.setattr(where, "is_available", lambda: False)
    for device in ("gpu", "cuda", "mps"):
        with pytest.raises(ConfigError, match=f"--device: torch finds no {device} on this machine"):
            check_device(device)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    for device in ("cpu", "auto", "gpu", "cuda"):
        check_device(device)


def test_a_damaged_checkpoint_or_record_is_refused(run: Path) -> None:
    (run / CHECKPOINT).write_bytes(b"weightz")
    with pytest.raises(
        EncoderError, match=r"best\.ckpt is damaged \(its sha256 differs from the record's\)"
    ):
        load_model(run)
    first = {key: value for key, value in RECORD.items() if key not in ("model", "checkpoint")}
    (run / "record.json").write_text(json.dumps(first))
    with pytest.raises(EncoderError, match=r"is not a record of a training run \('model'\)"):
        load_model(run)


LIGHTNING = ("pytorch_lightning", "hydra")


@pytest.mark.parametrize(
    ("code", "unused"),
    [
        (
            "import lightning_cse.engine.load, lightning_cse.score, lightning_cse.search, lightning_cse.baselines",
            {"torch", "transformers", "numpy", *LIGHTNING},
        ),
        (
            "import lightning_cse\n"
            "from lightning_cse import evaluation, export, score, search\n"
            "from lightning_cse.analysis import exporting, scoring, searching\n"
            "model = lightning_cse.load('tiny')\n"
            "model.answers.similarity(*(model.answers.embed([text]) for text in 'ab'))",
            {"lightning_cse.methods", *LIGHTNING},
        ),
        (
            "from lightning_cse import metrics\n"
            "from lightning_cse.evaluation import EIS, NLI, RTE, STSB, Direction, Transfer\n"
            "metrics.alignment, metrics.spearman, metrics.mcnemar([1, 0], [1, 1])",
            {"torchmetrics", "scipy.stats", "pytorch_lightning"},
        ),
    ],
    ids=["a name is checked", "a loaded model is used", "functions of metrics"],
)
def test_what_is_not_used_is_not_imported(code: str, unused: set[str]) -> None:
    line = [sys.executable, "-c", f"import sys\n{code}\nprint(*sys.modules)"]
    done = subprocess.run(line, capture_output=True, text=True, check=True)
    assert not unused & set(done.stdout.split())
