"""Whether a method has changed since a run, told from the digest in the run's record."""

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
def test_a_training_is_stale_if_its_method_has_changed(
    tmp_path: Path, of_run: dict[str, Any], wanted: str
) -> None:
    assert change_of(Found(of_run, None, tmp_path / "x.json")) == wanted


def test_a_missing_training_is_unknown_and_a_model_without_one_is_never_stale(
    tmp_path: Path,
) -> None:
    assert change_of(None) == "unknown"
    assert change_of(Found({"decisive": {"config": {}}}, None, tmp_path)) == "fresh"
