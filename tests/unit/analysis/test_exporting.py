"""Folders for sentence-transformers: the same vectors as the model's own, or none at all."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from sentence_transformers import SentenceTransformer

from lightning_cse.analysis import exporting
from lightning_cse.analysis.exporting import export
from lightning_cse.encoders import SentenceEncoder, load_encoder, tiny_encoder
from lightning_cse.engine.load import LoadedModel, load_model
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

tiny = partial(tiny_encoder, max_length=48)


def make(kind: Callable[..., Any], encoder: SentenceEncoder, **options: Any) -> Any:
    """An untrained model; the parts of a bi-encoder differ."""
    torch.manual_seed(0)
    model = kind(encoder, **options).eval()
    with torch.no_grad():
        for part in (
            getattr(model, "implicit_encoder", None),
            getattr(model, "implicit_heads", None),
        ):
            for parameter in part.parameters() if part is not None else ():
                parameter.add_(0.1 * torch.randn_like(parameter))
    return model


def loaded(answers: Any, **more: Any) -> LoadedModel:
    given: dict[str, Any] = {
        "name": "made",
        "run": None,
        "record": {},
        "digests": {"weights": "1" * 64},
    } | more
    return LoadedModel(answers, **given, method=type(answers).__name__)


def check(folder: Path, answers: Any, view: str) -> SentenceTransformer:
    """Compare the vectors of a folder with a model's own, apart from how the command does so."""
    model = SentenceTransformer(str(folder), device="cpu", local_files_only=True)
    got = model.encode(SENTENCES, convert_to_tensor=True, show_progress_bar=False)
    torch.testing.assert_close(got, answers.embed(SENTENCES).views()[view], atol=1e-5, rtol=1e-4)
    return model


PROMPT = {"pooling": "prompt", "prompts": ["{} ; in short : {mask} , that is all ."]}
CASES: list[tuple[Any, dict[str, Any], str, dict[str, Any], str | None]] = [
    (PointModel, {}, "primary", {"pooling": "mean"}, "cosine"),
    (PointModel, {"has_head": True}, "primary", {}, "cosine"),
    (PointModel, {}, "primary", PROMPT, "cosine"),
    (GaussianModel, {}, "mean", {"pooling": "mean"}, "cosine"),
    (GaussianModel, {"sts_similarity": "symmetric"}, "mean", {}, None),
    (DualModel, {"architecture": "cross"}, "explicit", {}, "cosine"),
    (DualModel, {"architecture": "cross"}, "implicit", {}, None),
    (DualModel, {"architecture": "bi"}, "implicit", {}, None),
    (DualGaussianModel, {"architecture": "bi"}, "implicit", {}, None),
    (ImpScoreModel, {"dim": 8}, "pragmatic", {}, "euclidean"),
    (
        ImpScoreModel,
        {"dim": 8, "normalize": False, "space": "third_space"},
        "semantic",
        {"pooling": "mean"},
        None,
    ),
]


@pytest.mark.parametrize(("kind", "options", "view", "reading", "similarity"), CASES)
def test_vectors_and_similarity_are_the_models_own(
    kind: Any,
    options: dict[str, Any],
    view: str,
    reading: dict[str, Any],
    similarity: str | None,
    tmp_path: Path,
) -> None:
    answers = make(kind, tiny(**reading), **options)
    primary = view == next(iter(answers.embed(["a"]).views()))
    checked = export(loaded(answers), tmp_path / "made", view=None if primary else view)
    assert checked.startswith(f"{kind.__name__}, view {view}: 64 vectors within ")
    assert [path.name for path in tmp_path.iterdir()] == ["made"]
    model = check(tmp_path / "made", answers, view)
    vectors, embedding = model.encode(SENTENCES), answers.embed(SENTENCES)
    got = model.similarity_pairwise(vectors[:-1], vectors[1:])
    want = answers.similarity(embedding[:-1], embedding[1:]).detach()
    assert torch.allclose(got, want, atol=1e-4, rtol=1e-4) == (similarity is not None)
    assert (
        f"| similarity | {similarity or 'the cosine, which is not'}"
        in (tmp_path / "made/README.md").read_text()
    )


def test_a_run_its_card_and_a_python_without_this_package(
    run_tiny: Callable[..., Any],
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = run_tiny(tmp_path, "+experiment=dualcse_bi")
    monkeypatch.chdir(tmp_path)
    command = ("--model", str(run.path), "--to", "new/made", "--view", "implicit")
    assert main(command) == 0
    out, err = capfd.readouterr()
    assert out == "new/made\n"
    assert "view implicit: 64 vectors within" in err
    record, card = run.read(), Path("new/made/README.md").read_text()
    for text in (
        f"| run | dualcse_bi, config hash {run.config_hash}, seed 0 |",
        f"| rte, accuracy_all | {record['metrics']['test/rte/accuracy_all']:.4f} | INLI, Implied NLI (Havaldar",
    ):
        assert text in card
    for path in Path("new/made").rglob("*"):
        assert path.is_dir() or str(tmp_path).encode() not in path.read_bytes()
    code = (
        "import sys; sys.modules['lightning_cse'] = None\n"
        "from sentence_transformers import SentenceTransformer as S\n"
        "print(*S('new/made', device='cpu').encode('The kettle is on.', show_progress_bar=False).tolist())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=os.environ
    )
    assert done.returncode == 0, done.stderr
    assert "MISSING" not in done.stderr + done.stdout
    want = (
        load_model(str(run.path))
        .answers.embed(["The kettle is on."])
        .views()["implicit"][0]
        .tolist()
    )
    assert [float(value) for value in done.stdout.splitlines()[-1].split()] == pytest.approx(
        want, abs=1e-5
    )
    assert main(command) == 2
    assert "new/made is not empty: give another folder; --force replaces" in capfd.readouterr().err
    before = Path("new/made/model.safetensors").stat().st_ino
    assert main((*command, "--force")) == 0
    assert Path("new/made/model.safetensors").stat().st_ino != before
    assert [path.name for path in Path("new").iterdir()] == ["made"]


class Mine(PointModel):
    """A model that is not known here."""


@pytest.mark.parametrize(
    ("kind", "reading", "view", "error", "message"),
    [
        (
            PointModel,
            {"pooling": "prompt", "denoise": True},
            None,
            EncoderError,
            r"encoder\.denoise cannot be exported",
        ),
        (
            PointModel,
            {"pooling": "first_last"},
            None,
            EncoderError,
            "pooling first_last cannot be exported",
        ),
        (Mine, {}, None, EncoderError, r"Mine cannot be exported: .* lightning_cse\.score"),
        (
            DualModel,
            {},
            "implict",
            LightningCSEError,
            "has no view 'implict' - did you mean 'implicit'",
        ),
    ],
)
def test_what_is_refused(
    kind: Any, reading: Any, view: str | None, error: Any, message: str, tmp_path: Path
) -> None:
    with pytest.raises(error, match=message):
        export(loaded(make(kind, tiny(**reading))), tmp_path / "made", view=view)
    assert list(tmp_path.iterdir()) == []


def test_other_vectors_keep_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place, first, second = (
        tmp_path / "made",
        make(PointModel, tiny()),
        make(PointModel, tiny(pooling="mean")),
    )
    export(loaded(first), place)
    with (
        monkeypatch.context() as patched,
        pytest.raises(
            LightningCSEError, match=r"differ from the model's by .*: nothing was written"
        ),
    ):
        patched.setattr(exporting, "TOLERANCE", -1.0)
        export(loaded(second), place, force=True)
    check(place, first, "primary")
    with torch.no_grad():
        second.encoder.backbone.embeddings.word_embeddings.weight[:] = torch.nan
    with pytest.raises(EncoderError, match="not finite"):
        export(loaded(second), place, force=True)
    assert [path.name for path in tmp_path.iterdir()] == ["made"]


def test_force_replaces_only_an_exported_folder_that_is_not_in_use(
    speaking_encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "mine.txt").write_text("mine")
    (speaking_encoder / "modules.json").write_text("[]")
    answers = make(
        PointModel,
        load_encoder(name="mine", source=str(speaking_encoder), pooling="mean", max_length=32),
    )
    for place in (tmp_path / "notes", speaking_encoder):
        with pytest.raises(
            LightningCSEError,
            match="--force replaces only a sentence-transformers folder that is not in use",
        ):
            export(loaded(answers), place, force=True)
    assert json.loads((speaking_encoder / "modules.json").read_text()) == []
