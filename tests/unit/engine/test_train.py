"""What decides a run's hash, and what a finished run does when the same command is given again."""

import subprocess
import sys

import pytest
from pytorch_lightning import LightningModule
from small_runs import LITTLE, curves

from lightning_cse.data import read_corpus, sample_dir, write_provenance
from lightning_cse.engine import train
from lightning_cse.engine.processes import Processes
from lightning_cse.errors import ConfigError, TrainingError
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
    monkeypatch.setattr(train, "join", lambda cfg: Processes(rank=1, count=2))
    monkeypatch.setattr(train, "build_training", lambda *_: pytest.fail("it waits for the first"))
    run_tiny(tmp_path, *SMALL)


@pytest.mark.slow
def test_record_names_the_source_of_llm_rows_and_the_hash_does_not(run_tiny, tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_bytes((sample_dir() / "ngcse" / "wiki_sts.jsonl").read_bytes())
    llm = ("+experiment=ngcse_wiki_sts", *SMALL[1:], f"corpora.llm_wiki_sts=[{path}]")

    plain = run_tiny(tmp_path / "plain", *llm)
    assert "provenance" not in plain.read()

    write_provenance(path, {"model": "a-model", "tokens": {"prompt": 5}})
    documented = run_tiny(tmp_path / "known", *llm)
    provenance = documented.read()["provenance"][str(path)]
    assert (provenance["model"], provenance["unchanged"]) == ("a-model", True)
    assert documented.read()["metrics"] == plain.read()["metrics"]
    assert documented.path.name == plain.path.name


def test_own_test_set_chooses_the_checkpoint(run_tiny, tmp_path):
    for split in ("dev", "test"):
        rows = read_corpus("snli", split, sample_dir())
        columns = zip(*(rows[name] for name in NLI), strict=True)
        lines = ["\t".join(NLI), *("\t".join(row) for row in columns)]
        (tmp_path / f"{split}.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")

    key = "val/own_nli/auc"
    test_set = f"own.nli={{dev:{tmp_path}/dev.tsv,test:{tmp_path}/test.tsv}}"
    run = run_tiny(tmp_path, *SMALL, "suite=stsb", f"monitor={key}", test_set)
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


@pytest.mark.slow
def test_training_imports_few_modules(repository):
    line = [sys.executable, str(repository / "scripts" / "training_imports.py")]
    process = subprocess.run(line, capture_output=True, text=True, check=True)
    assert int(process.stdout.split()[-2]) <= 80


def write_csv(path, columns, rows):
    lines = [",".join(columns), *(",".join(map(str, row)) for row in rows)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")

    return path


def pairs(path, first, end):
    """Write questions and answers, some of them twice."""
    rows = [(f"who has the key {n}", f"the man {n % 30} has it") for n in range(first, end)]
    return write_csv(path, ("anchor", "positive"), rows)


OWN = ("+experiment=simcse_sup", "data=file", "data.train_rows=null", "trainer.max_epochs=1")


def test_held_out_pairs_choose_the_checkpoint_where_there_is_no_dev_set(run_tiny, tmp_path, caplog):
    train = pairs(tmp_path / "train.csv", 0, 48)
    with caplog.at_level("INFO"):
        run = run_tiny(tmp_path, *OWN, f"data.train={train}", "data.held_out_share=0.2")

    record = run.read()
    assert record["best"]["monitor"] == "val/held_out/mrr_10"
    assert list(record["metrics"]) == ["test/stsb_sample/spearman"]
    assert "val/held_out/mrr_10 chooses the checkpoint" in caplog.text
    assert "STS-B's sample of 100 pairs" in caplog.text
    assert record["decisive"]["config"]["monitor"] == "val/held_out/mrr_10"
    keys = {"val/held_out/mrr_10", "val/held_out/recall_1", "val/stsb_sample/spearman"}
    assert keys <= record["dev"]["trained"].keys() == record["dev"]["untrained"].keys()
    best = curves(run)["val/held_out/mrr_10"][record["best"]["step"]]
    assert record["dev"]["trained"]["val/held_out/mrr_10"] == best == record["best"]["score"]
    assert record["baselines"]["length"] == {}


def test_sentences_have_the_sample_of_stsb_as_dev_set(run_tiny, tmp_path):
    path = tmp_path / "sentences.txt"
    path.write_text("".join(f"the man {n} sells the apple\n" for n in range(40)))
    overrides = ("+experiment=simcse_unsup", *OWN[1:], f"data.train={path}", "baselines=none")
    record = run_tiny(tmp_path, *overrides).read()
    assert record["best"]["monitor"] == "val/stsb_sample/spearman"
    assert "held_out" in record["left_out"]
    assert "dev" not in record


@pytest.mark.slow
def test_mined_negatives_are_trained_on_and_part_of_the_hash(run_tiny, tmp_path):
    train = pairs(tmp_path / "train.csv", 0, 48)
    test = pairs(tmp_path / "test.csv", 48, 60)
    overrides = (
        *OWN,
        f"data.train={train}",
        f"own.pairs={{dev: {test}, test: {test}}}",
        "baselines=none",
    )
    plain = run_tiny(tmp_path, *overrides)
    mined = run_tiny(tmp_path, *overrides, "data.negatives=mined", "data.negatives_a_row=2")
    counts = mined.read()["rows"]
    assert 0 < counts["rows with mined negatives"] <= counts["training_rows"]
    assert counts["candidates too similar to be negatives"] > 0
    assert mined.config_hash != plain.config_hash
    assert curves(mined)["train/loss"] != curves(plain)["train/loss"]
    assert {"test/own_pairs/mrr_10", "test/own_pairs/recall_10"} <= mined.read()["metrics"].keys()


def test_a_method_without_negatives_mines_none(run_tiny, tmp_path):
    train = pairs(tmp_path / "train.csv", 0, 20)
    overrides = (
        "+experiment=gausscse_ent",
        *OWN[1:],
        f"data.train={train}",
        "data.negatives=mined",
    )
    with pytest.raises(ConfigError, match="GaussCSE takes no negatives"):
        run_tiny(tmp_path, *overrides)


def test_a_warning_names_the_override_that_cuts(run_tiny, tmp_path, caplog):
    train = pairs(tmp_path / "train.csv", 0, 30)
    run_tiny(tmp_path, *OWN, f"data.train={train}", "data.max_tokens=3", "baselines=none")
    assert "longer than 3 tokens in training" in caplog.text
    assert "override data.max_tokens=null" in caplog.text
