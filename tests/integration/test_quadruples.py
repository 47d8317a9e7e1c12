"""DualCSE on INLI and on quadruples of one's own that lack some sentences, each source with its weight."""

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import small_runs
from small_runs import assert_same, dies_at

from lightning_cse.data import BatchLoader
from lightning_cse.runs import Run

RunTiny = Callable[..., Run]

ROWS = 400
HOLES = (0b111, 0b101, 0b010, 0b100, 0b001, 0b110)
"""Which of the three hypotheses the rows have, in turn."""


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the path of a file of quadruples, most of which lack some hypotheses."""
    path = tmp_path_factory.mktemp("own") / "quadruples.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("premise", "explicit_entailment", "implied_entailment", "contradiction"))
        for row in range(ROWS):
            hypotheses = (
                f"Lamp {row} is red.",
                f"Nobody may enter room {row}.",
                f"Lamp {row} is green.",
            )
            there = HOLES[row % len(HOLES)]
            cells = [
                sentence if there >> place & 1 else "" for place, sentence in enumerate(hypotheses)
            ]
            writer.writerow((f"The lamp above door {row} turned red.", *cells))
    return str(path)


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """Return a list that gets the rows of every batch."""
    batches: list[list[int]] = []
    real = BatchLoader.__iter__

    def noting(self: BatchLoader) -> Any:
        for batch in real(self):
            batches.append(batch["index"].tolist())
            yield batch

    monkeypatch.setattr(BatchLoader, "__iter__", noting)
    return batches


def sources(own: str, weights: str = "[1,0.5]") -> tuple[str, ...]:
    small = (*small_runs.SMALL, "data=quadruples", "keep_last=true", "data.train_rows=36")
    return *small, f"data.train=[inli/train,'{own}']", f"data.weights={weights}"


def test_a_run_on_both_and_its_account(
    run_tiny: RunTiny, own: str, tmp_path: Path, drawn: list[list[int]]
) -> None:
    record = run_tiny(tmp_path, *sources(own)).read()
    rows = record["rows"]
    assert rows["read"] == 595 + ROWS
    assert rows["dropped: data.train_rows"] == 595 + ROWS - 36
    assert rows["used"] == rows["training_rows"] == 36
    from_inli, from_own = rows["rows an epoch: inli/train"], rows[f"rows an epoch: {own}"]
    assert from_own == (36 - from_inli + 1) // 2 > 4, "half of them, rounded"
    assert from_inli + from_own == rows["rows an epoch"]
    assert all(
        0 < rows[f"rows with {role}"] < 36 for role in ("explicit_entailment", "contradiction")
    )
    assert {"INLI/train.csv", own} <= record["data"].keys()
    assert record["steps"] == len(drawn)
    epochs = drawn[: len(drawn) // 2], drawn[len(drawn) // 2 :]
    assert [sum(map(len, batches)) for batches in epochs] == [rows["rows an epoch"]] * 2
    once = [row for batches in epochs for batch in batches for row in batch]
    assert set(range(36)) == set(once), (
        "of weight 0.5, those that the first epoch leaves come in the second"
    )


def test_killed_in_either_epoch_it_ends_where_an_undisturbed_one_does(
    run_tiny: RunTiny, own: str, tmp_path: Path, drawn: list[list[int]]
) -> None:
    overrides = sources(own, "[0.5,2]")
    whole = run_tiny(tmp_path / "whole", *overrides)
    steps, batches = whole.read()["steps"], list(drawn)
    assert steps == len(batches) >= 8
    for at in (3, steps - 2):
        drawn.clear()
        with dies_at(at):
            run_tiny(tmp_path / str(at), *overrides)
        assert drawn == batches[: len(drawn)]
        drawn.clear()
        again = run_tiny(tmp_path / str(at), *overrides)
        assert 0 < len(drawn) < steps, "not from the start"
        assert drawn == batches[-len(drawn) :]
        assert_same(again, whole)


def test_a_file_of_several_hard_negatives_killed_in_either_epoch(
    run_tiny: RunTiny, tmp_path: Path
) -> None:
    path = tmp_path / "own.jsonl"
    rows = [
        {
            "query": f"Who has key {n // 2}?",
            "pos": f"Ann has key {n}.",
            "neg": [f"No key {n}{k}." for k in range(n % 3)],
        }
        for n in range(24)
    ]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    own = (
        "+experiment=simcse_sup",
        *small_runs.LITTLE,
        "keep_last=true",
        "data=file",
        f"data.train={path}",
    )
    overrides = (*own, "data.held_out_share=0.2", "data.distinct_in_batch=true")
    whole = run_tiny(tmp_path / "whole", *overrides)
    record = whole.read()
    assert record["rows"]["read"] == 24
    assert record["rows"]["training_rows"] == record["rows"]["used"] == 20
    assert record["data"].keys() >= {str(path)}
    for at in (2, record["steps"] - 1):
        with dies_at(at):
            run_tiny(tmp_path / str(at), *overrides)
        assert_same(run_tiny(tmp_path / str(at), *overrides), whole)
    shared = run_tiny(tmp_path / "shared", *own, "data.held_out_share=0.2")
    assert shared.config_hash != whole.config_hash
