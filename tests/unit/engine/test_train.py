"""What decides a run's hash, and what a finished run answers when it is asked for again."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from small_runs import LITTLE, curves

from lightning_cse.data import read_corpus, sample_dir, side_file, write_provenance
from lightning_cse.engine import train
from lightning_cse.errors import ConfigError
from lightning_cse.models import PointModel
from lightning_cse.runs import Run

RunTiny = Callable[..., Run]

NLI = ("premise", "hypothesis", "label")
SMALL = ("+experiment=simcse_inli", *LITTLE, "trainer.max_epochs=1")


def test_what_auto_became_is_part_of_the_hash(
    speaking_encoder: Path, run_tiny: RunTiny, tmp_path: Path
) -> None:
    def run(pooling: str, max_length: str) -> Run:
        source = ("encoder=minilm_l6", "encoder.package=null", f"encoder.source={speaking_encoder}")
        return run_tiny(
            tmp_path,
            *SMALL,
            *source,
            f"encoder.pooling={pooling}",
            f"encoder.max_length={max_length}",
        )

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
        return folder, "\n".join(
            r.getMessage() for r in caplog.records if "baselines" in r.getMessage()
        )

    first, told = run()
    assert told == ""
    stamp = first.record_path.stat().st_mtime_ns
    for overrides, lacking in (
        ((), ""),
        (("baselines=whitening",), "untrained, length, whitening"),
    ):
        again, told = run(*overrides)
        assert again.path == first.path
        assert first.record_path.stat().st_mtime_ns == stamp
        assert (
            told == ""
            if not lacking
            else f"no values of the baselines {lacking}: force=true" in told
        )
    assert run("baselines=default", "force=true")[1] == ""
    assert run("baselines=default")[1] == ""


def test_a_further_process_of_a_finished_run_ends_too(
    run_tiny: RunTiny,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    run_tiny(tmp_path, *SMALL)
    caplog.set_level(
        "INFO", "lightning_cse"
    )  # a further process is silent; the level comes back after the test
    monkeypatch.setattr(train, "rank_of", lambda cfg: 1)
    monkeypatch.setattr(
        train, "_fit_and_test", lambda *given: pytest.fail("it would wait for the first process")
    )
    run_tiny(tmp_path, *SMALL)


def test_the_points_of_a_sweep_measure_their_baselines_once(
    run_tiny: RunTiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    embedded: list[int] = []
    embed = PointModel.embed
    monkeypatch.setattr(train, "_baselines", {})
    monkeypatch.setattr(
        PointModel, "embed", lambda model, some: (embedded.append(len(some)), embed(model, some))[1]
    )

    def passes(*overrides: str) -> tuple[int, dict[str, Any]]:
        embedded.clear()
        run = run_tiny(tmp_path, *SMALL, "baselines=default", "figures=false", *overrides)
        names = sorted(path.name for path in run.predictions.iterdir())
        assert any(name.startswith("untrained-") for name in names), names
        return len(embedded), run.read()["baselines"]

    first, second = passes(), passes("seed=1")
    assert first[1] == second[1]
    assert second[0] == first[0] - 1
    other = passes("encoder.seed=1")
    assert other[0] == first[0], "another encoder"
    assert other[1]["untrained"] != first[1]["untrained"]
    fewer = passes("encoder.seed=1", "limits.test_rows=5")
    assert fewer[0] == first[0], "other rows"


def test_a_record_says_where_llm_rows_come_from_and_the_hash_does_not(
    run_tiny: RunTiny, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes((sample_dir() / "ngcse" / "wiki_sts.jsonl").read_bytes())
    llm = ("+experiment=ngcse_wiki_sts", *SMALL[1:], f"corpora.llm_wiki_sts=[{path}]")

    def run(folder: str) -> tuple[Path, dict[str, Any], str]:
        caplog.clear()
        done = run_tiny(tmp_path / folder, *llm)
        told = "\n".join(r.getMessage() for r in caplog.records if "provenance" in r.getMessage())
        return done.path.relative_to(tmp_path / folder), done.read(), told

    point, plain, told = run("plain")
    assert "provenance" not in plain
    assert told == ""
    write_provenance(
        path, {"model": "a-model", "overrides": ["+pattern=sts"], "tokens": {"prompt": 5}}
    )
    again, known, told = run("known")
    assert again == point
    assert told == ""
    found = known["provenance"][str(path)]
    assert (found["model"], found["unchanged"], found["tokens"]) == ("a-model", True, {"prompt": 5})
    assert found["overrides"] == ["+pattern=sts"]
    assert known["metrics"] == plain["metrics"]
    side_file(path).write_text(json.dumps({"format": 7}))
    again, damaged, told = run("damaged")
    assert again == point
    assert damaged["provenance"] == {
        str(path): {"damaged": "is damaged: format: Input should be 1"}
    }
    assert told.startswith(f"{side_file(path)}: is damaged: format")
    assert "\n" not in told


def test_a_test_set_of_ones_own_chooses_the_checkpoint(run_tiny: RunTiny, tmp_path: Path) -> None:
    for split in ("dev", "test"):
        rows = read_corpus("snli", split, sample_dir())
        lines = ["premise\thypothesis\tlabel"] + [
            "\t".join(row) for row in zip(*map(rows.column, NLI), strict=True)
        ]
        (tmp_path / f"{split}.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    mine = f"{{dev:{tmp_path}/dev.tsv,test:{tmp_path}/test.tsv}}"
    line = (*SMALL, "suite=[stsb,own]", "monitor=val/own_nli/auc")
    run = run_tiny(tmp_path, *line, f"own.nli={mine}")
    record, key = run.read(), "val/own_nli/auc"
    watched = {step: value for step, value in curves(run)[key].items() if step}
    assert record["best"] == {
        "step": max(watched, key=watched.__getitem__),
        "score": max(watched.values()),
        "monitor": key,
    }
    assert {"test/own_nli/accuracy", "test/own_nli/auc", "test/stsb/spearman"} <= set(
        record["metrics"]
    )
    assert "own.nli/dev/1-dev.tsv" in record["data"]
    with pytest.raises(
        ConfigError,
        match=r"it has no dev side; give it one: own.nli={dev: FILE, test: FILE} \(choose from: ",
    ):
        run_tiny(tmp_path, *line, f"own.nli={tmp_path}/test.tsv")
