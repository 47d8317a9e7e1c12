"""The table of measured and published numbers says what the records say."""

from __future__ import annotations

from pathlib import Path

import pytest

from lightning_cse.papers.collect import (
    DIRECTION,
    NLI,
    RTE_AND_EIS,
    effect,
    markdown,
    measured_rows,
    published_rows,
    read_records,
)

ROOT = Path(__file__).parents[3]


def record(seed: int, score: float) -> dict:
    options = {
        "trainer": {"max_epochs": 2},
        "data": {"batch_size": 64},
        "method": {"optimizer": {"lr": 0.0002}},
    }
    return {
        "name": "dualcse_cross",
        "config_hash": "0123456789",
        "seed": seed,
        "encoder": {"name": "minilm_l6"},
        "precision": "bf16-mixed",
        "metrics": {"test/rte/accuracy_all": score, "test/eis/accuracy": 1.0},
        "baselines": {"length": {"test/eis/accuracy": 0.999}, "untrained": {"test/rte/accuracy_all": 0.64}},
        "decisive": {"config": options},
    }


def test_seeds_of_one_point_share_a_row_with_mean_and_deviation() -> None:
    point, *baselines = measured_rows([record(0, 0.74), record(1, 0.76)], RTE_AND_EIS)
    assert point.cell("RTE all") == "75.00 ± 1.41"
    assert point.note == "minilm_l6, 2 epochs, batch 64, lr 0.0002, bf16-mixed"
    assert {row.label: row.cell("EIS") for row in baselines} == {"LENGTH": "99.90", "untrained minilm_l6": ""}


def test_the_markdown_has_a_line_a_row_and_a_cell_a_column() -> None:
    rows = measured_rows([record(0, 0.74)], RTE_AND_EIS)
    lines = markdown(rows, RTE_AND_EIS, title="measured").splitlines()
    assert len(lines) == 2 + 3
    assert lines[0] == "| measured | seeds | RTE all | EIS | settings |", "empty columns are left out"
    assert {line.count("|") for line in lines} == {6}


def test_an_effect_is_paired_by_seed_with_students_interval() -> None:
    better = [record(seed, score) for seed, score in enumerate((0.74, 0.76, 0.75, 0.9))]
    worse = [record(seed, score) for seed, score in enumerate((0.70, 0.73, 0.74))]
    found = effect(better, worse, "test/rte/accuracy_all")
    assert found is not None
    # Differences 4, 3 and 1: mean 8/3, s.d. sqrt(7/3); t(0.975, 2) = 4.302653.
    half = 4.302653 * (7 / 3) ** 0.5 / 3**0.5
    assert (found.mean, found.seeds) == (pytest.approx(8 / 3), 3)
    assert (found.low, found.high) == (pytest.approx(8 / 3 - half, abs=1e-5), pytest.approx(8 / 3 + half, abs=1e-5))
    assert str(found) == f"+2.67 [{8 / 3 - half:+.2f}, {8 / 3 + half:+.2f}]"
    assert str(effect(better[:1], worse[:1], "test/rte/accuracy_all")) == "+4.00"
    assert effect(better[3:], worse, "test/rte/accuracy_all") is None
    assert effect(better, worse, "test/other") is None


def test_the_published_numbers_are_the_papers() -> None:
    path = ROOT / "experiments" / "dualcse" / "published.csv"
    rows = {row.label: row for row in published_rows(path)}
    assert rows["DualCSE-Cross, roberta_base"].cell("RTE all") == "80.18"
    assert rows["DualCSE-Bi, roberta_base"].cell("EIS") == "100.00"
    for row in rows.values():
        parts = [row.values[c][0] for c in ("explicit", "implied", "neutral", "contradiction") if c in row.values]
        if parts:
            assert sum(parts) / 4 == pytest.approx(row.values["RTE all"][0], abs=0.011), row.label


def test_gausscse_published_numbers_are_the_papers() -> None:
    rows = {row.label: row for row in published_rows(ROOT / "experiments" / "gausscse" / "published.csv")}
    full = rows["ent+con+rev, bert_base"]
    assert [full.cell(column) for column in ("SNLI acc", "SICK acc", "SNLI", "SICK")] == [
        "76.64",
        "83.15",
        "97.38",
        "86.22",
    ]
    assert rows["LENGTH"].cell("SICK") == "69.14"
    assert rows["SimCSE, bert_base"].cell("SNLI AUPRC") == "66.76"
    assert len(rows) == 1 + 1 + 4 * 4 + 4 * 4, "the last are the batch sizes of Table 5"


PARTS = {
    "dualcse/inli": {"measured here": RTE_AND_EIS},
    "dualcse/sample": {"measured here": RTE_AND_EIS},
    "gausscse/nli": {"NLI, two-way": NLI, "direction of entailment": DIRECTION},
}


@pytest.mark.parametrize("part", PARTS)
def test_the_committed_tables_are_those_of_the_records(part: str) -> None:
    folder = ROOT / "experiments" / part
    records = read_records(sorted(folder.glob("*.json")))
    assert records
    assert not [record["config_hash"] for record in records if str(record["environment"]["commit"]).endswith("-dirty")]
    for title, columns in PARTS[part].items():
        table = markdown(measured_rows(records, columns), columns, title=title)
        assert table in (folder / "results.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("part", ["dualcse/inli"])
def test_the_readme_shows_the_tables_of_the_records(part: str) -> None:
    records = read_records(sorted((ROOT / "experiments" / part).glob("*.json")))
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for title, columns in PARTS[part].items():
        assert markdown(measured_rows(records, columns), columns, title=title) in readme
