"""What decides a run's hash, and what a finished run does when the same command is given again."""

import subprocess
import sys

import pytest
from pytorch_lightning import LightningModule
from small_runs import LITTLE, curves

from lightning_cse.data import read_corpus, sample_dir, write_provenance
from lightning_cse.engine import train
from lightning_cse.errors import TrainingError
from lightning_cse.methods import DualCSE

NLI = ("premise", "hypothesis", "label")
SMALL = ("+experiment=simcse_inli", *LITTLE, "trainer.max_epochs=1")


def test_automatic_values_are_part_of_the_hash(speaking_encoder, run_tiny, tmp_path):
    def run(pooling, max_length):
        encoder = (
            "encoder=minilm_l6",
            "encoder.package=null",
            f"encoder.source={speaking_encoder}",
            f"encoder.pooling={pooling}",
            f"encoder.max_length={max_length}",
        )

        return run_tiny(tmp_path, *SMALL, *encoder)

    auto = run("auto", "auto")
    encoder = auto.read()["decisive"]["config"]["encoder"]

    assert (encoder["pooling"], encoder["max_length"]) == ("mean", 32)
    assert run("mean", "32").path == auto.path  # one point, in whichever way it is said

    (speaking_encoder / "sentence_bert_config.json").write_text('{"max_seq_length": 48}')
    longer = run("auto", "auto")

    assert longer.path != auto.path
    assert longer.read()["decisive"]["config"]["encoder"]["max_length"] == 48


def test_another_process_of_a_finished_run_ends_too(run_tiny, tmp_path, monkeypatch, caplog):
    run_tiny(tmp_path, *SMALL)
    # Processes after the first are silent; the level comes back after the test.
    caplog.set_level("INFO", "lightning_cse")
    monkeypatch.setattr(train, "rank_of", lambda cfg: 1)
    monkeypatch.setattr(train, "_train", lambda *_: pytest.fail("it waits for the first"))
    run_tiny(tmp_path, *SMALL)


def test_record_names_the_source_of_llm_rows_and_the_hash_does_not(run_tiny, tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_bytes((sample_dir() / "ngcse" / "wiki_sts.jsonl").read_bytes())
    llm = ("+experiment=ngcse_wiki_sts", *SMALL[1:], f"corpora.llm_wiki_sts=[{path}]")

    plain = run_tiny(tmp_path / "plain", *llm)
    assert "provenance" not in plain.read()

    write_provenance(path, {"model": "a-model", "tokens": {"prompt": 5}})
    known = run_tiny(tmp_path / "known", *llm)
    found = known.read()["provenance"][str(path)]
    assert (found["model"], found["unchanged"]) == ("a-model", True)
    assert known.read()["metrics"] == plain.read()["metrics"]
    assert known.path.name == plain.path.name


def test_own_test_set_chooses_the_checkpoint(run_tiny, tmp_path):
    for split in ("dev", "test"):
        rows = read_corpus("snli", split, sample_dir())
        columns = zip(*map(rows.column, NLI), strict=True)
        lines = ["\t".join(NLI), *("\t".join(row) for row in columns)]
        (tmp_path / f"{split}.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")

    key = "val/own_nli/auc"
    own = f"own.nli={{dev:{tmp_path}/dev.tsv,test:{tmp_path}/test.tsv}}"
    run = run_tiny(tmp_path, *SMALL, "suite=[stsb,own]", f"monitor={key}", own)
    record = run.read()
    scores = {score: step for step, score in reversed(curves(run)[key].items()) if step}
    best = max(scores)

    assert record["best"] == {"step": scores[best], "score": best, "monitor": key}
    assert {"test/own_nli/accuracy", "test/stsb/spearman"} <= record["metrics"].keys()
    assert "own.nli/dev/1-dev.tsv" in record["data"]


def test_a_dev_score_that_is_never_a_number_is_named(run_tiny, tmp_path, monkeypatch):
    log = DualCSE.log

    def without_score(self, name, value, **options):
        log(self, name, float("nan") if name.startswith("val/") else value, **options)

    monkeypatch.setattr(LightningModule, "log", without_score)
    with pytest.raises(TrainingError, match=r"was NaN at every evaluation"):
        run_tiny(tmp_path, *SMALL)


def test_training_imports_few_modules(repository):
    line = [sys.executable, str(repository / "scripts" / "training_imports.py")]
    done = subprocess.run(line, capture_output=True, text=True, check=True)
    assert int(done.stdout.split()[-2]) <= 80
