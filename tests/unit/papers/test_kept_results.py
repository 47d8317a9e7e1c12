"""The tables kept under experiments/ are those that their records give: nothing in them is typed by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lightning_cse.papers.artefacts import Request, find_artefacts
from lightning_cse.papers.points import RunsIndex
from lightning_cse.papers.render import render
from lightning_cse.papers.reproducing import Plan, kept_records, reproduce

EXPERIMENTS = Path(__file__).parents[3] / "experiments"
TABLES = sorted(file for file in EXPERIMENTS.glob("*/results/*.md") if not file.name.endswith(".text.md"))

ASKED = {
    "dualcse/dualgauss.minilm_l6.seeds0.a97800": Request(
        encoder="minilm_l6",
        seeds=(0,),
        settings=("trainer.max_epochs=2", "trainer.precision=bf16-mixed", "corpora=partial"),
        only=("DualGauss",),
    ),
    "dualcse/table7.minilm_l6.seeds0-1-2.9868ed": Request(
        encoder="minilm_l6", seeds=(0, 1, 2), only=("ImpScore (INLI)",)
    ),
}
"""What was asked for where it was more than a profile."""


def test_results_are_kept_of_every_paper() -> None:
    assert {file.parent.parent.name for file in TABLES} == {"dualcse", "gausscse", "ngcse"}


@pytest.mark.parametrize("file", TABLES, ids=lambda file: f"{file.parent.parent.name}/{file.stem}")
def test_a_kept_table_is_that_of_its_records(file: Path, tmp_path: Path) -> None:
    name, _, profile = file.stem.partition(".")
    paper = file.parent.parent.name
    request = ASKED.get(f"{paper}/{file.stem}") or Request(profile=profile)
    artefact = find_artefacts(EXPERIMENTS)[f"{paper}/{name}"]
    index = RunsIndex(tmp_path, kept_records(EXPERIMENTS))
    plan = Plan(artefact, request, index)
    assert plan.stem == file.stem
    tests = file.with_name(f"{plan.stem}.tests.csv")
    made = reproduce(plan, None, kept_tests=tests if tests.is_file() else None)
    assert made.table is not None
    assert render(made.table, "markdown").strip() == file.read_text(encoding="utf-8").strip()


def test_kept_records_are_of_committed_code_and_name_no_folder() -> None:
    files = [file for folder in kept_records(EXPERIMENTS) for file in folder.glob("*.json")]
    assert len(files) > 30
    for file in files:
        record = json.loads(file.read_text(encoding="utf-8"))
        assert not str(record["environment"]["commit"]).endswith("-dirty"), file.name
        evaluation = "suite" in record
        assert evaluation or file.with_name(f"{file.stem}.curves.csv").is_file()
