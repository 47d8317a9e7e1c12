"""Verdicts follow from effects, and the effects from the values by seed of the kept tables."""

import itertools
import math
import re
import runpy
import statistics
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import yaml
from scipy import stats

PAPERS = ("dualcse", "gausscse", "ngcse")


@pytest.fixture(scope="module")
def script(repository):
    return SimpleNamespace(**runpy.run_path(str(repository / "scripts" / "claims.py")))


def effect(script, low, high, firm=True, **spec):
    return script.Effect("", "", script._holds(spec, low, high), firm=firm)


def test_an_interval_decides_what_an_effect_says(script):
    holds = script._holds
    assert holds({"expected": "above"}, 0.1, 2) is True
    assert holds({"expected": "above"}, -0.1, 2) is None
    assert holds({"expected": "above"}, -2, -0.1) is False
    assert holds({"expected": "below"}, -2, -0.1) is True
    assert holds({"expected": "below"}, 0.1, 2) is False
    assert holds({"within": 1}, -0.9, 0.9) is True
    assert holds({"within": 1}, 0.4, 1.1) is None
    assert holds({"within": 1}, 1.1, 2) is False
    assert holds({"expected": "above"}, math.nan, math.nan) is None
    assert holds({"no_worse": 1}, -0.9, 5) is True
    assert holds({"no_worse": 1}, -1.1, 5) is None
    assert holds({"no_worse": 1}, -5, -1.1) is False
    small = {"expected": "below", "least": 0.2}
    assert holds(small, 0.05, 0.1) is None
    assert holds(small, -0.3, -0.1) is None
    assert holds(small, -0.5, -0.3) is True
    assert holds(small, 0.3, 0.5) is False


def test_verdicts(script):
    yes = effect(script, 1, 2, expected="above")
    open_ = effect(script, -1, 2, expected="above")
    no = effect(script, -2, -1, expected="above")
    weak = effect(script, 1, 2, firm=False, expected="above")
    assert script.verdict([yes, yes]) == "shown"
    assert script.verdict([yes, yes], limited=True) == "shown in part"
    assert script.verdict([yes, open_]) == "shown in part"
    assert script.verdict([yes, weak]) == "shown in part"
    assert script.verdict([weak]) == "not shown"
    assert script.verdict([effect(script, -2, -1, firm=False, expected="above")]) == "not shown"
    assert script.verdict([open_]) == "not shown"
    assert script.verdict([open_, no]) == "contradicted"
    assert script.verdict([]) == "not tested"


def test_a_test_over_the_examples_must_agree(script, tmp_path):
    effects = {"row": "a", "column": "x", "reference": "b", "seeds": 3, "value": 2.0}
    pd.DataFrame([{**effects, "low": 1.0, "high": 3.0}]).to_csv(
        tmp_path / "t.effects.csv", index=False
    )
    spec = {"table": "t", "row": "a", "against": "b", "column": "x", "expected": "above"}

    def effect_with(**test):
        sides = {"row": "b", "reference": "a", "column": "x", "mean": 10.0, "mean_reference": 12.0}
        pd.DataFrame([{**sides, **test}]).to_csv(tmp_path / "t.tests.csv", index=False)
        script._pairs_in.cache_clear()
        found = script._of_table(spec, tmp_path, {"examples": {}})
        assert found.holds is True
        return found

    found = effect_with(p=0.2, low=-3.5, high=-0.5)  # of the other direction
    assert found.firm
    assert found.both == "[+0.50, +3.50]"
    assert script.outcome(found) == "yes"
    weak = effect_with(p=0.001, low=-4.5, high=0.5)
    assert not weak.firm
    assert script.outcome(weak) == "over seeds alone"
    (tmp_path / "t.tests.csv").unlink()
    untested = script._of_table(spec, tmp_path, {"examples": {"x": 100}})
    assert (untested.text, untested.both) == ("+2.00 [+1.00, +3.00]", "-")
    assert (untested.number, untested.expected) == ("3 seeds, 100 pairs", "above 0")
    close = {"table": "t", "row": "a", "against": "b", "column": "x", "within": 0.5}
    near = script._of_table(close, tmp_path, {"examples": {}})
    assert near.holds is False
    assert near.expected == "within ±0.5"
    assert script.outcome(near) == "the opposite"


def test_newcombes_published_example(script):
    # Newcombe 1998, table II, example (a): 56/70 and 48/80, method 10.
    found = script.share_difference(56 / 70, 48 / 80, 70, 80)
    assert found == pytest.approx((0.2, 0.0524, 0.3339), abs=5e-5)


def test_which_pairs_are_nearer(script, tmp_path):
    """The interval is that of drawing the pairs again; the side of the goal does not matter."""
    rng = np.random.default_rng(0)
    samples = {
        "model": rng.normal(0.8, 0.1, 300),
        "dropout": rng.normal(1.0, 0.02, 200),
        "goal": rng.normal(0.85, 0.2, 150),
    }
    rows = [
        {
            "set": name,
            "kind": "positive",
            "number": len(values),
            "cosine_mean": values.mean(),
            "cosine_deviation": values.std(ddof=1),
        }
        for name, values in samples.items()
    ]
    pd.DataFrame(rows).to_csv(tmp_path / "pairs.csv", index=False)
    spec = {"pairs": "pairs.csv", "kind": "positive", "measure": "cosine"}
    spec |= {"nearer": "model", "than": "dropout", "to": "goal"}
    found = script._of_distances(spec, tmp_path)

    drawn = {
        name: rng.choice(values, (20_000, len(values))).mean(axis=1)
        for name, values in samples.items()
    }
    distance = {name: abs(drawn[name] - drawn["goal"]) for name in ("model", "dropout")}
    low, high = np.quantile(distance["dropout"] - distance["model"], (0.025, 0.975))
    shown = re.search(r"\[(.*), (.*)\]", found.text)
    assert [float(end) for end in shown.groups()] == pytest.approx([low, high], abs=0.011)
    assert found.holds is True
    opposite = {**spec, "nearer": "dropout", "than": "model"}
    assert script._of_distances(opposite, tmp_path).value == -found.value
    assert script._of_distances(opposite, tmp_path).holds is False


@pytest.mark.parametrize("paper", PAPERS)
def test_a_page_has_the_claims_that_its_results_give(script, repository, paper):
    folder = repository / "experiments" / paper
    page = (folder / "README.md").read_text(encoding="utf-8")
    effects = (folder / "claims.md").read_text(encoding="utf-8")
    found = [*script.BLOCK.findall(page), effects]
    assert found == [script.table(folder), script.details(folder)], "run python scripts/claims.py"


@pytest.mark.parametrize("paper", PAPERS)
def test_claims_are_complete(script, repository, paper):
    found = list(script.claims(repository / "experiments" / paper))
    assert len(found) > 7
    for claim in found:
        assert {"claim", "quote"} & set(claim)
        assert claim["source"]
        assert claim["verdict"] in script.VERDICTS
        # What is not tested says why, and what is says how.
        assert ("why" in claim) == (claim["verdict"] == "not tested")
        assert ("tested" in claim) == (claim["verdict"] != "not tested")


def by_seed(file):
    """Return the values of a kept table by row, column and seed, as it shows them."""
    found = {}
    for line in file.read_text(encoding="utf-8").partition("<details>")[2].splitlines():
        cells = [cell.strip().replace("\\", "") for cell in line.split("|")]
        if len(cells) > 6 and ":" in cells[6]:
            pairs = (pair.split(": ") for pair in cells[6].split(", "))
            row = re.sub(r" \(minilm_l\d\)$", "", cells[1])
            found[row, cells[2]] = {int(seed): float(value) for seed, value in pairs}

    return found


def pairs_of(content):
    """Yield each difference that a page shows: its specification, row, other row and column."""
    for claim in content["claims"]:
        for spec in [*claim.get("effects", ()), *claim.get("beside", ())]:
            if "table" in spec and "between" not in spec:
                yield from itertools.product(
                    [spec],
                    spec.get("rows") or [spec["row"]],
                    spec.get("others") or [spec.get("against", "")],
                    spec.get("columns") or [spec["column"]],
                )


@pytest.mark.parametrize("paper", PAPERS)
def test_effects_are_those_of_the_values_by_seed(script, repository, paper):
    """Recompute each difference, by another library, from the values that the tables show."""
    results = repository / "experiments" / paper / "results"
    content = yaml.safe_load((results.parent / "claims.yaml").read_text(encoding="utf-8"))
    beside = [spec for claim in content["claims"] for spec in claim.get("beside", ())]
    checked = 0
    for spec, row, other, column in pairs_of(content):
        values = by_seed(results / f"{spec['table']}.md")
        ours, theirs = values[row, column], values.get((other, column), {})
        if len(theirs) == 1:
            theirs = dict.fromkeys(ours, *theirs.values())

        differences = [value - theirs.get(seed, 0) for seed, value in ours.items()]
        ends = (math.nan, math.nan)  # of one seed
        if len(differences) > 1:
            ends = stats.ttest_1samp(differences, 0).confidence_interval()

        one = {**spec, "row": row, "against": other, "column": column}
        value, low, high, seeds = script.difference(results, one)
        assert seeds == len(differences)
        # One seed decides nothing, and has no interval.
        assert seeds in (3, 5) or (seeds == 1 and spec in beside)
        assert bool(theirs) == bool(other)
        # The tables round to two decimals.
        assert value == pytest.approx(statistics.fmean(differences), abs=0.011)
        assert (low, high) == pytest.approx(tuple(ends), abs=0.06, nan_ok=True)
        check_examples(content, column, ours)
        checked += 1

    assert checked > 15


def check_examples(content, column, values):
    """Accuracies are multiples of one over the number of examples that the page names."""
    examples = content["examples"].get(column)
    if examples and re.search(" acc|direction|EIS|RTE all", column):
        for value in values.values():
            count = round(value * examples / 100)
            assert 100 * count / examples == pytest.approx(value, abs=0.00501)
