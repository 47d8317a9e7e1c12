"""Packed predictions give the tests that the run folders give, and their digest is checked."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from fake_plan import FakePlan, leave_run, spec
from sklearn.metrics import roc_auc_score

from lightning_cse.metrics import auc_influences, delong
from lightning_cse.tables.keep import _kept_files
from lightning_cse.tables.predictions import answers, digest, pack, packed_bytes
from lightning_cse.tables.records import FinishedRun, read_run
from lightning_cse.tables.statistics import clustered_error, two_way_interval
from lightning_cse.tables.table import make_table

RTE, EIS, AUC = "test/rte/accuracy_all", "test/eis/accuracy", "test/rte/auc_implied"
TYPES = ("explicit", "implied", "neutral", "contradiction")


def predicted(seed, shift):
    """Return predictions of RTE and EIS as a run leaves them, with sentences that must not stay."""
    rng = np.random.default_rng(seed)
    types = [TYPES[number % 4] for number in range(400)]
    labels = [kind in TYPES[:2] for kind in types]
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
    chosen = np.array([kind != "explicit" for kind in rte["type"]])

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
def kept(runs, tmp_path):
    """The same runs as `reproduce --keep` leaves them, without their folders."""
    folder = tmp_path / "records"
    folder.mkdir()
    found = {}
    for name, of in runs.items():
        for seed, one in of.items():
            for file, content in _kept_files(one).items():
                (folder / file).write_bytes(content)

            found.setdefault(name, {})[seed] = read_run(folder / f"{name}-01-s{seed}.json")

    shutil.rmtree(tmp_path / "runs")

    return found


def table_of(folder, runs):
    columns = {"RTE": RTE, "AUC": AUC, "EIS": EIS}
    rows = {name: {"experiment": "dualcse_cross"} for name in runs}

    return make_table(FakePlan(spec(folder, columns, rows, reference="a"), runs))


def test_tests_are_the_same_without_the_run_folders(tmp_path, runs, request):
    whole = table_of(tmp_path, runs).tests
    sides = [[answers(one)["rte"].read() for one in of.values()] for of in runs.values()]
    again = table_of(tmp_path, request.getfixturevalue("kept")).tests
    assert not (tmp_path / "runs").exists()
    assert again.equals(whole)
    assert list(whole["test"]) == ["mcnemar", "delong", "mcnemar"]
    # By hand, from the scores.
    first = sides[0][0]
    chosen = (first["type"] == "implied") | ~first["label"]
    scores = [[frame["score"][chosen] for frame in side] for side in sides]
    expected = delong(first["label"][chosen], scores[1], scores[0])
    area = whole[whole["test"] == "delong"].iloc[0]
    assert area["p"] == pytest.approx(expected.pvalue, rel=1e-12)
    by_seed = [
        100 * (runs["bb"][seed].record["metrics"][AUC] - runs["a"][seed].record["metrics"][AUC])
        for seed in range(3)
    ]
    # The four hypotheses of a premise are one cluster.
    influences = np.mean(
        [
            auc_influences(first["label"][chosen], ours)
            - auc_influences(first["label"][chosen], base)
            for base, ours in zip(*scores, strict=True)
        ],
        axis=0,
    )
    error = clustered_error(influences, first["row"][chosen])
    _, *ends = two_way_interval(by_seed, 100 * error)
    assert [area["low"], area["high"]] == pytest.approx(ends)
    assert area["mean"] - area["mean_reference"] == pytest.approx(100 * expected.difference)
    eis = whole[whole["column"] == "EIS"].iloc[0]
    assert eis["low"] < eis["mean"] - eis["mean_reference"] < eis["high"]


def test_what_is_kept_is_small_and_has_no_sentences(runs):
    files = _kept_files(runs["a"][0])
    packed = files["a-01-s0.predictions.npz"]
    assert len(packed) < 6_000
    assert b"secret" not in packed
    arrays = pack(runs["a"][0].folder)
    assert {*arrays} == {
        *(f"rte/{column}" for column in ("row", "type", "label", "score", "prediction")),
        *("eis/row", "eis/correct"),
    }
    assert packed_bytes(arrays) == packed, "the same arrays give the same bytes"


def test_a_changed_file_is_left_out(kept, caplog):
    one = kept["a"][0]
    arrays = dict(np.load(one.predictions_path))
    arrays["eis/correct"][0] ^= True
    one.predictions_path.write_bytes(packed_bytes(arrays))
    assert answers(one) == {}
    assert f"{one.predictions_path} is not the file that its record names" in caplog.text
    one.predictions_path.write_bytes(b"PK")
    assert answers(replace(one)) == {}
    assert f"{one.predictions_path} is damaged" in caplog.text


def test_a_record_made_before_has_no_predictions(kept):
    one = kept["a"][0]
    without = {key: value for key, value in one.record.items() if key != "predictions"}
    assert answers(replace(one, record=without)) == {}
    one.predictions_path.unlink()
    assert answers(one) == {}


def test_the_digest_is_of_the_contents():
    arrays = {"a/x": np.arange(3), "a/y": np.array(["p", "q"])}
    assert digest(arrays) == digest(dict(reversed(arrays.items())))
    assert digest(arrays) != digest({**arrays, "a/x": np.arange(3)[::-1]})
    assert digest(arrays) != digest({**arrays, "a/x": np.arange(3).astype(np.int32)})


def test_one_evaluation_is_compared_with_all_seeds(tmp_path, runs):
    fixed = leave_run(
        tmp_path / "runs",
        "plain",
        predictions=[("eis", predicted(99, 0.5)[1])],
        metrics={EIS: float(np.mean(predicted(99, 0.5)[1]["correct"]))},
        suite="inli",
        model={"run": None},
    )
    rows = {
        "a": {"experiment": "dualcse_cross"},
        "plain": {"evaluate": {"model": "{encoder}", "suite": "inli"}},
    }
    found = {"a": runs["a"], "plain": {0: fixed}}
    plan = FakePlan(spec(tmp_path, {"EIS": EIS}, rows, reference="a"), found)
    (test,) = make_table(plan).tests.to_dict("records")
    assert (test["seeds"], test["seeds_reference"]) == ("0", "0 1 2")
    ours, *theirs = (one.record["metrics"][EIS] for one in (fixed, *runs["a"].values()))
    assert (test["low"] + test["high"]) / 2 == pytest.approx(100 * (ours - np.mean(theirs)))


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
