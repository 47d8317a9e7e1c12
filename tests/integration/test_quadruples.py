"""DualCSE on INLI and on the user's own quadruples that lack some sentences, each source with its
weight.
"""

import csv
import json

import pytest
import small_runs
from small_runs import assert_same, dies_at

from lightning_cse.data import BatchLoader

pytestmark = pytest.mark.slow
ROWS = 400
PRESENT = ("111", "101", "010", "001", "100", "011")
"""Which of the three hypotheses the rows have, in turn."""


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Return the path of a file of quadruples, most of which lack some hypotheses."""
    path = tmp_path_factory.mktemp("own") / "quadruples.csv"

    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("premise", "explicit_entailment", "implied_entailment", "contradiction"))

        for row in range(ROWS):
            hypotheses = [
                f"Lamp {row} is red.",
                f"Nobody may enter room {row}.",
                f"Lamp {row} is green.",
            ]
            for column, present in enumerate(PRESENT[row % len(PRESENT)]):
                if present == "0":
                    hypotheses[column] = ""

            writer.writerow((f"The lamp above door {row} turned red.", *hypotheses))

    return str(path)


@pytest.fixture
def watched(monkeypatch):
    """Return a list that gets the rows of every batch."""
    batches: list[list[int]] = []
    original = BatchLoader.__iter__

    def recorded(self):
        for batch in original(self):
            batches.append(batch["index"].tolist())
            yield batch

    monkeypatch.setattr(BatchLoader, "__iter__", recorded)

    return batches


def weighted(corpus, weights):
    return (
        *small_runs.SMALL,
        "data=quadruples",
        "keep_last=true",
        "data.train_rows=36",
        f"data.train=[inli/train,'{corpus}']",
        f"data.weights={weights}",
    )


def test_weighted_run_killed_in_either_epoch_matches_uninterrupted_run(
    run_tiny, corpus, tmp_path, watched
):
    overrides = weighted(corpus, "[0.5,2]")
    uninterrupted = run_tiny(tmp_path / "whole", *overrides)
    steps = uninterrupted.read()["steps"]
    batches = list(watched)

    assert steps == len(batches) >= 8

    for at in (3, steps - 2):
        watched.clear()
        with dies_at(at):
            run_tiny(tmp_path / str(at), *overrides)

        assert watched == batches[: len(watched)]

        watched.clear()
        resumed = run_tiny(tmp_path / str(at), *overrides)

        assert 0 < len(watched) < steps, "not from the start"
        assert watched == batches[-len(watched) :]

        assert_same(resumed, uninterrupted)


def test_run_with_several_negatives_killed_in_either_epoch_matches_uninterrupted_run(
    run_tiny, tmp_path
):
    path = tmp_path / "own.jsonl"
    lines = []

    for row in range(24):
        cells = {"query": f"Who has key {row // 2}?", "pos": f"Ann has key {row}."}
        cells |= {f"negative_{k}": f"No key {row}{k}." for k in range(1, 1 + row % 3)}
        lines.append(json.dumps(cells))

    path.write_text("\n".join(lines), encoding="utf-8")
    overrides = (
        "+experiment=simcse_sup",
        *small_runs.LITTLE,
        "keep_last=true",
        "data=file",
        f"data.train={path}",
        "data.held_out_share=0.2",
    )
    uninterrupted = run_tiny(tmp_path / "whole", *overrides)
    record = uninterrupted.read()

    assert record["rows"]["read"] == 24
    assert record["rows"]["training_rows"] == record["rows"]["used"] == 20
    assert str(path) in record["data"]

    for at in (2, record["steps"] - 1):
        with dies_at(at):
            run_tiny(tmp_path / str(at), *overrides)

        assert_same(run_tiny(tmp_path / str(at), *overrides), uninterrupted)
