"""Verdicts follow from the paper's numbers and ours, and the pages from both."""

import math
import runpy
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import yaml
from scipy import stats

PAPERS = ("dualcse", "gausscse", "ngcse")
ABOVE, BELOW, NEAR = (0, math.inf), (-math.inf, 0), (-1.0, 1.0)


@pytest.fixture(scope="module")
def script(repository):
    return SimpleNamespace(**runpy.run_path(str(repository / "scripts" / "claims.py")))


@pytest.mark.parametrize(
    ("low", "high", "side", "paper", "want"),
    [
        (0.1, 2, ABOVE, 5, "agrees"),  # whatever its size
        (-0.1, 2, ABOVE, 1.5, "open"),
        (-0.1, 2, ABOVE, math.nan, "open"),
        (-0.1, 2, ABOVE, 2.5, "excluded"),  # the paper's effect
        (-2, -0.1, ABOVE, math.nan, "excluded"),  # the paper's side
        (-2, -0.1, BELOW, -5, "agrees"),
        (0.1, 2, BELOW, math.nan, "excluded"),
        (-0.9, 0.9, NEAR, 1, "agrees"),
        (0.4, 1.1, NEAR, 1, "open"),
        (-1.1, 0.4, NEAR, 1, "excluded"),
        (1.1, 2, NEAR, 1, "excluded"),
        (99.1, 99.9, (99, math.inf), 99.97, "agrees"),
        (math.nan, math.nan, ABOVE, 1, "open"),  # one seed
    ],
)
def test_rule(script, low, high, side, paper, want):
    assert script.verdict(script.Effect(1.0, low, high), side, paper) == want


def test_test_in_place_of_an_interval(script):
    verdicts = [script.verdict(script.Effect(0.9, pvalue=p), ABOVE) for p in (0.04, 0.06)]
    assert verdicts == ["agrees", "open"]


def test_effect_that_is_found_with_a_power_of_80_percent(script):
    # Without seeds, it is that of a normal test.
    assert script.detectable(0, 0, 1.959964) == pytest.approx(1.959964 + 0.841621)
    rng = np.random.default_rng(0)
    for seeds, by_seed, by_example in ((3, 1, 0), (3, 1, 1), (5, 0.2, 1)):
        quantile = stats.t.ppf(0.975, seeds - 1)
        effect = script.detectable(quantile * by_seed, seeds, 1.959964 * by_example)
        errors = rng.normal(0, by_seed * math.sqrt(seeds), (100_000, seeds))
        errors += rng.normal(0, by_example, (100_000, 1))
        half = quantile * errors.std(axis=1, ddof=1) / math.sqrt(seeds)
        total = np.hypot(half, 1.959964 * by_example)
        power = np.mean(np.abs(effect + errors.mean(axis=1)) > total)
        assert power == pytest.approx(0.8, abs=0.015)


@pytest.fixture
def paper(tmp_path):
    """A paper with a kept table of two rows, and the numbers that it printed with two encoders."""
    (tmp_path / "results").mkdir()
    effects = """row,column,reference,seeds,value,low,high
        a,x,,3,50,48,52
        a,x,b,3,2,1,3
        a,y,b,1,2,,
        a,z,b,3,0.5,-3,4"""
    tests = """row,column,reference,low,high
        b,x,a,-4.5,0.5"""
    published = """table,row,encoder,column,value
        table1,A,bert,X,80
        table1,b,bert,X,77
        table1,A,bert,Y,60
        table1,b,bert,Y,58
        table1,A,roberta,X,80
        table1,b,roberta,X,84
        table1,c,,X,70"""
    files = {"results/t.effects": effects, "results/t.tests": tests, "published": published}
    for name, text in files.items():
        (tmp_path / f"{name}.csv").write_text(text.replace(" ", ""), encoding="utf-8")

    return tmp_path


WHERE = {
    "encoder": "bert",
    "rows": {"a": "A"},
    "columns": {"x": ["table1", "X"], "gap": ["table1", "X", "Y"]},
}


@pytest.fixture
def lines(script, paper):
    """A function that returns the lines of a claim about the rows a and b."""

    def build(side="above", **spec):
        claim = {"side": side, "lines": [{"table": "t", "row": "a", "against": "b", **spec}]}
        text = yaml.safe_dump({"printed": WHERE, "claims": [claim]})
        (paper / "claims.yaml").write_text(text, encoding="utf-8")
        script.claims.cache_clear()
        return script.claims(paper)[0]["lines"]

    return build


def test_interval_is_that_over_seeds_and_examples(script, paper):
    results = paper / "results"
    effect = script.measured(results, "t", "a", "b", "x")
    assert (effect.value, effect.low, effect.high, effect.number) == (2, -0.5, 4.5, "3")
    assert effect.detectable == script.detectable(1, 3, math.sqrt(2.5**2 - 1))
    turned = script.measured(results, "t", "b", "a", "x")
    assert (turned.value, turned.low, turned.high) == (-2, -4.5, 0.5)
    over_seeds = script.measured(results, "t", "a", "", "x")
    assert (over_seeds.low, over_seeds.high) == (48, 52)
    single = script.measured(results, "t", "a", "b", "y")
    assert math.isnan(single.low), "one seed has no interval"
    with pytest.raises(ValueError, match=r"t: no 'a' - 'c' in 'x'"):
        script.measured(results, "t", "a", "c", "x")


@pytest.mark.parametrize(
    ("row", "against", "column", "want"),
    [
        ("a", "b", "x", {"bert": 3, "roberta": -4}),
        ("a", "", "x", {"bert": 80, "roberta": 80}),
        ("a", "c", "x", {"bert": 10, "roberta": 10}),  # a row without an encoder
        ("a", "b", "gap", {"bert": 1}),  # a difference of two columns
        ("a", "b", "z", {}),  # a column that the paper does not have
    ],
)
def test_effect_of_the_paper(script, paper, row, against, column, want):
    spec = {"row": row, "against": against, "column": column}
    assert script.printed(paper, WHERE, spec) == want


def test_lines_of_a_claim(lines):
    (line,) = lines(column="x")
    assert (line.label, line.paper, line.verdict) == ("x: a - b", 3, "open")
    labels = [(line.label, line.verdict) for line in lines(columns=["x", "y"])]
    assert labels == [("x: a - b", "open"), ("y: a - b", "open")]
    (equal,) = lines("equal", column="x")
    assert equal.side == (-4, 4), "the paper's largest difference, with any encoder"
    (larger,) = lines(column="x", printed={"rows": {"a": "A", "b": "c"}})
    assert (larger.paper, larger.verdict) == (10, "excluded")
    assert larger.reason == "its effect, not its side"
    (worst,) = lines(columns=["x", "z"], worst=True)
    assert worst.label == "z: a - b"


def test_difference_of_two_shares(script, paper):
    rows = pd.DataFrame(
        [("L", name, "", 1, value) for name, value in (("p", 80.0), ("q", 60.0))],
        columns=["row", "column", "reference", "seeds", "value"],
    )
    rows.assign(low="", high="").to_csv(paper / "results" / "s.effects.csv", index=False)
    spec = {"table": "s", "row": "L", "shares": {"p": 400, "q": 600}}
    effect = script.effect_of(paper / "results", spec)
    rng = np.random.default_rng(0)
    resampled = rng.binomial(400, 0.8, 100_000) / 4 - rng.binomial(600, 0.6, 100_000) / 6
    ends = np.quantile(resampled, (0.025, 0.975))
    assert (effect.low, effect.high) == pytest.approx(tuple(ends), abs=0.2)


def test_which_pattern_is_nearer(script, paper):
    """The interval is that of drawing the pairs again; the side of the goals does not matter."""
    rng = np.random.default_rng(0)
    samples = {
        "model": rng.normal(0.8, 0.1, 300),
        "pattern": rng.normal(0.85, 0.2, 150),
        "other": rng.normal(1.0, 0.02, 200),
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
    pd.DataFrame(rows).to_csv(paper / "results" / "pairs.csv", index=False)
    spec = {"distances": "pairs.csv", "kind": "positive", "measure": "cosine"}
    effect = script.effect_of(paper / "results", {**spec, "names": [*samples]})

    resampled = {
        name: rng.choice(values, (20_000, len(values))).mean(axis=1)
        for name, values in samples.items()
    }
    distance = {name: abs(resampled["model"] - resampled[name]) for name in ("pattern", "other")}
    low, high = np.quantile(distance["other"] - distance["pattern"], (0.025, 0.975))
    assert (effect.low, effect.high) == pytest.approx((low, high), abs=0.005)
    turned = script.effect_of(paper / "results", {**spec, "names": ["model", "other", "pattern"]})
    assert turned.value == pytest.approx(-effect.value)


@pytest.mark.slow
@pytest.mark.parametrize("paper", PAPERS)
def test_page_has_the_table_that_claims_and_results_give(script, repository, paper):
    folder = repository / "experiments" / paper
    page = (folder / "README.md").read_text(encoding="utf-8")
    assert script.BLOCK.findall(page) == [script.table(folder)], "run python scripts/claims.py"


@pytest.mark.parametrize("paper", PAPERS)
def test_claims_are_short_and_complete(repository, paper):
    text = (repository / "experiments" / paper / "claims.yaml").read_text(encoding="utf-8")
    for claim in yaml.safe_load(text)["claims"]:
        assert len(claim.get("quote", "").split()) <= 25
        assert ("quote" in claim) != ("words" in claim)
        assert claim["source"]
        assert ("lines" in claim) != ("not_run" in claim)
        for line in claim.get("lines", [{"reason": claim.get("not_run")}]):
            assert len(line.get("reason", "").split()) <= 10
