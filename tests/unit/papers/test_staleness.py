"""Whether a method has changed since a run, told from the digest in the run's record."""

import json
from pathlib import Path
from typing import Any

import pytest

from lightning_cse.papers.records import Found
from lightning_cse.papers.staleness import change_of
from lightning_cse.runs import method_code

METHOD = {
    "_target_": "lightning_cse.methods.SimCSE",
    "loss": {"_target_": "lightning_cse.losses.InfoNCE"},
}


def record(method_code: str | None) -> dict[str, Any]:
    run = {"name": "simcse", "config_hash": "0a", "seed": 0}
    return {**run, "method_code": method_code, "decisive": {"config": {"method": METHOD}}}


def without(document: dict[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in document.items() if name != key}


@pytest.mark.parametrize(
    ("of_run", "wanted"),
    [
        (record(method_code(METHOD)), "fresh"),
        (record("0123456789"), "stale"),
        (record(None), "stale"),
        (without(record(None), "method_code"), "unknown"),
    ],
)
def test_an_evaluation_is_as_stale_as_its_training(
    tmp_path: Path, of_run: dict[str, Any], wanted: str
) -> None:
    assert change_of(Found(of_run, None, tmp_path / "x.json")) == wanted
    run = tmp_path / "runs" / "simcse" / "0a-s0"
    evaluation = run / "evaluate" / "sts" / "0b-s0"
    evaluation.mkdir(parents=True)
    (run / "record.json").write_text(json.dumps(of_run))
    evaluated = {
        "model": {"run": {"name": "simcse", "config_hash": "0a", "seed": 0}},
        "decisive": {"config": {}},
    }
    assert change_of(Found(evaluated, evaluation, evaluation / "record.json")) == wanted, (
        "as its training is"
    )
    kept = tmp_path / "experiments" / "paper" / "results" / "records" / "simcse-sts-0b-s0.json"
    assert change_of(Found(evaluated, None, kept)) == "unknown", "its training is not kept"
    other = tmp_path / "experiments" / "other" / "results" / "records"
    other.mkdir(parents=True)
    (other / "simcse-0a-s0.json").write_text(json.dumps(of_run))
    assert change_of(Found(evaluated, None, kept)) == wanted, "another paper may keep it"


def test_a_model_without_a_training_is_never_stale(tmp_path: Path) -> None:
    assert (
        change_of(Found({"model": {"run": None}, "decisive": {"config": {}}}, None, tmp_path))
        == "fresh"
    )
