"""A table and a figure of rows that a language model writes, from a spec to its results."""

import pytest
from llm_server import ChatServer, prompt

from lightning_cse.paths import experiments_dir
from lightning_cse.tables.figures import make
from lightning_cse.tables.files import read_spec
from lightning_cse.tables.keep import keep, kept_folders
from lightning_cse.tables.records import RunsTable
from lightning_cse.tables.reproduce import run_missing
from lightning_cse.tables.spec import Request
from lightning_cse.tables.table import Table, missing, status

pytestmark = pytest.mark.slow
COMMON = "data=wiki, n=4, llm.model=m"
TABLE = f"""
title: t
source: ours
encoders: [bert_base]
seeds: [0]
columns:
  overlap: generate/negative/overlap
  cosine: {{metric: generate/negative/cosine, scale: 1}}
  accepted: generate/positive/accepted
  tokens: {{metric: generate/tokens_per_row, scale: 1, decimals: 0}}
rows:
  nli: {{generate: [+pattern=nli, {COMMON}]}}
  from the source: {{generate: [+pattern=nli, pattern.reference=source, {COMMON}]}}
make: {experiments_dir()}/ngcse/studies.py:patterns
"""


def answer(body):
    """Return the message with one more word, which the role decides."""
    is_negative = "contradicts" in body["messages"][0]["content"]
    return f"{'Never' if is_negative else 'Often'}, {prompt(body)}"


def test_rows_of_a_language_model_are_runs_of_a_table(tmp_path, monkeypatch):
    path = tmp_path / "paper/written.yaml"
    path.parent.mkdir()
    path.write_text(TABLE)
    runs = RunsTable(tmp_path / "runs")
    with ChatServer(answer) as server:
        settings = (f"llm.base_url={server.url}", f"paths.cache_dir={tmp_path}/cache")
        table = Table(read_spec(path), Request("tiny", settings=settings), runs)
        assert len(missing(status([table]))) == 2
        assert run_missing([table], tmp_path) == 0
        calls = len(server.calls)
        assert run_missing([table], tmp_path) == 0
        assert len(server.calls) == calls

    assert len(table.finished()) == 2
    result = make(table)
    cells = table.cells["mean"].tolist()
    assert len(cells) == 8
    assert [cells[2], cells[6]] == [100, 100]
    assert 0 <= cells[0] <= 100
    assert list(result.figures) == ["patterns"]

    # The kept record alone makes the same table and figure.
    keep(table, result, tmp_path)
    (folder,) = kept_folders(tmp_path)
    assert len(folder.records) == 2
    for record in folder.records.values():
        assert "anchor" not in record, "rows are not kept with the record"

    kept_table = Table(table.spec, table.request, RunsTable(tmp_path / "no", [folder]))
    assert kept_table.cells["mean"].tolist() == cells
