"""The tables kept under experiments/ are those that their records give: nothing in them is typed by
hand.
"""

from pathlib import Path

import pandas as pd
import pytest

from lightning_cse.tables.files import find_specs
from lightning_cse.tables.keep import kept_folders
from lightning_cse.tables.records import RunsTable, read_runs
from lightning_cse.tables.render import render
from lightning_cse.tables.spec import Request
from lightning_cse.tables.table import Table

EXPERIMENTS = Path(__file__).parents[3] / "experiments"
TABLES = sorted(
    file for file in EXPERIMENTS.glob("*/results/*.md") if not file.name.endswith(".text.md")
)


@pytest.mark.slow
@pytest.mark.parametrize("file", TABLES, ids=lambda file: f"{file.parent.parent.name}/{file.stem}")
def test_a_kept_table_is_that_of_its_records(file, tmp_path):
    name, profile, *more = file.stem.split(".")
    encoder = [part for part in more if not part.startswith("seeds")]
    seeds = [int(part.removeprefix("seeds")) for part in more if part.startswith("seeds")]
    spec = find_specs(EXPERIMENTS)[f"{file.parent.parent.name}/{name}"]
    request = Request(profile, encoder[0] if encoder else None, tuple(seeds) or None)
    table = Table(spec, request, RunsTable(tmp_path, kept_folders(EXPERIMENTS)))
    assert table.stem == file.stem
    assert table.is_shown
    assert render(table, "markdown").strip() == file.read_text(encoding="utf-8").strip()
    expected = pd.read_csv(
        file.with_suffix(".effects.csv"),
        keep_default_na=False,
        na_values={"low": "", "high": "", "sd": ""},
        dtype={"row": str, "column": str, "reference": str},
    )
    pd.testing.assert_frame_equal(expected, table.effects, check_dtype=False, rtol=1e-6)


def test_kept_records_are_of_committed_code():
    assert {file.parent.parent.name for file in TABLES} == {
        "dualcse",
        "encoders",
        "gausscse",
        "ngcse",
    }
    runs = read_runs([EXPERIMENTS])
    assert len(runs) > 30
    for run in runs:
        assert not str(run.record["environment"]["commit"]).endswith("-dirty"), run.name
        if run.kept is not None:
            assert ("steps" in run.record) == bool(run.curves), run.name
            assert bool(run.packed) == ("predictions" in run.record), run.name
