"""The makers: what each makes of all runs, of some, of one and of none."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.collections import PathCollection

from lightning_cse.config import experiments_dir
from lightning_cse.config.compose import options
from lightning_cse.data import read_corpus, sample_dir
from lightning_cse.errors import ConfigError
from lightning_cse.papers.artefacts import Artefact, Line, Request, Train, read_artefact
from lightning_cse.papers.makers import MAKERS, Made, Material
from lightning_cse.papers.ngcse import setting_name
from lightning_cse.papers.points import Found
from lightning_cse.plots import plot_style, save_figures
from lightning_cse.runs import Curves, Run, summarise

TINY = Request(profile="tiny")
KEYS = [f"diag/{side}/{measure}" for side in ("held_out", "eval") for measure in ("alignment", "uniformity")]


def artefact(key: str) -> Artefact:
    return read_artefact(experiments_dir() / f"{key}.yaml")


def make(
    key: str | Artefact,
    found: Callable[[Line], Sequence[Found]] = lambda line: (),
    request: Request = TINY,
    data_dir: Path | None = None,
) -> Made:
    made_of = artefact(key) if isinstance(key, str) else key
    lines = made_of.lines(request)
    assert made_of.make is not None
    runs = {line: found(line) for line in lines}
    return MAKERS[made_of.make](Material(made_of, lines, runs, data_dir, request))


def curves_of(seed: int) -> dict[str, list[tuple[int, float]]]:
    generator = random.Random(seed)
    found = {key: [(125 * k, generator.uniform(0.1, 0.6)) for k in range(5)] for key in KEYS}
    return found | {"val/stsb/spearman": [(125 * k, generator.uniform(0.7, 0.9)) for k in range(5)]}


@pytest.fixture
def kept(tmp_path: Path) -> Callable[..., Found]:
    """Make a record that was kept as a file, its curves beside it."""

    def make_one(name: str, seed: int, *, curves: bool = True) -> Found:
        points = curves_of(len(name) + 100 * seed)
        source = tmp_path / f"{name}-s{seed}.json"
        if curves:
            file = Curves(source.with_suffix(".curves.csv"))
            for key, values in points.items():
                for step, value in values:
                    file.append(step, {key: value})
        summary = summarise(points)
        record = {"name": name, "config_hash": "0", "seed": seed, "summary": vars(summary)}
        return Found(json.loads(json.dumps(record)), None, source)

    return make_one


def train(line: Line) -> Train:
    assert isinstance(line.way, Train)
    return line.way


def coloured(made: Made, figure: str) -> int:
    """How many points of a figure are coloured by a score."""
    drawings = made.figures[figure].axes[0].collections
    shown = [one for one in drawings if isinstance(one, PathCollection) and one.get_array() is not None]
    return sum(len(np.asarray(one.get_offsets())) for one in shown)


def test_every_artefact_s_maker_is_there() -> None:
    makers = {key: artefact(key).make for key in map(key_of, sorted(experiments_dir().glob("*/*.yaml")))}
    named = {key: name for key, name in makers.items() if name is not None}
    assert len(named) >= 9
    assert set(named.values()) == set(MAKERS)


def key_of(path: Path) -> str:
    return f"{path.parent.name}/{path.stem}"


def test_naming_a_maker_loads_nothing_heavy() -> None:
    code = (
        "import sys; from lightning_cse.papers.makers import MAKERS; "
        "print([name for name in ('torch', 'transformers', 'matplotlib', 'scipy') if name in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"


# ------------------------------------------------------------------------------------------------- NGCSE's settings


def test_fitting_difficulty_of_all_runs(kept: Callable[..., Found]) -> None:
    made = make("ngcse/figure1", lambda line: [kept(train(line).experiment, 0)])
    assert coloured(made, "fitting_difficulty") == 13
    assert len(made.tables["settings"]) == 13
    want = summarise(curves_of(len("ngcse_nli_sup")))
    assert made.tables["settings"][-1] == {"setting": "NLI.SUP", "encoder": "tiny", "seed": 0, **vars(want)}
    assert "Left out" not in made.text
    here = [row for row in made.tables["correlations"] if row["of"] == "here"]
    assert [row["settings"] for row in here] == [13] * 3 + [6] * 3 + [7] * 3
    (theirs,) = [row for row in made.tables["correlations"] if (row["of"], row["scope"]) == ("authors", "all")][:1]
    assert (theirs["measure"], theirs["settings"]) == ("RFD_a", 9)
    assert theirs["pearson"] == pytest.approx(0.9, abs=0.005), "of what the authors released"


def test_fitting_difficulty_of_some_runs_and_of_two_seeds(kept: Callable[..., Found]) -> None:
    def found(line: Line) -> list[Found]:
        return [kept(line.label, seed) for seed in (0, 1)] if line.label.startswith("NLI.token") else []

    made = make("ngcse/figure1", found, Request(profile="small"))
    assert coloured(made, "fitting_difficulty") == 2
    assert "no run of them is finished: Wiki.dropout, Wiki.token_shuffle," in made.text
    assert "fewer runs than were asked for: NLI.token_shuffle (2 of 3), NLI.token_cutoff (2 of 3)." in made.text
    assert [row["seed"] for row in made.tables["settings"]] == [0, 1, 0, 1]
    assert "Here:" not in made.text, "two settings have no correlation"
    assert "authors released" in made.text


@pytest.mark.parametrize(
    ("key", "figure"),
    [("ngcse/figure1", "fitting_difficulty"), ("ngcse/figure2", "best_step"), ("ngcse/figure3", "process")],
)
def test_one_run_and_none(key: str, figure: str, kept: Callable[..., Found], tmp_path: Path) -> None:
    made = make(key, lambda line: [kept(line.label, 0)] if line.label == "NLI.SUP" else [])
    assert list(made.figures) == [figure]
    with plot_style():
        assert save_figures({"x.png": made.figures[figure]}, tmp_path / "out")
    nothing = make(key)
    assert not nothing.figures
    labels = [line.label for line in artefact(key).lines(TINY)]
    assert nothing.text.startswith(f"Left out, since no run of them is finished: {', '.join(labels)}.\n")


def test_a_run_without_curves_counts_by_its_record(kept: Callable[..., Found]) -> None:
    def without(line: Line) -> list[Found]:
        return [kept(line.label, 0, curves=False)]

    assert kept("x", 0, curves=False).curves is None
    with_curves = make("ngcse/figure3", lambda line: [kept(f"{line.label}, kept", 0)])
    assert "not kept" not in with_curves.text
    process = make("ngcse/figure3", without)
    assert not process.figures
    labels = [line.label for line in artefact("ngcse/figure3").lines(TINY)]
    assert process.text == f"Not drawn where a run's curves were not kept: {', '.join(labels)}.\n"
    made = make("ngcse/figure1", without)
    assert coloured(made, "fitting_difficulty") == 13
    assert made.tables["settings"][-1]["rfd_alignment"] == summarise(curves_of(len("NLI.SUP"))).rfd_alignment


def test_the_process_stands_side_by_side_in_the_order_of_the_lines(kept: Callable[..., Found]) -> None:
    figure = make("ngcse/figure6", lambda line: [kept(line.label, 0)]).figures["process"]
    titles = [axes.get_title() for axes in figure.axes[:4]]
    assert titles == ["Wiki.token_shuffle", "Wiki.token_cutoff", "NLI.token_shuffle", "NLI.token_cutoff"]
    many = make("ngcse/figure1", lambda line: [kept(line.label, 0)], TINY)
    assert "process" not in many.figures


def test_several_encoders_are_told_apart(kept: Callable[..., Found], tmp_path: Path) -> None:
    path = tmp_path / "ngcse" / "figure9.yaml"
    path.parent.mkdir()
    path.write_text(
        "title: t\nsource: s\nkind: figure\nencoders: [bert_base, roberta_base]\nmake: process\nrows:\n"
        + "".join(f"  {label}: {{experiment: ngcse_nli_sup}}\n" for label in ("NLI.SUP", "NLI.STS", "Wiki.NLI")),
        encoding="utf-8",
    )
    made = make(read_artefact(path), lambda line: [kept(f"{line.label}{line.encoder}", 0)], Request(seeds=(0,)))
    assert list(made.figures) == ["process_nli", "process_wiki"], "six are too many for one figure"
    titles = [axes.get_title() for axes in made.figures["process_wiki"].axes[:2]]
    assert titles == ["Wiki.NLI (bert_base)", "Wiki.NLI (roberta_base)"]
    assert "Left out" not in made.text


# ----------------------------------------------------------------------------------------------------------- studies


def study_run(line: Line, seed: int) -> Found:
    """A run whose score tells its options and its seed."""
    config: dict[str, Any] = {
        "name": "x",
        "data": {"llm_rows": None},
        "method": {"hierarchical_triplet": {"margin_positive": 5e-3, "margin_negative": 5e-2}},
    }
    for override in train(line).overrides:
        key, _, value = override.partition("=")
        *above, last = key.split(".")
        node = config
        for name in above:
            node = node[name]
        node[last] = float(value)
    score = (
        (config["data"]["llm_rows"] or 0) / 1e6 + sum(config["method"]["hierarchical_triplet"].values()) + seed / 1e4
    )
    record: Mapping[str, Any] = {
        "name": "x",
        "config_hash": str(hash(json.dumps(config))),
        "seed": seed,
        "decisive": {"config": config},
        "metrics": {"test/sts_avg/spearman_all": score},
    }
    return Found(record, None, Path(f"{json.dumps(config)}-{seed}.json"))


FULL = Request()


def test_studies_of_all_runs(caplog: pytest.LogCaptureFixture) -> None:
    made = make("ngcse/figure5", lambda line: [study_run(line, seed) for seed in line.seeds], FULL)
    assert list(made.figures) == ["llm_rows", "margins"]
    rows = [row for row in made.tables["studies"] if row["study"] == "data.llm_rows"]
    assert len(rows) == 3 * 11
    assert rows[1] == {
        "study": "data.llm_rows",
        "encoder": "bert_base",
        "value": 0.0,
        "run": 1,
        "score": pytest.approx(5.51),
    }
    for option, values in (("margin_positive", 8), ("margin_negative", 8)):
        study = [row for row in made.tables["studies"] if row["study"].endswith(option)]
        assert len(study) == values, "one run each, and the final setting of both is one run"
    (axes,) = made.figures["llm_rows"].axes
    paper = next(line for line in axes.get_lines() if line.get_label() == "the paper")
    assert dict(zip(*map(list, paper.get_data()), strict=True))[20000.0] == 79.81
    first, second = made.figures["margins"].axes
    assert 0.35 in [x for line in first.get_lines() if line.get_label() == "the paper" for x in list(line.get_xdata())]
    assert 0.001 in [
        x for line in second.get_lines() if line.get_label() == "the paper" for x in list(line.get_xdata())
    ]
    assert made.text == ""
    assert not caplog.records, "what is of another study is no matter for a warning"


def test_studies_of_some_runs_and_of_one() -> None:
    some = make(
        "ngcse/figure5", lambda line: [study_run(line, 0)] if line.label in {"625", "m1 0.1", "m1 0.2"} else [], FULL
    )
    assert list(some.figures) == ["margins"]
    assert len(some.figures["margins"].axes) == 1
    assert "Not drawn: data.llm_rows, since no two finished runs" in some.text
    one = make("ngcse/figure5", lambda line: [study_run(line, 0)] if line.label == "625" else [], FULL)
    assert not one.figures
    assert one.text.count("Not drawn") == 3
    assert not make("ngcse/figure5", request=FULL).figures


# ------------------------------------------------------------------------------------------------------- data alone


READ = ("data.train_rows=12", "paths.cache_dir=null", "trainer.max_epochs=1")


def test_pattern_complexity_needs_no_run() -> None:
    labels = ("Wiki.token_shuffle", "NLI.SUP", "Wiki.STS")
    made = make("ngcse/figure7", request=Request(profile="tiny", settings=READ, only=labels))
    assert sorted(made.figures) == ["pattern_complexity_nli", "pattern_complexity_wiki"]
    axes = {name: len(figure.axes) for name, figure in made.figures.items()}
    assert axes == {"pattern_complexity_wiki": 4 * 3, "pattern_complexity_nli": 4 * 2}, "STS-B below each domain"
    positive = [row for row in made.tables["pairs"] if row["kind"] == "positive"]
    assert {row["set"] for row in positive} == {*labels, "STS-B dev"}
    first = {row["set"]: row for row in reversed(positive)}
    assert first["Wiki.token_shuffle"]["mer_mean"] > 0.3
    assert 0 < first["NLI.SUP"]["number"] <= 12, "a setting that decides what is read"
    assert made.text == ""


def test_every_row_of_figure_7_names_an_experiment() -> None:
    labels = [line.label for line in artefact("ngcse/figure7").lines(TINY)]
    known = {setting_name(name) for name in options("experiment")}
    assert len(labels) == 8
    assert set(labels) <= known


def test_pattern_complexity_of_lines(tmp_path: Path) -> None:
    path = tmp_path / "ngcse" / "figure9.yaml"
    path.parent.mkdir()
    path.write_text(
        "title: t\nsource: s\nkind: figure\nencoders: [bert_base]\nmake: pattern_complexity\nrows:\n"
        "  mine: {experiment: ngcse_nli_sup, overrides: [data.train_rows=12, trainer.max_epochs=1]}\n"
        "  Wiki.STS: {published: its data are named by the label}\n"
        "  other: {published: nothing is called so}\n",
        encoding="utf-8",
    )
    made = make(read_artefact(path), request=Request(profile="tiny", settings=READ[1:]))
    assert list(made.figures) == ["pattern_complexity_mine", "pattern_complexity_wiki"]
    assert made.text == "Not drawn, since no experiment is called so: other.\n"
    assert {row["number"] for row in made.tables["pairs"] if row["set"] == "mine"} == {12}
    only = make(read_artefact(path), request=Request(profile="tiny", only=("other",)))
    assert (only.figures, only.tables) == ({}, {})


def test_length_ratios_of_the_sample_corpus(tmp_path: Path) -> None:
    made = make("gausscse/figure2", data_dir=tmp_path / "nothing here")
    assert [row["source"] for row in made.tables["lengths"]] == ["snli/test", "mnli/dev_mismatched", "sick/test"]
    rows = read_corpus("mnli", "dev_mismatched", sample_dir())
    entailed = [row for row in rows if row["label"] == "entailment"]
    longer = sum(len(row["premise"]) > len(row["hypothesis"]) for row in entailed)
    mnli = made.tables["lengths"][1]
    assert (mnli["pairs"], mnli["premise_longer"]) == (len(entailed), pytest.approx(100 * longer / len(entailed)))
    assert f"| MNLI | mnli/dev_mismatched | {len(entailed)} | {mnli['premise_longer']:.2f} % |" in made.text
    assert len(made.figures["length_ratios"].axes) == 3


def test_corpora_follow_the_profile_and_the_settings(real_data: Path) -> None:
    small = make("gausscse/figure2", request=Request(profile="small"), data_dir=real_data)
    assert [row["source"] for row in small.tables["lengths"]] == [
        *("snli_senteval/test", "mnli_nyu/dev_matched", "sick/test"),
    ]
    assert small.tables["lengths"][2]["premise_longer"] == pytest.approx(69.14, abs=0.005)
    request = Request(profile="small", settings=("corpora.snli_test=sick/test", "method.beta=0.5"))
    other = make("gausscse/figure2", request=request, data_dir=real_data)
    assert other.tables["lengths"][0]["source"] == "sick/test"
    with pytest.raises(ConfigError, match=r"figure2\.yaml: \+profile=small corpora\.snli_tset=x: "):
        make("gausscse/figure2", request=Request(profile="small", settings=("corpora.snli_tset=x",)))


def test_data_statistics_beside_the_paper_s(tmp_path: Path) -> None:
    made = make("dualcse/table6", data_dir=tmp_path)
    counts = {(row["row"], row["column"]): (row["pairs"], row["published"]) for row in made.tables["pairs"]}
    rows = {split: len(read_corpus("inli", split, sample_dir())) for split in ("train", "val", "test")}
    assert counts["INLI", "dev"] == (4 * rows["val"], 4000)
    pairs = {split: 2 * len(read_corpus("impscore", split, sample_dir())) for split in ("train", "dev")}
    assert counts["Wang et al.", "train"] == (pairs["train"], 101_320)
    assert counts["Wang et al.", "dev"] == (pairs["dev"], 5630)
    assert f"| INLI | {4 * rows['train']:,} (paper 32,000) |" in made.text
    assert "sample corpus" in made.text


def test_data_statistics_tell_what_is_not_there(real_data: Path) -> None:
    if (real_data / "ImpScore").exists():
        pytest.skip("the pairs are there")
    made = make("dualcse/table6", request=Request(), data_dir=real_data)
    counts = {(row["row"], row["column"]): (row["pairs"], row["published"]) for row in made.tables["pairs"]}
    assert counts["INLI", "test"] == (4000, 4000)
    assert counts["Wang et al.", "train"] == (None, 101_320), "published, and not counted"
    assert "Wang et al. is not counted: corpus 'impscore', split 'train' is not there" in made.text


# -------------------------------------------------------------------------------------------------------- retrieval


@pytest.fixture(scope="module")
def run(run_tiny: Callable[..., Run], tmp_path_factory: pytest.TempPathFactory) -> Found:
    small = ("baselines=none", "data.train_rows=16", "diag.sentences=8", "trainer.max_epochs=1", "limits.test_rows=4")
    path = run_tiny(tmp_path_factory.mktemp("runs"), "+experiment=dualcse_cross", *small, "seed=1").path
    return Found(json.loads((path / "record.json").read_text()), path, path / "record.json")


def test_retrieval_asks_the_best_run(run: Found, tmp_path: Path) -> None:
    score = run.record["best"]["score"]
    worse = {**run.record, "seed": 0, "best": {**run.record["best"], "score": score - 0.1}}
    better = {**run.record, "seed": 2, "best": {**run.record["best"], "score": score + 0.1}}
    broken = tmp_path / "broken" / "checkpoints"  # would be told if it were asked
    broken.mkdir(parents=True)
    (broken / "best.ckpt").write_text("nothing")
    runs = [
        Found(worse, broken.parent, broken.parent / "record.json"),
        run,
        Found(better, None, tmp_path / "kept.json"),  # has no checkpoint
    ]
    made = make("dualcse/table3", lambda line: runs)
    assert made.quotes
    assert made.text.startswith(f"## DualCSE-Cross: seed 1, val/rte/accuracy_all {100 * score:.2f}\n")
    dev, train_rows = (read_corpus("inli", split, sample_dir()) for split in ("val", "train"))
    rows = made.tables["nearest"]
    assert len(rows) == 5 * 2 * 3
    assert {(row["view"], row["rank"]) for row in rows} == {(v, r) for v in ("explicit", "implicit") for r in (1, 2, 3)}
    places = {f"INLI/val.csv:{dev.where(row).rpartition(':')[2]}": dev[row]["premise"] for row in range(len(dev))}
    assert {row["query"] for row in rows} <= places.keys()
    for row in rows:
        assert row["found"].startswith("INLI/train.csv:")
        assert -1 <= row["cosine"] <= 1.000001
    sentences = {*dev.column("premise"), *(s for name in train_rows.names[1:] for s in train_rows.column(name))}
    assert not sentences & {value for row in rows for value in row.values()}, "the table quotes nobody"
    assert make("dualcse/table3", lambda line: [run]).text == made.text, "queries are drawn by a seed"


def test_retrieval_without_a_run_and_without_checkpoints(run: Found) -> None:
    assert make("dualcse/table3").text == "Left out, since no run of them is finished: DualCSE-Cross.\n"
    made = make("dualcse/table3", lambda line: [Found(run.record, None, run.source)])
    assert "DualCSE-Cross: the checkpoints of its runs were not kept" in made.text
    assert not made.tables
