"""Cells of tables and their tests of significance, from records and predictions as runs leave
them.
"""

import copy
import random
import statistics
from pathlib import Path

import pandas as pd
import pytest
import yaml
from fake_plan import FakePlan

from lightning_cse.errors import DataError
from lightning_cse.metrics import mcnemar
from lightning_cse.papers.artefacts import Request
from lightning_cse.papers.files import read_artefact
from lightning_cse.papers.records import Found
from lightning_cse.papers.render import write
from lightning_cse.papers.statistics import holm
from lightning_cse.papers.tables import make_table
from lightning_cse.runs import write_predictions

RTE, EIS = "test/rte/accuracy_all", "test/eis/accuracy"
TRAIN = {"experiment": "dualcse_cross"}
LENGTH = {"baseline": "length", "of": "a"}
Runs = dict[str, dict[int, Found]]


def artefact(folder, columns, rows, paper="", **more):
    """Write and read an artefact file; ``paper`` holds lines of published.csv without the table."""
    path = folder / "mine" / "table1.yaml"
    path.parent.mkdir(exist_ok=True)
    named = {
        "title": "Terms of the loss",
        "source": "Mine, Table 1",
        "encoders": ["bert_base"],
        "seeds": 3,
        **more,
    }
    path.write_text(
        yaml.safe_dump(
            {
                **named,
                "columns": dict(columns),
                "rows": dict(rows),
            },
            sort_keys=False,
        )
    )
    lines = "".join(f"table1,{line}\n" for line in paper.split())
    path.with_name("published.csv").write_text(
        f"table,row,encoder,column,value,deviation,note\n{lines}"
    )
    return read_artefact(path)


def record(metrics=(), **more):
    machine = {"cpu": "Z80", "cores": 2}
    environment = {"commit": "24357b6c9c" + "0" * 30, "machine": machine}
    common = {
        "name": "a",
        "config_hash": "01",
        "seed": 0,
        "device": "cpu",
        "environment": environment,
    }
    return {
        **common,
        "metrics": dict(metrics),
        **more,
    }


def kept(records):
    return {
        name: {
            s: Found(
                r,
                None,
                Path(f"{name}-s{s}.json"),
            )
            for s, r in of.items()
        }
        for name, of in records.items()
    }


def of_seeds(key, *values):
    return {
        seed: record({} if value is None else {key: value}) for seed, value in enumerate(values)
    }


def table(
    made,
    runs,
    request=Request(),  # noqa: B008 - frozen
    **more,
):
    change = more.pop("change_of", lambda run: "fresh")
    plan = FakePlan(
        made,
        runs,
        request,
        more.pop("settings", {}),
        change,
    )
    return make_table(plan, **more)


def cell(found, number, title):
    return found.cells.loc[(number, title)]


def test_mean_deviation_range_and_published_number(tmp_path):
    made = artefact(
        tmp_path,
        {"RTE": RTE, "EIS": EIS},
        {"a": TRAIN},
        "a,bert_base,RTE,80.18,0.3, a,bert_base,EIS,99,,",
    )
    found = table(
        made,
        kept(
            {
                "a": of_seeds(
                    RTE,
                    0.75,
                    0.80,
                    0.79,
                )
            }
        ),
    )
    one, empty = cell(found, 0, "RTE"), cell(found, 0, "EIS")
    assert (one.n, one.asked, one["values"]) == (
        3,
        3,
        pytest.approx(
            {
                0: 75,
                1: 80,
                2: 79,
            }
        ),
    )
    assert [one["mean"], one.sd] == pytest.approx([78, statistics.stdev([75, 80, 79])])
    assert [
        one.low,
        one.high,
        one.published,
        one.published_deviation,
    ] == pytest.approx([75, 80, 80.18, 0.3])
    assert one.difference == pytest.approx(78 - 80.18)
    assert (empty.n, empty.published, pd.isna(empty["mean"]), empty.marks) == (0, 99, True, ())
    assert (found.commits, found.machines) == (("24357b6",), ("cpu, Z80, 2 cores",))


def test_fields_means_and_baselines(tmp_path):
    columns = {
        "RTE": RTE,
        "EIS": EIS,
        "Avg": {"mean": ["RTE", "EIS"]},
        "dev": {"field": "best.score", "scale": 1},
    }
    made = artefact(
        tmp_path,
        columns,
        {"a": TRAIN, "LENGTH": LENGTH},
    )
    length = {"baselines": {"length": {EIS: 0.999}}}
    metrics = [
        {RTE: 0.8, EIS: 0.6},
        {RTE: 0.9},
        {RTE: 0.6, EIS: 0.2},
    ]
    found = table(
        made,
        kept(
            {
                "a": {
                    s: record(
                        m,
                        best={"score": 0.5},
                        **length,
                    )
                    for s, m in enumerate(metrics)
                }
            }
        ),
    )
    mean, dev, beside = cell(found, 0, "Avg"), cell(found, 0, "dev"), cell(found, 1, "EIS")
    assert (mean["values"], mean["mean"], mean.n, mean.asked) == (
        pytest.approx({0: 70, 2: 40}),
        pytest.approx(55),
        2,
        3,
    )
    assert dev["values"] == {
        0: 0.5,
        1: 0.5,
        2: 0.5,
    }
    assert (beside.n, beside.asked, beside["mean"], pd.isna(beside.sd)) == (
        1,
        1,
        pytest.approx(99.9),
        True,
    )


def test_settings_are_shown_as_they_are(tmp_path):
    columns = {
        "lr": {"config": "method.lr"},
        "sets": {"config": "loss.sets"},
        "gone": {"config": "gone"},
    }
    made = artefact(
        tmp_path,
        columns,
        {"a": TRAIN, "b": TRAIN},
        "a,bert_base,lr,3e-5,,",
    )
    runs = kept(
        {
            "a": {
                0: record(
                    decisive={"config": {"method": {"lr": 1e-5}, "loss": {"sets": ["ent", "con"]}}}
                )
            }
        }
    )
    found = table(
        made,
        runs,
        settings={"lr": 0.5, "sets": True},
    )
    assert list(found.cells["text"]) == ["1e-05", "ent+con", "", "0.5", "yes", ""]
    assert cell(found, 0, "lr").difference == pytest.approx(-2e-5)


def test_an_interval_is_of_the_mean_standard_error_and_missing_where_a_run_has_none(tmp_path):
    made = artefact(
        tmp_path,
        {"AUC": "test/rte/auc_implied"},
        dict.fromkeys("abc", TRAIN),
    )
    new = [
        record({"test/rte/auc_implied": v, "test/rte/auc_implied_se": e})
        for v, e in ((0.7, 0.01), (0.8, 0.03))
    ]
    old = record({"test/rte/auc_implied": 0.7})
    found = table(
        made,
        kept(
            {
                "a": dict(enumerate(new)),
                "b": {0: new[0], 1: old},
                "c": {0: record()},
            }
        ),
    )
    assert cell(found, 0, "AUC").error == pytest.approx(2)
    markdown = write(found, tmp_path, "t")[0].read_text()
    assert "| a | 2/3 | 75.00 ± 7.07<br>[71.08, 78.92] |" in markdown
    assert "| b | 2/3 | 70.00 ± 0.00 |" in markdown
    assert "| c |  | - |" in markdown
    assert any("95 % interval" in line for line in found.legend)


def test_a_final_score_says_of_how_many_evaluations_it_is(tmp_path):
    made = artefact(
        tmp_path,
        {"score": {"field": "summary.final_score"}},
        {"a": TRAIN},
    )
    runs = kept(
        {
            "a": {
                s: record(
                    summary={"final_score": 0.5},
                    best={"monitor": "val/x"},
                )
                for s in range(2)
            }
        }
    )
    assert (
        "score: a run's final score, mean of the best dev scores, at most five."
        in table(made, runs).legend
    )
    for seed, run in runs["a"].items():
        vars(run)["curves"] = {"val/x": [(step, 0.5) for step in range(5 + 7 * seed)]}
    assert (
        "score: a run's final score, mean of the 4 to 5 best of 4 to 11 dev scores."
        in table(made, runs).legend
    )


def test_what_is_not_a_number_is_refused_with_its_file(tmp_path):
    made = artefact(
        tmp_path,
        {"RTE": RTE},
        {"a": TRAIN},
    )
    with pytest.raises(DataError, match=r"a-s0\.json: metrics\.test/rte/accuracy_all is 'high'"):
        table(made, kept({"a": {0: record({RTE: "high"})}}))


def test_a_row_that_needs_a_variable_has_the_paper_s_number_until_it_is_measured(tmp_path):
    needs = {"variable": "CSE_MAY_ASK", "why": "calls are paid"}
    llm = {
        "evaluate": {"model": "llm", "suite": "inli"},
        "encoders": [],
        "needs": needs,
    }
    rows = {
        "a": TRAIN,
        "LLM": llm,
        "GPT": {"published": "an LLM is asked"},
    }
    made = artefact(
        tmp_path,
        {"RTE": RTE},
        rows,
        "LLM,,RTE,66,, GPT,,RTE,60,,one_run",
    )
    found = table(made, kept({"a": of_seeds(RTE, 0.5)}))
    assert (found.quoted, cell(found, 1, "RTE").published) == ((False, True, True), 66)
    assert found.legend[1:] == (
        "Not measured here: LLM: calls are paid; CSE_MAY_ASK=1 in the environment runs it.",
        "Not measured here: GPT: an LLM is asked.",
        "Published value, one_run: GPT.",
    )
    found = table(made, kept({"a": of_seeds(RTE, 0.5), "LLM": of_seeds(RTE, 0.75)}))
    assert (found.quoted, cell(found, 1, "RTE").difference) == ((False, False, True), 9)


def test_marks_that_all_cells_share_are_said_once(tmp_path):
    columns = {
        "EIS": {"metric": EIS, "instead": {"test/eis2/accuracy": "matched dev."}},
        "Avg": {"mean": ["EIS"]},
    }
    made = artefact(
        tmp_path,
        columns,
        {
            "a": TRAIN,
            "b": TRAIN,
            "LENGTH": LENGTH,
        },
    )
    a = {
        0: record({EIS: 0.5}, baselines={"length": {EIS: 1.0}}),
        1: record({EIS: 0.5}, config_hash="02"),
    }
    runs = kept({"a": a, "b": of_seeds("test/eis2/accuracy", 0.5)})
    stale = {"b-s0.json": "stale"}
    request = Request(
        encoder="tiny",
        settings=("data.x=1",),
    )
    found = table(
        made,
        runs,
        request,
        change_of=lambda run: stale.get(run.source.name, "unknown"),
    )
    assert [marks[2:] for marks in found.cells["marks"]] == [
        *[("mixed",)] * 2,
        *[("instead:test/eis2/accuracy", "stale")] * 2,
        *[()] * 2,
    ]
    assert [found.signs(row) for row in found.cells.itertuples()] == ["†", "†", "‡§", "‡§", "", ""]
    assert found.legend[:4] == (
        "All measured values: measured with tiny in place of bert_base; with data.x=1.",
        "† its seeds are of runs that differ in their data, or in what an automatic choice became.",
        "‡ matched dev.",
        "§ measured before the last change of its method.",
    )
    assert "unknown for 2 of 3 records" in found.legend[4]


# Significance


def rightness(name, rate, n=200):
    generator = random.Random(name)
    return [generator.random() < rate for _ in range(n)]


def make_runs(folder, rates, seeds=3):
    """Leave runs whose every seed gets a share of EIS right, with LENGTH beside them."""
    runs: Runs = {}
    for label, rate in rates.items():
        for seed in range(seeds):
            place = folder / "runs" / label / f"01-s{seed}"
            right = rightness(f"{label}{seed}", rate)
            for stored, correct in (("eis", right), ("length-eis", rightness("length", 0.99))):
                columns = {"row": list(range(len(correct))), "correct": correct}
                write_predictions(
                    place / "predictions",
                    stored,
                    columns,
                )
            mean = sum(right) / len(right)
            found = record(
                {EIS: mean},
                seed=seed,
                baselines={"length": {EIS: 0.99}},
            )
            runs.setdefault(label, {})[seed] = Found(
                found,
                place,
                place / "record.json",
            )
    return runs


def without_predictions(runs):
    return {
        name: {
            s: Found(
                copy.deepcopy(f.record),
                None,
                f.source,
            )
            for s, f in of.items()
        }
        for name, of in runs.items()
    }


def votes(label, rate):
    return [
        sum(of) >= 2
        for of in zip(*(rightness(f"{label}{seed}", rate) for seed in range(3)), strict=True)
    ]


RATES = {
    "a": 0.8,
    "b": 0.78,
    "c": 0.5,
}


def with_tests(folder, test="mcnemar", rows="abc"):
    named = dict.fromkeys(rows, TRAIN) | {"LENGTH": LENGTH}
    return artefact(
        folder,
        {"EIS": EIS, "AUPRC": "test/eis/auprc"},
        named,
        reference="a",
        test=test,
    )


def test_votes_are_compared_with_the_reference_and_holm_is_over_the_table(tmp_path):
    found = table(with_tests(tmp_path), make_runs(tmp_path, RATES))
    against = {
        **{label: votes(label, RATES[label]) for label in "bc"},
        "LENGTH": rightness("length", 0.99),
    }
    raw = [mcnemar(right, votes("a", 0.8)).pvalue for right in against.values()]
    eis = found.cells.xs("EIS", level=1)
    assert list(eis["p"])[1:] == pytest.approx(raw)
    assert list(eis["p_holm"])[1:] == pytest.approx(list(holm(raw)))
    assert [found.signs(row) for row in eis.itertuples()] == ["", "", "**", "**"]
    assert list(found.tests["row"]) == ["b", "c", "LENGTH"]
    assert "against a with the same encoder" in found.legend[0]
    assert "Holm over 3 comparisons" in found.legend[0]


def test_between_all_rows(tmp_path):
    found = table(with_tests(tmp_path, "mcnemar_all"), make_runs(tmp_path, RATES))
    pairs = list(
        zip(
            found.tests["row"],
            found.tests["reference"],
            strict=True,
        )
    )
    assert pairs == [
        ("b", "a"),
        ("b", "c"),
        ("b", "LENGTH"),
        ("c", "a"),
        ("c", "LENGTH"),
        ("LENGTH", "a"),
    ]
    b_c = found.tests.iloc[1]
    assert b_c["p"] == mcnemar(votes("b", 0.78), votes("c", 0.5)).pvalue
    assert list(found.tests["p_holm"]) == pytest.approx(list(holm(found.tests["p"])))
    assert [found.signs(row) for row in found.cells.xs("EIS", level=1).itertuples()] == [
        "",
        "cd",
        "**bd",
        "**bc",
    ]
    assert "Letters: p < 0.05 against b: b, c: c, d: LENGTH." in found.legend


def test_as_many_seeds_vote_on_both_sides_and_an_odd_number(tmp_path):
    # A tie counts as wrong: two votes of three equally good seeds would differ from one seed's
    # answers.
    runs = make_runs(tmp_path, {"a": 0.7, "b": 0.7})
    made = with_tests(tmp_path, rows="ab")
    for gone, voted in (((2,), "0"), ((0, 2), "1"), ((), "0 1 2")):
        some = runs | {"b": {seed: run for seed, run in runs["b"].items() if seed not in gone}}
        tests = table(made, some).tests
        assert [tests.seeds[0], tests.seeds_reference[0]] == [voted, voted]
        assert [tests.seeds[1], tests.seeds_reference[1]] == ["0", "0 1 2"]
    assert tests.p[0] == mcnemar(votes("b", 0.7), votes("a", 0.7)).pvalue


def test_kept_tests_stand_in_for_the_predictions_of_the_same_runs(tmp_path):
    runs, made = make_runs(tmp_path, RATES), with_tests(tmp_path)
    first = table(made, runs)
    file = write(first, tmp_path, "t")[-1]
    assert file.name == "t.tests.csv"
    bare = without_predictions(runs)
    again = table(
        made,
        bare,
        kept_tests=file,
    )
    assert again.tests.equals(first.tests)
    assert again.legend == first.legend
    assert table(made, bare).legend == (
        "Not tested, since predictions are not kept with these records: 3 comparisons with a.",
    )
    bare["b"][0].record["metrics"][EIS] += 0.01
    bare["c"].pop(2)
    assert list(
        table(
            made,
            bare,
            kept_tests=file,
        ).tests["row"]
    ) == ["LENGTH"], "other runs have other means and seeds"
    file.write_text(file.read_text().replace("mcnemar,0", "mcnemar,").replace("p_holm", "q"))
    with pytest.raises(DataError, match=r"t\.tests\.csv is damaged .*remove the file"):
        table(
            made,
            bare,
            kept_tests=file,
        )


@pytest.mark.parametrize(
    ("p", "sign"),
    [
        (0.009, "**"),
        (0.01, "*"),
        (0.049, "*"),
        (0.05, ""),
    ],
)
def test_stars_begin_below_a_level(tmp_path, p, sign):
    runs, made = (
        make_runs(tmp_path, {"a": 0.6, "b": 0.6}),
        artefact(
            tmp_path,
            {"EIS": EIS},
            {"a": TRAIN, "b": TRAIN},
            reference="a",
        ),
    )
    first = table(made, runs)
    first.tests["p"] = p
    file = write(first, tmp_path, "t")[-1]
    assert (
        found_sign(
            table(
                made,
                runs,
                kept_tests=file,
            )
        )
        == sign
    )


def found_sign(found):
    return found.signs(list(found.cells.itertuples())[1])


def test_no_p_value_is_zero(tmp_path):
    runs = make_runs(
        tmp_path,
        {"a": 0.8, "b": 0.5},
        seeds=1,
    )
    for label in "ab":
        columns = {"row": list(range(4000)), "correct": [label == "a"] * 4000}
        write_predictions(
            runs[label][0].folder / "predictions",
            "eis",
            columns,
        )  # type: ignore[operator]
    found = table(
        artefact(
            tmp_path,
            {"EIS": EIS},
            {"a": TRAIN, "b": TRAIN},
            reference="a",
        ),
        runs,
    )
    assert 0 < found.tests["p"][0] < 1e-200
    assert "| &lt;1e-99 | &lt;1e-99 |" in write(found, tmp_path, "t")[0].read_text()


def test_lines_of_another_encoder_have_their_own_reference(tmp_path):
    made = artefact(
        *(
            tmp_path,
            {"EIS": EIS},
            {
                "a": TRAIN,
                "b": TRAIN,
                "LENGTH": LENGTH,
            },
        ),
        encoders=["bert_base", "roberta_base"],
        reference="a",
    )
    tests = table(made, make_runs(tmp_path, {"a": 0.8, "b": 0.5})).tests
    assert list(
        zip(
            tests["row"],
            tests["encoder"],
            strict=True,
        )
    ) == [
        ("b", "bert_base"),
        ("b", "roberta_base"),
    ]


def test_runs_on_other_examples_are_refused(tmp_path):
    runs = make_runs(tmp_path, {"a": 0.8, "b": 0.5})
    write_predictions(
        runs["b"][1].folder / "predictions",
        "eis",
        {"row": [0], "correct": [True]},
    )  # type: ignore[operator]
    with pytest.raises(DataError, match=r"b/01-s0.* and .*b/01-s1.* different examples of eis"):
        table(with_tests(tmp_path, rows="ab"), runs)


def test_correlations_and_their_mean_are_bootstrapped(tmp_path):
    keys = {
        "x": "test/x/spearman_all",
        "y": "test/y/spearman",
        "avg": "test/avg/spearman_all",
    }
    columns = {
        **keys,
        "Avg": {"mean": ["x", "y"]},
        "acc": "test/x/accuracy",
    }
    made = artefact(
        tmp_path,
        columns,
        {"a": TRAIN, "b": TRAIN},
        reference="a",
        test="bootstrap",
    )
    suite = {"config": {"suite": {"avg": {"of": ["x/spearman_all", "y/spearman"]}}}}
    runs: Runs = {}
    for label, noise in (("a", 1.0), ("b", 4.0)):
        for seed in range(2):
            place = tmp_path / "runs" / label / f"01-s{seed}"
            for task in "xy":
                generator = random.Random(f"{label}{seed}{task}")
                gold = [float(row % 7) for row in range(60)]
                columns = {
                    "row": list(range(60)),
                    "gold": gold,
                    "score": [g + generator.gauss(0, noise) for g in gold],
                }
                write_predictions(
                    place / "predictions",
                    task,
                    columns,
                )
            found = record(
                dict.fromkeys([*keys.values(), "test/x/accuracy"], 0.5),
                seed=seed,
                decisive=suite,
            )
            runs.setdefault(label, {})[seed] = Found(
                found,
                place,
                place / "record.json",
            )
    found = table(made, runs, draws=300)
    assert list(found.tests["column"]) == ["x", "y", "avg", "Avg"]
    assert found.tests["p"][2] == found.tests["p"][3] == pytest.approx(2 / 301)
    assert "300 draws" in found.legend[0]
    without = copy.deepcopy(runs)
    for run in without["a"].values():
        del run.record["metrics"][keys["y"]]
    tests = table(
        made,
        without,
        draws=300,
    ).tests
    assert list(tests["column"]) == ["x", "avg"], "a mean of which one part has no seed"
    del runs["b"][1].record["metrics"][keys["y"]]
    tests = table(made, runs, draws=300).tests.set_index("column")
    assert (tests.loc["x", "seeds"], tests.loc["Avg", "seeds"]) == ("0 1", "0"), (
        "the seeds that all parts have"
    )
