"""A model by its name: what is checked before anything heavy is imported, and records that are
refused.
"""

import hashlib
import io
import json
import subprocess
import sys

import pytest
import torch

from lightning_cse.engine.load import CHECKPOINT, CONFIG, find_run, load, read_run
from lightning_cse.errors import ConfigError, DataError, EncoderError
from lightning_cse.models.base import check_class

_buffer = io.BytesIO()
torch.save({"state_dict": {}}, _buffer)
WEIGHTS = _buffer.getvalue()
RECORD = {
    "name": "a_run",
    "seed": 0,
    "model": {"_target_": "lightning_cse.models.point.PointModel", "has_head": False},
    "encoder": {"name": "tiny", "weights": "w", "tokenizer": "t"},
    "metrics": {},
    "config_hash": "0a",
    "checkpoint": {"sha256": hashlib.sha256(WEIGHTS).hexdigest()},
}
WRITTEN = "method: {_target_: lightning_cse.methods.SimCSE}\nencoder: {_target_: tiny_encoder}\n"


@pytest.fixture
def run(tmp_path):
    """A folder that looks like a finished run."""
    folder = tmp_path / "runs" / "a_run"
    (folder / CHECKPOINT).parent.mkdir(parents=True)
    (folder / CHECKPOINT).write_bytes(WEIGHTS)
    (folder / CONFIG).write_text(WRITTEN)
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


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"[1]", b"7", b'{"a": 1}', b'{"a": '])
@pytest.mark.parametrize("part", [CHECKPOINT, CONFIG, "record.json"])
def test_damaged_run(part, content, run):
    (run / part).write_bytes(content)
    with pytest.raises(DataError, match=f"{part} is damaged"):
        load(run)


def test_checkpoint_of_another_run(run):
    torch.save({"state_dict": {"a": torch.zeros(1)}}, run / CHECKPOINT)
    with pytest.raises(EncoderError, match=r"is not the checkpoint of record\.json"):
        load(run)


def test_a_foreign_config_reads_no_variable(run, monkeypatch):
    monkeypatch.setenv("TOKEN", "secret")
    (run / CONFIG).write_text(
        WRITTEN.replace("tiny_encoder", "tiny_encoder, pooling: '${oc.env:TOKEN}'")
    )
    with pytest.raises(EncoderError) as caught:
        load(run)

    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("target", "content"),
    [
        ("model_a.Box", "class Circle(object): pass"),
        ("model_a.Box", "class Box: pass"),
        ("model_a.Box", "Box = print"),
        ("model_a.Box", "class Box(object): pass\n)"),
        ("model_a", "class Box(object): pass"),
        ("folder_a.model_a.Box", "class Circle(object): pass"),
    ],
)
def test_a_record_has_no_other_module_run(target, content, run, tmp_path, monkeypatch):
    path = tmp_path / "place" / f"{target.rpartition('.')[0].replace('.', '/') or target}.py"
    path.parent.mkdir(parents=True)
    path.write_text(f"open({str(tmp_path / 'run')!r}, 'w')\n{content}\n")
    monkeypatch.syspath_prepend(tmp_path / "place")
    record = {**RECORD, "model": {"_target_": target}}
    (run / "record.json").write_text(json.dumps(record))
    with pytest.raises(EncoderError, match=f"the model {target} is in no module"):
        load(run)

    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "file", ["model_b.py", "folder_b/model_b.py", "folder_b/model_b/__init__.py"]
)
def test_a_model_of_ones_own_is_found(file, tmp_path, monkeypatch):
    (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / file).write_text("class Box(Model): pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    module = file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    check_class({"_target_": f"{module}.Box"})


LIGHTNING = ("pytorch_lightning", "hydra")


@pytest.mark.slow
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
    process = subprocess.run(line, capture_output=True, text=True, check=True)
    assert not unused & set(process.stdout.split())
