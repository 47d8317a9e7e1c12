"""Packed predictions give the tests that the run folders give, and their digest is checked."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from fake_table import fake_table, leave_run, spec
from sklearn.metrics import roc_auc_score

from lightning_cse.metrics import auc_influences, delong
from lightning_cse.tables.kept import CURVES, PREDICTIONS, RECORDS, Content, KeptRuns, write_runs
from lightning_cse.tables.predictions import digest, pack, read_task
from lightning_cse.tables.records import FinishedRun, runs_of
from lightning_cse.tables.statistics import clustered_error, two_way_interval

RTE, EIS, AUC = "test/rte/accuracy_all", "test/eis/accuracy", "test/rte/auc_implied"
CURVES_OF = {"train/loss": [(1, 0.1), (2, 0.2)], "val/stsb/spearman": [(2, 1 / 3)]}
TYPES = ("explicit", "implied", "neutral", "contradiction")


def predicted(seed, shift):
    """Return predictions of RTE and EIS as a run leaves them, with sentences that must not stay."""
    rng = np.random.default_rng(seed)
    types = [TYPES[number % 4] for number in range(400)]
    labels = [label_type in TYPES[:2] for label_type in types]
    scores = np.array(labels) * shift + rng.normal(size=400)
    rte = {
        "row": [number // 4 for number in range(400)],
        "type": types,
        "label": labels,
        "score": scores.tolist(),
        "prediction": (scores > shift / 2).tolist(),
        "premise": ["a secret sentence"] * 400,
    }
    lead = rng.normal(shift, 1, size=300).round(1)

    return rte, {"row": list(range(300)), "lead": lead.tolist(), "correct": (lead > 0).tolist()}


def area_of(rte):
    chosen = np.array([label_type != "explicit" for label_type in rte["type"]])

    return float(roc_auc_score(np.array(rte["label"])[chosen], np.array(rte["score"])[chosen]))


def run(folder, name, seed, shift):
    rte, eis = predicted(10 * seed + len(name), shift)
    metrics = {
        RTE: float(np.mean(np.equal(rte["prediction"], rte["label"]))),
        EIS: float(np.mean(eis["correct"])),
        AUC: area_of(rte),
    }
    predictions = {"rte": rte, "eis": eis}.items()

    return leave_run(folder / "runs", name, seed, predictions=predictions, metrics=metrics)


@pytest.fixture
def runs(tmp_path):
    shifts = {"a": 1.0, "bb": 1.6}
    return {
        name: {seed: run(tmp_path, name, seed, shift) for seed in range(3)}
        for name, shift in shifts.items()
    }


@pytest.fixture
def kept_runs(runs, tmp_path):
    """The same runs as `reproduce --keep` leaves them, without their folders."""
    write_runs(tmp_path, {run.name: content(run) for of in runs.values() for run in of.values()})
    shutil.rmtree(tmp_path / "runs")

    return in_folder(tmp_path)


def content(run):
    packed = pack(run.folder)
    return Content({**run.record, "predictions": {"sha256": digest(packed)}}, CURVES_OF, packed)


def in_folder(folder):
    """Return the kept runs of a folder by name and seed."""
    by_name = {"a": {}, "bb": {}}
    for run in runs_of(KeptRuns(folder)):
        by_name[run.record["name"]][run.record["seed"]] = run

    return by_name


def table_of(folder, runs):
    columns = {"RTE": RTE, "AUC": AUC, "EIS": EIS}
    rows = {name: {"experiment": "dualcse_cross"} for name in runs}

    return fake_table(spec(folder, columns, rows, reference="a"), runs)


def test_tests_are_the_same_without_the_run_folders(tmp_path, runs, request):
    tests = table_of(tmp_path, runs).tests
    sides = [[read_task(run, "rte") for run in by_seed.values()] for by_seed in runs.values()]
    kept_tests = table_of(tmp_path, request.getfixturevalue("kept_runs")).tests
    assert not (tmp_path / "runs").exists()
    assert kept_tests.equals(tests)
    assert list(tests["test"]) == ["mcnemar", "delong", "mcnemar"]
    # By hand, from the scores.
    first = sides[0][0]
    chosen = (first["type"] == "implied") | ~first["label"]
    scores = [[frame["score"][chosen] for frame in side] for side in sides]
    expected = delong(first["label"][chosen], scores[1], scores[0])
    area = tests[tests["test"] == "delong"].iloc[0]
    assert area["p"] == pytest.approx(expected.pvalue, rel=1e-12)
    assert area["mean"] - area["mean_reference"] == pytest.approx(100 * expected.difference)
    # The four hypotheses of a premise are one cluster.
    labels = first["label"][chosen]
    influences = [
        auc_influences(labels, of_seed) - auc_influences(labels, base)
        for base, of_seed in zip(*scores, strict=True)
    ]
    error = clustered_error(np.mean(influences, axis=0), first["row"][chosen])
    by_seed = [
        runs["bb"][seed].record["metrics"][AUC] - runs["a"][seed].record["metrics"][AUC]
        for seed in range(3)
    ]
    _, *ends = two_way_interval(by_seed, error)
    assert [area["low"], area["high"]] == pytest.approx([100 * end for end in ends])


def test_what_is_kept_is_small_and_has_no_sentences(kept_runs, tmp_path):
    file = (tmp_path / PREDICTIONS).read_bytes()
    assert len(file) < 15_000  # of six runs
    assert b"secret" not in file
    assert {*kept_runs["a"][0].packed} == {
        *(f"rte/{column}" for column in ("row", "type", "label", "score", "prediction")),
        *("eis/row", "eis/correct"),
    }


def test_changed_predictions_are_left_out(runs, tmp_path, caplog):
    contents = {run.name: content(run) for of in runs.values() for run in of.values()}
    name = runs["a"][1].name
    changed = {**contents[name].predictions, "eis/correct": np.ones(300, bool)}
    write_runs(tmp_path, {**contents, name: contents[name]._replace(predictions=changed)})
    by_name = in_folder(tmp_path)
    assert by_name["a"][1].packed == {}
    assert read_task(by_name["a"][0], "eis") is not None, "the others are there"
    assert f"{name}): its predictions are not those that its record names" in caplog.text


@pytest.mark.parametrize(("name", "read"), [(PREDICTIONS, "packed"), (CURVES, "curves")])
def test_a_damaged_file_is_one_warning(kept_runs, tmp_path, caplog, name, read):
    file = tmp_path / name
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    runs = [run for of in in_folder(tmp_path).values() for run in of.values()]
    assert len(runs) == 6
    assert [getattr(run, read) for run in runs] == 6 * [{}]
    assert len(caplog.messages) == 1
    assert f"left out: {file} is damaged" in caplog.text


def test_a_damaged_record_is_one_warning(kept_runs, tmp_path, caplog):
    file = tmp_path / RECORDS
    first, *other_lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join([first[:-9] + b"\n", *other_lines]))
    assert len(KeptRuns(tmp_path).records) == 5
    assert len(caplog.messages) == 1
    assert f"left out: {file}, line 1, is damaged" in caplog.text


def test_a_record_made_before_has_no_predictions(kept_runs, tmp_path):
    (tmp_path / PREDICTIONS).unlink()
    assert in_folder(tmp_path)["a"][0].packed == {}


def test_the_same_runs_give_the_same_bytes(runs, tmp_path):
    contents = {run.name: content(run) for of in runs.values() for run in of.values()}
    first_folder, second_folder = tmp_path / "one", tmp_path / "other"
    assert len(write_runs(first_folder, contents)) == 3
    assert write_runs(first_folder, contents) == [], "nothing has changed"
    write_runs(second_folder, dict(reversed(contents.items())))
    for file in (RECORDS, CURVES, PREDICTIONS):
        assert (first_folder / file).read_bytes() == (second_folder / file).read_bytes()

    assert in_folder(first_folder)["a"][0].curves == CURVES_OF


def test_an_evaluation_belongs_to_the_weights_that_it_read():
    def record(**more):
        return FinishedRun(
            {"name": "a", "config_hash": "01", "seed": 0, **more}, None, Path("a.json")
        )

    of = {"run": {"name": "a", "config_hash": "01", "seed": 0}}
    training = record(checkpoint={"sha256": "1f"})
    assert record(suite="inli", model=of, checkpoint={"sha256": "1f"}).is_of(training)
    assert not record(suite="inli", model=of, checkpoint={"sha256": "2e"}).is_of(training)
    earlier = record(suite="inli", model=of, encoder={"weights": "1f"})
    assert earlier.is_of(training)
    assert not earlier.is_of(replace(training, record={**training.record, "seed": 1}))
