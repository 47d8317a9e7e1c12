"""The figures and texts of the papers: what each maker makes of all runs, of some and of none."""

import json
from dataclasses import replace
from pathlib import Path
from string import ascii_lowercase

import pandas as pd
import pytest
import torch
from fake_table import fake_table

from lightning_cse.baselines import Length
from lightning_cse.data import SourceFile, read_corpus, sample_dir
from lightning_cse.data.rows import dataset_of
from lightning_cse.embeddings import DualEmbedding
from lightning_cse.errors import ConfigError
from lightning_cse.evaluation import Direction, run_tasks
from lightning_cse.paths import experiments_dir
from lightning_cse.tables import figures
from lightning_cse.tables.files import read_spec
from lightning_cse.tables.keep import kept_folders
from lightning_cse.tables.records import FinishedRun, RunsTable
from lightning_cse.tables.spec import Request
from lightning_cse.tables.table import Table

gausscse, dualcse = (
    figures.load_file(experiments_dir() / paper / "figures.py") for paper in ("gausscse", "dualcse")
)
TINY = Request(profile="tiny")


def make(key, runs=(), request=TINY):
    """Make a figure of a spec all of whose rows have these finished runs."""
    spec = read_spec(experiments_dir() / f"{key}.yaml")
    by_seed = {run.record["seed"]: run for run in runs}

    return figures.make(fake_table(spec, {row.label: by_seed for row in spec.rows}, request))


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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("key", "encoder", "tables"),
    [
        ("ngcse/figure1", None, ["settings", "correlations", "pairs", "differences"]),
        ("ngcse/figure2", None, ["settings"]),
        ("ngcse/figure3", None, []),
        ("ngcse/figure5", None, ["studies"]),
        ("ngcse/figure6", None, []),
        ("ngcse/before_training", None, ["settings", "rule", "regret"]),
        ("dualcse/retrieval", "minilm_l6", ["found"]),
    ],
)
def test_kept_figures_are_those_of_their_records(key, encoder, tables):
    result, stem = made_from_kept(key, encoder)
    assert list(result.tables) == tables
    for name, rows in result.tables.items():
        expected = pd.read_csv(f"{stem}.{name}.csv")
        rows_found = pd.DataFrame(rows, dtype=object).astype(expected.dtypes)
        pd.testing.assert_frame_equal(rows_found, expected, rtol=1e-12)

    assert result.figures
    assert all(Path(f"{stem}.{name}.png").is_file() for name in result.figures)


def made_from_kept(key, encoder):
    spec = read_spec(experiments_dir() / f"{key}.yaml")
    runs = RunsTable(Path("none"), kept_folders(experiments_dir()))
    table = Table(spec, Request("small", encoder=encoder), runs)
    folder = experiments_dir() / key.partition("/")[0] / "results"

    return figures.make(table), folder / table.stem


@pytest.mark.slow
def test_each_vector_is_drawn_where_the_table_has_it():
    result, stem = made_from_kept("dualcse/retrieval", "minilm_l6")
    cells = pd.read_csv(f"{stem}.csv").set_index(["row", "column"])["mean"]
    rows_found = pd.DataFrame(result.tables["found"])
    assert len(rows_found) == 2 * (2 * 2 + 3)  # two of the five models have two vectors
    for row in rows_found.itertuples():
        vector = "explicit" if row.vector == "only" else row.vector
        assert row.mean == pytest.approx(cells[row.row, f"{row.hypothesis} by {vector}"])

    simcse = "SimCSE (INLI)"
    rows = ["untrained", simcse, f"{simcse}, equal epochs", "DualCSE-Cross", "DualCSE-Bi"]
    for axes, hypothesis in zip(
        result.figures["found_by_vector"].axes, ("explicit", "implied"), strict=True
    ):
        points = {(x, rows[round(y)]) for bar in axes.containers for x, y in bar[0].get_xydata()}
        of_kind = rows_found[rows_found["hypothesis"] == hypothesis]
        assert points == set(zip(of_kind["mean"], of_kind["row"], strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("number", [1, 2, 3, 5, 6])
def test_nothing_is_drawn_without_runs(number):
    assert not make(f"ngcse/figure{number}").figures


@pytest.mark.slow
def test_pattern_complexity_needs_no_run():
    labels = ("Wiki.token_shuffle", "NLI.SUP", "Wiki.STS")
    settings = ("data.train_rows=12", "paths.cache_dir=null", "trainer.max_epochs=1")
    request = Request(profile="tiny", settings=settings, only=labels)
    result = make("ngcse/figure7", request=request)
    axes = {name: len(figure.axes) for name, figure in result.figures.items()}
    # STS-B below each domain
    assert axes == {"pattern_complexity_wiki": 4 * 3, "pattern_complexity_nli": 4 * 2}
    positive = [row for row in result.tables["pairs"] if row["kind"] == "positive"]
    assert {row["set"] for row in positive} == {*labels, "STS-B dev, sample of 100 pairs"}
    first = {row["set"]: row for row in reversed(positive)}
    assert first["Wiki.token_shuffle"]["mer_mean"] > 0.3
    assert 0 < first["NLI.SUP"]["number"] <= 12, "a setting that decides what is read"


def test_the_share_of_longer_premises_is_the_accuracy_of_length():
    result = make("gausscse/figure2")
    row = result.tables["lengths"][2]
    task = Direction(data_dir=str(sample_dir()), dev="sick/test", test="sick/test")
    accuracy = run_tasks({"direction": task}, Length(), "test")["direction"].metrics["accuracy"]
    assert row["entailed_premise_longer"] == pytest.approx(100 * accuracy, abs=1e-10)
    assert row["pairs"] == len(task.table("test")) > row["entailed"], "the figure shows every pair"
    assert f"| SICK | sick/test | {row['pairs']} | {row['premise_longer']:.3f} |" in result.text


def test_corpora_follow_the_profile_and_the_settings(real_data):
    settings = (f"paths.data_dir={real_data}", "corpora.snli_test=sick/test", "method.beta=0.5")
    result = make("gausscse/figure2", request=Request("small", settings=settings))
    first, second, third = result.tables["lengths"]
    assert (first["source"], second["source"]) == ("sick/test", "mnli_nyu/dev_matched")
    assert third["entailed_premise_longer"] == pytest.approx(69.14, abs=0.005), "the paper's"


def test_an_unknown_setting_is_refused():
    with pytest.raises(ConfigError, match="Key 'snli_tset' is not in struct"):
        make("gausscse/figure2", request=Request("small", settings=("corpora.snli_tset=x",)))


def test_data_statistics_beside_the_papers():
    result = make("dualcse/table6")
    counts = {(row["row"], row["column"]): row for row in result.tables["pairs"]}
    inli = read_corpus("inli", "val", sample_dir())
    published = read_corpus("impscore", "dev", sample_dir())
    assert counts["INLI", "dev"]["pairs"] == 4 * len(inli)
    assert counts["Wang et al.", "dev"]["pairs"] == 2 * len(published)
    assert counts["Wang et al.", "train"]["published"] == 101_320


def test_a_corpus_that_is_missing_is_not_counted(tmp_path):
    (tmp_path / "INLI").symlink_to(sample_dir() / "INLI")
    request = Request("small", settings=(f"paths.data_dir={tmp_path}",))
    result = make("dualcse/table6", request=request)
    counts = {(row["row"], row["column"]): row["pairs"] for row in result.tables["pairs"]}
    assert counts["INLI", "dev"] == 4 * len(read_corpus("inli", "val", sample_dir()))
    assert counts["Wang et al.", "dev"] is None
    assert "Wang et al. is not counted: ImpScore/all_data.csv is not in the" in result.text


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
    rows_found = dualcse.nearest(Letters(), queries, corpus)
    assert rows_found["sentence"].iloc[0] == premises[0], "a sentence that is searched finds itself"
    assert list(rows_found["query"].unique()) == ["INLI/val.csv:2", "INLI/val.csv:3"]
    embedded = Letters().embed(premises)
    searched = Letters().embed(corpus["sentence"].tolist()).explicit
    for query, premise in enumerate(premises):
        for view in ("explicit", "implicit"):
            vector = getattr(embedded, view)[query]
            cosines = [
                float(vector @ corpus_row / vector.norm() / corpus_row.norm())
                for corpus_row in searched
            ]
            got = rows_found[(rows_found["premise"] == premise) & (rows_found["view"] == view)]
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


@pytest.mark.slow
def test_retrieval_asks_the_best_run_that_has_a_checkpoint(run, tmp_path):
    best = run.record["best"]
    worse = {**run.record, "seed": 0, "best": {**best, "score": best["score"] - 0.1}}
    better = {**run.record, "seed": 2, "best": {**best, "score": best["score"] + 0.1}}
    without = FinishedRun(better, None, tmp_path / "kept.json")
    request = replace(TINY, seeds=(0, 1, 2))
    runs = [FinishedRun(worse, run.folder, run.source), run, without]
    result = make("dualcse/table3", runs, request)
    assert result.quotes
    assert result.text.startswith("## DualCSE-Cross: seed 1, ")
    rows = result.tables["nearest"]
    assert len(rows) == 5 * 2 * 3
    assert all(row["query"].startswith("INLI/val.csv:") for row in rows)
    assert all(row["found"].startswith("INLI/train.csv:") for row in rows)
    premises = read_corpus("inli", "val", sample_dir())["premise"]
    assert not set(premises) & {value for row in rows for value in row.values()}
    bare = make("dualcse/table3", [without], request)
    assert "DualCSE-Cross: the checkpoints of its runs were not kept" in bare.text
