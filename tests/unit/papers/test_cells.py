"""Cells of tables, from records and predictions as runs leave them."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lightning_cse.errors import DataError
from lightning_cse.metrics import mcnemar
from lightning_cse.papers.artefacts import (
    Artefact,
    Baseline,
    Column,
    Evaluate,
    Line,
    Needs,
    Published,
    PublishedValue,
    Request,
    Train,
)
from lightning_cse.papers.cells import Cell, Measured, Table, assemble, read_tests
from lightning_cse.papers.paired_tests import PairedBootstrap, bootstrap_spearman, holm
from lightning_cse.papers.records import Found
from lightning_cse.papers.render import write
from lightning_cse.runs import write_predictions

RTE, EIS = Column("RTE", "metric", ("test/rte/accuracy_all",)), Column("EIS", "metric", ("test/eis/accuracy",))
FULL, SMALL = Request(), Request(profile="small")


def line(label: str = "a", **change: Any) -> Line:
    way = change.pop("way", Train("dualcse_cross"))
    return replace(Line(label, label, "bert_base", "bert_base", way, (0, 1, 2)), **change)


def artefact(*columns: Column, **change: Any) -> Artefact:
    made = Artefact("dualcse", "table5", "Terms", "DualCSE, Table 5", "table", columns, None, None, None, "", Path("x"))
    return replace(made, **change)


def record(metrics: Mapping[str, Any] = {}, **more: Any) -> dict[str, Any]:
    return {
        "name": "a",
        "config_hash": "01",
        "seed": 0,
        "metrics": dict(metrics),
        "device": "cpu",
        "environment": {"commit": "24357b6c9c" + "0" * 30, "machine": {"cpu": "Z80", "cores": 2}},
    } | more


Values = Mapping[str, Mapping[int, Mapping[str, Any]]]


def table(made: Artefact, lines: list[Line], records: Values, request: Request = FULL, **more: Any) -> Table:
    """Assemble a table from the records of its lines, by label and seed."""

    def measured(of: Line, column: Column) -> Measured:
        found = {s: Found(r, None, Path(f"{of.label}-{of.encoder}-s{s}.json")) for s, r in records[of.label].items()}
        return Measured(found, of.seeds)

    more.setdefault("change_of", lambda found: "fresh")
    return assemble(made, lines, measured, request, **more)


def of_seeds(key: str, *values: float | None) -> dict[int, dict[str, Any]]:
    return {seed: record({} if value is None else {key: value}) for seed, value in enumerate(values)}


class TestValues:
    def test_mean_deviation_range_and_difference(self) -> None:
        paper = PublishedValue("paper's a", "bert_base", "RTE", 80.18, 0.3)
        made = artefact(RTE, published=(paper, replace(paper, encoder="roberta_base", value=1.0)))
        found = table(made, [line(name="paper's a")], {"a": of_seeds("test/rte/accuracy_all", 0.75, 0.80, 0.79)})
        (cell,) = found.lines[0].cells
        assert (cell.n, cell.asked, cell.values) == (3, 3, pytest.approx({0: 75, 1: 80, 2: 79}))
        assert cell.mean == pytest.approx(78)
        assert cell.sd == pytest.approx(statistics.stdev([75, 80, 79]))
        assert (cell.low, cell.high) == pytest.approx((75, 80))
        assert (cell.published, cell.published_deviation) == (80.18, 0.3)
        assert cell.difference == pytest.approx(78 - 80.18)
        assert (found.commits, found.machines) == (("24357b6",), ("cpu, Z80, 2 cores",))

    def test_an_empty_cell_keeps_the_paper_s_value(self) -> None:
        made = artefact(RTE, EIS, published=(PublishedValue("a", "bert_base", "RTE", 80.18),))
        empty, measured = table(made, [line()], {"a": of_seeds("test/eis/accuracy", 0.5)}).lines[0].cells
        assert empty == Cell(n=0, asked=3, published=80.18)
        assert (measured.n, measured.asked, measured.sd, measured.published) == (1, 3, None, None)

    def test_fields_have_their_own_scale(self) -> None:
        column = Column("dev", "field", ("best.score",), scale=1.0)
        found = table(artefact(column), [line()], {"a": {0: record(best={"score": 0.5}), 1: record(best=None)}})
        assert found.lines[0].cells[0].values == {0: 0.5}

    def test_a_mean_is_taken_seed_by_seed(self) -> None:
        avg = Column("Avg", "mean", ("RTE", "EIS"), scale=1.0)
        metrics = [(0.8, 0.6), (0.9, None), (0.6, 0.2)]
        keys = (RTE.keys[0], EIS.keys[0])
        records = {s: record({k: v for k, v in zip(keys, of, strict=True) if v}) for s, of in enumerate(metrics)}
        cell = table(artefact(RTE, EIS, avg), [line()], {"a": records}).lines[0].cells[2]
        assert cell.values == pytest.approx({0: 70, 2: 40})
        assert (cell.mean, cell.n, cell.asked) == (pytest.approx(55), 2, 3)
        none = table(artefact(RTE, EIS, avg), [line()], {"a": of_seeds(keys[0], 0.8)}).lines[0].cells[2]
        assert (none.mean, none.n) == (None, 0)

    def test_a_baseline_is_measured_once(self) -> None:
        records = {s: record(baselines={"length": {EIS.keys[0]: 0.999}}) for s in range(3)}
        length = line("LENGTH", encoder=None, paper_encoder=None, way=Baseline("length", "a"))
        paper = PublishedValue("LENGTH", None, "EIS", 99.9)
        cell = table(artefact(EIS, published=(paper,)), [length], {"LENGTH": records}).lines[0].cells[0]
        assert (cell.n, cell.asked, cell.mean, cell.sd) == (1, 1, pytest.approx(99.9), None)
        assert cell.difference == pytest.approx(0, abs=1e-12)

    def test_seeds_of_other_data_are_told(self) -> None:
        avg = Column("Avg", "mean", ("RTE",), scale=1.0)
        runs = {"a": of_seeds("test/rte/accuracy_all", 0.5, 0.6), "b": of_seeds("test/rte/accuracy_all", 0.5, 0.6)}
        runs["b"][1]["config_hash"] = "02"
        run = {"name": "a", "config_hash": "01", "seed": 0}
        runs["c"] = {s: record({"test/rte/accuracy_all": 0.5}, identity=f"e{s}", model={"run": run}) for s in (0, 1)}
        found = table(artefact(RTE, avg), [line(), line("b"), line("c")], runs)
        assert [cell.marks for one in found.lines for cell in one.cells] == [(), (), *[("mixed",)] * 2, (), ()]
        assert found.legend[0].startswith("† its seeds are of runs that differ in their data")

    def test_settings_are_shown_as_they_are(self) -> None:
        columns = [Column(k, "config", (k,), scale=1.0) for k in ("method.lr", "loss.sets", "gone")]
        config = {"method": {"lr": 1e-5}, "loss": {"sets": ["ent", "con"]}}
        records = {0: record(decisive={"config": config})}
        made = artefact(*columns, published=(PublishedValue("a", "bert_base", "method.lr", 3e-5),))
        asked = []

        def setting_of(of: Line, column: Column) -> Any:
            asked.append((of.label, column.title))
            return {"method.lr": 0.5, "loss.sets": True}.get(column.title)

        found = table(made, [line(), line("b")], {"a": records, "b": {}}, SMALL, setting_of=setting_of)
        assert [cell.text for cell in found.lines[0].cells] == ["1e-05", "ent+con", None]
        assert [cell.text for cell in found.lines[1].cells] == ["0.5", "yes", None]
        assert found.lines[0].cells[0].difference == pytest.approx(-2e-5)
        assert asked == [("a", "gone"), ("b", "method.lr"), ("b", "loss.sets"), ("b", "gone")]
        assert [mark.text for mark in found.marks] == ["profile small"], "a profile changes settings, too"
        assert [cell.marks for cell in found.lines[0].cells] == [("profile",), ("profile",), ()]

    def test_what_is_no_number_is_told_with_its_file(self) -> None:
        records = {"a": {0: record({RTE.keys[0]: "high"})}}
        with pytest.raises(DataError, match=r"a-bert_base-s0\.json: test/rte/accuracy_all is 'high'"):
            table(artefact(RTE), [line()], records)

    def test_what_is_only_published_is_not_looked_for(self) -> None:
        llm = line("GPT-4", encoder=None, paper_encoder=None, way=Published("an LLM is asked."))
        made = artefact(RTE, published=(PublishedValue("GPT-4", None, "RTE", 66.0, None, "zero-shot"),))
        found = table(made, [llm], {})
        assert found.lines[0].cells == (Cell(published=66.0),)
        assert found.legend == ("Not measured here: GPT-4: an LLM is asked.", "Published value, zero-shot: GPT-4.")

    def test_a_row_that_needs_a_variable_has_the_paper_s_numbers_until_it_is_measured(self) -> None:
        needs = Needs("CSE_MAY_ASK", "calls are paid")
        rows = [line(), line("LLM", encoder=None, paper_encoder=None, needs=needs)]
        columns = (RTE, EIS, Column("both", "mean", ("RTE", "EIS"), scale=1.0), Column("name", "config", ("name",)))
        numbers = tuple(PublishedValue("LLM", None, column.title, 66.0) for column in columns)
        made = artefact(*columns, published=numbers)
        a = of_seeds(RTE.keys[0], 0.5)
        found = table(made, rows, {"a": a, "LLM": {}}, setting_of=lambda of, column: of.label)
        assert found.lines[1].cells == (Cell(published=66.0),) * 4
        assert [one.quoted for one in found.lines] == [False, True]
        (note,) = [note for note in found.legend if "LLM" in note]
        assert note == "Not measured here: LLM: calls are paid; CSE_MAY_ASK=1 in the environment runs it."
        found = table(made, rows, {"a": a, "LLM": of_seeds(RTE.keys[0], 0.75)}, setting_of=lambda of, column: of.label)
        rte, eis, both, name = found.lines[1].cells
        assert (rte.mean, rte.n, rte.asked, rte.published) == (75.0, 1, 3, 66.0)
        assert (eis.n, eis.asked, both.asked, name.text) == (0, 3, 3, "LLM")
        assert not found.lines[1].quoted
        assert not [note for note in found.legend if "Not measured here" in note]


class TestMarks:
    def test_what_all_share_is_said_once(self) -> None:
        records = {label: of_seeds(RTE.keys[0], 0.5) for label in ("a", "b")}
        lines = [line(encoder="minilm_l6"), line("b", encoder="minilm_l6")]
        found = table(artefact(RTE), lines, records, replace(SMALL, settings=("data.x=1", "+y=2")))
        assert found.legend[0] == (
            "All measured values: profile small; measured with minilm_l6 in place of bert_base; with data.x=1 +y=2."
        )
        cell = found.lines[0].cells[0]
        assert cell.marks == ("profile", "encoder", "settings")
        assert found.symbols(cell) == ()

    def test_what_some_have_is_marked_on_them(self) -> None:
        records = {label: of_seeds(RTE.keys[0], 0.5) for label in ("a", "b", "c")}
        lines = [line(), line("b", encoder="minilm_l6"), line("c")]
        found = table(
            artefact(RTE), lines, records, change_of=lambda f: "stale" if f.source.name[0] == "b" else "fresh"
        )
        assert [found.symbols(one.cells[0]) for one in found.lines] == [(), ("†", "‡"), ()]
        assert found.legend[:2] == (
            "† measured with minilm_l6 in place of bert_base.",
            "‡ measured before the last change of its loss.",
        )

    def test_a_line_without_an_encoder_has_no_other(self) -> None:
        length = line("LENGTH", encoder=None, paper_encoder=None, way=Baseline("length", "a"))
        records = {"a": of_seeds(EIS.keys[0], 0.5), "LENGTH": {0: record(baselines={"length": {EIS.keys[0]: 1.0}})}}
        found = table(artefact(EIS), [line(encoder="minilm_l6"), length], records)
        assert found.legend[0] == "All measured values: measured with minilm_l6 in place of bert_base."

    def test_a_metric_in_place_of_another(self) -> None:
        column = replace(EIS, instead={"test/eis2/accuracy": "matched dev."})
        avg = Column("Avg", "mean", ("EIS",), scale=1.0)
        records = {"a": of_seeds("test/eis2/accuracy", 0.5), "b": of_seeds("test/eis/accuracy", 0.75)}
        found = table(artefact(column, avg), [line(), line("b")], records)
        assert [[cell.mean for cell in one.cells] for one in found.lines] == [[50, 50], [75, 75]]
        assert [[found.symbols(cell) for cell in one.cells] for one in found.lines] == [[("†",), ("†",)], [(), ()]]
        assert found.legend[0] == "† matched dev."
        both = {0: record({"test/eis2/accuracy": 0.1, "test/eis/accuracy": 0.2})}
        assert table(artefact(column), [line()], {"a": both}).lines[0].cells[0].mean == 20

    def test_unknown_age_is_only_told(self) -> None:
        found = table(
            artefact(RTE),
            [line()],
            {"a": of_seeds(RTE.keys[0], 0.5, 0.5)},
            change_of=lambda f: "unknown" if "s1" in f.source.name else "fresh",
        )
        assert found.lines[0].cells[0].marks == ()
        assert any("not known of 1 of 2 records" in told for told in found.legend)
        assert "n: seeds that are measured / seeds asked for." in found.legend

    def test_a_note_of_some_values_names_their_columns(self) -> None:
        published = [
            PublishedValue("a", "bert_base", "RTE", 1.0, None, "one run"),
            PublishedValue("a", "bert_base", "EIS", 1.0),
            PublishedValue("b", "bert_base", "EIS", 1.0, None, "one run"),
            PublishedValue("c", "bert_base", "EIS", 1.0, None, "of another row"),
        ]
        made = artefact(RTE, EIS, published=tuple(published))
        found = table(made, [line(), line("b")], {"a": {}, "b": {}})
        assert found.legend[-1] == "Published value, one run: a (RTE), b."

    def test_a_note_of_most_values_names_the_others(self) -> None:
        columns = [replace(RTE, title=title) for title in "xyz"]
        published = [PublishedValue("a", "bert_base", t, 1.0, None, "" if t == "y" else "quoted") for t in "xyz"]
        lines = [line(), line(encoder="roberta_base", paper_encoder="roberta_base")]
        found = table(artefact(*columns, published=tuple(published)), lines, {"a": {}})
        assert found.legend[-1] == "Published value, quoted: a (bert_base) (but y)."


Runs = dict[str, dict[int, Found]]


def rightness(seed: str, rate: float, n: int = 200) -> list[bool]:
    generator = random.Random(seed)
    return [generator.random() < rate for _ in range(n)]


@pytest.fixture
def make_runs(tmp_path: Path) -> Callable[..., Runs]:
    """Leave runs of lines whose every seed gets a share of EIS right."""

    def make(rates: Mapping[str, float], seeds: int = 3, **more: Any) -> Runs:
        runs: Runs = {}
        for label, rate in rates.items():
            for seed in range(seeds):
                correct = rightness(f"{label}{seed}", rate)
                folder = tmp_path / "runs" / label / f"01-s{seed}"
                columns = {"row": list(range(len(correct))), "correct": correct}
                write_predictions(folder / "predictions", "eis", columns)
                length = {"row": columns["row"], "correct": rightness("length", 0.99)}
                write_predictions(folder / "predictions", "length-eis", length)
                found = record({EIS.keys[0]: sum(correct) / len(correct)}, name=label, seed=seed)
                found["baselines"] = {"length": {EIS.keys[0]: sum(length["correct"]) / len(correct)}}
                runs.setdefault(label, {})[seed] = Found(found | more, folder, folder / "record.json")
        return runs

    return make


def with_tests(made: Artefact, lines: list[Line], runs: Runs, **more: Any) -> Table:
    def measured(of: Line, column: Column) -> Measured:
        return Measured(runs["a" if isinstance(of.way, Baseline) else of.label], of.seeds)

    return assemble(made, lines, measured, Request(), change_of=lambda found: "fresh", **more)


def without_predictions(runs: Runs) -> Runs:
    return {
        label: {s: Found(f.record, None, Path(f"{label}-{s}")) for s, f in of.items()} for label, of in runs.items()
    }


EIS_TESTED = {"reference": "a", "test": "mcnemar"}


class TestSignificance:
    def test_votes_are_compared_with_the_reference_and_holm_is_over_the_table(
        self, make_runs: Callable[..., Runs]
    ) -> None:
        rates = {"a": 0.8, "b": 0.78, "c": 0.5}
        runs = make_runs(rates)
        length = line("LENGTH", encoder=None, paper_encoder=None, way=Baseline("length", "a"))
        found = with_tests(artefact(EIS, **EIS_TESTED), [line("b"), line("a"), line("c"), length], runs)
        votes = {
            label: [sum(c) >= 2 for c in zip(*(rightness(f"{label}{s}", rate) for s in range(3)), strict=True)]
            for label, rate in rates.items()
        } | {"LENGTH": rightness("length", 0.99)}
        raw = [mcnemar(votes[label], votes["a"]).pvalue for label in ("b", "c", "LENGTH")]
        b, a, c, last = (one.cells[0] for one in found.lines)
        assert [cell.p for cell in (b, c, last)] == pytest.approx(raw)
        assert [cell.p_holm for cell in (b, c, last)] == pytest.approx(list(holm(raw)))
        assert (a.p, a.p_holm) == (None, None)
        assert b.p_holm > 0.05 > 0.01 > c.p_holm
        assert [found.symbols(cell) for cell in (a, b, c)] == [(), (), ("**",)]
        assert [test.row for test in found.tests] == ["b", "c", "LENGTH"]
        assert "against a with the same encoder" in found.legend[0]
        assert "Holm over 3 comparisons" in found.legend[0]

    def test_votes_are_of_as_many_seeds_on_both_sides_and_of_an_odd_number(
        self, make_runs: Callable[..., Runs]
    ) -> None:
        # A tie counts as wrong: two votes of three equally good seeds would differ from one seed's answers.
        runs = make_runs({"a": 0.7, "b": 0.7})
        length = line("LENGTH", encoder=None, paper_encoder=None, way=Baseline("length", "a"))
        made, lines = artefact(EIS, **EIS_TESTED), [line(), line("b"), length]
        for gone, ours, theirs in (([2], (0,), (0,)), ([0, 2], (1,), (1,)), ([], (0, 1, 2), (0, 1, 2))):
            some = runs | {"b": {seed: run for seed, run in runs["b"].items() if seed not in gone}}
            test, of_length = with_tests(made, lines, some).tests
            assert (test.seeds, test.seeds_reference) == (ours, theirs)
            assert (of_length.seeds, of_length.seeds_reference) == ((0,), (0, 1, 2))
            if len(ours) == 1:
                raw = (rightness(f"{label}{ours[0]}", 0.7) for label in "ba")
                assert test.p == mcnemar(*raw).pvalue
        even = {label: {seed: run for seed, run in of.items() if seed < 2} for label, of in runs.items()}
        test, of_length = with_tests(made, lines, even).tests
        assert (test.seeds, test.seeds_reference, of_length.seeds_reference) == ((0,), (0,), (0,))

    def test_no_p_value_is_zero(self, make_runs: Callable[..., Runs], tmp_path: Path) -> None:
        runs = make_runs({"a": 0.8, "b": 0.5}, seeds=1)
        for label, right in (("a", True), ("b", False)):
            folder = runs[label][0].folder
            write_predictions(folder / "predictions", "eis", {"row": list(range(4000)), "correct": [right] * 4000})
        made = with_tests(artefact(EIS, **EIS_TESTED), [line(), line("b")], runs)
        assert 0 < made.tests[0].p < 1e-200
        assert "| &lt;1e-99 | &lt;1e-99 |" in write(made, tmp_path, "t")[0].read_text()

    def test_one_star_between_the_levels(self, make_runs: Callable[..., Runs], tmp_path: Path) -> None:
        runs = make_runs({"a": 0.6, "b": 0.6})
        first = with_tests(artefact(EIS, **EIS_TESTED), [line(), line("b")], runs)
        for p, marks in ((0.009, ("**",)), (0.01, ("*",)), (0.049, ("*",)), (0.05, ())):
            write(replace(first, tests=(replace(first.tests[0], p=p),)), tmp_path, "kept")
            kept = tmp_path / "kept.tests.csv"
            found = with_tests(artefact(EIS, **EIS_TESTED), [line(), line("b")], runs, kept_tests=kept)
            assert found.lines[1].cells[0].marks == marks

    def test_lines_of_another_encoder_have_their_own_reference(self, make_runs: Callable[..., Runs]) -> None:
        runs = make_runs({"a": 0.8, "b": 0.5})
        lines = [line(label, encoder=encoder) for encoder in ("bert_base", "roberta_base") for label in "ab"]
        length = line("LENGTH", encoder=None, way=Baseline("length", "a"))
        found = with_tests(artefact(EIS, **EIS_TESTED), [*lines, length], runs)
        assert [test.place for test in found.tests] == [("b", e, "EIS") for e in ("bert_base", "roberta_base")]

    def test_records_without_predictions_are_not_tested(self, make_runs: Callable[..., Runs]) -> None:
        runs = without_predictions(make_runs({"a": 0.8, "b": 0.5}))
        found = with_tests(artefact(EIS, **EIS_TESTED), [line(), line("b")], runs)
        assert found.tests == ()
        assert found.legend == ("Not tested: 1 comparison with a, since predictions are not kept with these records.",)

    def test_kept_tests_stand_in_for_predictions(self, make_runs: Callable[..., Runs], tmp_path: Path) -> None:
        runs = make_runs({"a": 0.8, "b": 0.5, "c": 0.7})
        made, lines = artefact(EIS, **EIS_TESTED), [line(), line("b"), line("c")]
        first = with_tests(made, lines, runs)
        assert write(first, tmp_path, "table5")[-1] == tmp_path / "table5.tests.csv"
        kept = tmp_path / "table5.tests.csv"
        assert tuple(read_tests(kept)) == first.tests
        again = with_tests(made, lines, without_predictions(runs), kept_tests=kept)
        assert (again.tests, again.lines, again.legend) == (first.tests, first.lines, first.legend)

    def test_kept_tests_of_other_runs_are_not_believed(self, make_runs: Callable[..., Runs], tmp_path: Path) -> None:
        runs = make_runs({"a": 0.8, "b": 0.5, "c": 0.7})
        made, lines = artefact(EIS, **EIS_TESTED), [line(), line("b"), line("c")]
        write(with_tests(made, lines, runs), tmp_path, "t")
        runs["b"][0].record["metrics"][EIS.keys[0]] += 0.01
        runs["c"].pop(2)
        again = with_tests(made, lines, without_predictions(runs), kept_tests=tmp_path / "t.tests.csv")
        assert again.tests == ()
        assert "Not tested: 2 comparisons" in again.legend[0]

    def test_damaged_kept_tests(self, make_runs: Callable[..., Runs], tmp_path: Path) -> None:
        runs = make_runs({"a": 0.8, "b": 0.5})
        write(with_tests(artefact(EIS, **EIS_TESTED), [line(), line("b")], runs), tmp_path, "t")
        kept = tmp_path / "t.tests.csv"
        text = kept.read_text()
        kept.write_text(text.replace("0 1 2", "0 one 2"))
        with pytest.raises(DataError, match=r"t\.tests\.csv, line 2: no comparison in .*remove the file"):
            read_tests(kept)
        kept.write_text(text.replace("p_holm", "q"))
        with pytest.raises(DataError, match=r"line 1: no column p_holm"):
            read_tests(kept)
        assert read_tests(tmp_path / "none.csv") == read_tests(None) == []

    def test_only_columns_that_the_test_suits(self, make_runs: Callable[..., Runs]) -> None:
        more = [Column(n, "metric", (f"test/{n}",)) for n in ("eis/auprc", "sts/spearman")]
        runs = make_runs({"a": 0.8, "b": 0.5})
        for of in runs.values():
            for found in of.values():
                found.record["metrics"].update({"test/eis/auprc": 0.5, "test/sts/spearman": 0.5})
        avg = Column("Avg", "mean", ("EIS",), scale=1.0)
        found = with_tests(artefact(EIS, *more, avg, **EIS_TESTED), [line(), line("b")], runs)
        assert [test.column for test in found.tests] == ["EIS"]
        assert not any("Not tested" in told for told in found.legend)

    def test_metrics_in_place_of_others_are_not_mixed(self, make_runs: Callable[..., Runs]) -> None:
        runs = make_runs({"a": 0.8, "b": 0.5})
        for found in runs["b"].values():
            found.record["metrics"]["test/eis2/accuracy"] = found.record["metrics"].pop(EIS.keys[0])
        column = replace(EIS, instead={"test/eis2/accuracy": "another file"})
        assert with_tests(artefact(column, **EIS_TESTED), [line(), line("b")], runs).tests == ()

    def test_other_examples_are_refused(self, make_runs: Callable[..., Runs]) -> None:
        runs = make_runs({"a": 0.8, "b": 0.5})
        write_predictions(runs["b"][1].folder / "predictions", "eis", {"row": [0], "correct": [True]})
        with pytest.raises(DataError, match="different examples: 200 and 1 examples"):
            with_tests(artefact(EIS, **EIS_TESTED), [line(), line("b")], runs)

    def test_a_table_without_its_reference_says_so(self, make_runs: Callable[..., Runs]) -> None:
        found = with_tests(artefact(EIS, **EIS_TESTED), [line("b")], make_runs({"b": 0.5}))
        assert found.legend == ("No test of significance: the reference row a is not in this table.",)

    def test_correlations_are_bootstrapped_and_so_is_their_mean(self, tmp_path: Path) -> None:
        of = ["x/spearman_all", "y/spearman"]
        suite = {"avg": {"of": of}}
        runs: Runs = {}
        stored: dict[tuple[str, int, str], list[float]] = {}
        gold = [float(row % 7) for row in range(60)]
        for label, noise in (("a", 1.0), ("b", 4.0)):
            for seed in range(2):
                folder = tmp_path / label / f"01-s{seed}"
                for task in ("x", "y"):
                    generator = random.Random(f"{label}{seed}{task}")
                    scores = [value + generator.gauss(0, noise) for value in gold]
                    stored[label, seed, task] = scores
                    columns = {"row": list(range(60)), "gold": gold, "score": scores}
                    write_predictions(folder / "predictions", task, columns)
                values = {"test/x/spearman_all": 0.5, "test/y/spearman": 0.5, "test/avg/spearman_all": 0.5}
                document = {"config": {"suite": suite}}
                found = record(values, name=label, seed=seed, decisive=document)
                runs.setdefault(label, {})[seed] = Found(found, folder, folder / "record.json")
        columns = [Column(t, "metric", (f"test/{t}",)) for t in (*of, "avg/spearman_all")]
        mean = Column("Avg", "mean", tuple(of), scale=1.0)
        made = artefact(*columns, mean, reference="a", test="bootstrap")
        found = with_tests(made, [line(), line("b")], runs, draws=300)
        p = {test.column: test.p for test in found.tests}
        assert list(p) == [*of, "avg/spearman_all", "Avg"]
        assert p["Avg"] == p["avg/spearman_all"] == pytest.approx(2 / 301)
        scores = [[stored[label, seed, "y"] for seed in range(2)] for label in "ba"]
        drawn = [bootstrap_spearman(np.array(gold), of, 300) for of in scores]
        assert p["y/spearman"] == pytest.approx(PairedBootstrap.of_draws(0, drawn[0] - drawn[1]).pvalue, abs=0.02)
        assert "300 draws" in found.legend[0]
        assert found.lines[1].cells[0].p_holm == pytest.approx(4 * 2 / 301)

    def test_an_evaluation_is_compared_as_a_run_is(self, make_runs: Callable[..., Runs]) -> None:
        runs = make_runs({"a": 0.8, "b": 0.5}, seeds=1)
        lines = [line(seeds=(0,)), line("b", seeds=(0,), way=Evaluate("rte", "bert_base"))]
        (test,) = with_tests(artefact(EIS, **EIS_TESTED), lines, runs).tests
        assert (test.seeds, test.seeds_reference) == ((0,), (0,))
        assert math.isclose(test.mean, 100 * sum(rightness("b0", 0.5)) / 200)
