"""Tables in their four forms."""

import csv
import io
from pathlib import Path

import pytest
import yaml
from fake_plan import FakePlan
from rich.console import Console

from lightning_cse.papers.artefacts import Request
from lightning_cse.papers.files import read_artefact
from lightning_cse.papers.records import Found
from lightning_cse.papers.render import render, write
from lightning_cse.papers.tables import make_table

FILE = """
title: Terms & losses
source: Mine, Table 1
encoders: [minilm_l6]
seeds: 3
columns:
  RTE all: test/rte/accuracy_all
  EIS_1: test/eis/accuracy
  lr: {config: method.lr}
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
    """Two lines, three columns; a cell is empty, a line stale."""
    path = tmp_path / "mine" / "table1.yaml"
    path.parent.mkdir()
    path.write_text(FILE)
    path.with_name("published.csv").write_text(PAPER)
    made = read_artefact(path)
    environment = {"commit": "24357b6c9c-dirty", "machine": {"cpu": "Z80", "cores": 1}}
    common = {
        "name": "x",
        "config_hash": "01",
        "device": "cpu",
        "environment": environment,
    }
    common["decisive"] = {"config": {"method": {"lr": 1e-5}}}
    values = {
        "a": [{"test/rte/accuracy_all": v} for v in (0.785, 0.8, 0.8187)],
        "w/o A|B": [{"test/rte/accuracy_all": 0.75, "test/eis/accuracy": 1.0}],
    }

    found = {}
    for label, metrics in values.items():
        found[label] = {
            seed: Found(
                {**common, "metrics": one},
                None,
                Path(f"{label}{seed}"),
            )
            for seed, one in enumerate(metrics)
        }
    change_of = lambda run: "stale" if "B" in run.source.name else "fresh"  # noqa: E731
    plan = FakePlan(
        made,
        found,
        Request(settings=("x=1",)),
        change=change_of,
    )
    return make_table(plan)


def terminal(table, width):
    console = Console(
        width=width,
        file=io.StringIO(),
        highlight=False,
    )
    console.print(render(table, "terminal"))
    return [line.rstrip() for line in console.file.getvalue().splitlines()]  # type: ignore[attr-defined]


def test_terminal(table):
    lines = terminal(table, 80)
    assert lines[:3] == [
        "Mine, Table 1: Terms & losses",
        "encoder minilm_l6; x=1",
        "code 24357b6-dirty; measured on cpu, Z80, 1 core",
    ]
    lines = lines[next(number for number, line in enumerate(lines) if line.startswith("──")) + 1 :]
    assert [line.split() for line in lines[:8]] == [
        [
            "a",
            "3",
            "80.12",
            "-",
            "1e-05",
        ],
        ["±", "1.69"],
        ["paper", "80.38", "99.97"],
        ["±", "0.25"],
        ["diff", "-0.26"],
        [
            "w/o",
            "A|B",
            "1/3",
            "75.00†",
            "100.00†",
            "1e-05",
        ],
        [],
        [
            "All",
            "measured",
            "values:",
            "with",
            "x=1.",
        ],
    ]
    assert lines[8:] == [
        "† measured before the last change of its method.",
        "n: seeds measured / seeds asked for.",
        "Of 100 %.",
    ]


def test_no_number_of_eight_columns_is_cut_off(table):
    made = yaml.safe_load(FILE)
    path = table.artefact.path
    titles = [
        "STS12",
        "STS13",
        "STS14",
        "contradiction",
        "STS16",
        "STS-B",
        "SICK-R",
        "STS Avg",
    ]
    path.write_text(
        yaml.safe_dump(
            {
                **made,
                "columns": {t: f"test/{t}/accuracy" for t in titles},
                "published": "table2",
            }
        )
    )
    path.with_name("published.csv").write_text(PAPER + "table2,a,minilm_l6,STS12,80.38,0.25,\n")
    wide = read_artefact(path)
    metrics = {f"test/{title}/accuracy": 0.1 + number / 100 for number, title in enumerate(titles)}

    record = {"config_hash": "1", "metrics": metrics}
    found = {
        seed: Found(
            record,
            None,
            Path(f"{seed}"),
        )
        for seed in range(3)
    }
    made = make_table(FakePlan(wide, {"a": found, "w/o A|B": found}))
    lines = terminal(made, 100)
    text = "\n".join(lines)
    assert [f"{10 + number}.00" in text for number in range(8)] == [True] * 8
    assert "contradiction" in text
    assert "…" not in text
    assert max(map(len, lines)) <= 100


def test_markdown(table):
    text = render(table, "markdown")
    assert (
        "| a | 3 | 80.12 ± 1.69<br>paper 80.38 ± 0.25 (-0.26) | -<br>paper 99.97 | 1e-05 |" in text
    )
    assert "| w/o A\\|B | 1/3 | 75.00† | 100.00† | 1e-05 |" in text
    assert "| a | RTE all | 3 | 78.50 | 81.87 | 0: 78.50, 1: 80.00, 2: 81.87 |  |  |" in text
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert {line.replace("\\|", "").count("|") for line in rows[:4]} == {6}
    assert {line.replace("\\|", "").count("|") for line in rows[4:]} == {9}


def test_csv_is_unrounded(table):
    rows = list(csv.DictReader(io.StringIO(render(table, "csv"))))
    assert len(rows) == 6
    first, empty, setting = rows[:3]
    assert (first["row"], first["encoder"], first["n"], first["seeds"]) == (
        "a",
        "minilm_l6",
        "3",
        "0 1 2",
    )
    assert [
        float(first[key]) for key in ("mean", "low", "published", "difference")
    ] == pytest.approx(
        [
            80.12333333,
            78.5,
            80.38,
            80.12333333 - 80.38,
        ]
    )
    assert (empty["n"], empty["mean"], empty["published"], empty["difference"]) == (
        "0",
        "",
        "99.97",
        "",
    )
    assert (setting["mean"], setting["marks"], rows[3]["marks"]) == (
        "1e-05",
        "settings",
        "settings;stale",
    )


def test_latex(table):
    text = render(table, "latex")
    assert r"\begin{tabular}{lrrrr}" in text
    assert r" & n & RTE all & EIS\_1 & lr \\" in text
    assert r"a & 3 & $80.12 \pm 1.69$ & - & 1e-05 \\" in text
    assert r"\quad paper & & $80.38 \pm 0.25$ ($-0.26$) & $99.97$ & \\" in text
    assert (
        r"w/o A$|$B & 1/3 & $75.00$\textsuperscript{\dag{}} & $100.00$\textsuperscript{\dag{}} & 1e-05 \\"
        in text
    )
    assert r"\caption{Mine, Table 1: Terms \& losses (encoder minilm\_l6; x=1;" in text
    assert text.count("{") == text.count("}")
    assert text.rstrip().endswith("\\label{tab:mine-table1}\n\\end{table}")


def test_files_are_written(table, tmp_path):
    assert [
        path.name
        for path in write(
            table,
            tmp_path,
            "t.small",
        )
    ] == [
        "t.small.md",
        "t.small.csv",
        "t.small.tex",
    ]
