"""Exported folders: the model's own vectors in sentence-transformers, their card, and the
upload.
"""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from unittest.mock import create_autospec

import httpx2
import numpy as np
import pytest
import torch
from filelock import FileLock
from huggingface_hub import HfApi
from oracles import save_tiny, untrained
from sentence_transformers import SentenceTransformer

import lightning_cse
from lightning_cse import methods
from lightning_cse.analysis import exporting
from lightning_cse.analysis.card import citations, exported_card
from lightning_cse.analysis.exporting import export
from lightning_cse.encoders import tiny_encoder
from lightning_cse.errors import LightningCSEError
from lightning_cse.export import main
from lightning_cse.models import (
    DualGaussianModel,
    DualModel,
    GaussianModel,
    ImpScoreModel,
    PointModel,
)

SENTENCES = [
    "The ferry leaves at noon.",
    "",
    "Is that [MASK] yours, or <mask>? [SEP] </s>",
    "Über Größe, naïveté und 🙃 — ½ €.",
    "salt " * 150 + "was dear then.",
]
PROMPT = {"pooling": "prompt", "prompts": ["{} ; in short : {mask} , that is all ."]}
CASES = [
    (PointModel, {}, "primary", {"pooling": "mean"}, True),
    (PointModel, {"has_head": True}, "primary", {}, True),
    (PointModel, {}, "primary", PROMPT, True),
    (GaussianModel, {"sts_similarity": "symmetric"}, "mean", {}, False),
    (DualModel, {"architecture": "cross"}, "explicit", {}, True),
    (DualModel, {"architecture": "cross"}, "implicit", {}, False),
    (DualModel, {"architecture": "bi"}, "implicit", {}, False),
    (DualGaussianModel, {"architecture": "bi"}, "implicit", {}, False),
    (ImpScoreModel, {"dim": 8}, "semantic", {"pooling": "mean"}, False),
]


@pytest.mark.parametrize(("method", "options", "view", "reading", "is_cosine"), CASES)
def test_exported_vectors_are_those_of_the_model(
    method, options, view, reading, is_cosine, tmp_path
):
    model = untrained(method, encoder=tiny_encoder(max_length=48, **reading), **options)
    checked = export(model, tmp_path / "folder", view=None if view == model.views[0] else view)
    assert checked.startswith(f"{method.__name__}, view {view}: 64 vectors within ")
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]
    exported = SentenceTransformer(str(tmp_path / "folder"), device="cpu", local_files_only=True)
    vectors = exported.encode(SENTENCES, convert_to_tensor=True, show_progress_bar=False)
    torch.testing.assert_close(vectors, model.embed(SENTENCES).views()[view], atol=1e-5, rtol=1e-4)
    card = (tmp_path / "folder" / "README.md").read_text()
    assert f"similarity: {'cosine' if is_cosine else 'not the cosine'}" in card


def test_exported_encoder_is_loaded_here_too(tmp_path):
    model = untrained(PointModel, encoder=tiny_encoder(max_length=48, pooling="mean"))
    export(model, tmp_path / "folder")
    loaded = lightning_cse.load(tmp_path / "folder")
    np.testing.assert_allclose(
        loaded.encode(SENTENCES), model.encode(SENTENCES), rtol=1e-4, atol=1e-5
    )


@pytest.mark.slow
def test_export_of_a_run_works_without_this_package(run_tiny, tmp_path, capfd, monkeypatch):
    encoder = save_tiny(tmp_path / "bert")
    experiment = ("+experiment=dualcse_bi", f"encoder={encoder}", "encoder.pooling=cls")
    run = run_tiny(tmp_path, *experiment)
    monkeypatch.chdir(tmp_path)
    command = ("--model", str(run.path), "--to", "new/folder", "--view", "implicit")
    assert main(command) == 0
    assert capfd.readouterr().out == "new/folder\n"

    text = Path("new/folder/README.md").read_text()
    accuracy = run.read()["metrics"]["test/rte/accuracy_all"]
    for words in (
        f"| rte, accuracy_all | {accuracy:.4f} |",
        f"run: dualcse_bi, config hash {run.config_hash}, seed 0",
        "trained on: inli/train (licence: CC BY-SA 4.0)",
        "@inproceedings{oda2026dualcse",
    ):
        assert words in text

    for path in Path("new/folder").rglob("*"):
        assert path.is_dir() or str(tmp_path).encode() not in path.read_bytes()

    code = (
        "import sys; sys.modules['lightning_cse'] = None\n"
        "from sentence_transformers import SentenceTransformer as S\n"
        "vector = S('new/folder', device='cpu').encode('Tea.', show_progress_bar=False)\n"
        "print(*vector.tolist())"
    )
    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=os.environ
    )
    assert process.returncode == 0, process.stderr
    assert "MISSING" not in process.stderr + process.stdout
    printed = [float(value) for value in process.stdout.splitlines()[-1].split()]
    expected = lightning_cse.load(run.path).encode("Tea.", "implicit")
    assert printed == pytest.approx(expected.tolist(), abs=1e-5)
    assert main(command) == 2
    assert "new/folder is not empty" in capfd.readouterr().err


def test_a_card_has_the_command_without_local_folders():
    model = untrained(PointModel)
    model.record = {
        "name": "simcse_sup",
        "config_hash": "0" * 10,
        "seed": 1,
        "decisive": {"config": {"data": {"train": ["snli/train", "/data/mine/rows.csv"]}}},
        "overrides": [
            "+experiment=simcse_sup",
            "data.train=[snli/train,'/data/mine/rows.csv',../b.csv]",
            "encoder.source=~/models/bert",
            "paths.data_dir=/data/mine/data",
            "seed=1",
        ],
    }
    card = str(exported_card(model, "primary", is_cosine=True, place="user/name"))

    assert "/data/mine" not in card
    assert "trained on: snli/train (licence: CC BY-SA 4.0), rows.csv" in card
    words = "'data.train=[snli/train,'\"'\"'rows.csv'\"'\"',b.csv]' encoder.source=bert seed=1"
    assert f"python -m lightning_cse.train +experiment=simcse_sup {words}\n" in card

    model.record = {}
    assert "lightning_cse.train" not in str(exported_card(model, "primary", True, "user/name"))


class Undeclared(PointModel):
    """A model that does not declare its layers."""

    def view_layers(self):
        return {}


@pytest.mark.parametrize(
    ("method", "reading", "view", "message"),
    [
        (PointModel, {"pooling": "prompt", "denoise": True}, None, "denoise cannot be exported"),
        (PointModel, {"pooling": "first_last"}, None, "pooling first_last cannot be exported"),
        (Undeclared, {}, None, "Undeclared does not declare the layers of primary"),
        (DualModel, {}, "implict", "has no view 'implict'"),
    ],
)
def test_refused_exports_write_nothing(method, reading, view, message, tmp_path):
    model = untrained(method, encoder=tiny_encoder(**reading))
    with pytest.raises(LightningCSEError, match=message):
        export(model, tmp_path / "folder", view=view)

    assert list(tmp_path.iterdir()) == []


def test_failed_export_keeps_the_existing_folder(tmp_path, monkeypatch):
    folder = tmp_path / "folder"
    first = untrained(PointModel)
    export(first, folder)
    second = untrained(PointModel, encoder=tiny_encoder(pooling="mean"))
    with monkeypatch.context() as patched:
        patched.setattr(exporting, "TOLERANCE", -1.0)
        with pytest.raises(LightningCSEError, match="differ from the model's by"):
            export(second, folder, force=True)

    assert [path.name for path in tmp_path.iterdir()] == ["folder"]
    loaded = lightning_cse.load(folder)
    np.testing.assert_allclose(loaded.encode("a"), first.encode("a"), rtol=1e-4, atol=1e-5)
    notes = tmp_path / "notes"
    notes.mkdir()
    (notes / "mine.txt").write_text("mine")
    with pytest.raises(LightningCSEError, match="--force replaces only"):
        export(first, notes, force=True)


KILLED = """
import os, signal, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from oracles import untrained
from lightning_cse.analysis import exporting
from lightning_cse.models import PointModel
exporting._checked_distance = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
exporting.export(untrained(PointModel), Path(sys.argv[2]))
"""


@pytest.mark.slow
def test_the_next_export_removes_what_a_killed_one_left(tmp_path, repository):
    folder = tmp_path / "out [1]"
    line = [sys.executable, "-c", KILLED, str(repository / "tests"), str(folder)]
    assert subprocess.run(line).returncode == -signal.SIGKILL
    (leftover,) = tmp_path.iterdir()
    assert (leftover / "exported" / "modules.json").is_file()
    notes = tmp_path / ".out [1].notes"
    notes.mkdir()
    active = tmp_path / ".out [1].export-other"
    active.mkdir()

    with FileLock(active / "lock"):
        export(untrained(PointModel), folder)

    assert sorted(tmp_path.iterdir()) == sorted([folder, notes, active])


@pytest.mark.parametrize(
    "flag",
    [pytest.param(2, marks=pytest.mark.skipif(sys.platform != "linux", reason="no swap")), 1024],
)
def test_a_replaced_folder_is_missing_at_no_time(tmp_path, monkeypatch, flag):
    """Where folders cannot be swapped, as with an unknown flag, they are renamed."""
    monkeypatch.setattr(exporting, "_EXCHANGE", flag)
    target, new = tmp_path / "target", tmp_path / "scratch" / "new"
    for folder in (target, new):
        folder.mkdir(parents=True)
        (folder / "name").write_text(folder.name)

    present = []
    swapped = threading.Event()

    def watch():
        while not swapped.is_set():
            present.append((target / "name").exists())

    watcher = threading.Thread(target=watch)
    watcher.start()
    for _ in range(2001 if flag == 2 else 1):
        exporting._replace(new, target)

    swapped.set()
    watcher.join()
    assert (target / "name").read_text() == "new"
    assert flag != 2 or (len(present) > 10 and all(present))


def test_every_method_is_cited():
    exports = [getattr(methods, name) for name in dir(methods)]
    trained = [
        export
        for export in exports
        if isinstance(export, type)
        and issubclass(export, methods.Method)
        and export != methods.Method
    ]
    assert len(trained) == 17
    for method in trained:
        entries = citations(f"{method.__module__}.{method.__qualname__}")
        assert len(entries) == len(method.papers) > 0
        assert all(entry.startswith("@inproceedings{") for entry in entries)


@pytest.fixture
def hub(monkeypatch):
    """A client of the hub that uploads nothing, with the arguments of the real one."""
    client = create_autospec(HfApi, instance=True)
    client.model_info.return_value.private = False
    client.upload_folder.return_value.commit_url = "https://hub/lab/tiny/commit/1"
    monkeypatch.setattr(exporting, "HfApi", lambda: client)

    return client


@pytest.mark.parametrize("private", [False, True])
def test_a_folder_is_pushed(hub, tmp_path, capsys, private):
    hub.model_info.return_value.private = private
    folder = tmp_path / "folder"
    line = ["--model", "tiny", "--to", str(folder), "--push", "lab/tiny"]
    assert main(line + ["--private"] * private) == 0
    assert "https://hub/lab/tiny/commit/1\n" in capsys.readouterr().out
    hub.create_repo.assert_called_once_with("lab/tiny", private=private or None, exist_ok=True)
    hub.upload_folder.assert_called_once_with(repo_id="lab/tiny", folder_path=folder)
    assert 'SentenceTransformer("lab/tiny")' in (folder / "README.md").read_text()


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (httpx2.ConnectError("no route\nto host."), "ConnectError: no route to host. "),
        (None, "the repository is public already, and --private was given. "),
    ],
)
def test_push_that_fails_says_how_to_do_it_later(hub, tmp_path, capsys, error, reason):
    hub.create_repo.side_effect = error
    folder = tmp_path / "folder"
    assert main(["--model", "tiny", "--to", str(folder), "--push", "me/mine", "--private"]) == 2
    last = capsys.readouterr().err.strip().splitlines()[-1]
    assert last.startswith("error: --push: me/mine: ")
    assert reason in last
    assert "is kept: log in with `hf auth login`" in last
    assert (folder / "modules.json").is_file()
    hub.upload_folder.assert_not_called()
