"""What decides a run's identity, and what a finished run answers when it is asked for again."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hydra.core.hydra_config import HydraConfig

from lightning_cse.data import sample_dir, side_file, write_provenance
from lightning_cse.engine import train as training
from lightning_cse.errors import LightningCSEError
from lightning_cse.runs import Run

RunTiny = Callable[..., Run]

SMALL = (
    "+experiment=simcse_inli",
    "baselines=none",
    "data.train_rows=16",
    "data.held_out_rows=8",
    "diag.sentences=16",
    "trainer.max_epochs=1",
    *(f"limits.{split}_{what}=6" for split in ("dev", "test") for what in ("rows", "pairs")),
)


def test_what_auto_became_is_part_of_the_identity(speaking_encoder: Path, run_tiny: RunTiny, tmp_path: Path) -> None:
    def run(pooling: str, max_length: str) -> Run:
        source = ("encoder=minilm_l6", "encoder.package=null", f"encoder.source={speaking_encoder}")
        return run_tiny(tmp_path, *SMALL, *source, f"encoder.pooling={pooling}", f"encoder.max_length={max_length}")

    auto = run("auto", "auto")
    reads = auto.read()["decisive"]["config"]["encoder"]
    assert (reads["pooling"], reads["max_length"]) == ("mean", 32)
    assert run("mean", "32").path == auto.path  # one point, in whichever way it is said
    (speaking_encoder / "sentence_bert_config.json").write_text('{"max_seq_length": 48}')
    longer = run("auto", "auto")
    assert longer.path != auto.path
    assert longer.read()["decisive"]["config"]["encoder"]["max_length"] == 48


def test_a_finished_run_says_which_baselines_it_lacks(
    run_tiny: RunTiny, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def run(*overrides: str) -> tuple[Run, str]:
        caplog.clear()
        with caplog.at_level("INFO"):
            folder = run_tiny(tmp_path, *SMALL, *overrides)
        return folder, "\n".join(r.getMessage() for r in caplog.records if "baselines" in r.getMessage())

    first, told = run()
    assert told == ""
    stamp = first.record_path.stat().st_mtime_ns
    _, told = run()
    assert told == ""
    again, told = run("baselines=whitening")
    assert again.path == first.path
    assert first.record_path.stat().st_mtime_ns == stamp
    assert told.startswith(f"{first.record_path} has no values of the baselines untrained, length, whitening, ")
    assert "force=true" in told
    assert "lightning_cse.evaluate model=tiny +suite=... whitening=[...]" in told
    assert "\n" not in told
    _, told = run("baselines=default")
    assert "baselines untrained, length, " in told
    assert "whitening" not in told
    _, told = run("baselines=default", "force=true")
    assert told == ""
    _, told = run("baselines=default")
    assert told == ""


def test_no_file_of_a_run_has_a_secret_and_no_identity_depends_on_one(
    run_tiny: RunTiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(secret: str, **failing: str) -> Run:
        monkeypatch.setenv("PLANTED", secret)
        monkeypatch.setenv("PLANTED_URL", f"http://me:{secret}@host/v1")
        planted = (
            "+notes.api_key=${oc.env:PLANTED}",
            "+notes.base_url=${oc.env:PLANTED_URL}",
            "+notes.auth=['${oc.env:PLANTED}']",
        )
        return run_tiny(tmp_path, *SMALL, *planted, *(f"{key}={value}" for key, value in failing.items()))

    folder = run("a-planted-secret")
    files = [path for path in folder.path.rglob("*") if path.is_file()]
    assert {"record.json", "config.yaml", "curves.csv", "best.ckpt"} <= {path.name for path in files}
    assert not [path for path in files if b"planted-secret" in path.read_bytes()]
    assert folder.read()["decisive"]["config"]["notes"] == {"base_url": "http://host/v1"}
    assert "base_url: http://host/v1" in folder.config_path.read_text()
    assert run("another-planted-secret").path == folder.path
    with pytest.raises(LightningCSEError):
        run("a-planted-secret", **{"method.optimizer.lr": "1e30", "seed": "1"})
    (failed,) = tmp_path.rglob("failed.json")
    assert not [path for path in failed.parent.rglob("*") if path.is_file() and b"planted-secret" in path.read_bytes()]


def test_the_overrides_of_a_record_have_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    told = SimpleNamespace(overrides=SimpleNamespace(task=["seed=1", "+llm.api_key=hush", "name=x"]))
    monkeypatch.setattr(HydraConfig, "initialized", lambda: True)
    monkeypatch.setattr(HydraConfig, "get", lambda: told)
    assert training._overrides() == ["seed=1", "name=x"]


def test_a_record_says_where_llm_rows_come_from_and_the_identity_does_not(
    run_tiny: RunTiny, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes((sample_dir() / "ngcse" / "wiki_sts.jsonl").read_bytes())
    llm = ("+experiment=ngcse_wiki_sts", *SMALL[1:], f"corpora.llm_wiki_sts=[{path}]")

    def run(folder: str) -> tuple[Path, dict[str, Any], str]:
        caplog.clear()
        done = run_tiny(tmp_path / folder, *llm)
        assert "planted-secret" not in done.record_path.read_text()
        told = "\n".join(r.getMessage() for r in caplog.records if "provenance" in r.getMessage())
        return done.path.relative_to(tmp_path / folder), done.read(), told

    point, plain, told = run("plain")
    assert "provenance" not in plain
    assert told == ""
    secrets = {"api_key": "a-planted-secret", "address": "http://me:a-planted-secret@host/v1"}
    overrides = ["+pattern=sts", "+llm.api_key=a-planted-secret", 5]
    write_provenance(path, {"model": "a-model", "served": secrets, "overrides": overrides, "tokens": {"prompt": 5}})
    again, known, told = run("known")
    assert again == point
    assert told == ""
    found = known["provenance"][str(path)]
    assert (found["model"], found["unchanged"], found["tokens"]) == ("a-model", True, {"prompt": 5})
    assert found["served"] == {"address": "http://host/v1"}
    assert found["overrides"] == ["+pattern=sts", "5"]
    assert known["metrics"] == plain["metrics"]
    side_file(path).write_text(json.dumps({"format": 7}))
    again, damaged, told = run("damaged")
    assert again == point
    assert damaged["provenance"] == {str(path): {"damaged": "has format 7, and this version reads format 1"}}
    assert told.startswith(f"{side_file(path)}: has format 7")
    assert "\n" not in told
