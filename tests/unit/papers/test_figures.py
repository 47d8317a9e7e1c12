"""The figures and texts of the papers: what each maker makes of all runs, of some and of none."""

import csv
import json
import math
import random
import subprocess
import sys
from pathlib import Path
from string import ascii_lowercase

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf

from lightning_cse.baselines import Length
from lightning_cse.config import experiments_dir
from lightning_cse.data import Rows, SourceFile, read_corpus, sample_dir
from lightning_cse.embeddings import DualEmbedding
from lightning_cse.errors import ConfigError, EncoderError
from lightning_cse.evaluation import Direction, run_tasks
from lightning_cse.papers import figures
from lightning_cse.papers.artefacts import Request
from lightning_cse.papers.figures import Inputs, dualcse, gausscse
from lightning_cse.papers.files import read_artefact
from lightning_cse.papers.records import Found
from lightning_cse.runs import Curves, summarise

TINY = Request(profile="tiny")
SIDES = ("premise", "hypothesis")
KEYS = [
    f"diag/{side}/{measure}"
    for side in ("held_out", "eval")
    for measure in ("alignment", "uniformity")
]


def artefact(key):
    return read_artefact(experiments_dir() / f"{key}.yaml")


def make(key, found=lambda line: (), request=TINY):
    made_of = artefact(key)
    lines = made_of.lines(request)
    return figures.make(
        Inputs(
            made_of,
            lines,
            {line: found(line) for line in lines},
            request,
        )
    )


def curves_of(seed):
    generator = random.Random(seed)
    found = {key: [(125 * k, generator.uniform(0.1, 0.6)) for k in range(5)] for key in KEYS}
    return found | {"val/stsb/spearman": [(125 * k, generator.uniform(0.7, 0.9)) for k in range(5)]}


@pytest.fixture
def kept(tmp_path):
    """Make a record that was kept as a file, its curves beside it."""

    def make_one(name, seed=0, *, curves=True, monitor="val/stsb/spearman"):
        points = curves_of(len(name) + 100 * seed)
        source = tmp_path / f"{name}-s{seed}.json"
        for key, values in points.items() if curves else ():
            for step, value in values:
                Curves(source.with_suffix(".curves.csv")).append(step, {key: value})
        record = {
            "name": name,
            "seed": seed,
            "best": {"monitor": monitor},
            "summary": vars(summarise(points)),
        }
        return Found(
            json.loads(json.dumps(record)),
            None,
            source,
        )

    return make_one


def coloured(made, name):
    """How many points of a figure are coloured by a score."""
    drawn = made.figures[name].axes[0].collections
    return sum(len(one.get_offsets()) for one in drawn if one.get_array() is not None)


def test_the_makers_load_nothing_heavy():
    code = "import sys, lightning_cse.papers.figures; print({'torch', 'matplotlib', 'pandas'} & {*sys.modules})"
    assert (
        subprocess.run(
            [
                sys.executable,
                "-c",
                code,
            ],
            capture_output=True,
            text=True,
        ).stdout
        == "set()\n"
    )


def test_fitting_difficulty_of_all_runs(kept):
    made = make("ngcse/figure1", lambda line: [kept(line.label)])
    assert coloured(made, "fitting_difficulty") == 13
    want = vars(summarise(curves_of(len("NLI.SUP"))))
    assert len(made.tables["settings"]) == 13
    assert made.tables["settings"][-1] == {
        "setting": "NLI.SUP",
        "encoder": "tiny",
        "seed": 0,
        **want,
    }
    here, theirs = (
        [row for row in made.tables["correlations"] if row["of"] == of]
        for of in ("here", "authors")
    )
    assert [row["settings"] for row in here] == [13] * 3 + [6] * 3 + [7] * 3
    assert (theirs[0]["measure"], theirs[0]["scope"], theirs[0]["settings"]) == ("RFD_a", "all", 9)
    assert theirs[0]["pearson"] == pytest.approx(0.9, abs=0.005), "of what the authors released"
    assert "Left out" not in made.text


def test_fitting_difficulty_of_some_runs_and_of_two_seeds(kept):
    def found(line):
        return (
            [kept(line.label, seed) for seed in (0, 1)]
            if line.label.startswith("NLI.token")
            else []
        )

    made = make(
        "ngcse/figure1",
        found,
        Request(profile="small"),
    )
    assert coloured(made, "fitting_difficulty") == 2
    assert len(made.figures["fitting_difficulty"].axes[0].lines) == 2 + 4, (
        "both zeros, and a line to each run"
    )
    assert "no run of them is finished: Wiki.dropout, Wiki.token_shuffle," in made.text
    assert (
        "fewer runs than were asked for: NLI.token_shuffle (2 of 3), NLI.token_cutoff (2 of 3)."
        in made.text
    )
    assert [row["seed"] for row in made.tables["settings"]] == [0, 1, 0, 1]
    assert "Here:" not in made.text, "two settings have no correlation"
    assert "authors released" in made.text


@pytest.mark.parametrize(
    ("key", "figure"),
    [
        ("ngcse/figure1", "fitting_difficulty"),
        ("ngcse/figure2", "best_step"),
        ("ngcse/figure3", "process"),
    ],
)
def test_one_run_and_none(key, figure, kept):
    made = make(key, lambda line: [kept(line.label)] if line.label == "NLI.SUP" else [])
    assert list(made.figures) == [figure]
    labels = ", ".join(line.label for line in artefact(key).lines(TINY))
    assert not make(key).figures
    assert make(key).text.startswith(f"Left out, since no run of them is finished: {labels}.\n")


def test_a_run_without_curves_counts_by_its_record(kept):
    process = make("ngcse/figure3", lambda line: [kept(line.label, curves=False)])
    assert not process.figures
    assert "curves were not kept: NLI.SUP, NLI.dropout, Wiki.dropout." in process.text
    made = make("ngcse/figure1", lambda line: [kept(line.label, curves=False)])
    assert coloured(made, "fitting_difficulty") == 13
    assert (
        made.tables["settings"][-1]["rfd_alignment"]
        == summarise(curves_of(len("NLI.SUP"))).rfd_alignment
    )


def test_a_record_names_its_own_dev_score(kept):
    made = make("ngcse/figure2", lambda line: [kept(line.label, monitor="val/snli/auprc")])
    assert {row["final_score"] for row in made.tables["settings"]} == {None}
    assert not made.figures


def test_the_encoder_before_training_is_step_0_of_dropout(kept):
    made = make("ngcse/figure2", lambda line: [kept(line.label)])
    start = {key: points[0][1] for key, points in curves_of(len("NLI.dropout")).items()}
    (text,) = [
        one for one in made.figures["best_step"].axes[0].texts if "pretrained" in one.get_text()
    ]
    assert text.xy == (start["diag/eval/uniformity"], start["diag/eval/alignment"])
    assert text.get_text() == f"pretrained ({100 * start['val/stsb/spearman']:.1f})"


def test_settings_are_side_by_side_in_the_order_of_the_lines(kept):
    figure = make(
        "ngcse/figure6", lambda line: [kept(line.label, seed) for seed in range(2)]
    ).figures["process"]
    titles = [axes.get_title() for axes in figure.axes[:4]]
    assert titles == [
        "Wiki.token_shuffle",
        "Wiki.token_cutoff",
        "NLI.token_shuffle",
        "NLI.token_cutoff",
    ]
    assert [len(axes.get_lines()) for axes in figure.axes] == [4] * 8, "two runs, two sides"


def study_run(line, seed):
    """A run whose score shows its options and its seed."""
    margins = {"margin_positive": 5e-3, "margin_negative": 5e-2}
    config = OmegaConf.create(
        {"data": {"llm_rows": None}, "method": {"hierarchical_triplet": margins}}
    )
    config.merge_with_dotlist(list(line.way.overrides))
    score = (
        (config.data.llm_rows or 0) / 1e6
        + sum(config.method.hierarchical_triplet.values())
        + seed / 1e4
    )
    record = {
        "decisive": {"config": OmegaConf.to_container(config)},
        "metrics": {"test/sts_avg/spearman_all": score},
    }
    return Found(
        record,
        None,
        Path(f"{json.dumps(record)}-{seed}.json"),
    )


def test_studies_of_all_runs():
    made = make(
        "ngcse/figure5",
        lambda line: [study_run(line, seed) for seed in line.seeds],
        Request(),
    )
    assert list(made.figures) == ["llm_rows", "margins"]
    assert len(made.tables["studies"]) == 3 * 11 + 8 + 8
    want = {
        "study": "data.llm_rows",
        "encoder": "bert_base",
        "value": 0.0,
        "run": 1,
        "score": pytest.approx(5.51),
    }
    assert made.tables["studies"][1] == want
    drawn = {line.get_label(): line for line in made.figures["llm_rows"].axes[0].get_lines()}
    assert [20000.0, 79.81] in drawn["the paper"].get_xydata().tolist()
    assert made.text == ""


def test_studies_of_some_runs_of_one_and_of_none():
    for labels, axes, not_drawn in (
        (("625", "m1 0.1", "m1 0.2"), [1], 2),
        (("625",), [], 3),
        ((), [], 0),
    ):
        made = make(
            "ngcse/figure5",
            lambda line: [study_run(line, 0)] if line.label in labels else [],  # noqa: B023
            Request(),
        )
        assert [len(figure.axes) for figure in made.figures.values()] == axes
        assert made.text.count("Not drawn") == not_drawn


def test_pattern_complexity_needs_no_run():
    labels = ("Wiki.token_shuffle", "NLI.SUP", "Wiki.STS")
    settings = ("data.train_rows=12", "paths.cache_dir=null", "trainer.max_epochs=1")
    made = make(
        "ngcse/figure7",
        request=Request(
            profile="tiny",
            settings=settings,
            only=labels,
        ),
    )
    axes = {name: len(figure.axes) for name, figure in made.figures.items()}
    assert axes == {"pattern_complexity_wiki": 4 * 3, "pattern_complexity_nli": 4 * 2}, (
        "STS-B below each domain"
    )
    positive = [row for row in made.tables["pairs"] if row["kind"] == "positive"]
    assert {row["set"] for row in positive} == {*labels, "STS-B dev"}
    first = {row["set"]: row for row in reversed(positive)}
    assert first["Wiki.token_shuffle"]["mer_mean"] > 0.3
    assert 0 < first["NLI.SUP"]["number"] <= 12, "a setting that decides what is read"


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("SNLI", "snli/test"),
        ("MNLI", "mnli/dev_mismatched"),
        ("SICK", "sick/test"),
    ],
)
def test_the_share_of_longer_premises_is_the_accuracy_of_length(name, source):
    made = make("gausscse/figure2")
    task = Direction(
        data_dir=str(sample_dir()),
        dev=source,
        test=source,
    )
    accuracy = (
        100
        * run_tasks(
            {"direction": task},
            Length(),
            "test",
        )["direction"].metrics["accuracy"]
    )
    (row,) = [row for row in made.tables["lengths"] if row["corpus"] == name]
    assert row["source"] == source
    assert row["entailed_premise_longer"] == pytest.approx(accuracy, abs=1e-10)
    rows = task.table("test")
    assert row["pairs"] == len(rows) > row["entailed"], "the figure shows every pair"
    longer = [
        len(premise) > len(hypothesis)
        for premise, hypothesis in zip(*map(rows.column, SIDES), strict=True)
    ]
    assert row["premise_longer"] == pytest.approx(100 * np.mean(longer), abs=1e-10)
    shown = f"{row['pairs']} | {row['premise_longer']:.2f} % | {row['entailed']} | {accuracy:.2f} %"
    assert f"| {name} | {source} | {shown} |" in made.text


def test_bars_are_shares_of_right_and_wrong_pairs():
    figure = gausscse.length_figure(
        {
            "one": np.array(
                [
                    0.5,
                    0.5,
                    0.1,
                    0.0,
                    -0.3,
                ]
            ),
            "two": np.array([0.7, 0.9]),
        }
    )
    bars = [
        (bar.get_x(), bar.get_height()) for bar in figure.axes[0].patches if bar.get_height() > 0
    ]
    assert np.ravel(bars) == pytest.approx(
        [
            0.0,
            0.2,
            0.4,
            0.4,
            -0.4,
            0.2,
            0.0,
            0.2,
        ]
    )
    label = figure.axes[0].get_legend().get_texts()[1].get_text()
    assert label == "not longer: 40.00 %", "equal lengths are not longer"
    figure = gausscse.length_figure({"x": np.array([*np.linspace(0.01, 0.99, 4000), 7.0])})
    assert figure.axes[0].get_xlim()[1] < 1.5, "the farthest pair does not stretch the axis"
    assert sum(bar.get_height() for bar in figure.axes[0].patches) == pytest.approx(1), (
        "but it counts"
    )


def test_corpora_follow_the_profile_and_the_settings(real_data):
    there = f"paths.data_dir={real_data}"
    small = make(
        "gausscse/figure2",
        request=Request(
            profile="small",
            settings=(there,),
        ),
    ).tables["lengths"]
    assert [row["source"] for row in small] == [
        "snli_senteval/test",
        "mnli_nyu/dev_matched",
        "sick/test",
    ]
    entailed = (small[2]["entailed"], small[2]["entailed_premise_longer"])
    assert entailed == (794, pytest.approx(69.14, abs=0.005)), "the paper's"
    assert [row["pairs"] for row in small] == [9824, 5000, 4906]
    request = Request(
        profile="small",
        settings=(there, "corpora.snli_test=sick/test", "method.beta=0.5"),
    )
    assert make("gausscse/figure2", request=request).tables["lengths"][0]["source"] == "sick/test"
    with pytest.raises(
        ConfigError,
        match=r"describe \+profile=small corpora\.snli_tset=x: .*did you mean 'corpora\.snli_test'",
    ):
        make(
            "gausscse/figure2",
            request=Request(
                profile="small",
                settings=("corpora.snli_tset=x",),
            ),
        )


def test_data_statistics_beside_the_papers():
    made = make("dualcse/table6")
    counts = {
        (row["row"], row["column"]): (row["pairs"], row["published"])
        for row in made.tables["pairs"]
    }
    for split, column in (("train", "train"), ("val", "dev"), ("test", "test")):
        with (sample_dir() / "INLI" / f"{split}.csv").open(
            encoding="utf-8",
            newline="",
        ) as file:
            assert counts["INLI", column][0] == 4 * (len(list(csv.reader(file))) - 1)
    assert counts["Wang et al.", "dev"][0] == 2 * len(
        read_corpus(
            "impscore",
            "dev",
            sample_dir(),
        )
    )
    assert [counts[key][1] for key in (("INLI", "dev"), ("Wang et al.", "train"))] == [
        4000,
        101_320,
    ]
    assert f"| INLI | {counts['INLI', 'train'][0]:,} (paper 32,000) |" in made.text
    assert "sample corpus" in made.text


def test_official_and_missing_corpora(real_data, tmp_path):
    assert dualcse.pair_counts("inli", real_data) == {
        "train": 32_000,
        "dev": 4_000,
        "test": 4_000,
    }
    made = make("dualcse/table6", request=Request(settings=(f"paths.data_dir={tmp_path}",)))
    assert {row["pairs"] for row in made.tables["pairs"]} == {None}
    assert "Wang et al. is not counted: corpus 'impscore', split 'train' was not found" in made.text


class Letters:
    """Explicit: how often each letter occurs; implicit: the same of the sentence without its first
    word.
    """

    def __init__(self, scale=1.0):
        self.scale = scale

    def embed(self, sentences):
        texts = sentences, [sentence.partition(" ")[2] for sentence in sentences]
        letters = [
            [[text.lower().count(letter) for letter in ascii_lowercase] for text in side]
            for side in texts
        ]
        return DualEmbedding(*self.scale * torch.tensor(letters, dtype=torch.float32))


def test_nearest_against_a_loop():
    corpus = dualcse.hypotheses(
        read_corpus(
            "inli",
            "train",
            sample_dir(),
        ).select(range(30))
    )
    file = SourceFile(
        "INLI/val.csv",
        "/somewhere/INLI/val.csv",
        "",
    )
    premises = [corpus["sentence"].iloc[17], "An unrelated remark about quizzes."]
    found = dualcse.nearest(
        Letters(),
        Rows.of(
            {"premise": premises},
            files=[file],
            lines=[2, 3],
        ),
        corpus,
    )
    assert found["sentence"].iloc[0] == premises[0], (
        "a sentence that is searched finds itself first"
    )
    assert list(found["query"].unique()) == ["INLI/val.csv:2", "INLI/val.csv:3"]
    embedded = Letters().embed(premises)
    searched = Letters().embed(corpus["sentence"].tolist()).explicit
    for query, premise in enumerate(premises):
        for view in ("explicit", "implicit"):
            vector = getattr(embedded, view)[query]
            cosines = [float(vector @ other / vector.norm() / other.norm()) for other in searched]
            got = found[(found["premise"] == premise) & (found["view"] == view)]
            assert got["rank"].tolist() == [1, 2, 3]
            assert got["cosine"].tolist() == pytest.approx(
                sorted(cosines, reverse=True)[:3], abs=1e-6
            )
    with pytest.raises(EncoderError, match="not finite"):
        dualcse.nearest(
            Letters(math.nan),
            Rows.of({"premise": premises}, files=[file]),
            corpus,
        )


@pytest.fixture(scope="module")
def run(run_tiny, tmp_path_factory):
    small = (
        "baselines=none",
        "data.train_rows=16",
        "diag.sentences=8",
        "trainer.max_epochs=1",
        "limits.test_rows=4",
    )
    path = run_tiny(
        tmp_path_factory.mktemp("runs"),
        "+experiment=dualcse_cross",
        *small,
        "seed=1",
    ).path
    return Found(
        json.loads((path / "record.json").read_text()),
        path,
        path / "record.json",
    )


def test_retrieval_asks_the_best_run(run, tmp_path):
    score = run.record["best"]["score"]
    worse = {
        **run.record,
        "seed": 0,
        "best": {**run.record["best"], "score": score - 0.1},
    }
    better = {
        **run.record,
        "seed": 2,
        "best": {**run.record["best"], "score": score + 0.1},
    }
    without_checkpoint = Found(
        better,
        None,
        tmp_path / "kept.json",
    )
    made = make(
        "dualcse/table3",
        lambda line: [
            Found(
                worse,
                run.folder,
                run.source,
            ),
            run,
            without_checkpoint,
        ],
    )
    assert made.quotes
    assert made.text.startswith(
        f"## DualCSE-Cross: seed 1, val/rte/accuracy_all {100 * score:.2f}\n"
    )
    rows = made.tables["nearest"]
    assert len(rows) == 5 * 2 * 3
    dev, train = (
        read_corpus(
            "inli",
            split,
            sample_dir(),
        )
        for split in ("val", "train")
    )
    assert {row["query"] for row in rows} <= {f"INLI/val.csv:{line}" for line in dev.column("line")}
    assert all(row["found"].startswith("INLI/train.csv:") for row in rows)
    sentences = {
        *dev.column("premise"),
        *(s for name in train.names[1:] for s in train.column(name)),
    }
    assert not sentences & {value for row in rows for value in row.values()}, (
        "the table quotes nobody"
    )
    assert make("dualcse/table3", lambda line: [run]).text == made.text, (
        "queries are drawn by a seed"
    )


def test_retrieval_without_checkpoints(run):
    made = make(
        "dualcse/table3",
        lambda line: [
            Found(
                run.record,
                None,
                run.source,
            )
        ],
    )
    assert "DualCSE-Cross: the checkpoints of its runs were not kept" in made.text
    assert not made.tables
