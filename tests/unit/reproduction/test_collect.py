"""The table of measured and published numbers says what the records say."""

from __future__ import annotations

from pathlib import Path

import pytest

from lightning_cse.reproduction.collect import COLUMNS, markdown, measured_rows, published_rows, read_records

ROOT = Path(__file__).parents[3]


def record(seed: int, score: float) -> dict:
    options = {
        "trainer": {"max_epochs": 2},
        "data": {"batch_size": 64},
        "method": {"optimizer": {"lr": 0.0002}},
    }
    return {
        "name": "dualcse_cross",
        "identity": "0123456789",
        "seed": seed,
        "encoder": {"name": "minilm_l6"},
        "precision": "bf16-mixed",
        "metrics": {"test/rte/accuracy_all": score, "test/eis/accuracy": 1.0},
        "baselines": {"length": {"test/eis/accuracy": 0.999}, "untrained": {"test/rte/accuracy_all": 0.64}},
        "identity_document": {"config": options},
    }


def test_seeds_of_one_point_share_a_row_with_mean_and_deviation() -> None:
    point, *baselines = measured_rows([record(0, 0.74), record(1, 0.76)])
    assert point.cell("RTE all") == "75.00 ± 1.41"
    assert point.note == "minilm_l6, 2 epochs, batch 64, lr 0.0002, bf16-mixed"
    assert {row.label: row.cell("EIS") for row in baselines} == {"LENGTH": "99.90", "untrained minilm_l6": ""}


def test_the_markdown_has_a_line_a_row_and_a_cell_a_column() -> None:
    lines = markdown(measured_rows([record(0, 0.74)]), title="measured").splitlines()
    assert len(lines) == 2 + 3
    assert {line.count("|") for line in lines} == {len(COLUMNS) + 4}


def test_the_published_numbers_are_the_papers() -> None:
    path = ROOT / "experiments" / "dualcse" / "published.csv"
    rows = {row.label: row for row in published_rows(path)}
    assert rows["DualCSE-Cross (INLI), roberta-base"].cell("RTE all") == "80.18"
    assert rows["DualCSE-Bi (INLI), roberta-base"].cell("EIS") == "100.00"
    for row in rows.values():
        parts = [row.values[c][0] for c in ("explicit", "implied", "neutral", "contradiction") if c in row.values]
        if parts:
            assert sum(parts) / 4 == pytest.approx(row.values["RTE all"][0], abs=0.011), row.label


@pytest.mark.parametrize("part", ["inli", "sample"])
def test_the_committed_tables_are_those_of_the_records(part: str) -> None:
    folder = ROOT / "experiments" / "dualcse" / part
    records = read_records(sorted(folder.glob("*.json")))
    assert records
    assert not [record["identity"] for record in records if str(record["environment"]["commit"]).endswith("-dirty")]
    table = markdown(measured_rows(records), title="measured here")
    assert table in (folder / "results.md").read_text(encoding="utf-8")


def test_the_readme_shows_the_table_of_the_records() -> None:
    folder = ROOT / "experiments" / "dualcse" / "inli"
    table = markdown(measured_rows(read_records(sorted(folder.glob("*.json")))), title="measured here")
    assert table in (ROOT / "README.md").read_text(encoding="utf-8")
