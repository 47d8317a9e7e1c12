"""Test sets of one's own: what they measure, by hand and against loops; sides, columns, lists;
files that are wrong.
"""

import csv
import json
import math

import numpy as np
import pytest
from oracles import Numbers
from sklearn.metrics import roc_auc_score

from lightning_cse.errors import ConfigError, DataError
from lightning_cse.evaluation import (
    OwnDirection,
    OwnNLI,
    OwnSTS,
    run_tasks,
)

NLI = ("premise", "hypothesis", "label")
STS = ("sentence1", "sentence2", "score")


class Difference(Numbers):
    """Similarity, and how far a pair is entailed, is the difference of two numbers."""

    def similarity(self, a, b):
        return b.vector[:, 0] - a.vector[:, 0]

    entailment_score = similarity


def write(path, columns, rows):
    if path.suffix == ".jsonl":
        lines = [json.dumps(dict(zip(columns, row, strict=True))) for row in rows]
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    else:
        with path.open(
            "w",
            newline="",
            encoding="utf-8",
        ) as file:
            csv.writer(file).writerows([columns, *rows])
    return str(path)


def evaluated(task, split="test", model=None):
    return run_tasks(
        {"own": task},
        model or Difference(),
        split,
    )["own"]


def test_sts_takes_any_range_any_names_and_several_files_as_one(tmp_path):
    one = write(
        tmp_path / "a.csv",
        ("q", "sentence2", "grade"),
        [("a 1", "b 9", -70), ("c 1", "d 5", 1e6)],
    )
    two = write(
        tmp_path / "b.jsonl",
        ("q", "sentence2", "grade"),
        [("e 2", "f 6", 0.5), ("g 0", "h 7", -80)],
    )
    task = OwnSTS(
        files=[one, two],
        columns={
            "sentence1": "q",
            "score": "grade",
            "label": "of another test",
        },
    )
    # Gold -70, 1e6, 0.5, -80 has the ranks 2, 4, 3, 1; scores 8, 4, 4, 7 have 4, 1.5, 1.5, 3:
    # products sum up to -3.5.
    assert evaluated(task).metrics == {"spearman": pytest.approx(-3.5 / math.sqrt(5 * 4.5))}
    assert evaluated(task).predictions["gold"] == [-70, 1e6, 0.5, -80]
    assert (task.metrics, task.splits) == (("spearman",), ("test",))
    assert (
        len(
            evaluated(
                OwnSTS(
                    files=one,
                    columns=task.columns,
                    test_rows=1,
                )
            ).predictions["row"]
        )
        == 1
    )


def best_cut(labels, scores):
    """Return the lowest of the cuts between neighbouring scores with the most right labels."""
    values = np.unique(scores)
    cuts = [
        values[0] - 1,
        *(values[:-1] + values[1:]) / 2,
        values[-1] + 1,
    ]
    hits = [((scores >= cut) == labels).sum() for cut in cuts]
    return float(cuts[int(np.argmax(hits))])


def two_fold(labels, scores):
    """Classify every second row of a label by the best cut of the others."""
    counts = [np.sum(labels[: row + 1] == label) for row, label in enumerate(labels)]
    fold = np.array(counts) % 2
    predicted = np.empty(len(labels), dtype=bool)
    for half in (0, 1):
        cut = best_cut(labels[fold != half], scores[fold != half])
        predicted[fold == half] = scores[fold == half] >= cut
    return predicted


@pytest.mark.parametrize(
    ("yes", "no"),
    [
        ("entailment", "not_entailment"),
        (1, 0),
        (True, False),
    ],
)
def test_nli_without_dev_has_a_two_fold_threshold(yes, no, tmp_path):
    draws = np.random.default_rng(0)
    labels = draws.random(41) < 0.4
    numbers = np.round(labels + draws.normal(size=41), 1)
    hypotheses = [f"h{row} {number}" for row, number in enumerate(numbers)]
    given = np.where(labels, yes, no).tolist()
    rows = list(
        zip(
            ["p 0"] * 41,
            hypotheses,
            given,
            strict=True,
        )
    )
    task = OwnNLI(
        files=write(
            tmp_path / "nli.jsonl",
            NLI,
            rows,
        ),
        key="own.nli",
    )
    result = evaluated(task)
    scores = np.array(result.predictions["score"])
    np.testing.assert_allclose(
        scores,
        numbers,
        atol=1e-6,
    )
    assert result.predictions["label"] == labels.tolist()
    predicted = two_fold(labels, scores)
    assert result.predictions["prediction"] == predicted.tolist()
    accuracy = np.mean(predicted == labels)
    assert result.metrics["accuracy_two_fold"] == pytest.approx(accuracy)
    assert result.metrics["auc"] == pytest.approx(roc_auc_score(labels, scores))
    assert tuple(result.metrics) == task.metrics == ("accuracy_two_fold", "auprc", "auc")


def test_nli_with_a_dev_side_takes_its_threshold_there(tmp_path):
    dev = [
        ("p 0", "a -30", "entailment"),
        ("p 0", "b -50", "neutral"),
    ]  # scores that no grid from 0 to 1 has
    test = [
        ("q 0", "c -39", "entailment"),
        ("q 0", "d -41", "entailment"),
        ("q 0", "e -60", "-"),
    ]
    files = {
        "dev": write(
            tmp_path / "dev.csv",
            NLI,
            dev,
        ),
        "test": write(
            tmp_path / "test.csv",
            NLI,
            test,
        ),
    }
    task = OwnNLI(
        files=files,
        key="own.nli",
    )
    assert task.splits == ("dev", "test")
    result = evaluated(task)
    assert result.metrics == pytest.approx(
        {
            "accuracy": 2 / 3,
            "auprc": 1,
            "threshold": -40,
            "auc": 1,
        }
    )
    assert result.predictions["prediction"] == [True, False, False]
    assert evaluated(task, "dev").metrics["accuracy"] == 1
    assert set(task.metrics) == set(result.metrics)
    assert list(task.digests) == ["own.nli/dev/1-dev.csv", "own.nli/test/1-test.csv"]


@pytest.mark.parametrize(
    "labels",
    [
        ("entailment", "neutral", "entailment"),
        (1, 0, 1),
        None,
    ],
)
def test_direction_asks_the_pairs_with_the_label_entailment_or_all(labels, tmp_path):
    rows = [
        ("p 1", "h 2"),
        ("q 5", "i 9"),
        ("r 4", "j 3"),
    ]
    if labels:
        rows = [(*row, label) for row, label in zip(rows, labels, strict=True)]
    path = write(
        tmp_path / "d.csv",
        NLI[: len(rows[0])],
        rows,
    )
    correct = [True, False] if labels else [True, True, False]
    assert evaluated(OwnDirection(files=path)).predictions["correct"] == correct


@pytest.mark.parametrize(
    ("columns", "rows", "message"),
    [
        (("q", "r", "score"), [("a 1", "b 2", 3)], "own.columns={ROLE: COLUMN"),
        (STS[:2], [("a 1", "b 2")], 'no score; .* set "own.columns={score: COLUMN}"'),
        (STS, [("a 1", "b 2", 3), ("a 1", "b 2", "high")], "my.csv:3: score 'high'"),
        (STS, [], "my.csv: no rows"),
    ],
)
def test_a_wrong_file_is_one_error_with_its_key_and_path(columns, rows, message, tmp_path):
    path = write(tmp_path / "my.csv", columns, rows)
    with pytest.raises(DataError, match=message) as raised:
        evaluated(OwnSTS(files=path, key="own.sts"))
    assert str(raised.value).startswith(f"own.sts: {path}")


def test_files_of_an_unknown_split_are_an_error():
    with pytest.raises(ConfigError, match="must be FILE"):
        OwnSTS(files={"tset": "a.csv"}, key="own.sts")
