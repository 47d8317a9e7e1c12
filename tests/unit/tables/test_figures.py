"""The figures and texts of the papers: what each maker makes of all runs, of some and of none."""

import json
import random
from dataclasses import replace
from pathlib import Path
from string import ascii_lowercase

import numpy as np
import pandas as pd
import pytest
import torch

from lightning_cse.baselines import Length
from lightning_cse.data import SourceFile, read_corpus, sample_dir
from lightning_cse.data.rows import dataset_of
from lightning_cse.embeddings import DualEmbedding
from lightning_cse.errors import ConfigError
from lightning_cse.evaluation import Direction, run_tasks
from lightning_cse.paths import experiments_dir
from lightning_cse.runs import summarise
from lightning_cse.tables import figures
from lightning_cse.tables.files import read_spec
from lightning_cse.tables.keep import kept_folders
from lightning_cse.tables.plan import Plan
from lightning_cse.tables.records import FinishedRun, RunsTable
from lightning_cse.tables.spec import Request

gausscse, dualcse = (
    figures.load_file(experiments_dir() / paper / "figures.py") for paper in ("gausscse", "dualcse")
)
TINY = Request(profile="tiny")
SIDES = ("held_out", "eval")
KEYS = [f"diag/{side}/{measure}" for side in SIDES for measure in ("alignment", "uniformity")]


class Given(Plan):
    """A plan whose finished runs are given by line."""

    def __init__(self, key, find, request):
        spec = read_spec(experiments_dir() / f"{key}.yaml")
        super().__init__(spec, request, RunsTable(Path("none")))
        self.finished = find


def make(key, find=lambda line: [], request=TINY):
    return figures.make(Given(key, find, request))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("figures.py:best_stp", "has no attribute 'best_stp'"),
        ("no_such_module:figure", "No module named 'no_such_module'"),
        ("best_step", "No module named 'best_step'"),
    ],
)
def test_a_function_that_does_not_exist_is_named(name, message):
    spec = read_spec(experiments_dir() / "ngcse/figure2.yaml")
    with pytest.raises(ConfigError, match=rf"figure2\.yaml: make: .*{message}"):
        figures.maker(replace(spec, make=name))


@pytest.mark.parametrize(
    ("key", "encoder", "tables"),
    [
        ("ngcse/figure1", None, ["settings", "correlations", "pairs", "differences"]),
        ("ngcse/figure2", None, ["settings"]),
        ("ngcse/figure3", None, []),
        ("ngcse/figure5", None, ["studies"]),
        ("ngcse/figure6", None, []),
        ("dualcse/retrieval", "minilm_l6", ["found"]),
    ],
)
def test_kept_figures_are_those_of_their_records(key, encoder, tables):
    made, stem = made_from_kept(key, encoder)
    assert list(made.tables) == tables
    for name, rows in made.tables.items():
        kept = pd.read_csv(f"{stem}.{name}.csv")
        found = pd.DataFrame(rows, dtype=object).astype(kept.dtypes)
        pd.testing.assert_frame_equal(found, kept, rtol=1e-12)

    assert made.figures
    assert all(Path(f"{stem}.{name}.png").is_file() for name in made.figures)


def made_from_kept(key, encoder):
    spec = read_spec(experiments_dir() / f"{key}.yaml")
    table = RunsTable(Path("none"), kept_folders(experiments_dir()))
    plan = Plan(spec, Request("small", encoder=encoder), table)
    folder = experiments_dir() / key.partition("/")[0] / "results"

    return figures.make(plan), folder / plan.stem


def test_each_vector_is_drawn_where_the_table_has_it():
    made, stem = made_from_kept("dualcse/retrieval", "minilm_l6")
    cells = pd.read_csv(f"{stem}.csv").set_index(["row", "column"])["mean"]
    found = pd.DataFrame(made.tables["found"])
    assert len(found) == 2 * (2 * 2 + 3)  # two of the five models have two vectors
    for one in found.itertuples():
        vector = "explicit" if one.vector == "only" else one.vector
        assert one.mean == pytest.approx(cells[one.row, f"{one.hypothesis} by {vector}"])

    simcse = "SimCSE (INLI)"
    rows = ["untrained", simcse, f"{simcse}, equal epochs", "DualCSE-Cross", "DualCSE-Bi"]
    for axes, kind in zip(
        made.figures["found_by_vector"].axes, ("explicit", "implied"), strict=True
    ):
        points = {(x, rows[round(y)]) for bar in axes.containers for x, y in bar[0].get_xydata()}
        some = found[found["hypothesis"] == kind]
        assert points == set(zip(some["mean"], some["row"], strict=True))


def curves_of(seed):
    generator = random.Random(seed)
    keys = (*KEYS, "val/stsb/spearman")
    return {key: [(125 * k, generator.uniform(0.1, 0.9)) for k in range(5)] for key in keys}


def kept_run(line, seed=0):
    """A record that was kept as a file, with curves that depend on its name and seed."""
    curves = curves_of(f"{line.label}{seed}")
    run = FinishedRun({"seed": seed, "summary": vars(summarise(curves))}, None, Path(line.label))
    vars(run)["curves"] = curves

    return run


def test_the_runs_that_exist_are_drawn():
    def find(line):
        return [kept_run(line, seed) for seed in (0, 1)] if line.label == "NLI.SUP" else []

    made = make("ngcse/figure1", find, Request(profile="small"))
    (listed,) = made.figures["fitting_difficulty"].legends[0].get_texts()
    assert listed.get_text().startswith("1  NLI.SUP (")
    assert [row["seed"] for row in made.tables["settings"]] == [0, 1]


def test_the_score_on_other_sets_is_correlated_beside_the_final_one():
    scores = {}

    def find(line):
        run = kept_run(line)
        scores[line.label] = len(line.label) / 100
        run.record["metrics"] = {
            "test/stsb/spearman": scores[line.label] + 0.1,
            "test/sickr/spearman": scores[line.label] - 0.1,
        }
        return [] if line.label == "Wiki.STS" else [run]

    made = make("ngcse/figure1", find, Request(profile="small"))
    summaries = pd.DataFrame(made.tables["settings"]).set_index("setting")
    assert len(summaries) == 12
    found = {
        row["of"]: row
        for row in made.tables["correlations"]
        if (row["measure"], row["scope"]) == ("RFD_a", "all")
    }
    rfd = summaries["rfd_alignment"].astype(float)
    for name, column in (("here", "final_score"), ("here, other sets", "test_score")):
        expected = np.corrcoef(rfd, summaries[column].astype(float))[0, 1]
        assert found[name]["pearson"] == pytest.approx(expected)
        assert found[name]["settings"] == 12

    assert summaries["test_score"].to_dict() == pytest.approx(
        {name: scores[name] for name in summaries.index}
    )
    assert {row["of"] for row in made.tables["pairs"]} == {*found}


def test_rfd_before_training_of_the_kept_runs_orders_their_scores():
    made, _ = made_from_kept("ngcse/before_training", None)
    rows = pd.DataFrame(made.tables["rule"]).set_index(["of", "score", "RFD", "scope"])
    start, training = (
        rows.loc[("Figure 1", "STS-B dev", when, "within domains")]
        for when in ("step 0", "training")
    )
    assert (start["both"], training["both"]) == ("13 of 14", "15 of 16")
    assert start["pearson"] == pytest.approx(0.746, abs=1e-3)
    assert training["pearson"] == pytest.approx(0.848, abs=1e-3)


def test_the_rule_and_the_regret_of_following_it():
    module = figures.load_file(experiments_dir() / "ngcse" / "figures.py")
    curves = {
        f"diag/{side}/{measure}": [(0, value), (10, 9.0)]
        for (side, measure), value in {
            ("held_out", "alignment"): 0.5,
            ("eval", "alignment"): 0.3,
            ("held_out", "uniformity"): -1.0,
            ("eval", "uniformity"): -2.0,
        }.items()
    }
    runs = pd.DataFrame({"curves": [curves], "rfd_alignment": [7.0], "rfd_uniformity": [7.0]})
    (row,) = module.at_step_0(runs).to_dict("records")
    assert row["rfd_alignment"] == pytest.approx(0.2)
    assert row["rfd_uniformity"] == pytest.approx(1.0)

    summary = pd.DataFrame(
        {
            "rfd_alignment": [0.1, 0.125, 0.4, 0.25],
            "rfd_uniformity": [0.0, 0.125, 0.0, 0.0],
            "final_score": [0.60, 0.70, 0.75, 0.80],
        },
        index=["A.a", "A.b", "A.c", "A.d"],
    ).eval("rfd = rfd_alignment + rfd_uniformity")
    (by_domain,) = module.rule(summary)
    assert by_domain["pearson"] == pytest.approx(
        np.corrcoef(summary["rfd"], summary["final_score"])[0, 1]
    )
    # Of b and d, the sums are equal; of c and d, the score has the other order.
    assert by_domain["pairs"] == "4 of 5"
    assert by_domain["both"] == "1 of 1"
    (chosen,) = module.regret(summary)
    assert (chosen["best"], chosen["chosen"], chosen["place"]) == ("A.d", "A.c", 2)
    assert chosen["regret"] == pytest.approx(5.0)
    assert chosen["random"] == pytest.approx(80 - 71.25)


@pytest.mark.parametrize("number", [1, 2, 3, 5, 6])
def test_nothing_is_drawn_without_runs(number):
    assert not make(f"ngcse/figure{number}").figures


def test_the_encoder_before_training_is_step_0():
    made = make("ngcse/figure2", lambda line: [kept_run(line)] * (line.label == "NLI.dropout"))
    start = {key: points[0][1] for key, points in curves_of("NLI.dropout0").items()}
    figure = made.figures["best_step"]
    place = (start["diag/eval/uniformity"], start["diag/eval/alignment"])
    assert figure.axes[0].texts[1].xy == place
    label = figure.legends[0].get_texts()[1].get_text()
    assert label == f"2  pretrained ({100 * start['val/stsb/spearman']:.1f})"


def test_pattern_complexity_needs_no_run():
    labels = ("Wiki.token_shuffle", "NLI.SUP", "Wiki.STS")
    settings = ("data.train_rows=12", "paths.cache_dir=null", "trainer.max_epochs=1")
    request = Request(profile="tiny", settings=settings, only=labels)
    made = make("ngcse/figure7", request=request)
    axes = {name: len(figure.axes) for name, figure in made.figures.items()}
    # STS-B below each domain
    assert axes == {"pattern_complexity_wiki": 4 * 3, "pattern_complexity_nli": 4 * 2}
    positive = [row for row in made.tables["pairs"] if row["kind"] == "positive"]
    assert {row["set"] for row in positive} == {*labels, "STS-B dev"}
    first = {row["set"]: row for row in reversed(positive)}
    assert first["Wiki.token_shuffle"]["mer_mean"] > 0.3
    assert 0 < first["NLI.SUP"]["number"] <= 12, "a setting that decides what is read"


def test_the_share_of_longer_premises_is_the_accuracy_of_length():
    made = make("gausscse/figure2")
    row = made.tables["lengths"][2]
    task = Direction(data_dir=str(sample_dir()), dev="sick/test", test="sick/test")
    accuracy = run_tasks({"direction": task}, Length(), "test")["direction"].metrics["accuracy"]
    assert row["entailed_premise_longer"] == pytest.approx(100 * accuracy, abs=1e-10)
    assert row["pairs"] == len(task.table("test")) > row["entailed"], "the figure shows every pair"
    assert f"| SICK | sick/test | {row['pairs']} | {row['premise_longer']:.3f} |" in made.text


def test_bars_are_shares_of_right_and_wrong_pairs():
    pairs = {"one": np.array([0.5, 0.5, 0.1, 0.0, -0.3]), "two": np.array([0.7, 0.9])}
    patches = gausscse.length_figure(pairs).axes[0].patches
    bars = [(bar.get_x(), bar.get_height()) for bar in patches if bar.get_height() > 0]
    want = [(0.0, 0.2), (0.4, 0.4), (-0.4, 0.2), (0.0, 0.2)]  # equal lengths are not longer
    assert np.ravel(bars) == pytest.approx(np.ravel(want))


def test_corpora_follow_the_profile_and_the_settings(real_data):
    settings = (f"paths.data_dir={real_data}", "corpora.snli_test=sick/test", "method.beta=0.5")
    made = make("gausscse/figure2", request=Request("small", settings=settings))
    first, second, third = made.tables["lengths"]
    assert (first["source"], second["source"]) == ("sick/test", "mnli_nyu/dev_matched")
    assert third["entailed_premise_longer"] == pytest.approx(69.14, abs=0.005), "the paper's"


def test_an_unknown_setting_is_refused():
    with pytest.raises(ConfigError, match="Key 'snli_tset' is not in struct"):
        make("gausscse/figure2", request=Request("small", settings=("corpora.snli_tset=x",)))


def test_data_statistics_beside_the_papers():
    made = make("dualcse/table6")
    counts = {(row["row"], row["column"]): row for row in made.tables["pairs"]}
    inli = read_corpus("inli", "val", sample_dir())
    theirs = read_corpus("impscore", "dev", sample_dir())
    assert counts["INLI", "dev"]["pairs"] == 4 * len(inli)
    assert counts["Wang et al.", "dev"]["pairs"] == 2 * len(theirs)
    assert counts["Wang et al.", "train"]["published"] == 101_320


def test_a_corpus_that_is_missing_is_not_counted(tmp_path):
    (tmp_path / "INLI").symlink_to(sample_dir() / "INLI")
    request = Request("small", settings=(f"paths.data_dir={tmp_path}",))
    made = make("dualcse/table6", request=request)
    counts = {(row["row"], row["column"]): row["pairs"] for row in made.tables["pairs"]}
    assert counts["INLI", "dev"] == 4 * len(read_corpus("inli", "val", sample_dir()))
    assert counts["Wang et al.", "dev"] is None
    assert "Wang et al. is not counted: ImpScore/all_data.csv is not in the" in made.text


class Letters:
    """Explicit: how often each letter occurs; implicit: the same of the sentence without its first
    word.
    """

    def embed(self, sentences):
        texts = sentences, [sentence.partition(" ")[2] for sentence in sentences]
        sides = [
            torch.tensor([[text.count(letter) for letter in ascii_lowercase] for text in side])
            for side in texts
        ]
        return DualEmbedding(*(side.float() for side in sides))


def test_nearest_against_a_loop():
    corpus = dualcse.hypotheses(read_corpus("inli", "train", sample_dir()).select(range(30)))
    file = SourceFile("INLI/val.csv", "/somewhere/INLI/val.csv", "")
    premises = [corpus["sentence"].iloc[17], "An unrelated remark about quizzes."]
    queries = dataset_of({"premise": premises}, files=[file], lines=[2, 3])
    found = dualcse.nearest(Letters(), queries, corpus)
    assert found["sentence"].iloc[0] == premises[0], "a sentence that is searched finds itself"
    assert list(found["query"].unique()) == ["INLI/val.csv:2", "INLI/val.csv:3"]
    embedded = Letters().embed(premises)
    searched = Letters().embed(corpus["sentence"].tolist()).explicit
    for query, premise in enumerate(premises):
        for view in ("explicit", "implicit"):
            vector = getattr(embedded, view)[query]
            cosines = [float(vector @ other / vector.norm() / other.norm()) for other in searched]
            got = found[(found["premise"] == premise) & (found["view"] == view)]
            assert got["rank"].tolist() == [1, 2, 3]
            best = sorted(cosines, reverse=True)[:3]
            assert got["cosine"].tolist() == pytest.approx(best, abs=1e-6)


@pytest.fixture(scope="module")
def run(run_tiny, tmp_path_factory):
    small = (
        "baselines=none",
        "data.train_rows=16",
        "diag.sentences=8",
        "trainer.max_epochs=1",
        "limits.test_rows=4",
    )
    folder = tmp_path_factory.mktemp("runs")
    path = run_tiny(folder, "+experiment=dualcse_cross", *small, "seed=1").path

    return FinishedRun(json.loads((path / "record.json").read_text()), path, path / "record.json")


def test_retrieval_asks_the_best_run_that_has_a_checkpoint(run, tmp_path):
    best = run.record["best"]
    worse = {**run.record, "seed": 0, "best": {**best, "score": best["score"] - 0.1}}
    better = {**run.record, "seed": 2, "best": {**best, "score": best["score"] + 0.1}}
    without = FinishedRun(better, None, tmp_path / "kept.json")
    made = make(
        "dualcse/table3", lambda line: [FinishedRun(worse, run.folder, run.source), run, without]
    )
    assert made.quotes
    assert made.text.startswith("## DualCSE-Cross: seed 1, ")
    rows = made.tables["nearest"]
    assert len(rows) == 5 * 2 * 3
    assert all(row["query"].startswith("INLI/val.csv:") for row in rows)
    assert all(row["found"].startswith("INLI/train.csv:") for row in rows)
    premises = read_corpus("inli", "val", sample_dir())["premise"]
    assert not set(premises) & {value for row in rows for value in row.values()}
    bare = make("dualcse/table3", lambda line: [without])
    assert "DualCSE-Cross: the checkpoints of its runs were not kept" in bare.text
