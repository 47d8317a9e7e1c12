"""Tables in their four forms."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from lightning_cse.papers.artefacts import Artefact, Baseline, Column, Line, Needs, Published, Request, Train
from lightning_cse.papers.cells import Cell, LineTest, Mark, Table, TableLine
from lightning_cse.papers.render import render, write

RTE, EIS = Column("RTE all", "metric", ("test/rte/accuracy_all",)), Column("EIS", "metric", ("test/eis/accuracy",))
LR = Column("lr_1", "config", ("method.optimizer.lr",), scale=1.0)
OLD = Mark("stale", "†", "measured before the last change of its loss", everywhere=False)
SMALL = Mark("profile", "", "profile small", everywhere=True)
TEST = LineTest("w/o A&B", "minilm_l6", "RTE all", "a", "mcnemar", (0, 1), (0,), 75.0, 80.123456, 0.00004, 0.00008)

FULL = Cell(3, 3, 80.123456, 1.5, 78.5, 81.4567, 80.38, 0.25, -0.256544, ("profile",), {0: 78.5, 1: 80.0, 4: 81.87})
SIGNED = Cell(1, 3, 75.0, None, 75.0, 75.0, 79.0, None, -4.0, ("**", "profile", "stale"), {1: 75.0}, None, 4e-5, 8e-5)
EMPTY = Cell(0, 3, published=99.97)
SETTING = Cell(3, 3, 1e-5, published=3e-5, difference=-2e-5, text="1e-05")


def line(label: str, *cells: Cell, encoder: str | None = "minilm_l6", **change: object) -> TableLine:
    made = Line(label, label, encoder, "roberta_base", Train("dualcse_cross"), (0, 1, 2))
    return TableLine(replace(made, **change), cells)


@pytest.fixture
def table() -> Table:
    """Two lines, three columns; one cell is empty, one is marked."""
    artefact = Artefact(
        *("dualcse", "table5", "Terms of the loss", "DualCSE, Table 5", "table", (RTE, EIS, LR), "a", "mcnemar", None),
        note="Of 100 %.\nSee β_1.",
        path=Path("table5.yaml"),
    )
    return Table(
        artefact,
        Request(profile="small"),
        (RTE, EIS, LR),
        (line("a", FULL, EMPTY, SETTING), line("w/o A&B", SIGNED, replace(FULL, published=None), SETTING)),
        (SMALL, OLD),
        ("** p < 0.01.",),
        (TEST,),
        ("24357b6", "4703c67-dirty"),
        ("cpu, Z80, 1 core",),
    )


def terminal(table: Table, width: int) -> list[str]:
    console = Console(width=width, file=io.StringIO(), force_terminal=False, highlight=False)
    console.print(render(table, "terminal"))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    return [one.rstrip() for one in text.splitlines()]


def words(lines: list[str], start: str) -> list[str]:
    (found,) = (one for one in lines if one.startswith(start))
    return found.split()


class TestTerminal:
    def test_mean_and_deviation_side_by_side_where_there_is_room(self, table: Table) -> None:
        lines = terminal(table, 100)
        assert lines[:3] == [
            "DualCSE, Table 5: Terms of the loss",
            "profile small; encoder minilm_l6",
            "code 24357b6, 4703c67-dirty; measured on cpu, Z80, 1 core",
        ]
        start = next(number for number, one in enumerate(lines) if one.startswith("a "))
        assert [one.split() for one in lines[start : start + 3]] == [
            ["a", "0-3/3", "80.12", "±", "1.50", "-", "1e-05"],
            ["n", "3", "0", "3"],
            ["paper", "80.38", "±", "0.25", "99.97", "3e-05"],
        ]
        assert lines[start + 3].split() == ["diff", "-0.26", "-2e-05"]
        assert words(lines, "w/o A&B")[:4] == ["w/o", "A&B", "1-3/3", "75.00**†"]
        assert lines[-4:] == [
            "All measured values: profile small.",
            "† measured before the last change of its loss.",
            "** p < 0.01.",
            "Of 100 %. See β_1.",
        ]

    @pytest.mark.parametrize("width", [100, 80, 60, 45])
    def test_eight_columns_are_readable_at_any_width(self, table: Table, width: int) -> None:
        cells = [replace(FULL, mean=10.0 + k, marks=("**", "stale"), published=20.0 + k) for k in range(8)]
        titles = ["STS12", "STS13", "STS14", "contradiction", "STS16", "STS-B", "SICK-R", "Avg"]
        columns = tuple(replace(RTE, title=title) for title in titles)
        wide = replace(table, columns=columns, lines=(line("NGCSE with a long name indeed", *cells),))
        lines = terminal(wide, width)
        text = "\n".join(lines)
        for k in range(8):
            assert f"{10 + k}.00**†" in text
            assert f"{20 + k}.00" in text
        assert text.count("1.50") == 8
        assert "…" not in text
        assert all(len(one) <= width for one in lines)
        rules = sum(one.startswith("───") for one in lines)
        assert (rules == 1) == (width == 100), "columns that do not fit go below the others"

    def test_headings_break_inside_words_only_for_want_of_room(self, table: Table) -> None:
        titles = ["RTE explicit", "RTE contradiction", "EIS"]
        columns = tuple(replace(RTE, title=title) for title in titles)
        few = replace(table, columns=columns, lines=(line("a", FULL, FULL, FULL),))
        assert any(one.split() == ["n", "explicit", "contradiction", "EIS"] for one in terminal(few, 50))
        many = replace(few, columns=columns * 4, lines=(line("a", *[FULL] * 12),))
        assert not any("contradiction" in one for one in terminal(many, 100))

    def test_encoders_are_told_where_there_are_several(self, table: Table) -> None:
        assert "roberta_base" not in "\n".join(terminal(table, 100))
        first, second = table.lines
        several = replace(table, lines=(first, replace(second, line=replace(second.line, encoder="bert_base"))))
        text = "\n".join(terminal(several, 100))
        assert "minilm_l6" in text
        assert "bert_base" in text
        assert "encoder" not in text

    def test_markup_in_names_is_text(self, table: Table) -> None:
        odd = replace(table, lines=(line("[bold]a[/]", FULL, FULL, FULL),), notes=("[red]x[/]",))
        assert words(terminal(odd, 100), "[bold]a[/]")
        assert "[red]x[/]" in terminal(odd, 100)

    def test_baselines_and_published_rows_have_no_seeds(self, table: Table) -> None:
        once = replace(FULL, n=1, asked=1, sd=None)
        lines = (
            line("LENGTH", once, once, SETTING, encoder=None, way=Baseline("length", "a")),
            line("LLM", *[Cell(published=50.0)] * 3, encoder=None, way=Published("asked")),
        )
        told = terminal(replace(table, lines=lines), 100)
        assert words(told, "LENGTH")[:3] == ["LENGTH", "-", "80.12"]
        assert words(told, "LLM") == ["LLM", "-", "-", "-"]

    def test_a_row_that_waits_for_a_variable_was_measured_with_no_encoder(self, table: Table) -> None:
        first, second = table.lines
        waits = replace(second.line, encoder="bert_large", needs=Needs("A", "calls are paid"))
        quoted = replace(second, line=waits, cells=(Cell(published=50.0),) * 3)
        assert "encoder minilm_l6" in "\n".join(terminal(replace(table, lines=(first, quoted)), 100))
        measured = replace(table, lines=(first, replace(second, line=waits)))
        assert "encoder minilm_l6" not in "\n".join(terminal(measured, 100))


class TestMarkdown:
    def test_the_whole_text(self, table: Table) -> None:
        text = render(table, "markdown")
        assert text.splitlines()[:13] == [
            "**DualCSE, Table 5: Terms of the loss**",
            "",
            "profile small; encoder minilm\\_l6",
            "",
            "code 24357b6, 4703c67-dirty; measured on cpu, Z80, 1 core",
            "",
            "|  | n | RTE all | EIS | lr\\_1 |",
            "|---|---:|---:|---:|---:|",
            "| a | 0-3/3 | 80.12 ± 1.50 (n = 3)<br>paper 80.38 ± 0.25 (-0.26) | - (n = 0)<br>paper 99.97 | "
            "1e-05<br>paper 3e-05 (-2e-05) |",
            "| w/o A&B | 1-3/3 | 75.00\\*\\*† (n = 1)<br>paper 79.00 (-4.00) | 80.12 ± 1.50 (n = 3) | "
            "1e-05<br>paper 3e-05 (-2e-05) |",
            "",
            "All measured values: profile small.",
            "",
        ]
        assert "| w/o A&B | RTE all | 1 | 75.00 | 75.00 | 1: 75.00 | 4e-05 | 8e-05 |" in text
        assert "| a | RTE all | 3 | 78.50 | 81.46 | 0: 78.50, 1: 80.00, 4: 81.87 |  |  |" in text
        assert text.endswith("\n</details>\n")

    def test_all_rows_have_the_same_columns(self, table: Table) -> None:
        first, second = table.lines
        odd = replace(second, line=replace(second.line, label="a|b", encoder="bert_base"))
        text = render(replace(table, lines=(first, odd)), "markdown")
        tables = re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE)
        assert len(tables) == 2
        for rows in tables:
            counts = {len(re.findall(r"(?<!\\)\|", row)) for row in rows.splitlines()}
            assert len(counts) == 1
        assert "a\\|b" in text


class TestCSV:
    def test_a_line_a_cell_and_nothing_rounded(self, table: Table) -> None:
        rows = list(csv.DictReader(io.StringIO(render(table, "csv"))))
        assert len(rows) == 6
        assert rows[3] == {
            "row": "w/o A&B",
            "encoder": "minilm_l6",
            "column": "RTE all",
            "n": "1",
            "mean": "75.0",
            "sd": "",
            "low": "75.0",
            "high": "75.0",
            "published": "79.0",
            "published_deviation": "",
            "difference": "-4.0",
            "marks": "**;profile;stale",
            "p": "4e-05",
            "p_holm": "8e-05",
            "seeds": "1",
        }
        assert [row["mean"] for row in rows] == ["80.123456", "", "1e-05", "75.0", "80.123456", "1e-05"]
        assert [row["seeds"] for row in rows[:2]] == ["0 1 4", ""]


class TestLatex:
    def test_the_rows(self, table: Table) -> None:
        lines = render(table, "latex").splitlines()
        start = lines.index(r"\midrule") + 1
        assert lines[start - 4 : start] == [
            r"\begin{tabular}{lrrrr}",
            r"\toprule",
            r" & n & RTE all & EIS & lr\_1 \\",
            r"\midrule",
        ]
        assert lines[start : start + 4] == [
            r"a & 0-3/3 & $80.12 \pm 1.50$ & - & 1e-05 \\",
            r"\quad paper &  & $80.38 \pm 0.25$ ($-0.26$) & $99.97$ & 3e-05 (-2e-05) \\",
            r"w/o A\&B & 1-3/3 & $75.00^{**{\dagger}}$ & $80.12 \pm 1.50$ & 1e-05 \\",
            r"\quad paper &  & $79.00$ ($-4.00$) &  & 3e-05 (-2e-05) \\",
        ]
        caption = next(one for one in lines if one.startswith(r"\caption"))
        assert caption.startswith(r"\caption{DualCSE, Table 5: Terms of the loss (profile small; encoder minilm\_l6; ")
        assert r"$\dagger$ measured before the last change of its loss." in caption
        assert caption.endswith(r"Of 100 \%. See $\beta$\_1.}")

    def test_nothing_is_left_that_latex_reads_otherwise(self, table: Table) -> None:
        odd = line("100% $x_1 & {y} #~^\\ <b> ±×", FULL, SIGNED, SETTING)
        artefact = replace(table.artefact, note="§ ¶ ‖ λ Ω – “a” ≤ é")
        text = render(replace(table, artefact=artefact, lines=(odd,)), "latex")
        body = "\n".join(one for one in text.splitlines() if not one.startswith("%"))
        assert body.count("{") - body.count(r"\{") == body.count("}") - body.count(r"\}")
        rows = [one for one in body.splitlines() if one.endswith(r"\\")]
        assert {len(re.findall(r"(?<!\\)&", row)) for row in rows} == {4}
        assert len(re.findall(r"(?<!\\)\$", body)) % 2 == 0
        assert not re.findall(r"(?<!\\)[%#~]", body)
        assert all(ord(character) < 128 or character == "é" for character in body)
        assert r"100\% \$x\_1 \& \{y\} \#\textasciitilde{}\textasciicircum{}\textbackslash{} $<$b$>$" in body


class TestWrite:
    def test_files_of_all_forms(self, table: Table, tmp_path: Path) -> None:
        paths = write(table, tmp_path / "new", "table5")
        names = ["table5.md", "table5.csv", "table5.tex", "table5.tests.csv"]
        assert [path.name for path in paths] == names
        assert sorted(path.name for path in (tmp_path / "new").iterdir()) == sorted(names)
        texts: Mapping[str, str] = {path.name: path.read_text() for path in paths}
        assert texts["table5.md"] == render(table, "markdown")
        assert texts["table5.csv"] == render(table, "csv")
        assert texts["table5.tex"] == render(table, "latex")
        (row,) = csv.DictReader(io.StringIO(texts["table5.tests.csv"]))
        assert (row["seeds"], row["mean_reference"], row["p"]) == ("0 1", "80.123456", "4e-05")

    def test_kept_comparisons_outlive_a_table_without_any(self, table: Table, tmp_path: Path) -> None:
        write(table, tmp_path, "t")
        paths = write(replace(table, tests=()), tmp_path, "t")
        assert len(paths) == 3
        assert (tmp_path / "t.tests.csv").is_file()
