"""Renders tables as text for the terminal, Markdown, LaTeX and CSV."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd

from lightning_cse.tables.legend import about, encoders_of, legend
from lightning_cse.tables.table import Table

if TYPE_CHECKING:
    from lightning_cse.tables.spec import Column

Form = Literal["terminal", "markdown", "csv", "latex"]

_LEAST_P = 1e-99  # a smaller p-value is shown as smaller than this
_WORDS = ("", "encoder", "column", "by seed", "difference")  # headings of texts
_QUANTILE = 1.96  # the ends of a 95 % interval, in standard errors
_NUMBERS = [
    *("n", "mean", "sd", "low", "high", "error", "published", "published_deviation"),
    *("difference", "marks", "p", "p_holm", "seeds"),
]
_LATEX = str.maketrans(
    {character: f"\\{character}" for character in "&%$#_{}"}
    | {character: f"${character}$" for character in "<>|"}
    | {
        "±": r"$\pm$",
        "×": r"$\times$",
        "−": "$-$",
        "≤": r"$\leq$",
        "≥": r"$\geq$",
        "→": r"$\rightarrow$",
        "β": r"$\beta$",
        "‖": r"$\Vert$",
        "\\": r"\textbackslash{}",
        "†": r"\dag{}",
        "‡": r"\ddag{}",
        "§": r"\S{}",
        "¶": r"\P{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "–": "--",
        "’": "'",
    }
)
_MARKDOWN = str.maketrans(
    {character: f"\\{character}" for character in "\\|*_`[]"} | {"<": "&lt;", ">": "&gt;"}
)


def render(table: Table, form: Form) -> str:
    """Return a table as text; a CSV has one row per cell, unrounded."""
    forms = {"terminal": _terminal, "markdown": _markdown, "latex": _latex, "csv": _csv}
    return forms[form](table)


def texts_of(table: Table) -> dict[str, str]:
    """Return the files of a table by their endings: ``md``, ``csv``, ``tex``, ``effects.csv``, and,
    where comparisons were made, ``tests.csv``.
    """
    texts = {
        "md": render(table, "markdown"),
        "csv": render(table, "csv"),
        "tex": render(table, "latex"),
    }
    if len(table.effects):
        texts["effects.csv"] = table.effects.to_csv(index=False, float_format="%.8g")
    if len(table.tests):
        texts["tests.csv"] = table.tests.to_csv(index=False)

    return texts


# What all forms show


def title_of(table: Table) -> str:
    """Return the number of a table in its paper, and its title."""
    return f"{table.spec.source}: {table.spec.title}"


def text_frame(table: Table) -> pd.DataFrame:
    """Return a table as texts: the label of each row, its encoder if there are several, its number
    of seeds, and its cells.

    A cell has up to three lines: the mean with its deviation and signs, the interval over the
    examples, and the paper's value with the difference from it.
    """
    lines = table.lines
    texts = lines[["label"]].rename(columns={"label": ""})
    of_paper = lines["paper_encoder"][lines["paper_encoder"] != ""]
    if len(encoders_of(table)) > 1 or of_paper.nunique() > 1:
        texts["encoder"] = lines["encoder"]

    texts["n"] = [_seeds_of(table, line) for line in lines.itertuples()]
    for column in table.spec.columns:
        cells = table.cells.xs(column.title, level="column")
        signs = ["".join(table.symbols.get(mark, "") for mark in marks) for marks in cells["marks"]]
        rows = cells.assign(signs=signs).to_dict("records")
        texts[column.title] = [_cell_text(cell, column) for cell in rows]

    return texts


def _seeds_of(table: Table, line: Any) -> str:
    """Return the number of seeds of a line, as ``1/3`` if some are missing."""
    cells = table.cells.loc[line.Index]
    cells = cells[cells["asked"] > 0]
    if cells.empty:
        return ""

    count, total = cells["n"].min(), cells["asked"].max()
    if line.baseline and count:
        return "-"  # it needs no seed

    return f"{count}/{total}" if count != total else f"{total}"


def _cell_text(cell: Mapping[Any, Any], column: Column) -> str:
    lines = [(_spread(cell["mean"], cell["sd"], column) + cell["signs"]) or "-"]
    half = _QUANTILE * cell["error"]
    if not math.isnan(half):
        low, high = np.clip([cell["mean"] - half, cell["mean"] + half], 0, column.scale)
        lines.append(_interval(low, high, column))

    if published := _spread(cell["published"], cell["published_deviation"], column):
        difference = _number(cell["difference"], column, "+")
        lines.append(f"paper {published}" + (f" ({difference})" if difference else ""))

    return "\n".join(lines)


def _number(value: float, column: Column, sign: str = "") -> str:
    return "" if math.isnan(value) else f"{value:{sign}.{column.decimals}f}"


def _spread(value: float, deviation: float, column: Column) -> str:
    return " ± ".join(filter(None, [_number(value, column), _number(deviation, column)]))


def _interval(low: float, high: float, column: Column, sign: str = "") -> str:
    ends = [_number(end, column, sign) for end in (low, high)]
    return f"[{', '.join(ends)}]" if all(ends) else ""


def _pvalue(value: float) -> str:
    if math.isnan(value):
        return ""
    if value < _LEAST_P:
        return f"<{_LEAST_P:.0e}"

    return f"{value:.4f}" if value >= 0.0001 else f"{value:.0e}"


def _details(table: Table) -> pd.DataFrame:
    """Return the values of each cell by seed, and its comparison with the reference row."""
    labels = text_frame(table)
    if "encoder" in labels:
        labels[""] += " (" + labels["encoder"] + ")"

    rows = []
    columns = {column.title: column for column in table.spec.columns}
    for (number, title), cell in table.cells[table.cells["n"] > 0].iterrows():
        column = columns[title]
        is_of_cell = (table.values["line"] == number) & (table.values["column"] == title)
        by_seed = table.values[is_of_cell].set_index("seed")["value"]
        rows.append(
            {
                "": labels[""][number],
                "column": title,
                "by seed": ", ".join(
                    f"{seed}: {_number(v, column)}" for seed, v in by_seed.items()
                ),
                "p": _pvalue(cell["p"]),
                "p, Holm": _pvalue(cell["p_holm"]),
                "difference": _interval(cell["against_low"], cell["against_high"], column, "+"),
            }
        )

    return pd.DataFrame(rows, dtype=object)


# The forms


def _terminal(table: Table) -> str:
    frame = _split(text_frame(table)).set_index("")
    parts = [title_of(table), *about(table), "", frame.to_string(), "", *legend(table)]

    return "\n".join(parts)


def _split(frame: pd.DataFrame) -> pd.DataFrame:
    """Return texts with a row for each line of the cells."""
    rows = [
        lines
        for _, row in frame.iterrows()
        for lines in itertools.zip_longest(*(text.split("\n") for text in row), fillvalue="")
    ]

    return pd.DataFrame(rows, columns=frame.columns)


def _markdown(table: Table) -> str:
    parts = [f"**{_md(title_of(table))}**", *map(_md, about(table))]
    parts += [_markdown_table(text_frame(table)), *map(_md, legend(table))]
    details = _details(table)
    if len(details):
        parts += ["<details><summary>By seed</summary>", _markdown_table(details)]
        parts.append("</details>")

    return "\n\n".join(parts) + "\n"


def _markdown_table(frame: pd.DataFrame) -> str:
    rules = ["---" if name in _WORDS else "---:" for name in frame]
    rows = [[_md(text).replace("\n", "<br>") for text in row] for row in frame.to_numpy()]
    lines = [" | ".join(row) for row in ([_md(name) for name in frame], *rows)]

    return "\n".join([f"| {lines[0]} |", f"|{'|'.join(rules)}|", *(f"| {x} |" for x in lines[1:])])


def _md(text: str) -> str:
    return text.translate(_MARKDOWN)


def _latex(table: Table) -> str:
    frame = _split(text_frame(table))
    rows = [" & ".join(map(_tex, row)) + r" \\" for row in ([*frame], *frame.to_numpy())]
    alignments = "".join("l" if name in _WORDS else "r" for name in frame)
    notes = [title_of(table), *about(table), *legend(table)]
    caption = " ".join(f"{note.removesuffix('.')}." for note in notes)
    lines = [
        r"% Needs \usepackage{booktabs}.",
        r"\begin{table}",
        r"\centering",
        r"\small",
        rf"\begin{{tabular}}{{{alignments}}}",
        r"\toprule",
        rows[0],
        r"\midrule",
        *rows[1:],
        r"\bottomrule",
        r"\end{tabular}",
        rf"\caption{{{_tex(caption)}}}",
        rf"\label{{tab:{table.spec.paper}-{table.spec.name}}}",
        r"\end{table}",
    ]

    return "\n".join(lines) + "\n"


def _tex(text: str) -> str:
    return text.translate(_LATEX)


def _csv(table: Table) -> str:
    frame = table.cells[_NUMBERS].copy()
    frame["marks"] = [";".join(marks) for marks in frame["marks"]]
    frame["seeds"] = [" ".join(map(str, seeds)) for seeds in frame["seeds"]]
    numbers = frame.index.get_level_values("line")
    frame.insert(0, "row", table.lines["label"][numbers].to_numpy())
    frame.insert(1, "encoder", table.lines["encoder"][numbers].to_numpy())
    frame.insert(2, "column", frame.index.get_level_values("column"))
    if frame["error"].isna().all():
        del frame["error"]

    return str(frame.to_csv(index=False))
