"""Whether a method has changed since a run, from the digest in the run's record."""

import pytest

from lightning_cse.papers.records import Found
from lightning_cse.papers.staleness import change_of
from lightning_cse.runs.code import code_digest

METHOD = {
    "_target_": "lightning_cse.methods.SimCSE",
    "loss": {"_target_": "lightning_cse.losses.InfoNCE"},
}


def record(code):
    run = {
        "name": "simcse",
        "config_hash": "0a",
        "seed": 0,
    }
    return {
        **run,
        "code": code,
        "decisive": {"config": {"method": METHOD}},
    }


def without(document, key):
    return {name: value for name, value in document.items() if name != key}


@pytest.mark.parametrize(
    ("of_run", "wanted"),
    [
        (record(code_digest(METHOD)), "fresh"),
        (record("0123456789"), "stale"),
        (record(None), "stale"),
        (without(record(None), "code"), "unknown"),
    ],
)
def test_training_is_stale_if_its_method_has_changed(tmp_path, of_run, wanted):
    assert (
        change_of(
            Found(
                of_run,
                None,
                tmp_path / "x.json",
            )
        )
        == wanted
    )


def test_missing_training_is_unknown(tmp_path):
    assert change_of(None) == "unknown"
    assert (
        change_of(
            Found(
                {"decisive": {"config": {}}},
                None,
                tmp_path,
            )
        )
        == "fresh"
    )
