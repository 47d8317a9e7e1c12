"""Tables in their four forms."""

import csv
import io

import pytest
import yaml
from fake_table import fake_table, runs_of

from lightning_cse.tables.files import read_spec
from lightning_cse.tables.render import render, texts_of
from lightning_cse.tables.spec import Request

FILE = """
title: Terms & losses
source: Mine, Table 1
encoders: [minilm_l6]
seeds: 3
columns:
  RTE all: test/rte/accuracy_all
  EIS_1: test/eis/accuracy
rows:
  a: {experiment: dualcse_cross}
  w/o A|B: {experiment: dualcse_bi}
note: Of 100 %.
"""
PAPER = """table,row,encoder,column,value,deviation,note
table1,a,minilm_l6,RTE all,80.38,0.25,
table1,a,minilm_l6,EIS_1,99.97,,
"""


@pytest.fixture
def table(tmp_path):
    """Two lines, two columns; a cell is empty, a line stale."""
    path = tmp_path / "mine" / "table1.yaml"
    path.parent.mkdir()
    path.write_text(FILE)
    path.with_name("published.csv").write_text(PAPER)
    environment = {"commit": "24357b6c9c-dirty", "machine": {"cpu": "Z80", "cores": 1}}
    common = {
        "name": "x",
        "config_hash": "01",
        "device": "cpu",
        "environment": environment,
        "seconds": {"training": 1000.0, "test": 80.0},
    }
    metrics = {
        "a": [{"test/rte/accuracy_all": value} for value in (0.785, 0.8, 0.8187)],
        "w/o A|B": [{"test/rte/accuracy_all": 0.75, "test/eis/accuracy": 1.0}],
    }
    records = {
        label: [common | {"metrics": of_seed} for of_seed in of] for label, of in metrics.items()
    }
    request = Request(settings=("x=1",))
    runs = runs_of(**records)

    return fake_table(read_spec(path), runs, request, lambda run: "B" in run.source.name)


def test_terminal(table):
    lines = render(table, "terminal").splitlines()
    assert lines[:3] == [
        "Mine, Table 1: Terms & losses",
        "encoder minilm_l6; x=1",
        "code 24357b6-dirty; measured on cpu, Z80, 1 core; 1.20 hours for 4 runs",
    ]
    assert [line.split() for line in lines[6:9]] == [
        ["a", "3", "80.12", "±", "1.69", "-"],
        ["paper", "80.38", "±", "0.25", "(-0.26)", "paper", "99.97"],
        ["w/o", "A|B", "1/3", "75.00†", "100.00†"],
    ]
    assert lines[-4:] == [
        "Mean ± standard deviation over the n seeds of a row.",
        "paper: the published value with the same encoder, and in parentheses ours minus it.",
        "† measured with another version of its method.",
        "Of 100 %.",
    ]


def test_markdown(table):
    text = render(table, "markdown")
    assert "| a | 3 | 80.12 ± 1.69<br>paper 80.38 ± 0.25 (-0.26) | -<br>paper 99.97 |" in text
    assert "| w/o A\\|B | 1/3 | 75.00† | 100.00† |" in text
    assert "| a | RTE all | 0: 78.50, 1: 80.00, 2: 81.87 |  |  |" in text


def test_csv_is_unrounded(table):
    rows = list(csv.DictReader(io.StringIO(render(table, "csv"))))
    first, empty, last = rows[0], rows[1], rows[3]
    assert (first["row"], first["encoder"], first["seeds"]) == ("a", "minilm_l6", "0 1 2")
    assert float(first["difference"]) == pytest.approx(80.12333333 - 80.38)
    assert (empty["n"], empty["mean"], empty["published"]) == ("0", "", "99.97")
    assert last["marks"] == "measured with another version of its method"


def test_latex(table):
    text = render(table, "latex")
    assert r" & n & RTE all & EIS\_1 \\" in text
    assert r" &  & paper 80.38 $\pm$ 0.25 (-0.26) & paper 99.97 \\" in text
    assert r"w/o A$|$B & 1/3 & 75.00\dag{} & 100.00\dag{} \\" in text
    assert r"\caption{Mine, Table 1: Terms \& losses. encoder minilm\_l6; x=1. code" in text
    assert text.count("{") == text.count("}")


@pytest.mark.parametrize(
    ("request_", "paper", "legend"),
    [
        (Request(encoder="minilm_l4"), {"minilm_l6": 1}, "the published value with minilm_l6,"),
        (Request(), {"minilm_l6": 1}, "the published value with the same encoder,"),
        (Request(), {"": 1}, "the published value, and in"),
        (
            Request(encoder="tiny"),
            {"minilm_l6": 1, "bert_base": 2},
            "the published value with minilm_l6 (a); bert_base (b),",
        ),
    ],
)
def test_the_legend_says_which_encoder_the_papers_row_is_of(tmp_path, request_, paper, legend):
    path = tmp_path / "mine" / "table1.yaml"
    path.parent.mkdir()
    rows = {"a": {"experiment": "simcse_sup"}, "b": {"experiment": "simcse_unsup"}}
    for row, encoder in zip(rows.values(), paper, strict=False):
        row["encoders"] = [encoder]
    if "" in paper:
        rows = {"a": {"evaluate": {"suite": "sts", "model": "length"}, "encoders": []}}

    columns = {"RTE": "test/rte/accuracy"}
    path.write_text(
        yaml.safe_dump(
            {
                "title": "t",
                "source": "Mine",
                "encoders": ["minilm_l6"],
                "columns": columns,
                "rows": rows,
            }
        )
    )
    lines = [f"table1,{row},{key},RTE,80" for row, key in zip(rows, paper, strict=False)]
    path.with_name("published.csv").write_text(
        "\n".join(["table,row,encoder,column,value", *lines]) + "\n"
    )
    records = {row: [{"metrics": {"test/rte/accuracy": 0.7}}] for row in rows}
    table = fake_table(read_spec(path), runs_of(**records), request_)
    assert f"\npaper: {legend}" in render(table, "terminal")


def test_files_of_a_table(table):
    assert list(texts_of(table)) == ["md", "csv", "tex", "effects.csv"]
