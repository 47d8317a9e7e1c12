"""Every experiment from its config to its record, under ``+debug=tiny``, in this one process."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import torch
from omegaconf import DictConfig, OmegaConf

from lightning_cse import runs
from lightning_cse.data.corpora import CORPORA as CORPORA_THERE
from lightning_cse.engine import train as training
from lightning_cse.engine.load import load_model
from lightning_cse.evaluation import run_tasks
from lightning_cse.metrics import auprc, spearman
from lightning_cse.runs import Run

Compose = Callable[..., DictConfig]
RunTiny = Callable[..., Run]

CONF = Path(__file__).resolve().parents[2] / "conf"
EXPERIMENTS = sorted(path.stem for path in (CONF / "experiment").rglob("*.yaml"))
CROSS = "+experiment=dualcse_cross"
SIDES, MEASURES = ("held_out", "eval"), ("alignment", "uniformity")

# The tasks and what they measure. A point has no direction, so only GaussCSE is asked for its determinant.
RTE = {f"accuracy_{kind}" for kind in ("explicit", "implied", "neutral", "contradiction", "all")} | {"threshold"}
EIS, NLI, STSB, DIRECTION = {"accuracy"}, {"accuracy", "auprc", "threshold"}, {"spearman"}, {"accuracy"}
CORPORA = ("snli", "mnli", "sick")
LENGTHS = {f"{corpus}_direction": DIRECTION for corpus in CORPORA}
OF_POINTS = {"stsb": STSB} | dict.fromkeys(CORPORA, NLI) | LENGTHS
BY_SUBSET = {"spearman_all", "spearman_mean", "spearman_wmean"}
STS = {"stsb": STSB, "sickr": STSB} | {f"sts{year}": BY_SUBSET for year in range(12, 17)}
STS_AVERAGE = {"sts_avg": {"spearman_all"}}
OF_GAUSSIANS = OF_POINTS | {task: DIRECTION | {"accuracy_determinant"} for task in LENGTHS}

STSB_DEV = "STS/STSBenchmark/sts-dev.csv"
INLI_FILES = {f"INLI/{split}.csv" for split in ("train", "val", "test")} | {STSB_DEV}
NLI_FILES = {
    "SNLI/snli_1.0/snli_1.0_dev.jsonl",
    "SNLI/snli_1.0/snli_1.0_test.jsonl",
    "MNLI/multinli_1.0/multinli_1.0_dev_mismatched.jsonl",
    "SICK/SICK.txt",
    "STS/STSBenchmark/sts-test.csv",
    STSB_DEV,
}
STS_FILES = {file.path for year in range(12, 17) for file in CORPORA_THERE[f"sts{year}"].split_files("test")} | {
    "SICK/SICK_trial.txt",
    "SICK/SICK_test_annotated.txt",
    "STS/STSBenchmark/sts-test.csv",
    STSB_DEV,
}
TRIPLETS, SENTENCES = "simcse/nli_for_simcse.csv", "simcse/wiki1m_for_simcse.txt"


@dataclass(frozen=True)
class Expected:
    """What the sample corpus and ``+debug=tiny`` make of an experiment."""

    monitor: str
    files: set[str]
    read: int  # rows of the corpus
    tasks: Mapping[str, set[str]]  # that the method is tested on, with their metrics
    untrained: Mapping[str, set[str]]
    length: Mapping[str, set[str]]
    watched: set[str]  # tasks that are evaluated while training
    rows: int = 40  # training rows; several may be made of one of the 40 rows in use
    steps: int = 10
    warm: int = 0  # steps of warm-up
    constant: bool = False  # the learning rate, which falls else
    cut: int = 0  # training sentences beyond data.max_tokens
    prefixes: tuple[str, ...] = ("diag/",)
    dropped: Mapping[str, int] = field(default_factory=dict)  # for another reason than data.train_rows
    parts: set[str] = field(default_factory=set)  # the terms of the loss, where there are several

    @property
    def evaluated_at(self) -> list[int]:
        """The steps of the evaluations: every fourth, and the last."""
        return sorted({*range(0, self.steps, 4), self.steps})


ON_INLI = Expected(
    monitor="val/rte/accuracy_all",
    files=INLI_FILES,
    read=595,
    tasks={"rte": RTE, "eis": EIS},
    untrained={"rte": RTE},
    length={"eis": EIS},
    watched={"rte", "eis"},
)
ON_NLI = Expected(
    monitor="val/stsb/spearman",
    files={*NLI_FILES, TRIPLETS},
    read=60,
    tasks=OF_POINTS,
    untrained=OF_POINTS,
    length=LENGTHS,
    watched={"snli", "snli_direction", "stsb"},
)
DUAL = replace(ON_INLI, prefixes=("diag/", "diag/implicit/"))
DIRECTIONS = {"inli_direction": {"accuracy", "accuracy_explicit", "accuracy_implied"}} | {
    f"{corpus}_direction": DIRECTION for corpus in ("snli", "sick")
}
DUAL_GAUSS = replace(
    DUAL,
    files={*INLI_FILES, *(path for path in NLI_FILES if path.startswith(("SNLI", "SICK")))},
    tasks=DUAL.tasks | {task: metrics | {"accuracy_determinant"} for task, metrics in DIRECTIONS.items()},
    untrained=DUAL.untrained | DIRECTIONS,
    length=DUAL.length | DIRECTIONS,
    watched={"rte", "eis", "inli_direction"},
)
IMPLICITNESS = {"rte": RTE, "eis": EIS, "eis_wang": EIS}
IMPSCORE_INLI = replace(
    ON_INLI, monitor="val/eis/accuracy", prefixes=("diag/", "diag/semantic/"), rows=80, steps=20, constant=True
)
IMPSCORE = replace(
    IMPSCORE_INLI,
    monitor="val/eis_wang/accuracy",
    files={*INLI_FILES, "ImpScore/all_data.csv"} - {"INLI/train.csv"},
    read=180,
    tasks=IMPLICITNESS,
    length={"eis": EIS, "eis_wang": EIS},
    watched=set(IMPLICITNESS),
    rows=40,
    steps=10,
)
GAUSS = replace(ON_NLI, monitor="val/snli/auprc", tasks=OF_GAUSSIANS, warm=1)
ON_STS = replace(
    ON_NLI,
    files=STS_FILES,
    tasks=STS | STS_AVERAGE,
    untrained=STS | STS_AVERAGE,
    length={},
    watched={"stsb", "sickr"},
    parts={"contrastive"},
)
HELD_OUT, REPLACED = "held out", "an LLM row stands for it"
WIKI = replace(ON_STS, files={*STS_FILES, SENTENCES}, read=410, dropped={HELD_OUT: 41})
NLI_DOMAIN = replace(ON_STS, files={*STS_FILES, TRIPLETS}, dropped={HELD_OUT: 6})


def hybrid(domain: Expected, name: str, llm_rows: int, **changed: Any) -> Expected:
    """What LLM rows make of a domain: they are read too, and a sentence of the corpus is dropped for each."""
    given = {"files": {*domain.files, f"ngcse/{name}.jsonl"}, "read": domain.read + llm_rows} | changed
    return replace(domain, dropped={HELD_OUT: domain.dropped[HELD_OUT], REPLACED: llm_rows}, **given)


def final(setting: Expected, held_out: int, cut: int) -> Expected:
    """The final setting holds out a hundredth."""
    return replace(setting, dropped={**setting.dropped, HELD_OUT: held_out}, cut=cut)


HT = {"contrastive", "hierarchical_triplet"}
WIKI_STS_HT = hybrid(WIKI, "wiki_sts", 210, cut=44, parts=HT)
NLI_STS_HT = hybrid(NLI_DOMAIN, "nli_sts", 50, cut=6, parts=HT)
NGCSE = {
    "wiki_dropout": replace(WIKI, cut=20),
    "wiki_token_shuffle": replace(WIKI, cut=44),
    "wiki_token_cutoff": replace(WIKI, cut=32),
    "wiki_nli": hybrid(WIKI, "wiki_nli", 60, cut=20),
    "wiki_sts": hybrid(WIKI, "wiki_sts", 210, cut=27),
    "wiki_sts_ht": WIKI_STS_HT,
    "wiki_sts_ht_final": final(WIKI_STS_HT, 4, 40),
    "nli_dropout": replace(NLI_DOMAIN, cut=4),
    "nli_token_shuffle": replace(NLI_DOMAIN, cut=9),
    "nli_token_cutoff": replace(NLI_DOMAIN, cut=6),
    "nli_sup": replace(NLI_DOMAIN, cut=4),
    "nli_nli": hybrid(NLI_DOMAIN, "nli_nli", 50, cut=4),
    "nli_sts": hybrid(NLI_DOMAIN, "nli_sts", 50, cut=4),
    "nli_sts_ht": NLI_STS_HT,
    "nli_sts_ht_final": final(NLI_STS_HT, 2, 9),
}
EXPECTED: dict[str, Expected] = {f"ngcse_{name}": expected for name, expected in NGCSE.items()} | {
    "dualcse_bi": DUAL,
    "dualcse_bi_no_both": DUAL,
    "dualcse_bi_no_contradiction": DUAL,
    "dualcse_bi_no_intra": DUAL,
    "dualcse_cross": DUAL,
    "dualcse_cross_no_both": DUAL,
    "dualcse_cross_no_contradiction": DUAL,
    "dualcse_cross_no_intra": DUAL,
    "dualgauss": DUAL_GAUSS,
    "gausscse": GAUSS,
    "gausscse_ent": GAUSS,
    "gausscse_ent_con": GAUSS,
    "gausscse_ent_rev": GAUSS,
    "impscore": IMPSCORE,
    "impscore_inli": IMPSCORE_INLI,
    "simcse_inli": replace(ON_INLI, tasks={"rte": RTE}, watched={"rte"}, rows=80, steps=20),
    "simcse_sup": replace(ON_NLI, cut=6),
    "simcse_unsup": replace(ON_NLI, files={*NLI_FILES, SENTENCES}, read=410, cut=20, dropped={HELD_OUT: 4}),
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the runs of this module lie."""
    return tmp_path_factory.mktemp("experiments")


@pytest.fixture(scope="module")
def run(place: Path, run_tiny: RunTiny) -> Callable[[str], Run]:
    """Train an experiment, once for the whole module."""
    done: dict[str, Run] = {}

    def once(experiment: str) -> Run:
        if experiment not in done:
            done[experiment] = run_tiny(place, f"+experiment={experiment}")
        return done[experiment]

    return once


def curves(folder: Run) -> dict[str, dict[int, float]]:
    return {key: dict(points) for key, points in runs.Curves(folder.curves_path).read().items()}


def keys(tasks: Mapping[str, set[str]], split: str = "test") -> set[str]:
    return {f"{split}/{task}/{metric}" for task, metrics in tasks.items() for metric in metrics}


def account(record: dict[str, Any]) -> dict[str, int]:
    """The corpus rows that were dropped, by reason; with those in use they are all that were read."""
    rows = record["rows"]
    dropped = {reason: count for reason, count in rows.items() if reason.startswith("dropped: ")}
    assert rows["read"] == rows["used"] + sum(dropped.values())
    return dropped


def test_every_experiment_is_expected() -> None:
    assert set(EXPERIMENTS) == set(EXPECTED)
    assert len(EXPERIMENTS) == 33


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_an_experiment_leaves_a_complete_record(experiment: str, run: Callable[[str], Run], place: Path) -> None:
    folder, expected = run(experiment), EXPECTED[experiment]
    record = folder.read()
    assert folder.status == "finished"
    assert folder.path == place / "runs" / experiment / f"{record['config_hash']}-s0"
    assert (record["name"], record["seed"], record["steps"]) == (experiment, 0, expected.steps)
    assert isinstance(record["overrides"], list)  # filled where Hydra starts the run: tests/cli
    assert (record["device"], record["precision"], record["environment"]["threads"]) == ("cpu", "32-true", 1)
    assert record["environment"]["commit"] is None or len(record["environment"]["commit"].removesuffix("-dirty")) == 40
    assert record["environment"]["versions"]["torch"] == torch.__version__
    assert {"platform", "cpu", "cores", "memory_gib"} <= record["environment"]["machine"].keys()
    assert (record["rows"]["read"], record["rows"]["used"]) == (expected.read, 40)
    dropped = {f"dropped: {reason}": count for reason, count in expected.dropped.items()}
    assert account(record) == {"dropped: data.train_rows": expected.read - 40 - sum(dropped.values()), **dropped}
    assert record["rows"]["training_rows"] == expected.rows
    assert (record["rows"]["sentences_cut"], record["rows"]["evaluation_sentences_cut"]) == (expected.cut, 0)
    seconds = record["seconds"]
    assert {"training", "evaluation", "test"} == seconds.keys()
    assert all(value > 0 for value in seconds.values())
    both = seconds["evaluation"] + seconds["training"]
    assert record["evaluation_share"] == pytest.approx(seconds["evaluation"] / both, rel=1e-9)
    assert record["peak_memory_mib"] > 0
    assert record["sentences_per_second"] > 0
    assert set(record["data"]) == expected.files
    assert record["task_data"].keys() == expected.tasks.keys() | expected.length.keys()  # all of the suite
    assert all(digests.items() <= record["data"].items() for digests in record["task_data"].values())
    assert set(record["encoder"]) == {"name", "weights", "tokenizer"}
    document = record["decisive"]["config"]
    assert "seed" not in document.keys() | document["data"].keys()  # the triplets' own, in data.rows, is another

    assert set(record["metrics"]) == keys(expected.tasks)
    assert {name: set(metrics) for name, metrics in record["baselines"].items()} == {
        "untrained": keys(expected.untrained),
        "length": keys(expected.length),
    }

    config = OmegaConf.load(folder.config_path)
    assert (config.name, config.encoder.name, config.method.optimizer.lr) == (
        experiment,
        "tiny",
        config.recipe.default.lr,
    )
    assert not (folder.path / "failed.json").exists()
    assert not list(folder.path.rglob("*.part")) + list(folder.path.rglob("*.tmp"))
    assert not list(folder.path.rglob("lightning_logs"))


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_an_experiment_is_evaluated_at_the_start_on_the_way_and_at_the_end(
    experiment: str, run: Callable[[str], Run]
) -> None:
    folder, expected = run(experiment), EXPECTED[experiment]
    values, steps = curves(folder), expected.evaluated_at
    for prefix in expected.prefixes:
        for measure in MEASURES:
            for side in SIDES:
                assert list(values[f"{prefix}{side}/{measure}"]) == steps
            assert list(values[f"{prefix}rfd_{measure}"]) == steps[1:]
            for until in steps[1:]:  # the running mean over the evaluations after step 0
                past = [step for step in steps[1:] if step <= until]
                held_out, other = ([values[f"{prefix}{side}/{measure}"][step] for step in past] for side in SIDES)
                difference = math.fsum(a - b for a, b in zip(held_out, other, strict=True)) / len(past)
                assert values[f"{prefix}rfd_{measure}"][until] == pytest.approx(difference, abs=1e-12)
    diagnosed = len(expected.prefixes) * len(MEASURES) * (len(SIDES) + 1)
    assert sum(key.startswith("diag/") for key in values) == diagnosed
    # Above 0 also for unsupervised SimCSE, whose pairs are one sentence each, under two dropout masks.
    assert min(values["diag/held_out/alignment"].values()) > 0
    watched = keys({task: expected.tasks[task] for task in expected.watched}, "val")
    assert {key for key in values if key.startswith("val/")} == watched
    assert all(list(values[key]) == steps for key in watched)
    assert list(values["train/loss"]) == list(range(1, expected.steps + 1))
    assert {key for key in values if key.startswith("train/")} == {
        f"train/{name}" for name in {"loss", "learning_rate", *expected.parts}
    }
    assert all(math.isfinite(value) for curve in values.values() for value in curve.values())
    lr, warm, total = OmegaConf.load(folder.config_path).method.optimizer.lr, expected.warm, expected.steps
    factors = [
        1.0 if expected.constant else step / (warm + 1) if step <= warm else (total + 1 - step) / (total - warm)
        for step in values["train/loss"]
    ]
    assert list(values["train/learning_rate"].values()) == pytest.approx([lr * factor for factor in factors])
    with folder.curves_path.open(newline="") as file:  # one row a value: nothing is logged twice
        rows = [(row["step"], row["key"]) for row in csv.DictReader(file)]
    assert len(rows) == len(set(rows)) == sum(len(curve) for curve in values.values())

    record, score = folder.read(), values[expected.monitor]
    best = max(steps[1:], key=lambda step: (score[step], -step))
    assert record["best"] == {"step": best, "score": score[best], "monitor": expected.monitor}
    summary = record["summary"]
    five = sorted((score[step] for step in steps[1:]), reverse=True)[:5]
    assert summary["final_score"] == pytest.approx(math.fsum(five) / len(five), rel=1e-12)
    assert (summary["best_score"], summary["best_step"]) == (score[best], best)
    for measure in MEASURES:
        assert summary[f"rfd_{measure}"] == pytest.approx(values[f"diag/rfd_{measure}"][steps[-1]], abs=1e-12)
        assert summary[f"eval_{measure}_at_best"] == values[f"diag/eval/{measure}"][best]
    assert record["final"] == {key: curve[steps[-1]] for key, curve in values.items() if not key.startswith("train/")}


def fraction(right: Sequence[bool]) -> float:
    return sum(right) / len(right)


def recomputed(table: Mapping[str, list[Any]], threshold: float) -> dict[str, float]:
    """The metrics that follow from what a task wrote down for every example, each checked against its scores."""
    if "subset" in table:
        pairs = list(zip(table["subset"], table["gold"], table["score"], strict=True))
        subsets = [
            ([g for s, g, _ in pairs if s == name], [v for s, _, v in pairs if s == name])
            for name in sorted(set(table["subset"]))
        ]
        each = [spearman(gold, score) for gold, score in subsets]
        return {
            "spearman_all": spearman(table["gold"], table["score"]),
            "spearman_mean": math.fsum(each) / len(each),
            "spearman_wmean": math.fsum(len(s[0]) * r for s, r in zip(subsets, each, strict=True)) / len(pairs),
        }
    if "gold" in table:
        return {"spearman": spearman(table["gold"], table["score"])}
    if "lead" in table:
        assert [lead > 0 for lead in table["lead"]] == table["correct"]
        determinant = (
            {"accuracy_determinant": fraction(table["correct_determinant"])} if "correct_determinant" in table else {}
        )
        of_kind = {
            f"accuracy_{kind}": fraction(
                [one for one, of in zip(table["correct"], table["type"], strict=True) if of == kind]
            )
            for kind in sorted(set(table.get("type", [])))
        }
        return {"accuracy": fraction(table["correct"]), **of_kind, **determinant}
    if "correct" in table:
        return {"accuracy": fraction(table["correct"])}
    right = [prediction == label for prediction, label in zip(table["prediction"], table["label"], strict=True)]
    if "type" not in table:
        assert [score >= threshold for score in table["score"]] == table["prediction"]
        return {"accuracy": fraction(right), "auprc": auprc(table["label"], table["score"])}
    assert [score > threshold for score in table["score"]] == table["prediction"]
    of_kind = {
        f"accuracy_{kind}": fraction([one for one, of in zip(right, table["type"], strict=True) if of == kind])
        for kind in ("explicit", "implied", "neutral", "contradiction")
    }
    return of_kind | {"accuracy_all": sum(of_kind.values()) / len(of_kind)}


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_an_experiment_leaves_its_predictions_and_figures(experiment: str, run: Callable[[str], Run]) -> None:
    folder, expected = run(experiment), EXPECTED[experiment]
    record = folder.read()
    told = {f"{task}.parquet": record["metrics"] for task in expected.tasks.keys() - STS_AVERAGE}
    for baseline in ("untrained", "length"):
        tasks = getattr(expected, baseline).keys() - STS_AVERAGE
        told |= {f"{baseline}-{task}.parquet": record["baselines"][baseline] for task in tasks}
    assert {path.name for path in folder.predictions.iterdir()} == told.keys()
    for name, metrics in told.items():
        task = name.removesuffix(".parquet").rpartition("-")[2]
        said = {key.rpartition("/")[2]: value for key, value in metrics.items() if key.startswith(f"test/{task}/")}
        table = pq.read_table(folder.predictions / name).to_pydict()
        assert recomputed(table, said.pop("threshold", 0.0)) == pytest.approx(said, abs=1e-12), name
        if task not in LENGTHS:  # which asks of entailed pairs alone
            of_each = 20 * len(set(table["subset"])) if "subset" in table else 30  # no subset of the sample has more
            premises = {"rte": 16 * 4, "eis": 16 * 4, "inli_direction": 16 * 2, "eis_wang": 10 * 2}  # 10 rows in all
            assert len(table["row"]) == premises.get(task, of_each)
    if "sts_avg" in expected.tasks:
        seven = [
            record["metrics"][f"test/{task}/{'spearman' if STS[task] == STSB else 'spearman_all'}"] for task in STS
        ]
        assert record["metrics"]["test/sts_avg/spearman_all"] == pytest.approx(math.fsum(seven) / 7, abs=1e-12)
    assert record["figures"] == sorted((path.name for path in folder.figures.iterdir()), key=record["figures"].index)
    assert len(record["figures"]) == 3
    for name in record["figures"]:
        assert (folder.figures / name).read_bytes().startswith(b"\x89PNG\r\n")


@pytest.mark.parametrize(
    "experiment",
    [
        "dualcse_bi",
        "dualcse_cross",
        "dualgauss",
        "gausscse",
        "impscore_inli",
        "ngcse_wiki_sts_ht",
        "simcse_inli",
        "simcse_unsup",
    ],
)
def test_the_best_checkpoint_alone_gives_the_recorded_test_scores(
    experiment: str, run: Callable[[str], Run], place: Path, compose: Compose, one_thread: None
) -> None:
    folder = run(experiment)
    best, last = (
        torch.load(folder.checkpoints / name, map_location="cpu", weights_only=True)
        for name in ("best.ckpt", "last.ckpt")
    )
    assert sorted(path.name for path in folder.checkpoints.iterdir()) == ["best.ckpt", "last.ckpt"]
    assert (best["global_step"], last["global_step"]) == (folder.read()["best"]["step"], folder.read()["steps"])
    assert "optimizer_states" not in best  # weights only, so a third of the size
    parts = training.build(compose(f"+experiment={experiment}", "+debug=tiny"))
    untrained = run_tasks(parts.tasks, parts.method.eval().model, "test")
    results = run_tasks(parts.tasks, load_model(folder.path).answers, "test")
    metrics = {f"test/{task}/{name}": value for task, r in results.items() for name, value in r.metrics.items()}
    assert metrics == folder.read()["metrics"]
    assert metrics != {f"test/{task}/{name}": v for task, r in untrained.items() for name, v in r.metrics.items()}


def test_ablations_are_other_points(run: Callable[[str], Run]) -> None:
    read = [run(experiment).read() for experiment in EXPERIMENTS]
    assert len({record["config_hash"] for record in read}) == len(EXPERIMENTS)
    for family in ("dualcse_cross", "dualcse_bi", "gausscse"):
        losses = [curves(run(name))["train/loss"][1] for name in EXPERIMENTS if name.startswith(family)]
        assert len(set(losses)) == len(losses) == 4  # the same batch, another loss


def test_the_matched_dev_set_of_mnli_is_named_in_the_keys(run_tiny: RunTiny, place: Path) -> None:
    folder = run_tiny(place, "+experiment=gausscse", "corpora=partial", "data.train_rows=null", "baselines=none")
    record = folder.read()
    renamed = {task.replace("mnli", "mnli_matched"): metrics for task, metrics in OF_GAUSSIANS.items()}
    assert set(record["metrics"]) == keys(renamed)
    assert {path.stem for path in folder.predictions.iterdir()} == set(renamed)
    assert {"SNLI/senteval/labels.test", "MNLI/nyu_hw2/mnli_val.tsv", "SICK/SICK.txt"} <= set(record["data"])
    # Six corpora of labelled pairs: neutral ones, premises that lack a role, and pairs of a test set are left out.
    assert {"dropped: label neutral", "dropped: premise without a contradiction"} <= account(record).keys()
    assert 0 < record["rows"]["training_rows"] < record["rows"]["used"]


def test_a_finished_run_asked_for_again_is_not_trained_again(
    run: Callable[[str], Run], run_tiny: RunTiny, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = run("dualcse_cross")
    before = {path: path.stat().st_mtime_ns for path in folder.path.rglob("*")}
    monkeypatch.setattr(training, "_fit_and_test", lambda *args, **kwargs: pytest.fail("it was trained again"))
    # Switches, another logger and another place of the cache decide nothing, so they name the same point.
    again = run_tiny(place, CROSS, "+trainer.enable_progress_bar=false", "paths.cache_dir=elsewhere")
    assert again.path == folder.path
    assert {path: path.stat().st_mtime_ns for path in folder.path.rglob("*")} == before


def test_force_does_it_again_with_the_same_numbers_and_another_seed_with_others(
    run: Callable[[str], Run], run_tiny: RunTiny, place: Path
) -> None:
    first, was = run("dualcse_cross").read(), run("dualcse_cross").curves.read_text()
    stamp = run("dualcse_cross").record_path.stat().st_mtime_ns
    forced = run_tiny(place, CROSS, "force=true")
    assert forced.record_path.stat().st_mtime_ns > stamp
    assert forced.curves.read_text() == was
    for key in ("metrics", "baselines", "best", "final", "config_hash", "decisive"):
        assert forced.read()[key] == first[key]

    other = run_tiny(place, CROSS, "seed=1")
    assert other.path.name == forced.path.name.removesuffix("-s0") + "-s1"
    assert other.read()["decisive"] == first["decisive"]
    losses = curves(other)["train/loss"], curves(forced)["train/loss"]
    assert losses[0][1] != losses[1][1]
    assert other.read()["metrics"] != first["metrics"]
    assert other.read()["baselines"] == first["baselines"]
