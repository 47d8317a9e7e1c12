"""Two-way NLI and the direction of entailment on hand-made files, and LENGTH's published numbers on
the real ones.
"""

import json

import pytest
from oracles import Difference, Numbers, result_of

from lightning_cse.baselines import Length
from lightning_cse.data import sample_dir
from lightning_cse.evaluation import NLI, Direction, INLIDirection

DEV = [
    ("p 0", "a 0.8005", "entailment"),
    ("p 0", "b 0.3", "neutral"),
    ("q 0", "c 0.4", "contradiction"),
    ("q 0", "d 0.6", "entailment"),
    ("q 0", "e 0.1", "-"),
]
TEST = [
    ("p 0", "a 0.5", "entailment"),
    ("p 0", "b 0.35", "entailment"),
    ("q 0", "c 0.9", "-"),
    ("q 0", "d 0.4", "neutral"),
]


class Wide(Difference):
    """A sentence is as wide as its first word is long."""

    def log_determinant(self, sentence):
        return sentence.vector[:, 1]


class Symmetric(Numbers):
    """A score without direction."""

    def entailment_score(self, premise, hypothesis):
        return hypothesis.vector[:, 0] * premise.vector[:, 0]


class Sum:
    """Also symmetric, about any sentences."""

    embed = staticmethod(Length().embed)

    def entailment_score(self, premise, hypothesis):
        return hypothesis.vector[:, 0] + premise.vector[:, 0]


def write(folder, test, dev=DEV):
    for split, rows in (("dev", dev), ("test", test)):
        path = folder / "SNLI/snli_1.0" / f"snli_1.0_{split}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = [
            json.dumps({"gold_label": label, "sentence1": p, "sentence2": h})
            for p, h, label in rows
        ]
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")


@pytest.fixture
def data_dir(tmp_path):
    write(tmp_path, TEST)
    return tmp_path


def nli(folder, **options):
    return NLI(data_dir=str(folder), dev="snli/dev", test="snli/test", **options)  # type: ignore[arg-type]


def direction(folder, model, rows):
    write(folder, rows)
    task = Direction(data_dir=str(folder), dev="snli/dev", test="snli/test")
    return result_of(task, model)  # type: ignore[arg-type]


def test_the_threshold_is_the_first_best_of_the_grid_on_dev_and_used_on_test(data_dir):
    results = {split: result_of(nli(data_dir), Difference(), split) for split in ("dev", "test")}
    assert results["dev"].metrics == pytest.approx({"accuracy": 1, "auprc": 1, "threshold": 0.401})
    metrics, predictions = results["test"].metrics, results["test"].predictions
    assert metrics["threshold"] == pytest.approx(0.401)
    assert metrics["accuracy"] == pytest.approx(0.5)  # 0.35 is missed, 0.9 is not entailed
    assert predictions["label"] == [True, True, False, False]
    assert predictions["prediction"] == [True, False, True, False]
    # Scores 0.9 (no), 0.5 (yes), 0.4 (no), 0.35 (yes): (recall, precision) = (0, 0), (1/2, 1/2),
    # (1/2, 1/3), (1, 1/2), from (0, 1): the first step has no width.
    assert metrics["auprc"] == pytest.approx(0.5 * (0 + 1 / 2) / 2 + 0.5 * (1 / 3 + 1 / 2) / 2)


def test_direction_asks_entailed_pairs_alone_and_ties_are_wrong(tmp_path):
    rows = [
        ("p 0.2", "a 0.9", "entailment"),  # right
        ("ppp 0.9", "b 0.2", "entailment"),  # wrong, but its premise is the wider
        ("p 0.4", "q 0.4", "entailment"),  # a tie both ways
        ("p 0.1", "n 0.9", "neutral"),
    ]
    result = direction(tmp_path, Wide(), rows)
    assert result.metrics == pytest.approx(
        {"accuracy": 1 / 3, "accuracy_determinant": 1 / 3, "ties": 1 / 3}
    )
    assert result.predictions["correct"] == [True, False, False]
    assert result.predictions["correct_determinant"] == [False, True, False]
    assert direction(tmp_path, Difference(), rows[2:3]).metrics == {"accuracy": 0, "ties": 1}
    assert "ties" not in direction(tmp_path, Difference(), rows[:2]).metrics
    task = Direction(data_dir=str(tmp_path), dev="snli/dev", test="snli/test", dev_rows=3)
    chosen = result_of(task, Wide(), "dev").predictions["row"]
    assert len(chosen) == 1, "of the first three pairs; of two in all of dev"


def test_a_score_that_is_the_same_both_ways_has_no_direction(tmp_path):
    result = direction(tmp_path, Symmetric(), [("p 0.2", "a 0.9", "entailment")])
    assert (result.metrics, result.predictions) == ({}, {})
    assert "no direction" in result.reason
    inli = INLIDirection(data_dir=str(sample_dir()), test_rows=2)
    assert result_of(inli, Sum()) == result


def test_both_entailments_of_a_premise_of_inli_are_compared_with_it(tmp_path):
    (tmp_path / "INLI").mkdir()
    header = ",dataset,premise,implied_entailment,explicit_entailment,neutral,contradiction"
    rows = [
        header,
        "0,x,p 5,m 6,e 4,n 1,c 9",
        "1,x,q 5,mm 5,ee 9,nn 1,cc 9",
        "2,x,r 3,mmm 8,eee 7,nnn 1,ccc 9",
    ]
    for split in ("val", "test"):
        (tmp_path / "INLI" / f"{split}.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")

    task = INLIDirection(data_dir=str(tmp_path), dev_rows=2)
    result = result_of(task, Difference())
    assert result.metrics == pytest.approx(
        {"accuracy": 4 / 6, "accuracy_explicit": 2 / 3, "accuracy_implied": 2 / 3, "ties": 1 / 6}
    )
    assert result.predictions["type"] == ["explicit"] * 3 + ["implied"] * 3
    assert result.predictions["correct"] == [False, True, True, True, False, True]
    assert set(result.metrics) == {*task.metrics, "ties"}
    assert [row["hypothesis"] for row in task.rows("dev")] == ["e 4", "ee 9", "m 6", "mm 5"]


@pytest.mark.parametrize(
    ("test", "pairs", "right"),
    [("sick/test", 794, 549), ("snli_senteval/test", 3368, 3126)],
    ids=["sick", "snli"],
)
def test_length_gives_its_published_numbers(real_data, test, pairs, right):
    task = Direction(data_dir=str(real_data), dev="snli_senteval/dev", test=test)
    result = result_of(task, Length())
    assert len(result.predictions["row"]) == pairs
    assert (
        sum(result.predictions["correct"]) == right
    )  # GaussCSE, Table 2: 69.14 on SICK; 92.81 on tokenised SNLI
    assert round(100 * result.metrics["accuracy"], 2) == {794: 69.14, 3368: 92.81}[pairs]
