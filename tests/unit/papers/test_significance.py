"""Runs compared by the predictions they left, in folders as runs leave them."""

from __future__ import annotations

import json
import random
import statistics
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import binomtest

from lightning_cse.errors import DataError
from lightning_cse.metrics import spearman, spearman_all
from lightning_cse.papers.paired_tests import bootstrap_spearman
from lightning_cse.papers.significance import (
    Comparison,
    Correlations,
    Point,
    baseline_points,
    compare,
    compare_accuracy,
    points,
    read_outcome,
    read_run,
    read_scores,
)
from lightning_cse.runs import Run, write_predictions

MakeRun = Callable[..., Path]
N = 60
ENCODER = {"name": "tiny", "weights": "12"}


def answers(seed: str, rate: float, n: int = N) -> list[bool]:
    generator = random.Random(seed)
    return [generator.random() < rate for _ in range(n)]


def eis(correct: list[bool]) -> dict[str, list[Any]]:
    """Predictions with a column that says what is right."""
    n = len(correct)
    return {"row": list(range(n)), "type": ["explicit"] * n, "premise_score": [0.5] * n, "correct": correct}


def rte(correct: list[bool]) -> dict[str, list[Any]]:
    """Predictions of labels, every third of them positive."""
    labels = [row % 3 == 0 for row in range(len(correct))]
    predicted = [label == right for label, right in zip(labels, correct, strict=True)]
    return {"row": list(range(len(correct))), "label": labels, "score": [0.1] * len(correct), "prediction": predicted}


@pytest.fixture
def make_run(tmp_path: Path) -> MakeRun:
    """Leave a finished run and return its folder."""

    def make(
        name: str, identity: str, seed: int, predictions: Mapping[str, Mapping[str, list[Any]]], **record: Any
    ) -> Path:
        folder = Run(tmp_path / "runs", name, identity, seed)
        for stored, columns in predictions.items():
            write_predictions(folder.predictions, stored, columns)
        folder.finish({"name": name, "config_hash": identity, "seed": seed, **record})
        return folder.path

    return make


def compared(*paths: Path, tasks: tuple[str, ...] = ()) -> list[Comparison]:
    return compare(points(map(read_run, paths)), tasks)


class TestCompare:
    def test_against_loops_over_rows(self, make_run: MakeRun) -> None:
        right = {"a": [answers(f"a{s}", 0.9) for s in range(3)], "b": [answers(f"b{s}", 0.5) for s in range(3)]}
        folders = [make_run(n, "0123456789", s, {"eis": eis(right[n][s])}) for n in right for s in range(3)]
        (found,) = compared(*folders)

        only_a = only_b = 0
        for row in range(N):
            a, b = (sum(right[n][s][row] for s in range(3)) >= 2 for n in right)
            only_a, only_b = only_a + (a and not b), only_b + (b and not a)
        assert only_a > only_b > 0, "the data must have both kinds of differences"
        assert (found.test.only_a, found.test.only_b, found.test.examples) == (only_a, only_b, N)
        assert found.test.pvalue == pytest.approx(binomtest(only_a, only_a + only_b).pvalue)
        assert found.pvalue_holm == found.test.pvalue

        by_seed = {}
        for seed in range(3):
            pairs = list(zip(right["a"][seed], right["b"][seed], strict=True))
            b, c = pairs.count((True, False)), pairs.count((False, True))
            by_seed[seed] = binomtest(b, b + c).pvalue
        assert found.by_seed == pytest.approx(by_seed)
        assert found.pvalue_median == pytest.approx(statistics.median(by_seed.values()))
        accuracy = {n: sum(map(sum, right[n])) / (3 * N) for n in right}
        assert (found.accuracy_a, found.accuracy_b) == pytest.approx((accuracy["a"], accuracy["b"]))
        assert found.difference == pytest.approx(100 * (accuracy["a"] - accuracy["b"]))
        assert found.voted_a - found.voted_b == pytest.approx((only_a - only_b) / N)

    def test_labels_and_predictions_say_the_same_as_correct(self, make_run: MakeRun) -> None:
        right = answers("a", 0.7), answers("b", 0.4)
        folders = [make_run(f"p{k}", "01", 0, {"eis": eis(r), "rte": rte(r)}) for k, r in enumerate(right)]
        on_eis, on_rte = compared(*folders)
        assert (on_eis.task, on_rte.task) == ("eis", "rte")
        assert on_eis.test == on_rte.test
        assert on_rte.accuracy_a == sum(right[0]) / N

    def test_holm_is_over_all_pairs_and_tasks(self, make_run: MakeRun) -> None:
        right = {name: answers(name, rate) for name, rate in (("a", 0.9), ("b", 0.6), ("c", 0.5))}
        folders = [make_run(name, "01", 0, {"eis": eis(r), "rte": rte(r[::-1])}) for name, r in right.items()]
        found = compared(*folders)
        assert [(c.task, c.a.label, c.b.label) for c in found] == [
            (task, a, b) for task in ("eis", "rte") for a, b in (("a", "b"), ("a", "c"), ("b", "c"))
        ]
        smallest = min(found, key=lambda c: c.test.pvalue)
        assert smallest.pvalue_holm == pytest.approx(6 * smallest.test.pvalue)
        assert all(c.pvalue_holm >= c.test.pvalue for c in found)
        assert [c.task for c in compared(*folders, tasks=("rte",))] == ["rte"] * 3

    def test_seeds_that_only_one_has_vote_but_are_not_paired(self, make_run: MakeRun) -> None:
        a = [make_run("a", "01", seed, {"eis": eis([True] * 4)}) for seed in (0, 1, 2)]
        b = [make_run("b", "01", seed, {"eis": eis([seed == 2, True, True, False])}) for seed in (2, 7)]
        (found,) = compared(*a, *b)
        assert found.a.seeds == (0, 1, 2)
        assert found.b.seeds == (2, 7)
        assert list(found.by_seed) == [2]
        assert found.test.only_a == 2, "row 0 is a tie of two seeds, which counts as wrong"
        (disjoint,) = compared(*a, b[1])
        assert (dict(disjoint.by_seed), disjoint.pvalue_median) == ({}, None)

    def test_equal_answers_have_p_of_one(self, make_run: MakeRun) -> None:
        folders = [make_run(name, "01", 0, {"eis": eis([True, False])}) for name in "ab"]
        (found,) = compared(*folders)
        assert (found.test.pvalue, found.test.statistic, found.pvalue_holm, found.difference) == (1, 0, 1, 0)

    def test_tasks_without_right_and_wrong_are_left_out(self, make_run: MakeRun) -> None:
        stored = {"eis": eis([True]), "sts": {"row": [0], "score": [0.5]}}
        folders = [make_run(name, "01", 0, stored) for name in "ab"]
        assert [c.task for c in compared(*folders)] == ["eis"]
        with pytest.raises(DataError, match=r"sts\.parquet: nothing tells right from wrong.* has: row, score"):
            compared(*folders, tasks=("sts",))

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"label": [False] * 3}, "label True and False in row 0"),
            ({"row": [0, 1, 5]}, "row 2 and 5 in row 2"),
            ({"type": ["x"] * 3}, "the columns row, label and row, type, label"),
        ],
    )
    def test_other_examples_are_refused(self, make_run: MakeRun, change: dict[str, Any], message: str) -> None:
        a = make_run("a", "01", 0, {"rte": rte([True] * 3)})
        b = make_run("b", "01", 0, {"rte": rte([True] * 3) | change})
        with pytest.raises(DataError, match=message) as caught:
            compared(a, b)
        for path in (a, b):
            assert str(path / "predictions" / "rte.parquet") in str(caught.value)

    def test_another_number_of_examples_is_refused_within_a_point_too(self, make_run: MakeRun) -> None:
        a = [make_run("a", "01", seed, {"eis": eis([True] * (3 + seed))}) for seed in range(2)]
        b = make_run("b", "01", 0, {"eis": eis([True] * 3)})
        with pytest.raises(DataError, match=r"01-s0.*01-s1.*3 and 4 examples"):
            compared(*a, b)

    def test_the_same_rows_of_other_files_are_refused(self, make_run: MakeRun) -> None:
        files = {"INLI/test.csv": "2"}
        a = make_run("a", "01", 0, {"eis": eis([True])}, task_data={"eis": files, "rte": {"x": "1"}})
        only_another_task = make_run("b", "01", 0, {"eis": eis([True])}, task_data={"eis": files, "rte": {"x": "2"}})
        assert len(compared(a, only_another_task)) == 1
        for name, digests in (("c", {"INLI/test.csv": "3"}), ("d", {"INLI/other.csv": "2"})):
            other = make_run(name, "01", 0, {"eis": eis([True])}, task_data={"eis": digests})
            with pytest.raises(DataError, match=rf"a/01-s0 and .*{name}/01-s0 .* for eis: .*INLI/"):
                compared(a, other)

    def test_a_missing_task_is_told_with_those_there(self, make_run: MakeRun) -> None:
        a = make_run("a", "01", 0, {"eis": eis([True]), "rte": rte([True])})
        b = make_run("b", "01", 0, {"rte": rte([True]), "length-eis": eis([True])})
        with pytest.raises(DataError, match=r"b/01-s0/predictions/eis\.parquet is missing; .*there: length-eis, rte"):
            compared(a, b, tasks=("eis",))
        with pytest.raises(DataError, match=r"a/01-s0/predictions/ret\.parquet is missing.*did you mean 'rte'"):
            compared(a, b, tasks=("ret",))
        assert [c.task for c in compared(a, b)] == ["rte"]

    def test_a_seed_without_a_task_of_its_point_is_told(self, make_run: MakeRun) -> None:
        a = [make_run("a", "01", seed, {"eis": eis([True])} if seed else {}) for seed in range(2)]
        b = make_run("b", "01", 0, {"eis": eis([True])})
        with pytest.raises(DataError, match=r"a/01-s0/predictions/eis\.parquet is missing; predictions there: none"):
            compared(*a, b)

    def test_nothing_in_common(self, make_run: MakeRun) -> None:
        a, b = make_run("a", "01", 0, {"eis": eis([True])}), make_run("b", "01", 0, {"rte": rte([True])})
        with pytest.raises(DataError, match=r"no task is common to all points.*\n  a: eis\n  b: rte"):
            compared(a, b)
        with pytest.raises(DataError, match="needs two points, got a: give"):
            compared(a, a)


class TestPoints:
    def test_seeds_of_one_point_in_order_and_each_folder_once(self, make_run: MakeRun) -> None:
        folders = [make_run("a", "01", seed, {}) for seed in (2, 0, 10)]
        (point,) = points(map(read_run, [*folders, folders[0], folders[1] / ".." / folders[1].name]))
        assert (point.label, point.seeds) == ("a", (0, 2, 10))

    def test_points_of_one_name_are_told_apart_by_few_digits(self, make_run: MakeRun) -> None:
        identities = ["0123456789", "0123496789", "ffff000000"]
        folders = [make_run("a", identity, 0, {}) for identity in identities]
        folders.append(make_run("b", "0123456789", 0, {}))
        assert [point.label for point in points(map(read_run, folders))] == ["a@012345", "a@012349", "a@ffff", "b"]

    def test_two_folders_of_one_seed(self, make_run: MakeRun, tmp_path: Path) -> None:
        first = make_run("a", "01", 3, {})
        second = tmp_path / "copy"
        first.parent.parent.joinpath("a").rename(second)
        again = make_run("a", "01", 3, {})
        with pytest.raises(DataError, match=r"copy/01-s3 and .*runs/a/01-s3 are both seed 3 of a 01"):
            points(map(read_run, [second / "01-s3", again]))


class TestBaselines:
    def test_a_baseline_is_one_point_over_all_runs(self, make_run: MakeRun) -> None:
        untrained, trained = answers("u", 0.5), {(n, s): answers(f"{n}{s}", 0.8) for n in "ab" for s in range(3)}
        runs = [
            read_run(make_run(n, "01", s, {"rte": rte(r), "untrained-rte": rte(untrained)}, encoder=ENCODER))
            for (n, s), r in trained.items()
        ]
        (baseline,) = baseline_points("untrained", runs)
        assert (baseline.label, baseline.seeds, baseline.tasks) == ("untrained", (), ("rte",))
        found = compare([*points(runs), baseline])
        assert [(c.a.label, c.b.label) for c in found] == [("a", "b"), ("a", "untrained"), ("b", "untrained")]
        assert found[1].accuracy_b == sum(untrained) / N
        for seed in range(3):
            pairs = list(zip(trained["a", seed], untrained, strict=True))
            b, c = pairs.count((True, False)), pairs.count((False, True))
            assert found[1].by_seed[seed] == pytest.approx(binomtest(b, b + c).pvalue)

    def test_baselines_are_compared_on_the_tasks_they_have(self, make_run: MakeRun) -> None:
        stored = {"rte": rte([True]), "eis": eis([True]), "untrained-rte": rte([False]), "length-eis": eis([True])}
        runs = [read_run(make_run("a", "01", 0, stored))]
        given = [*points(runs), *baseline_points("untrained", runs), *baseline_points("length", runs)]
        assert [(c.task, c.a.label, c.b.label) for c in compare(given)] == [
            ("eis", "a", "length"),
            ("rte", "a", "untrained"),
        ]
        with pytest.raises(DataError, match="length has no task to compare it on: it has eis; a: eis, rte"):
            compare(given, ["rte"])

    def test_encoders_make_baselines_of_their_own_unless_they_answer_the_same(self, make_run: MakeRun) -> None:
        runs = [
            read_run(
                make_run(name, "01", 0, {"untrained-rte": rte([right]), "length-eis": eis([True])}, encoder={"name": e})
            )
            for name, e, right in (("a", "tiny", True), ("b", "large", False), ("c", "tiny", True))
        ]
        own = baseline_points("untrained", runs)
        assert [(point.label, len(point.runs)) for point in own] == [("untrained tiny", 2), ("untrained large", 1)]
        assert [(point.label, len(point.runs)) for point in baseline_points("length", runs)] == [("length", 3)]

    def test_one_encoder_with_other_options(self, make_run: MakeRun) -> None:
        runs = [
            read_run(
                make_run(
                    name,
                    identity,
                    0,
                    {"untrained-rte": rte([right])},
                    encoder=ENCODER,
                    decisive={"config": {"encoder": {"pooling": pooling}}},
                )
            )
            for name, identity, pooling, right in (("a", "01", "cls", True), ("b", "02", "mean", False))
        ]
        labels = [point.label for point in baseline_points("untrained", runs)]
        assert labels == ["untrained tiny@01", "untrained tiny@02"]

    def test_an_unknown_baseline_is_told_with_those_there(self, make_run: MakeRun) -> None:
        runs = [read_run(make_run("a", "01", 0, {"rte": rte([True]), "untrained-rte": rte([True])}))]
        with pytest.raises(DataError, match=r"'untraind': none of the 1 runs .*there: untrained - did you mean"):
            baseline_points("untraind", runs)


class TestReading:
    def test_a_folder_without_a_record(self, make_run: MakeRun, tmp_path: Path) -> None:
        folder = make_run("a", "01", 0, {})
        for path, message in (
            (tmp_path / "nowhere", "nowhere: there is no such folder"),
            (folder / "record.json", r"record\.json is no folder"),
            (folder.parent, r"runs/a holds no record\.json .* give them: .*runs/a/\*"),
            (tmp_path / "runs", r"runs holds no record\.json .* give them: .*runs/a/\*"),
        ):
            with pytest.raises(DataError, match=message):
                read_run(path)
        (folder / "record.json").unlink()
        with pytest.raises(DataError, match=r"01-s0 holds no record\.json: it is not the folder of a run"):
            read_run(folder)
        (folder / "config.yaml").touch()
        with pytest.raises(DataError, match=r"01-s0 holds no record\.json: the run is not finished"):
            read_run(folder)
        (folder / "failed.json").touch()
        with pytest.raises(DataError, match=r"01-s0 holds no record\.json: the run failed"):
            read_run(folder)

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("{", "is damaged"),
            ("[]", "has no name, config_hash, seed"),
            (json.dumps({"name": "a", "seed": 1}), "has no config_hash:"),
        ],
    )
    def test_a_damaged_record(self, make_run: MakeRun, text: str, message: str) -> None:
        folder = make_run("a", "01", 0, {})
        (folder / "record.json").write_text(text)
        with pytest.raises(DataError, match=rf"record\.json {message}"):
            read_run(folder)

    @pytest.mark.parametrize(
        ("columns", "message"),
        [
            ({"row": [0], "score": [0.5]}, "nothing tells right from wrong"),
            ({"correct": [True]}, "nothing says which examples these are"),
            ({"row": [0, 1], "correct": [True, None]}, "correct is empty at row 1"),
            ({"row": [0, 1], "label": [1, 1], "prediction": [None, 1]}, "prediction is empty at row 0"),
            ({"row": [], "correct": []}, "holds no example"),
        ],
    )
    def test_unusable_predictions(self, tmp_path: Path, columns: dict[str, list[Any]], message: str) -> None:
        path = write_predictions(tmp_path, "rte", columns)
        with pytest.raises(DataError, match=rf"rte\.parquet.*{message}"):
            read_outcome(path)

    def test_a_damaged_file(self, make_run: MakeRun) -> None:
        folders = [make_run(name, "01", 0, {"eis": eis([True])}) for name in "ab"]
        (folders[1] / "predictions" / "eis.parquet").write_bytes(b"PAR1")
        with pytest.raises(DataError, match=r"b/01-s0/predictions/eis\.parquet cannot be read"):
            compared(*folders)

    def test_labels_of_words(self, tmp_path: Path) -> None:
        columns = {"row": [0, 1], "label": ["neutral", "entailment"], "prediction": ["entailment", "entailment"]}
        assert read_outcome(write_predictions(tmp_path, "nli", columns)).correct.tolist() == [False, True]

    def test_a_point_knows_its_tasks(self, make_run: MakeRun) -> None:
        run = read_run(make_run("a", "01", 0, {"rte": rte([True]), "eis": eis([True]), "length-eis": eis([True])}))
        assert Point("a", (run,)).tasks == ("eis", "rte")
        assert Point("length", (run,), "length").tasks == ("eis",)


class TestCompareAccuracy:
    def test_of_all_examples_it_is_what_compare_says(self, make_run: MakeRun) -> None:
        folders = [make_run(n, "01", s, {"eis": eis(answers(f"{n}{s}", 0.7))}) for n in "ab" for s in range(3)]
        a, b = points(map(read_run, folders))
        (found,) = compare([a, b])
        for accuracy in ("accuracy", "accuracy_all", "accuracy_senteval"):
            assert compare_accuracy(a, b, f"test/eis/{accuracy}") == found.test

    def test_of_a_type_it_is_of_the_examples_of_this_type(self, make_run: MakeRun) -> None:
        columns = {"row": [0, 1, 0, 1], "type": ["implied", "implied", "neutral", "neutral"]}
        a = make_run("a", "01", 0, {"rte": columns | {"correct": [True, True, False, False]}})
        b = make_run("b", "01", 0, {"rte": columns | {"correct": [False, True, True, True]}})
        given = points(map(read_run, (a, b)))
        found = {t: compare_accuracy(*given, f"test/rte/accuracy_{t}") for t in ("implied", "neutral", "all")}
        assert [(t.only_a, t.only_b, t.both) for t in found.values()] == [(1, 0, 1), (0, 2, 0), (1, 2, 1)]

    def test_an_answer_told_another_way_has_its_own_column(self, make_run: MakeRun) -> None:
        columns = {"row": [0, 1], "correct": [True, True], "correct_determinant": [False, True]}
        outcome = read_outcome(
            read_run(make_run("a", "01", 0, {"d": columns})).predictions("d"), "accuracy_determinant"
        )
        assert outcome.correct.tolist() == [False, True]

    def test_other_examples_are_refused(self, make_run: MakeRun) -> None:
        a, b = (make_run(n, "01", 0, {"eis": eis([True] * k)}) for n, k in (("a", 3), ("b", 4)))
        with pytest.raises(DataError, match="3 and 4 examples"):
            compare_accuracy(*points(map(read_run, (a, b))), "test/eis/accuracy")


def pairs(seed: str, noise: float, subsets: tuple[str, ...] = (), n: int = 40) -> dict[str, list[Any]]:
    """Scores of pairs, the gold scores of which are the same whatever the seed."""
    generator = random.Random(seed)
    gold = [float(row % 6) for row in range(n)]
    columns = {"row": list(range(n)), "gold": gold, "score": [g + generator.gauss(0, noise) for g in gold]}
    return ({"subset": [subsets[row % len(subsets)] for row in range(n)]} if subsets else {}) | columns


class TestCorrelations:
    def test_one_task_against_the_bare_bootstrap(self, make_run: MakeRun) -> None:
        stored = {(n, s): pairs(f"{n}{s}", noise, ("x", "y")) for n, noise in (("a", 1), ("b", 3)) for s in range(2)}
        a, b = points(read_run(make_run(n, "01", s, {"sts12": of})) for (n, s), of in stored.items())
        found = Correlations(200).compare(a, b, ["test/sts12/spearman_all"])
        gold = stored["a", 0]["gold"]
        scores = {n: [stored[n, s]["score"] for s in range(2)] for n in "ab"}
        of_seeds = {n: statistics.fmean(spearman_all([(gold, one)]) for one in of) for n, of in scores.items()}
        drawn = {n: bootstrap_spearman(np.array(gold), of, 2000) for n, of in scores.items()}
        assert found.difference == pytest.approx(of_seeds["a"] - of_seeds["b"])
        assert (found.draws, found.pvalue) == (200, pytest.approx(2 / 201))
        assert (found.low, found.high) == pytest.approx(np.quantile(drawn["a"] - drawn["b"], (0.025, 0.975)), abs=0.06)

    def test_what_is_kept_changes_nothing(self, make_run: MakeRun) -> None:
        given = points(read_run(make_run(n, "01", 0, {"sts": pairs(n, 2)})) for n in "abc")
        together = Correlations(50)
        for a, b in ((0, 1), (2, 1), (0, 2)):
            metrics = ["test/sts/spearman"]
            alone = Correlations(50).compare(given[a], given[b], metrics)
            assert together.compare(given[a], given[b], metrics) == alone

    def test_a_mean_of_tasks(self, make_run: MakeRun) -> None:
        stored = {n: {t: pairs(f"{n}{t}", noise) for t in ("s", "t")} for n, noise in (("a", 2.0), ("b", 2.5))}
        a, b = points(read_run(make_run(n, "01", 0, of)) for n, of in stored.items())
        correlations = Correlations(400)
        metrics = ["test/s/spearman", "test/t/spearman"]
        single = [correlations.compare(a, b, [metric]) for metric in metrics]
        mean = correlations.compare(a, b, metrics)
        assert mean.difference == pytest.approx(sum(one.difference for one in single) / 2)
        widths = [one.high - one.low for one in single]
        independent = sum(width**2 for width in widths) ** 0.5 / 2
        assert mean.high - mean.low == pytest.approx(independent, rel=0.15), "the tasks are drawn independently"

    def test_constant_scores_count_as_no_correlation(self, make_run: MakeRun) -> None:
        flat, good = pairs("a", 0) | {"score": [0.5] * 40}, pairs("b", 1)
        a, b = points(read_run(make_run(n, "01", 0, {"sts": of})) for n, of in (("a", flat), ("b", good)))
        test = Correlations(50).compare(a, b, ["test/sts/spearman"])
        assert test.difference == pytest.approx(-spearman(good["gold"], good["score"]))

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"gold": [1.0] * 40}, r"gold 0\.0 and 1\.0 in row 0"),
            ({"subset": ["x"] * 40}, "the columns row, gold and subset, row, gold"),
            ({"score": [0.5, float("nan")] * 20}, r"sts\.parquet: gold or score is no finite number at row 1"),
        ],
    )
    def test_other_pairs_are_refused(self, make_run: MakeRun, change: dict[str, Any], message: str) -> None:
        stored = {"a": pairs("a", 1), "b": pairs("b", 1) | change}
        a, b = points(read_run(make_run(n, "01", 0, {"sts": of})) for n, of in stored.items())
        with pytest.raises(DataError, match=message):
            Correlations(50).compare(a, b, ["test/sts/spearman"])

    def test_what_are_no_scores_of_pairs_is_told(self, make_run: MakeRun, tmp_path: Path) -> None:
        run = read_run(make_run("a", "01", 0, {"eis": eis([True]), "empty": {"row": [], "gold": [], "score": []}}))
        with pytest.raises(DataError, match=r"eis\.parquet: no scores of pairs; needs gold, score, has: row, type"):
            read_scores(run.predictions("eis"))
        with pytest.raises(DataError, match=r"empty\.parquet holds no example"):
            read_scores(run.predictions("empty"))
        (tmp_path / "x.parquet").write_text("no parquet")
        with pytest.raises(DataError, match=r"x\.parquet cannot be read"):
            read_scores(tmp_path / "x.parquet")
