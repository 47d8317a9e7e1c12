"""Model cards as the hub reads them, and uploading: what would be sent, and in which order."""

import contextlib
import hashlib
import inspect
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import huggingface_hub
import pytest
import torch
from huggingface_hub import HfApi, ModelCard
from oracles import SENTENCES, save_tiny

from lightning_cse import methods
from lightning_cse.analysis.exporting import PAPERS, Source, citations, model_card
from lightning_cse.encoders import tiny_encoder
from lightning_cse.engine.load import LoadedModel, load_model
from lightning_cse.export import main
from lightning_cse.methods import Method
from lightning_cse.models import PointModel


@pytest.fixture(scope="module")
def run(run_tiny: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A run of SimCSE on the sample, with an encoder whose README names licence and origin."""
    folder = save_tiny(tmp_path_factory.mktemp("card") / "mine")
    (folder / "README.md").write_text("---\nlicense: mit\nbase_model: somebody/bert\n---\n")
    little = ("data.train_rows=16", "trainer.max_epochs=1", "baselines=none", "limits.test_rows=30")
    given = (f"encoder={folder}", "encoder.pooling=mean", "encoder.max_length=64")
    return run_tiny(folder.parent, "+experiment=simcse_unsup", *little, *given)


def card(
    record: dict[str, Any], name: str = "sentence-transformers/all-MiniLM-L12-v2"
) -> ModelCard:
    model = LoadedModel(
        PointModel(tiny_encoder()), name, None, record, {"weights": "1" * 64}, "SimCSE"
    )
    return ModelCard(model_card(model, "primary", "cosine", "me/mine"))


def record(train: Any, **more: Any) -> dict[str, Any]:
    """The record of a run on files that are not the sample's."""
    config = {"data": {"train": train} | more, "suite": {"stsb": {}}}
    files = {
        "SNLI/snli_1.0/snli_1.0_train.jsonl": "0" * 64,
        "STS/STSBenchmark/sts-test.csv": "1" * 64,
    }
    metrics = {
        "test/stsb/spearman": 0.75,
        "test/snli/threshold": 0.5,
        "test/snli/auprc": float("nan"),
    }
    metrics |= {"test/own_sts/spearman": 0.5, "val/stsb/spearman": 0.8}
    tasks = {
        "stsb": {"STS/STSBenchmark/sts-test.csv": "1" * 64},
        "own_sts": {"my/pairs.csv": "2" * 64},
    }
    run = {
        "name": "mine",
        "config_hash": "ab",
        "seed": 1,
        "decisive": {"config": config},
        "data": files,
    }
    return run | {"metrics": metrics, "task_data": tasks}


def test_metadata_and_results_of_a_run(run: Any, tmp_path: Path) -> None:
    assert main(["--model", str(run.path), "--to", str(tmp_path / "made")]) == 0
    text = (tmp_path / "made" / "README.md").read_text()
    data, kept = ModelCard(text).data, run.read()
    assert (data.license, data.base_model, data.library_name) == (
        "mit",
        "somebody/bert",
        "sentence-transformers",
    )
    assert (data.language, data.datasets) == ("en", None), (
        "the sample is none of the data sets on the hub"
    )
    assert {"sentence-transformers", "unsupervisedsimcse"} <= set(data.tags)
    for note in (
        "**Trained on the sample corpus**",
        "Evaluated on part of each test set: `limits.test_rows=30`.",
    ):
        assert note in text
    wanted = {
        key: value for key, value in kept["metrics"].items() if not key.endswith("/threshold")
    }
    results = {f"test/{one.metric_name.replace(', ', '/')}": one for one in data.eval_results}
    assert {key: one.metric_value for key, one in results.items()} == pytest.approx(wanted)
    assert (
        results["test/stsb/spearman"].dataset_name
        == "STS-B, the STS Benchmark (Cer et al. 2017), sample"
    )
    assert all(one.dataset_type.endswith("_sample") for one in results.values())
    assert str(run.path.parent) not in text
    vectors = [
        load_model(place).answers.embed(SENTENCES).views()["primary"]
        for place in (tmp_path / "made", run.path)
    ]
    torch.testing.assert_close(*vectors)


def test_corpora_files_and_data_sets_of_the_hub() -> None:
    made = card(
        record(
            ["snli/train", "my/secret/pairs.csv", "hub:me/data/en:train"],
            rows={"llm": ["ngcse/wiki_sts"]},
        )
    )
    assert made.data.datasets == ["me/data", "ngcse", "stanfordnlp/snli"]
    assert (made.data.license, made.data.base_model) == (
        "apache-2.0",
        "sentence-transformers/all-MiniLM-L12-v2",
    )
    assert made.data.language is None, "that of a file is not known"
    assert (
        "| SNLI 1.0 (Bowman et al. 2015) | CC BY-SA 4.0 |\n| pairs.csv | not known here |"
        in made.text
    )
    assert "secret" not in str(made)
    assert "Trained on the sample" not in made.text
    got = [(one.dataset_type, one.dataset_name, one.metric_value) for one in made.data.eval_results]
    title = "STS-B, the STS Benchmark (Cer et al. 2017)"
    assert got == [("sentence-transformers/stsb", title, 0.75), ("own_sts", "own_sts", 0.5)]
    assert card(record("snli/train")).data.language == "en"


def test_a_file_with_an_absolute_path_is_not_the_sample(tmp_path: Path) -> None:
    (tmp_path / "pairs.csv").write_text("mine")
    files = {str(tmp_path / "pairs.csv"): hashlib.sha256(b"mine").hexdigest()}
    assert not Source.of("own_sts", None, files).is_sample


def test_an_encoder_of_which_nothing_is_known() -> None:
    made = card({}, name="folder/bert_base")
    assert (made.data.license, made.data.license_name, made.data.base_model) == (
        "other",
        "that-of-the-encoder",
        None,
    )
    assert made.data.eval_results is None
    assert "## Trained on" not in made.text


def test_every_method_is_cited() -> None:
    kinds = {
        name
        for name in dir(methods)
        if inspect.isclass(kind := getattr(methods, name)) and issubclass(kind, Method)
    }
    assert kinds - {"Method"} == set(PAPERS)
    for method, keys in PAPERS.items():
        entries = citations(method)
        assert len(entries) == len(keys)
        assert all(entry.startswith("@inproceedings{") and entry.endswith("}") for entry in entries)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Any]]:
    """The hub's functions, which only note that they were called; the repository is public."""
    calls: list[tuple[str, Any]] = []

    def called(name: str, result: Any = None) -> Callable[..., Any]:
        def call(_: Any, *args: Any, **options: Any) -> Any:
            calls.append((name, args or options))
            return result

        return call

    commit = type("Commit", (), {"commit_url": "https://huggingface.co/me/mine/commit/1"})
    monkeypatch.setattr(ModelCard, "validate", called("validate"))
    monkeypatch.setattr(HfApi, "create_repo", called("create_repo"))
    monkeypatch.setattr(
        HfApi, "model_info", called("model_info", type("Info", (), {"private": False}))
    )
    monkeypatch.setattr(HfApi, "upload_folder", called("upload_folder", commit))
    return calls


def test_a_dry_run_lists_and_sends_nothing(
    hub: list[tuple[str, Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = tmp_path / "made"
    assert (
        main(["--model", "tiny", "--to", str(made), "--push", "me/mine", "--private", "--dry-run"])
        == 0
    )
    lines = capsys.readouterr().out.splitlines()
    files = [path for path in made.rglob("*") if path.is_file()]
    size = sum(path.stat().st_size for path in files)
    assert lines[0] == (
        f"{len(files)} files, {size:,} bytes, would be uploaded to https://huggingface.co/me/mine (private)"
    )
    for path in files:
        assert any(
            line.split()[:2] == [str(path.relative_to(made)), f"{path.stat().st_size:,}"]
            for line in lines
        )
    assert lines[lines.index("README.md begins with") + 1] == "---"
    assert lines[-1] == str(made)
    assert hub == []
    assert 'SentenceTransformer("me/mine")' in (made / "README.md").read_text()


def test_the_card_is_checked_before_anything_is_uploaded(
    hub: list[tuple[str, Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["--model", "tiny", "--to", str(tmp_path / "made"), "--push", "me/mine"]
    assert main(command) == 0
    assert "https://huggingface.co/me/mine/commit/1" in capsys.readouterr().out
    assert [name for name, _ in hub] == ["validate", "create_repo", "upload_folder"]
    assert hub[-1][1]["folder_path"] == tmp_path / "made"
    hub.clear()
    assert main([*command, "--force", "--private"]) == 2
    assert "--private: me/mine is public already: nothing is uploaded" in capsys.readouterr().err
    assert "upload_folder" not in [name for name, _ in hub]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ["--push", "mine"],
            "--push: must be USER/NAME, as in https://huggingface.co/user/name, got 'mine'",
        ),
        (["--dry-run"], "--private and --dry-run need --push USER/NAME"),
    ],
)
def test_options_that_are_refused(
    options: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with contextlib.suppress(SystemExit):  # of argparse
        assert main(["--model", "tiny", "--to", str(tmp_path / "made"), *options]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize(
    "error",
    [
        httpx2.ConnectError("no route\nto host"),
        huggingface_hub.errors.OfflineModeIsEnabled("offline"),
        ValueError("card"),
    ],
)
def test_failures_of_the_hub_are_one_line_and_keep_the_folder(
    error: Exception,
    hub: list[tuple[str, Any]],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr(HfApi, "create_repo", fail)
    assert main(["--model", "tiny", "--to", str(tmp_path / "made"), "--push", "me/mine"]) == 2
    last = capsys.readouterr().err.strip().splitlines()[-1]
    assert last.startswith(
        f"error: --push: me/mine: {type(error).__name__}: {str(error).split()[0]}"
    )
    assert "is kept: log in with `hf auth login` or set HF_TOKEN, then `hf upload me/mine" in last
    assert json.loads((tmp_path / "made" / "modules.json").read_text())
