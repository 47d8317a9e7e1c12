"""RFD before training: the value that a training logs, its intervals, and the order of sets."""

import csv
import json
import logging
import math
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hydra.core.global_hydra import GlobalHydra

import lightning_cse
from lightning_cse.analysis import difficulty, ranking
from lightning_cse.config.compose import compose_run
from lightning_cse.config.launch import call
from lightning_cse.describe import main
from lightning_cse.errors import ConfigError, DataError
from lightning_cse.metrics import uniformity
from lightning_cse.runs import Curves

PLACES = ("encoder=tiny", "encoder.max_length=64", "paths=sample", "corpora=sample")


@pytest.fixture(autouse=True)
def places(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LIGHTNING_CSE_DATA", raising=False)
    monkeypatch.setenv("LIGHTNING_CSE_RUNS", "runs")
    monkeypatch.setenv("LIGHTNING_CSE_CACHE", "cache")


def written(name, rows):
    """Write rows as a file in the working directory, and return its name."""
    Path(name).write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")

    return name


def near(count):
    """Rows whose positive repeats most of the anchor."""
    colours = ("red", "blue", "green", "grey")
    return [
        {
            "anchor": f"the {colours[k % 4]} bus number {k} stops at the old market",
            "positive": f"a {colours[k % 4]} bus number {k} stops at the market",
        }
        for k in range(count)
    ]


def far(count):
    """Rows whose positive is that of another row of `near`."""
    rows = near(count)
    return [
        {"anchor": row["anchor"], "positive": distant["positive"].upper()}
        for row, distant in zip(rows, rows[7:] + rows[:7], strict=True)
    ]


def measured(*overrides):
    return call("lightning_cse.analysis.difficulty:measure", "describe", [*PLACES, *overrides])


# Numbers -----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_values_are_those_that_a_training_logs_at_step_0_and_after_it():
    data = ("data=file", f"data.train={written('rows.jsonl', near(60))}", "data.held_out_share=0.4")
    recipe = ("data.batch_size=8", "method.optimizer.lr=1e-3")
    run = lightning_cse.train(
        [
            *("+experiment=simcse_sup", "+debug=tiny", *data, *recipe, "method.head=false"),
            *("data.train_rows=null", "data.held_out_rows=null", "encoder.max_length=64"),
            *("diag.evaluation=stsb_dev", "eval_every=2", "least_evaluations=1", "baselines=none"),
            *("trainer.max_epochs=-1", "trainer.max_steps=20", "seed=3"),
        ]
    )
    curves = {key: dict(points) for key, points in Curves(run.curves_path).read().items()}
    result = measured(*data, *recipe, "probe_steps=20", "seed=3")
    record = run.read()
    for measure in ("alignment", "uniformity"):
        held_out, evaluation = (curves[f"diag/{side}/{measure}"] for side in ("held_out", "eval"))
        logged = held_out[0] - evaluation[0]
        assert result[f"step_0_rfd_{measure}"] == pytest.approx(logged, abs=1e-6)
        after = record["summary"][f"rfd_{measure}"]
        assert result[f"rfd_{measure}"] == pytest.approx(after, abs=1e-5)
        assert after != pytest.approx(logged, abs=1e-3)

    assert result["pairs"] == record["diagnostics"]["held_out"]["pairs"]["primary"] == 24
    assert result["sentences"] == record["diagnostics"]["held_out"]["sentences"] == 48


def test_the_sum_and_the_ends_of_the_intervals():
    result = measured("data=file", f"data.train={written('rows.jsonl', near(400))}")
    assert result["rows"] + result["pairs"] == 400
    assert result["rfd"] == result["rfd_alignment"] + result["rfd_uniformity"]
    for name in ("rfd_alignment", "rfd_uniformity", "rfd"):
        assert result[f"{name}_low"] < result[name] < result[f"{name}_high"]

    more = measured("data=file", "data.train=rows.jsonl", "data.held_out_share=0.8")
    name = "rfd_alignment"
    widths = [values[f"{name}_high"] - values[f"{name}_low"] for values in (result, more)]
    assert widths[1] == pytest.approx(widths[0] / 4, rel=0.5), "sixteen times as many rows"


def test_uniformity_of_resampled_sentences_is_that_of_the_list_without_a_copy_beside_itself():
    vectors = torch.randn(7, 5, generator=torch.Generator().manual_seed(0))
    counts = np.array([[1.0] * 7, [2, 0, 3, 1, 0, 0, 1]])
    once, twice = difficulty.resampled_uniformity(vectors, counts)
    assert once == pytest.approx(uniformity(vectors))
    numbers = [0, 0, 2, 2, 2, 3, 6]
    unit = vectors / vectors.norm(dim=1, keepdim=True)
    terms = [
        math.exp(-2 * float((unit[i] - unit[j]).square().sum()))
        for i in numbers
        for j in numbers
        if i != j
    ]
    assert twice == pytest.approx(math.log(sum(terms) / len(terms)))


def test_how_often_a_positive_is_nearer_than_that_of_another_row():
    x = torch.eye(3)
    assert difficulty.nearer_than_others(x, 5 * x) == 1
    assert difficulty.nearer_than_others(x, torch.ones(3, 3)) == 0.5
    assert difficulty.nearer_than_others(x, x[[1, 0, 2]]) == pytest.approx((2 * (0 + 0.5) + 2) / 6)


# The evaluation side -----------------------------------------------------------------------------


def test_the_sample_stands_in_for_a_corpus_that_is_not_there_and_is_named(caplog, tmp_path):
    data = ("data=file", f"data.train={written('rows.jsonl', near(400))}")
    nowhere = ("encoder=tiny", "encoder.max_length=64", f"paths.data_dir={tmp_path}/none")
    with caplog.at_level(logging.WARNING):
        result = call("lightning_cse.analysis.difficulty:measure", "describe", [*data, *nowhere])

    assert result["evaluation"] == "STS-B dev, sample of 100 pairs"
    assert "sample of STS-B in the package" in caplog.text
    assert measured(*data) == result
    broken = tmp_path / "none" / "STS" / "STSBenchmark"
    broken.mkdir(parents=True)
    (broken / "sts-dev.csv").write_text("no scores\n")
    with pytest.raises(DataError, match=r"sts-dev\.csv"):
        call("lightning_cse.analysis.difficulty:measure", "describe", [*data, *nowhere])


def test_pairs_of_your_own_take_the_place_of_stsb():
    pairs = [
        {"sentence1": f"door {k} is open", "sentence2": f"gate {k} was shut", "score": k / 10}
        for k in range(11)
    ]

    def side_of(name):
        words = ["data=file", "data.train=rows.jsonl", f"own.sts={name}"]
        return difficulty.evaluation_side(compose_run("describe", [*PLACES, *words]), ["primary"])

    side, name = side_of(written("pairs.jsonl", pairs))
    assert name == "own.sts, test: pairs.jsonl"
    # The highest fifth of the scores is similar; uniformity is over both ends.
    similar = [(pair["sentence1"], pair["sentence2"]) for pair in pairs[8:]]
    lowest = [(pair["sentence1"], pair["sentence2"]) for pair in pairs[:3]]
    assert list(zip(*side.pairs["primary"], strict=True)) == similar
    assert side.sentences == [text for pair in (*lowest, *similar) for text in pair]
    with pytest.raises(DataError, match=r"own\.sts: all scores are 1"):
        side_of(written("flat.jsonl", [pair | {"score": 1.0} for pair in pairs]))


# Several sets ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_sets_are_ranked_and_one_that_cannot_be_compared_says_why():
    sets = {
        "near": written("near.jsonl", near(400)),
        "far": ["data=file", f"data.train={written('far.jsonl', far(400))}"],
        "few": written("few.jsonl", near(12)),
        "sentences": written("plain.jsonl", [{"anchor": row["anchor"]} for row in near(40)]),
        "wrong": written("wrong.jsonl", [{"anchor": "a", "positive": ""}]),
        "absent": "absent.jsonl",
    }
    frame = lightning_cse.rank_training_sets(sets, "tiny", overrides=PLACES[1:])
    assert list(frame.index)[:2] == ["far", "near"]
    assert frame["order"].tolist()[:2] == [1, 2]
    assert frame["order"].isna().tolist() == [False] * 2 + [True] * 4
    assert frame.loc["far", "nearer"] < 0.6 < frame.loc["near", "nearer"]
    reasons = frame["reason"]
    assert reasons["near"] == reasons["far"] == ""
    assert "held-out rows have a positive, and an interval needs 10" in reasons["few"]
    assert "missing: positive" in reasons["sentences"]
    assert "wrong.jsonl:1" in reasons["wrong"]
    assert "absent.jsonl" in reasons["absent"]
    text = ranking.ranking_table(frame)
    assert "so perhaps wrong: far" in text
    assert "wrong: not compared: " in text


def test_a_wrong_override_is_an_error_and_not_a_reason():
    with pytest.raises(ConfigError, match="at least one training set"):
        lightning_cse.rank_training_sets({})

    with pytest.raises(ConfigError, match="probe_stepz"):
        lightning_cse.rank_training_sets(
            {"near": written("near.jsonl", near(40))}, "tiny", overrides=["probe_stepz=1"]
        )


@pytest.mark.slow
def test_the_command_ranks_the_sets_of_a_multirun_and_goes_on_after_a_broken_one(
    monkeypatch, capsys, tmp_path
):
    files = [written("far.jsonl", far(400)), written("near.jsonl", near(400)), "absent.jsonl"]
    words = ["-m", "data=file", f"data.train={','.join(files)}", *PLACES]
    monkeypatch.setattr(sys, "argv", ["describe.py", *words])
    GlobalHydra.instance().clear()
    handlers = logging.root.handlers[:]
    try:
        code = main()
    finally:
        logging.root.handlers[:] = handlers

    text = capsys.readouterr().out
    assert code == 2
    end = text[text.rindex("training set") :]
    assert (
        end.index("far.jsonl") < end.index("near.jsonl") < end.index("absent.jsonl: not compared")
    )
    (folder,) = (tmp_path / "runs" / "sweeps").iterdir()
    assert (folder / "ranking.png").read_bytes().startswith(b"\x89PNG")
    lines = (folder / "ranking.csv").read_text(encoding="utf-8").splitlines()
    rows = {row["training set"]: row for row in csv.DictReader(lines)}
    frame = lightning_cse.rank_training_sets({"near": "near.jsonl"}, "tiny", overrides=PLACES[1:])
    assert float(rows["near.jsonl"]["rfd"]) == pytest.approx(frame.loc["near", "rfd"])
    assert rows["far.jsonl"]["order"] == "1"
    assert "absent.jsonl" in rows["absent.jsonl"]["reason"]
