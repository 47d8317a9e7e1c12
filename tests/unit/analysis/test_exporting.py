"""Exported folders: the model's own vectors in sentence-transformers, their card, and the
upload.
"""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx2
import huggingface_hub
import numpy as np
import pytest
import torch
from huggingface_hub import HfApi, ModelCard
from oracles import save_tiny, untrained
from sentence_transformers import SentenceTransformer

import lightning_cse
from lightning_cse import methods
from lightning_cse.analysis import exporting
from lightning_cse.analysis.card import citations, model_card
from lightning_cse.analysis.exporting import export
from lightning_cse.encoders import tiny_encoder
from lightning_cse.errors import EncoderError, LightningCSEError
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
THIRD_SPACE = {
    "dim": 8,
    "normalize": False,
    "space": "third_space",
}
CASES: list[tuple[Any, dict[str, Any], str, dict[str, Any], str | None]] = [
    (
        PointModel,
        {},
        "primary",
        {"pooling": "mean"},
        "cosine",
    ),
    (
        PointModel,
        {"has_head": True},
        "primary",
        {},
        "cosine",
    ),
    (
        PointModel,
        {},
        "primary",
        PROMPT,
        "cosine",
    ),
    (
        PointModel,
        {},
        "primary",
        {"pooling": "prompt"},
        "cosine",
    ),
    (
        GaussianModel,
        {},
        "mean",
        {"pooling": "mean"},
        "cosine",
    ),
    (
        GaussianModel,
        {"sts_similarity": "symmetric"},
        "mean",
        {},
        None,
    ),
    (
        DualModel,
        {"architecture": "cross"},
        "explicit",
        {},
        "cosine",
    ),
    (
        DualModel,
        {"architecture": "cross"},
        "implicit",
        {},
        None,
    ),
    (
        DualModel,
        {"architecture": "bi"},
        "implicit",
        {},
        None,
    ),
    (
        DualGaussianModel,
        {"architecture": "bi"},
        "implicit",
        {},
        None,
    ),
    (
        ImpScoreModel,
        {"dim": 8},
        "pragmatic",
        {},
        "euclidean",
    ),
    (
        ImpScoreModel,
        THIRD_SPACE,
        "semantic",
        {"pooling": "mean"},
        None,
    ),
]


@pytest.mark.parametrize(
    (
        "kind",
        "options",
        "view",
        "reading",
        "similarity",
    ),
    CASES,
)
def test_exported_vectors_are_those_of_the_model(
    kind, options, view, reading, similarity, tmp_path
):
    model = untrained(
        kind,
        encoder=tiny_encoder(
            max_length=48,
            **reading,
        ),
        **options,
    )
    primary = view == model.views[0]
    checked = export(
        model,
        tmp_path / "folder",
        view=None if primary else view,
    )
    assert checked.startswith(f"{kind.__name__}, view {view}: 64 vectors within ")
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]
    embedding = model.embed(SENTENCES)
    expected = embedding.views()[view]

    exported = SentenceTransformer(
        str(tmp_path / "folder"),
        device="cpu",
        local_files_only=True,
    )
    vectors = exported.encode(
        SENTENCES,
        convert_to_tensor=True,
        show_progress_bar=False,
    )
    torch.testing.assert_close(
        vectors,
        expected,
        atol=1e-5,
        rtol=1e-4,
    )
    scores = exported.similarity_pairwise(vectors[:-1], vectors[1:])
    own = model.answers.similarity(embedding[:-1], embedding[1:]).detach()
    assert torch.allclose(
        scores,
        own,
        atol=1e-4,
        rtol=1e-4,
    ) == (similarity is not None)
    card = (tmp_path / "folder" / "README.md").read_text()
    assert f"similarity: {similarity or 'not the cosine'}" in card

    loaded = lightning_cse.load(tmp_path / "folder")
    assert loaded.name == "folder"
    np.testing.assert_allclose(
        loaded.encode(SENTENCES),
        expected,
        rtol=1e-4,
        atol=1e-5,
    )
    assert ("modules" in loaded.digests) == (loaded.answers.head is not None)


def test_export_of_a_run_works_without_this_package(run_tiny, tmp_path, capfd, monkeypatch):
    encoder = save_tiny(tmp_path / "bert")
    (encoder / "README.md").write_text("---\nlicense: mit\nbase_model: somebody/bert\n---\n")
    run = run_tiny(
        tmp_path,
        "+experiment=dualcse_bi",
        f"encoder={encoder}",
        "encoder.pooling=cls",
    )
    monkeypatch.chdir(tmp_path)
    command = (
        "--model",
        str(run.path),
        "--to",
        "new/folder",
        "--view",
        "implicit",
    )
    assert main(command) == 0
    assert capfd.readouterr().out == "new/folder\n"

    record = run.read()
    text = Path("new/folder/README.md").read_text()
    data = ModelCard(text).data
    assert (data.license, data.base_model) == ("mit", "somebody/bert")
    accuracy = record["metrics"]["test/rte/accuracy_all"]
    results = {(one.dataset_type, one.metric_type): one.metric_value for one in data.eval_results}
    assert results["rte", "accuracy_all"] == accuracy
    assert not any(metric == "threshold" for _, metric in results)
    for words in (
        f"run: dualcse_bi, config hash {run.config_hash}, seed 0",
        f"| rte, accuracy_all | {accuracy:.4f} |",
        "Trained on the sample corpus",
        "Implied NLI",
        "Evaluated on part of each test set",
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
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            code,
        ],
        capture_output=True,
        text=True,
        env=os.environ,
    )
    assert done.returncode == 0, done.stderr
    assert "MISSING" not in done.stderr + done.stdout
    printed = [float(value) for value in done.stdout.splitlines()[-1].split()]
    expected = lightning_cse.load(run.path).encode("Tea.", "implicit")
    assert printed == pytest.approx(expected.tolist(), abs=1e-5)
    assert main(command) == 2
    assert "new/folder is not empty" in capfd.readouterr().err
    assert main((*command, "--force")) == 0
    assert [path.name for path in Path("new").iterdir()] == ["folder"]


class Undeclared(PointModel):
    """A model that does not declare its layers."""

    def view_layers(self):
        return {}


@pytest.mark.parametrize(
    (
        "kind",
        "reading",
        "view",
        "message",
    ),
    [
        (
            PointModel,
            {"pooling": "prompt", "denoise": True},
            None,
            "denoise cannot be exported",
        ),
        (
            PointModel,
            {"pooling": "first_last"},
            None,
            "pooling first_last cannot be exported",
        ),
        (
            Undeclared,
            {},
            None,
            "Undeclared does not declare the layers of primary",
        ),
        (
            DualModel,
            {},
            "implict",
            "has no view 'implict'",
        ),
    ],
)
def test_refused_exports_write_nothing(kind, reading, view, message, tmp_path):
    model = untrained(kind, encoder=tiny_encoder(**reading))
    with pytest.raises(LightningCSEError, match=message):
        export(
            model,
            tmp_path / "folder",
            view=view,
        )
    assert list(tmp_path.iterdir()) == []


def test_failed_export_keeps_the_existing_folder(tmp_path, monkeypatch):
    folder = tmp_path / "folder"
    first = untrained(PointModel)
    export(first, folder)
    second = untrained(PointModel, encoder=tiny_encoder(pooling="mean"))
    with monkeypatch.context() as patched:
        patched.setattr(
            exporting,
            "TOLERANCE",
            -1.0,
        )
        with pytest.raises(LightningCSEError, match="differ from the model's by"):
            export(
                second,
                folder,
                force=True,
            )
    with torch.no_grad():
        second.answers.encoder.backbone.embeddings.word_embeddings.weight[:] = torch.nan
    with pytest.raises(EncoderError, match="not finite"):
        export(
            second,
            folder,
            force=True,
        )
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]
    loaded = lightning_cse.load(folder)
    np.testing.assert_allclose(
        loaded.encode("a"),
        first.encode("a"),
        rtol=1e-4,
        atol=1e-5,
    )
    notes = tmp_path / "notes"
    notes.mkdir()
    (notes / "mine.txt").write_text("mine")
    with pytest.raises(LightningCSEError, match="--force replaces only"):
        export(
            first,
            notes,
            force=True,
        )


def test_card_names_corpora_files_and_hub_data_sets():
    model = untrained(PointModel)
    train = ["snli/train", "/data/me/own.csv", "hub:me/pairs:train"]
    model.record = {
        "name": "some",
        "config_hash": "ab",
        "seed": 1,
        "decisive": {"config": {"data": {"train": train}}},
        "data": {"SNLI/snli_1.0/snli_1.0_train.jsonl": "0" * 64},
        "metrics": {
            "test/stsb/spearman": 0.75,
            "test/snli/threshold": 0.5,
            "test/snli/auprc": float("nan"),
            "val/stsb/spearman": 0.8,
        },
    }
    card = model_card(
        model,
        "primary",
        "cosine",
        "me/some",
    )
    assert "me/pairs" in card.data.datasets
    assert "- own.csv" in card.text
    assert "/data/me" not in card.content
    assert "sample corpus" not in card.text
    assert [one.metric_value for one in card.data.eval_results] == [0.75]
    assert card.data.eval_results[0].task_type == "sentence-similarity"
    assert 'SentenceTransformer("me/some")' in card.text


def test_every_method_is_cited():
    kinds = [getattr(methods, name) for name in dir(methods)]
    trained = [
        kind
        for kind in kinds
        if isinstance(kind, type) and issubclass(kind, methods.Method) and kind != methods.Method
    ]
    assert len(trained) == 7
    for kind in trained:
        entries = citations(f"{kind.__module__}.{kind.__qualname__}")
        assert len(entries) == len(kind.papers) > 0
        assert all(entry.startswith("@inproceedings{") for entry in entries)


@pytest.fixture
def hub(monkeypatch):
    """The hub's functions, which only note that they were called; the repository is public."""
    calls: list[str] = []
    results = {
        "create_repo": None,
        "model_info": type(
            "Info",
            (),
            {"private": False},
        ),
        "upload_folder": type(
            "Commit",
            (),
            {"commit_url": "https://hf.co/me/mine/commit/1"},
        ),
    }

    def fake(name):
        def call(*_, **__):
            calls.append(name)
            return results.get(name)

        return call

    monkeypatch.setattr(
        ModelCard,
        "validate",
        fake("validate"),
    )
    for name in results:
        monkeypatch.setattr(
            HfApi,
            name,
            fake(name),
        )
    return calls


def test_push_validates_the_card_and_uploads(hub, tmp_path, capsys):
    command = [
        "--model",
        "tiny",
        "--to",
        str(tmp_path / "folder"),
        "--push",
        "me/mine",
    ]
    assert main([*command, "--dry-run"]) == 0
    assert hub == []
    out = capsys.readouterr().out
    assert "9 files would be uploaded to https://huggingface.co/me/mine" in out
    assert "model.safetensors" in out
    assert main([*command, "--force"]) == 0
    assert "https://hf.co/me/mine/commit/1" in capsys.readouterr().out
    assert hub == ["validate", "create_repo", "upload_folder"]
    assert (
        main(
            [
                *command,
                "--force",
                "--private",
            ]
        )
        == 2
    )
    assert "me/mine is public already: nothing is uploaded" in capsys.readouterr().err
    assert hub[3:] == ["validate", "create_repo", "model_info"]


@pytest.mark.parametrize(
    "error",
    [
        httpx2.ConnectError("no route\nto host"),
        huggingface_hub.errors.OfflineModeIsEnabled("offline"),
        ValueError("card"),
    ],
)
def test_hub_failures_are_one_line_and_keep_the_folder(error, hub, tmp_path, capsys, monkeypatch):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr(
        HfApi,
        "create_repo",
        fail,
    )
    assert (
        main(
            [
                "--model",
                "tiny",
                "--to",
                str(tmp_path / "folder"),
                "--push",
                "me/mine",
            ]
        )
        == 2
    )
    last = capsys.readouterr().err.strip().splitlines()[-1]
    assert last.startswith(f"error: --push: me/mine: {type(error).__name__}:")
    assert "is kept: log in with `hf auth login`" in last
    assert (tmp_path / "folder" / "modules.json").is_file()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--push", "mine"], "--push: must be USER/NAME"),
        (["--dry-run"], "--private and --dry-run need --push"),
    ],
)
def test_invalid_options(options, message, tmp_path, capsys):
    with pytest.raises(SystemExit):
        main(
            [
                "--model",
                "tiny",
                "--to",
                str(tmp_path / "folder"),
                *options,
            ]
        )
    assert message in capsys.readouterr().err
