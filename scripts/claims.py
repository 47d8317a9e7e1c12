"""Test the papers' claims on the kept results, and write them into the pages: ``python
scripts/claims.py``.

``experiments/<paper>/claims.yaml`` has what a paper says and the effects that test it. An effect is
read from the files under ``results/``, and the verdict follows from the effects, so neither is
typed. ``claims.md`` beside it has every claim with its effects. The verdicts replace what stands
between the marks of ``experiments/<paper>/README.md``, and README.md gets the summary.
"""

import functools
import math
import operator
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import yaml
from scipy import stats

ROOT = Path(__file__).parents[1]
VERDICTS = ("shown", "shown in part", "not shown", "contradicted", "not tested")
BLOCK = re.compile(r"(?<=<!-- claims -->\n).*?(?=<!-- end of claims -->)", re.DOTALL)
NORMAL = 1.96  # the 97.5 % quantile
MEASURES = {"mer": "match error rate", "cosine": "cosine"}
OUTCOMES = {True: "yes", None: "open", False: "the opposite"}
EXPLANATION = """\
Written by `python scripts/claims.py` from [claims.yaml](claims.yaml) and [results/](results/); [what holds, and what a verdict
means](../README.md). {note}

"A against B" is A minus B. "Over both" is the interval over seeds and examples; "-": the pair is not compared over the examples. "Yes": the
interval lies on the side that is expected; "open": it lies on neither side; "the opposite": it lies on the other side; "over seeds alone":
the interval over both does not decide. One seed has no interval over seeds, so it is always "open", and its "over both" is the interval over
the examples alone. Effects "beside" do not count."""


@dataclass(frozen=True)
class Effect:
    """An effect with its 95 % interval; ``holds`` is True, False for the opposite, None if open.

    ``both`` is the interval over seeds and examples. ``firm`` is False where it does not agree with
    the interval over seeds.
    """

    name: str
    text: str
    holds: bool | None
    value: float = math.nan
    expected: str = ""
    both: str = "-"
    number: str = ""
    firm: bool = True


@functools.cache
def claims(folder: Path) -> list[dict[str, Any]]:
    """Return each claim of a paper with its ``verdict``, its ``effects`` and those ``beside`` them,
    which do not count.
    """
    found = []
    content = yaml.safe_load((folder / "claims.yaml").read_text(encoding="utf-8"))
    for claim in content["claims"]:
        deciding = _measured(claim.get("effects", ()), folder, content)
        beside = _measured(claim.get("beside", ()), folder, content)
        decided = verdict(deciding, limited="limit" in claim)
        found.append({**claim, "effects": deciding, "beside": beside, "verdict": decided})

    return found


def _measured(
    specs: Iterable[Mapping[str, Any]], folder: Path, content: Mapping[str, Any]
) -> list[Effect]:
    return [effect for spec in specs for effect in effects(spec, folder, content)]


def verdict(found: list[Effect], *, limited: bool = False) -> str:
    """Return the verdict that effects give.

    Shown: each effect holds, that is, its interval lies on the side of the claim, and is firm. In
    part: some do, or a limit of the test is named. Contradicted: none does, and the interval of one
    that is firm lies on the other side. Not shown: no interval decides. Not tested: there is no
    effect.
    """
    if not found:
        return "not tested"

    firm = [one for one in found if one.firm]
    if any(one.holds for one in firm):
        whole = len(firm) == len(found) and all(one.holds for one in found) and not limited
        return "shown" if whole else "shown in part"

    return "contradicted" if any(one.holds is False for one in firm) else "not shown"


def effects(spec: Mapping[str, Any], folder: Path, content: Mapping[str, Any]) -> list[Effect]:
    """Return the effects of a specification; one that names ``rows`` or ``columns`` has several."""
    results = folder / "results"
    if "file" in spec:
        return [_of_file(spec, results)]
    if "between" in spec:
        return [_of_shares(spec, results, content["examples"])]
    if "order" in spec:
        return [_of_order(spec, results)]
    if "nearer" in spec:
        return [
            _of_distances({**spec, "kind": kind, "measure": measure}, results)
            for kind in spec["kinds"]
            for measure in spec["measures"]
        ]

    rows = spec.get("rows") or [spec["row"]]
    others = spec.get("others") or [spec.get("against", "")]
    columns = spec.get("columns") or [spec["column"]]

    return [
        _of_table({**spec, "row": row, "against": other, "column": column}, results, content)
        for row in rows
        for other in others
        for column in columns
    ]


def _of_table(spec: Mapping[str, Any], results: Path, content: Mapping[str, Any]) -> Effect:
    """Return a cell of a table, or the difference of two, as ``reproduce`` keeps them."""
    value, low, high, seeds = difference(results, spec)
    column = spec["column"]
    names = content.get("names", {})
    sides = [names.get(one, one) for one in (spec["row"], spec["against"]) if one]
    number = f"{seeds} seed{'s' * (seeds != 1)}"
    if column in content["examples"]:
        number += f", {content['examples'][column]:,} pairs"

    holds = _holds(spec, low, high)
    both = "-"
    firm = True
    if ends := interval_over_both(results, spec):
        both = _interval(*ends)
        firm = _holds(spec, *ends) is holds

    label = f"{spec['label']}, " if "label" in spec else ""
    sign = "+" if spec["against"] else ""  # of a difference

    return Effect(
        f"{label}{' against '.join(sides)}, {column}",
        f"{value:{sign}.2f} {_interval(low, high, sign)}".rstrip(),
        holds,
        value,
        _expected(spec),
        both,
        number,
        firm,
    )


def _expected(spec: Mapping[str, Any]) -> str:
    """Return in one word or two what a claim says of an effect."""
    if "no_worse" in spec:
        return f"above -{spec['no_worse']}"
    if "within" in spec:
        return f"within ±{spec['within']}"

    least = spec.get("least", 0)
    return f"{spec['expected']} {-least if spec['expected'] == 'below' else least}"


def _pvalue(p: float) -> str:
    return "< .001" if p < 0.001 else f"= {p:.3f}"


def _interval(low: float, high: float, sign: str = "+") -> str:
    return "" if math.isnan(low) else f"[{low:{sign}.2f}, {high:{sign}.2f}]"


def difference(results: Path, spec: Mapping[str, Any]) -> tuple[float, float, float, int]:
    """Return a difference of two rows, the ends of its interval and the number of seeds."""
    pair = _pair_of(_pairs_in(results / f"{spec['table']}.effects.csv"), spec)
    if pair is None:
        against = spec.get("against", "")
        raise ValueError(
            f"{spec['table']} has no {spec['row']!r} - {against!r} in {spec['column']!r}"
        )

    one, sign = pair
    low, high = sorted((sign * one["low"], sign * one["high"]))

    return sign * one["value"], low, high, int(one["seeds"])


def _pair_of(table: pd.DataFrame, spec: Mapping[str, Any]) -> tuple[pd.Series, int] | None:
    """Return the line of two rows in a table of effects or tests, and -1 if it has them the other
    way round.
    """
    row, against = spec["row"], spec.get("against", "")
    some = table[table["column"] == spec["column"]]
    for ours, theirs, sign in ((row, against, 1), (against, row, -1)):
        found = some[(some["row"] == ours) & (some["reference"] == theirs)]
        if len(found) == 1:
            return found.iloc[0], sign

    return None


@functools.cache
def _pairs_in(path: Path) -> pd.DataFrame:
    """Read the effects or the tests of a table, of which a page asks for many."""
    numbers = ("value", "low", "high")
    return pd.read_csv(path, keep_default_na=False, na_values=dict.fromkeys(numbers, ""))


def interval_over_both(results: Path, spec: Mapping[str, Any]) -> tuple[float, float] | None:
    """Return the interval of the difference of two rows over seeds and examples; None if they are
    not compared over the examples.
    """
    file = results / f"{spec['table']}.tests.csv"
    if not file.is_file():
        return None

    pair = _pair_of(_pairs_in(file), spec)
    if pair is None or math.isnan(pair[0]["low"]):  # no seed in common
        return None

    one, sign = pair
    low, high = sorted((sign * one["low"], sign * one["high"]))

    return low, high


def _holds(spec: Mapping[str, Any], low: float, high: float) -> bool | None:
    """Return whether an interval lies on the side of the claim; None if it is on neither side.

    A claim says that a difference is ``above`` or ``below`` 0, where less than ``least`` decides
    nothing; that it is ``within`` a margin of 0; or that it is at most ``no_worse`` below 0.
    """
    if math.isnan(low):
        return None
    if "no_worse" in spec:
        margin = spec["no_worse"]
        return True if low > -margin else False if high < -margin else None

    if "within" in spec:
        margin = spec["within"]
        beyond = low > margin or high < -margin
        return True if -margin < low and high < margin else False if beyond else None

    sign = 1 if spec["expected"] == "above" else -1
    nearest, farthest = (low, high) if sign > 0 else (-high, -low)
    least = spec.get("least", 0)

    return True if nearest > least else False if farthest < -least else None


def _one_row(spec: Mapping[str, Any], results: Path) -> pd.Series:
    table = pd.read_csv(results / spec["file"])
    for column, value in spec["where"].items():
        table = table[table[column] == value]

    if len(table) != 1:
        raise ValueError(f"{spec['file']} has {len(table)} rows with {spec['where']}")

    return table.iloc[0]


def _of_file(spec: Mapping[str, Any], results: Path) -> Effect:
    """Return a correlation with its interval, or a count of pairs with its p-value."""
    row = _one_row(spec, results)
    number = f"{row['settings']} settings"
    if "pvalue" in row:
        text = f"{row['agreeing']} of {row['pairs']} pairs, p = {row['pvalue']:.3f}"
        share = row["agreeing"] / row["pairs"]
        holds = True if row["pvalue"] < 0.05 else None
        return Effect(spec["name"], text, holds, share, "p < .05", number=number)

    r, low, high = (row[key] for key in ("pearson", "pearson_low", "pearson_high"))
    text = f"r = {r:+.2f} {_interval(low, high)}"

    return Effect(spec["name"], text, _holds(spec, low, high), r, _expected(spec), number=number)


def _of_shares(spec: Mapping[str, Any], results: Path, examples: Mapping[str, int]) -> Effect:
    """Return how much a row that needs no seed differs between two sets of examples."""
    first, second = spec["between"]
    shares = [difference(results, {**spec, "column": one})[0] / 100 for one in (first, second)]
    counts = [examples[one] for one in (first, second)]
    value, low, high = (100 * end for end in share_difference(*shares, *counts))
    return Effect(
        f"{spec['row']}, {first} - {second}",
        f"{value:+.2f} {_interval(low, high)}",
        _holds(spec, low, high),
        value,
        _expected(spec),
        number=f"{counts[0]:,} and {counts[1]:,} pairs",
    )


def share_difference(
    first: float, second: float, count_first: int, count_second: int
) -> tuple[float, float, float]:
    r"""Return the difference of two independent shares and the ends of its 95 % interval.

    .. math:: d - \sqrt{(p_1 - l_1)^2 + (u_2 - p_2)^2}, \qquad
              d + \sqrt{(u_1 - p_1)^2 + (p_2 - l_2)^2}

    with Wilson's intervals :math:`[l_i, u_i]` of the shares :math:`p_i`, and their difference
    :math:`d`.

    Source: Newcombe 1998, method 10.  Differs: nothing.
    """
    tests = (
        stats.binomtest(round(share * count), count)
        for share, count in ((first, count_first), (second, count_second))
    )
    (low_first, high_first), (low_second, high_second) = (
        test.proportion_ci(method="wilson") for test in tests
    )
    difference = first - second
    down = math.hypot(first - low_first, high_second - second)
    up = math.hypot(high_first - first, second - low_second)

    return difference, difference - down, difference + up


def _of_order(spec: Mapping[str, Any], results: Path) -> Effect:
    """Return the rank correlation of the cells of a table with the printed ones, which must be
    positive, and whether the best cell is the same.
    """
    cells = pd.read_csv(results / f"{spec['order']}.csv").dropna(subset=["mean", "published"])
    columns = [cells[name].tolist() for name in ("mean", "published")]
    rho, pvalue = stats.spearmanr(*columns)
    is_best = cells["mean"].idxmax() == cells["published"].idxmax()
    best = f"the best setting is {'' if is_best else 'not '}the paper's"
    text = f"rho = {rho:+.2f}, p {_pvalue(pvalue)}; {best}"
    holds = True if is_best and rho > 0 and pvalue < 0.05 else None
    number = f"{len(cells)} settings, {int(cells['n'].max())} seed"

    return Effect(spec["name"], text, holds, rho, "above 0", number=number)


def _of_distances(spec: Mapping[str, Any], results: Path) -> Effect:
    """Return how much nearer the mean of one set's pairs is to that of another set than the mean of
    a third set's pairs, with a normal interval over the pairs.
    """
    pairs = pd.read_csv(results / spec["pairs"])
    pairs = pairs[pairs["kind"] == spec["kind"]].groupby("set").first()  # not the intermediate
    rows = [pairs.loc[spec[one]] for one in ("nearer", "than", "to")]
    means, deviations = (
        [row[f"{spec['measure']}_{part}"] for row in rows] for part in ("mean", "deviation")
    )
    near, far, goal = means
    signs = [math.copysign(1, mean - goal) for mean in (near, far)]
    weights = (-signs[0], signs[1], signs[0] - signs[1])  # of the three means
    value = sum(map(operator.mul, weights, means))
    errors = (
        weight * deviation / math.sqrt(row["number"])
        for weight, deviation, row in zip(weights, deviations, rows, strict=True)
    )
    half = NORMAL * math.hypot(*errors)
    low, high = value - half, value + half
    counted = ", ".join(f"{row['number']:,}" for row in rows)

    return Effect(
        f"{MEASURES[spec['measure']]} of {spec['kind']} pairs: {spec['nearer']} ({near:.2f}) nearer to {spec['to']} ({goal:.2f}) than {spec['than']} ({far:.2f})",
        f"{value:+.2f} {_interval(low, high)}",
        _holds({"expected": "above"}, low, high),
        value,
        "above 0",
        number=f"{counted} pairs",
    )


# Pages


def said(claim: Mapping[str, Any]) -> str:
    """Return what a paper says: the sentence quoted, if there is one, what it means, and where."""
    quote = f'"{claim["quote"]}"' if "quote" in claim else ""
    parts = [*filter(None, [quote, claim.get("claim")])]

    return " ".join(f"{': '.join(parts)} ({claim['source']})".split())


def decided(claim: Mapping[str, Any]) -> str:
    """Return the verdict and what limits it."""
    why = claim.get("limit") or claim.get("why")
    return " ".join((f"**{claim['verdict']}**" + (f": {why}" if why else "")).split())


def outcome(effect: Effect) -> str:
    """Return whether an effect holds."""
    return "over seeds alone" if effect.holds and not effect.firm else OUTCOMES[effect.holds]


def table(folder: Path) -> str:
    """Return the verdicts of a paper's claims in Markdown, with how many of the effects hold."""
    lines = ["| | the paper says | effects that hold | verdict |", "|---|---|---:|---|"]
    for number, claim in enumerate(claims(folder), start=1):
        found = claim["effects"]
        holding = sum(outcome(one) == OUTCOMES[True] for one in found)
        held = f"{holding} of {len(found)}" if found else "-"
        cells = [f"[{number}](claims.md#claim-{number})", said(claim), held, decided(claim)]
        lines.append(f"| {' | '.join(cells)} |")

    return "\n".join(lines) + "\n"


def details(folder: Path) -> str:
    """Return a page with the effects of each claim, in Markdown."""
    content = yaml.safe_load((folder / "claims.yaml").read_text(encoding="utf-8"))
    note = " ".join(content["note"].split())
    parts = [f"# {paper_of(folder)}: claims and effects", EXPLANATION.format(note=note)]
    for number, claim in enumerate(claims(folder), start=1):
        parts += [f"## Claim {number}", said(claim) + "."]
        if claim["effects"]:
            parts += [" ".join(f"Tested: {claim['tested']}.".split()), _effect_table(claim)]

        parts.append(decided(claim) + ".")

    return "\n\n".join(parts) + "\n"


def _effect_table(claim: Mapping[str, Any]) -> str:
    lines = [
        "| effect | expected | value, 95 % interval | over both | n | holds |",
        "|---|---|---|---|---|---|",
    ]
    for mark, found in (("", claim["effects"]), ("beside: ", claim["beside"])):
        for one in found:
            cells = [f"{mark}{one.name}", one.expected, one.text, one.both, one.number]
            lines.append(f"| {' | '.join([*cells, outcome(one)])} |")

    return "\n".join(lines)


def paper_of(folder: Path) -> str:
    """Return the name of a paper, from the title of its page."""
    page = (folder / "README.md").read_text(encoding="utf-8")
    return page.partition(",")[0].removeprefix("# ")


def summary(repository: Path) -> str:
    """Return the README's table: one row per paper, with the number of claims of each verdict."""
    lines = [f"| paper | {' | '.join(VERDICTS)} |", "|---|" + "---:|" * len(VERDICTS)]
    for file in sorted((repository / "experiments").glob("*/claims.yaml")):
        found = Counter(claim["verdict"] for claim in claims(file.parent))
        counts = " | ".join(str(found[verdict] or "") for verdict in VERDICTS)
        link = f"{file.parent.relative_to(repository).as_posix()}/README.md#claims"
        lines.append(f"| [{paper_of(file.parent)}]({link}) | {counts} |")

    return "\n".join(lines) + "\n"


def write(page: Path, text: str) -> None:
    """Put a text between the marks of a page."""
    content = page.read_text(encoding="utf-8")
    if not BLOCK.search(content):
        raise ValueError(f"{page}: has no '<!-- claims -->' and '<!-- end of claims -->'")

    page.write_text(BLOCK.sub(lambda _: text, content), encoding="utf-8")


if __name__ == "__main__":
    for file in sorted(ROOT.glob("experiments/*/claims.yaml")):
        write(file.with_name("README.md"), table(file.parent))
        file.with_name("claims.md").write_text(details(file.parent), encoding="utf-8")

    write(ROOT / "README.md", summary(ROOT))
