"""Set the papers' claims beside what was measured: ``python scripts/claims.py``.

``experiments/<paper>/claims.yaml`` has the paper's words and the effects that test them. The
paper's effect is computed from ``published.csv``, ours is read from ``results/``, and the verdict
follows from both (the rule is in experiments/README.md). The table of a paper replaces what stands
between the marks of ``experiments/<paper>/README.md``, and README.md gets the summary.
"""

import functools
import itertools
import math
import operator
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml
from scipy import stats

from lightning_cse.tables.statistics import detectable_difference

ROOT = Path(__file__).parents[1]
VERDICTS = ("agrees", "excluded", "open", "not run")
BLOCK = re.compile(r"(?<=<!-- claims -->\n).*?(?=<!-- end of claims -->)", re.DOTALL)
NORMAL = float(stats.norm.ppf(0.975))
DETECTED = NORMAL + float(stats.norm.ppf(0.8))  # of a normal test at 5 % with a power of 80 %
DEFAULTS = {"label": "{column}: {sides}", "reason": "", "line_note": ""}
DEFAULTS |= {"row": "", "against": "", "column": ""}
PLURALS = {"rows": "row", "others": "against", "columns": "column"}
PLURALS |= {"sets": "names", "measures": "measure"}
HEADER = ("", "words, and effect", "paper", "here", "n", "80 % power", "verdict")


@dataclass(frozen=True)
class Effect:
    """An effect with the ends of its 95 % interval, which are NaN if it has none.

    ``detectable`` is the effect that a test with this interval finds with a power of 80 %.
    ``pvalue`` is that of a test in place of an interval, and ``text`` is shown in place of value
    and interval.
    """

    value: float
    low: float = math.nan
    high: float = math.nan
    number: str = ""
    detectable: float = math.nan
    pvalue: float = math.nan
    text: str = ""


@dataclass(frozen=True)
class Line:
    """One line of the table: an effect of the paper, NaN if it prints none; ours; and the verdict.

    ``side`` has the ends between which the effect lies if the claim is right.
    """

    label: str
    paper: float
    side: tuple[float, float]
    effect: Effect
    verdict: str
    reason: str = ""
    note: str = ""


def verdict(effect: Effect, side: tuple[float, float], paper: float = math.nan) -> str:
    """Return what an effect says of a claim, by the rule of experiments/README.md.

    Args:
        effect: ours.
        side: the ends between which the claim says that it lies.
        paper: the paper's effect; NaN if it prints none.
    """
    if not math.isnan(effect.pvalue):
        return "agrees" if effect.pvalue < 0.05 else "open"
    if math.isnan(effect.low):
        return "open"

    low, high = side
    if low < effect.low and effect.high < high:
        return "agrees"

    is_off_side = effect.high <= low or high <= effect.low
    has_paper = math.isnan(paper) or effect.low <= paper <= effect.high

    return "excluded" if is_off_side or not has_paper else "open"


def detectable(half: float, seeds: int, half_examples: float = 0.0) -> float:
    r"""Return the effect that is found with a power of 80 %, from the half widths of its interval.

    .. math:: \sqrt{ \delta^2 + \left( \frac{z_{0.975} + z_{0.8}}{z_{0.975}} h_E \right)^2 }

    with the effect :math:`\delta` that a paired t test over :math:`S` seeds finds whose interval
    has the half width :math:`h_S = t_{0.975, S-1} \, s / \sqrt S`, and the half width :math:`h_E`
    over the examples, of which the standard error counts as given. The sum of squares is that of
    the interval.

    Args:
        half: :math:`h_S`; 0 if no seed is needed.
        seeds: :math:`S`.
        half_examples: :math:`h_E`.
    """
    by_seed = 0.0
    if half:
        deviation = half * math.sqrt(seeds) / float(stats.t.ppf(0.975, seeds - 1))
        by_seed = detectable_difference(deviation, seeds)

    return math.hypot(by_seed, DETECTED / NORMAL * half_examples)


# Effects


def measured(results: Path, table: str, row: str, against: str, column: str) -> Effect:
    """Return the difference of two rows of a kept table, or a row itself if ``against`` is empty.

    The interval is that over seeds and examples if the two rows are compared over the examples,
    else that over the seeds; one seed has none. This function alone reads ``*.effects.csv`` and
    ``*.tests.csv``. A ValueError says which difference a table does not have.
    """
    pair = _pair(_pairs(results / f"{table}.effects.csv"), row, against, column)
    if pair is None:
        raise ValueError(f"{results / table}: no {row!r} - {against!r} in {column!r}")

    line, sign = pair
    value, seeds = sign * line["value"], int(line["seeds"])
    half = (line["high"] - line["low"]) / 2
    if math.isnan(half):
        return Effect(value, number="1")

    tests = results / f"{table}.tests.csv"
    test = _pair(_pairs(tests), row, against, column) if tests.is_file() else None
    total = half
    if test is not None and not math.isnan(test[0]["low"]):
        total = (test[0]["high"] - test[0]["low"]) / 2

    power = detectable(half, seeds, math.sqrt(max(total**2 - half**2, 0)))

    return Effect(value, value - total, value + total, str(seeds), power)


def _pair(table: pd.DataFrame, row: str, against: str, column: str) -> tuple[pd.Series, int] | None:
    """Return the line of two rows, and -1 if the table has them the other way round."""
    lines = table[table["column"] == column]
    for first, second, sign in ((row, against, 1), (against, row, -1)):
        match = lines[(lines["row"] == first) & (lines["reference"] == second)]
        if len(match) == 1:
            return match.iloc[0], sign

    return None


@functools.cache
def _pairs(path: Path) -> pd.DataFrame:
    """Read the effects or the tests of a table."""
    numbers = ("value", "low", "high")
    return pd.read_csv(path, keep_default_na=False, na_values=dict.fromkeys(numbers, ""))


def _line_of(path: Path, where: Mapping[str, Any]) -> pd.Series:
    """Return the one line of a file that has these values."""
    table = pd.read_csv(path)
    for column, value in where.items():
        table = table[table[column] == value]

    if len(table) != 1:
        raise ValueError(f"{path}: {len(table)} lines have {dict(where)}")

    return table.iloc[0]


def of_correlation(results: Path, spec: Mapping[str, Any]) -> Effect:
    """Return a kept correlation over settings."""
    line = _line_of(results / spec["correlation"], spec["where"])
    r, low, high = (float(line[key]) for key in ("pearson", "pearson_low", "pearson_high"))

    return _correlation(r, low, high, line["settings"])


def of_cells(results: Path, spec: Mapping[str, Any]) -> Effect:
    """Return the correlation of the cells of a table with the printed ones."""
    cells = pd.read_csv(results / f"{spec['cells']}.csv").dropna(subset=["mean", "published"])
    r = stats.pearsonr(cells["mean"], cells["published"])

    low, high = map(float, r.confidence_interval())

    return _correlation(float(r.statistic), low, high, len(cells))


def _correlation(r: float, low: float, high: float, settings: int) -> Effect:
    """Return a correlation as an effect; what is detected is on Fisher's scale."""
    half = (math.atanh(high) - math.atanh(low)) / 2
    return Effect(r, low, high, f"{settings} settings", math.tanh(detectable(0, 0, half)))


def of_pairs(results: Path, spec: Mapping[str, Any]) -> Effect:
    """Return how many pairs of settings agree, with the p-value of a permutation test."""
    line = _line_of(results / spec["pairs"], spec["where"])
    agreeing, pairs, p = line["agreeing"], line["pairs"], float(line["pvalue"])
    text = f"{agreeing} of {pairs}, p = {p:.3f}"

    return Effect(agreeing / pairs, number=f"{line['settings']} settings", pvalue=p, text=text)


def of_shares(results: Path, spec: Mapping[str, Any]) -> Effect:
    """Return how much an accuracy that needs no seed differs between two sets of examples."""
    shares, errors = [], []
    for column, count in spec["shares"].items():
        share = measured(results, spec["table"], spec["row"], "", column).value
        shares.append(share)
        errors.append(math.sqrt(share * (100 - share) / count))

    return _of_means((1, -1), shares, errors, "no seed")


def of_distances(results: Path, spec: Mapping[str, Any]) -> Effect:
    """Return how much nearer the mean of the pairs of one set is to that of a second set than to
    that of a third.
    """
    pairs = pd.read_csv(results / spec["distances"])
    pairs = pairs[pairs["kind"] == spec["kind"]].groupby("set").first()  # not the intermediate
    rows = [pairs.loc[name] for name in spec["names"]]
    means = [float(row[f"{spec['measure']}_mean"]) for row in rows]
    errors = [row[f"{spec['measure']}_deviation"] / math.sqrt(row["number"]) for row in rows]
    near, far = (math.copysign(1, means[0] - mean) for mean in means[1:])

    return _of_means((far - near, near, -far), means, errors, f"{rows[0]['number']} pairs")


def _of_means(
    weights: Sequence[float], means: Sequence[float], errors: Sequence[float], number: str
) -> Effect:
    """Return a weighted sum of independent means with a normal interval."""
    value = sum(map(operator.mul, weights, means))
    half = NORMAL * math.hypot(*map(operator.mul, weights, errors))

    return Effect(value, value - half, value + half, number, detectable(0, 0, half))


KINDS = {
    "cells": of_cells,
    "correlation": of_correlation,
    "distances": of_distances,
    "pairs": of_pairs,
    "shares": of_shares,
}
"""What an effect is that is no difference of two rows of a table."""


def effect_of(results: Path, spec: Mapping[str, Any]) -> Effect:
    """Return the effect of a specification."""
    for kind in KINDS.keys() & spec.keys():
        return KINDS[kind](results, spec)

    return measured(results, spec["table"], spec["row"], spec["against"], spec["column"])


def printed(folder: Path, where: Mapping[str, Any], spec: Mapping[str, Any]) -> dict[str, float]:
    """Return the paper's effect by encoder, from the numbers that it printed.

    Args:
        folder: that of the paper, with ``published.csv``.
        where: ``columns``, the table and column of ``published.csv`` by our column (of two columns,
            the first minus the second; a column that the paper does not have is missing); ``rows``,
            the paper's name by ours; optionally ``table``, another table for all columns.
        spec: our ``row`` and ``column``, and the row ``against`` which it is compared, if any.
    """
    if spec["column"] not in where["columns"]:
        return {}

    table, *columns = where["columns"][spec["column"]]
    numbers = pd.read_csv(folder / "published.csv", dtype={"row": str}, keep_default_na=False)
    numbers = numbers[numbers["table"] == where.get("table", table)]
    rows = [where["rows"].get(name, name) for name in (spec["row"], spec["against"]) if name]
    effects = {}
    for encoder in sorted(set(numbers["encoder"]) - {""}):
        lines = numbers[numbers["encoder"].isin([encoder, ""])]
        values = lines.set_index(["row", "column"])["value"]
        cells = np.array([[values.get((row, name), math.nan) for name in columns] for row in rows])
        differences = cells[0] - cells[1:].sum(axis=0)
        value = float(differences[0] - differences[1:].sum())
        if not math.isnan(value):
            effects[encoder] = value

    return effects


# Lines


@functools.cache
def claims(folder: Path) -> list[dict[str, Any]]:
    """Return each claim of a paper with its `Line`s; one that was not run has none."""
    content = yaml.safe_load((folder / "claims.yaml").read_text(encoding="utf-8"))
    complete = []
    for claim in content["claims"]:
        groups = [_lines({**claim, **spec}, folder, content) for spec in claim.get("lines", ())]
        complete.append({**claim, "lines": [line for group in groups for line in group]})

    return complete


def _lines(spec: Mapping[str, Any], folder: Path, content: Mapping[str, Any]) -> list[Line]:
    """Return a line for each effect of a specification, or the one that ``worst`` asks for."""
    names = content.get("names", {})
    where = {**content["printed"], **spec.get("printed", {})}
    papers = [(single, printed(folder, where, single)) for single in _singles(spec)]
    margins: defaultdict[str, float] = defaultdict(float)  # the paper's largest, by column
    for single, paper in papers:
        margins[single["column"]] = max([margins[single["column"]], *map(abs, paper.values())])

    group = []
    for single, paper in papers:
        side = _side(single["side"], margins[single["column"]])
        effect = effect_of(folder / "results", single)
        value = paper.get(where["encoder"], math.nan)
        decided = verdict(effect, side, value)
        reason = single["reason"]
        if decided == "excluded" and verdict(effect, side) == "open":
            reason = reason or "its effect, not its side"

        sides = " - ".join(
            names.get(name, name) for name in (single["row"], single["against"]) if name
        )
        label = single["label"].format(**single, sides=sides)
        group.append(Line(label, value, side, effect, decided, reason, single["line_note"]))

    if "worst" in spec:
        return [min(group, key=lambda line: (line.verdict != "excluded", _slack(line)))]

    return group


def _singles(spec: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a specification of one effect for each combination of the lists of another."""
    lists = {PLURALS[key]: values for key, values in spec.items() if key in PLURALS}
    for values in itertools.product(*lists.values()):
        yield {**DEFAULTS, **spec, **dict(zip(lists, values, strict=True))}


def _slack(line: Line) -> float:
    """Return how far inside the claim's side an interval lies; below 0 if it does not."""
    low, high = line.side
    return min(line.effect.low - low, high - line.effect.high)


def _side(text: str, margin: float) -> tuple[float, float]:
    """Return the side that a claim names: ``above`` or ``below`` 0 or a number; or ``equal``, which
    is within the margin of 0.
    """
    if text == "equal":
        return -margin, margin

    name, _, number = text.partition(" ")
    end = float(number or 0)

    return {"above": (end, math.inf), "below": (-math.inf, end)}[name]


# Pages


def table(folder: Path) -> str:
    """Return a paper's claims as a table in Markdown, with their number by verdict before it, and
    the notes below.
    """
    counts = _counts(folder)
    parts = [f"{name} {counts[name]}" for name in VERDICTS if counts[name]]
    text = [f"{counts.total()} lines: {', '.join(parts)}.", ""]
    text += [f"| {' | '.join(HEADER)} |", "|---:|---|---:|---|---:|---:|---|"]
    notes: list[str] = []
    for number, claim in enumerate(claims(folder), start=1):
        words = f'"{claim["quote"]}"' if "quote" in claim else claim["words"]
        cell = f"**{words}** ({claim['source']})" + _mark(claim.get("note", ""), notes)
        without = "" if claim["lines"] else f"**not run**: {claim['not_run']}"
        rows = [[str(number), cell, "", "", "", "", without]]
        rows += (["", *_cells(line, notes)] for line in claim["lines"])
        text += (f"| {' | '.join(cells)} |" for cells in rows)

    text += ["", *(f"<sup>{number}</sup> {note}<br>" for number, note in enumerate(notes, 1)), ""]

    return "\n".join(text)


def _mark(note: str, notes: list[str]) -> str:
    """Add a note, and return its number as a mark; nothing if it is empty."""
    if not note:
        return ""

    if note not in notes:
        notes.append(note)

    return f" <sup>{notes.index(note) + 1}</sup>"


def _cells(line: Line, notes: list[str]) -> list[str]:
    effect = line.effect
    sign = "" if line.side[0] > 1 else "+"  # a value, not a difference
    measurement = effect.text or f"{effect.value:{sign}.2f}"
    if not math.isnan(effect.low):
        measurement += f" [{effect.low:{sign}.2f}, {effect.high:{sign}.2f}]"

    return [
        line.label,
        "" if math.isnan(line.paper) else f"{line.paper:{sign}.2f}",
        measurement,
        effect.number,
        "" if math.isnan(effect.detectable) else f"{effect.detectable:.2f}",
        f"**{line.verdict}**"
        + (f": {line.reason}" if line.reason else "")
        + _mark(line.note, notes),
    ]


def _counts(folder: Path) -> Counter[str]:
    """Return the number of lines by verdict."""
    return Counter(
        name
        for claim in claims(folder)
        for name in [line.verdict for line in claim["lines"]] or ["not run"]
    )


def summary(repository: Path) -> str:
    """Return the README's table: one row per paper, with the number of lines of each verdict."""
    text = [f"| paper | {' | '.join(VERDICTS)} |", "|---|" + "---:|" * len(VERDICTS)]
    for file in sorted((repository / "experiments").glob("*/claims.yaml")):
        counts = _counts(file.parent)
        cells = " | ".join(str(counts[name] or "") for name in VERDICTS)
        page = file.with_name("README.md")
        name = page.read_text(encoding="utf-8").partition(",")[0].removeprefix("# ")
        link = f"{page.relative_to(repository).as_posix()}#claims"
        text.append(f"| [{name}]({link}) | {cells} |")

    return "\n".join(text) + "\n"


def write(page: Path, text: str) -> None:
    """Put a text between the marks of a page."""
    content = page.read_text(encoding="utf-8")
    if not BLOCK.search(content):
        raise ValueError(f"{page}: has no '<!-- claims -->' and '<!-- end of claims -->'")

    page.write_text(BLOCK.sub(lambda _: text, content), encoding="utf-8")


if __name__ == "__main__":
    for file in sorted(ROOT.glob("experiments/*/claims.yaml")):
        write(file.with_name("README.md"), table(file.parent))

    write(ROOT / "README.md", summary(ROOT))
