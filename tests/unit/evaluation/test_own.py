"""Test sets of one's own: what they measure, by hand and against loops; sides, columns, lists;
files that are wrong.
"""

import csv
import json
import math

import pytest
from oracles import Difference, result_of

from lightning_cse.errors import ConfigError, DataError
from lightning_cse.evaluation import OwnDirection, OwnNLI, OwnSTS

NLI = ("premise", "hypothesis", "label")
STS = ("sentence1", "sentence2", "score")


def write(path, columns, rows):
    if path.suffix == ".jsonl":
        lines = [json.dumps(dict(zip(columns, row, strict=True))) for row in rows]
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    else:
        with path.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([columns, *rows])

    return str(path)


def evaluated(task, split="test"):
    return result_of(task, Difference(), split)


def test_sts_takes_any_range_any_names_and_several_files_as_one(tmp_path):
    one = write(
        tmp_path / "a.csv", ("q", "sentence2", "grade"), [("a 1", "b 9", -70), ("c 1", "d 5", 1e6)]
    )
    two = write(
        tmp_path / "b.jsonl",
        ("q", "sentence2", "grade"),
        [("e 2", "f 6", 0.5), ("g 0", "h 7", -80)],
    )
    task = OwnSTS(
        files=[one, two], columns={"sentence1": "q", "score": "grade", "label": "of another test"}
    )
    # Gold -70, 1e6, 0.5, -80 has the ranks 2, 4, 3, 1; scores 8, 4, 4, 7 have 4, 1.5, 1.5, 3:
    # products sum up to -3.5.
    assert evaluated(task).metrics == {"spearman": pytest.approx(-3.5 / math.sqrt(5 * 4.5))}
    assert evaluated(task).predictions["gold"] == [-70, 1e6, 0.5, -80]
    assert (task.metrics, task.splits) == (("spearman",), ("test",))
    assert (
        len(evaluated(OwnSTS(files=one, columns=task.columns, test_rows=1)).predictions["row"]) == 1
    )


def test_nli_with_a_dev_side_takes_its_threshold_there(tmp_path):
    dev = [
        ("p 0", "a -30", "entailment"),
        ("p 0", "b -50", "neutral"),
    ]  # scores that no grid from 0 to 1 has
    test = [("q 0", "c -39", "entailment"), ("q 0", "d -41", "entailment"), ("q 0", "e -60", "-")]
    files = {
        "dev": write(tmp_path / "dev.csv", NLI, dev),
        "test": write(tmp_path / "test.csv", NLI, test),
    }
    task = OwnNLI(files=files, key="own.nli")
    assert task.splits == ("dev", "test")
    result = evaluated(task)
    assert result.metrics == pytest.approx(
        {"accuracy": 2 / 3, "auprc": 1, "threshold": -40, "auc": 1}
    )
    assert result.predictions["prediction"] == [True, False, False]
    assert evaluated(task, "dev").metrics["accuracy"] == 1
    assert set(task.metrics) == set(result.metrics)
    assert list(task.digests) == ["own.nli/dev/1-dev.csv", "own.nli/test/1-test.csv"]


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

    assert str(raised.value).startswith("own.sts: ")
    assert path in str(raised.value)


@pytest.mark.parametrize(
    ("task", "label", "message"),
    [
        (OwnNLI, "entailment", "all labels are 'entailment'"),
        (OwnDirection, "neutral", "no pair has the label entailment"),
    ],
)
def test_labels_that_cannot_be_measured_are_an_error(task, label, message, tmp_path):
    path = write(tmp_path / "my.csv", NLI, [("p 1", "h 2", label), ("q 3", "i 1", label)])
    with pytest.raises(DataError, match=f"own.x: {path}: {message}"):
        evaluated(task(files=path, key="own.x"))


def test_files_of_an_unknown_split_are_an_error():
    with pytest.raises(ConfigError, match="must be FILE"):
        OwnSTS(files={"tset": "a.csv"}, key="own.sts")


def test_nli_without_dev_takes_the_threshold_of_a_fold_from_the_other(tmp_path):
    # Every second row of each label is a fold: thresholds 3 and 4 for the other fold.
    rows = [("p 0", f"h{n} {n}", "neutral") for n in (0, 1, 2, 3)]
    rows += [("p 0", f"h{n} {n}", "entailment") for n in (6, 3.5, 9, 5)]
    task = OwnNLI(files=write(tmp_path / "nli.csv", NLI, rows), key="own.nli")
    result = evaluated(task)
    assert result.predictions["prediction"] == [False] * 4 + [True, False, True, True]
    assert result.metrics["accuracy_two_fold"] == 7 / 8
    assert result.metrics["auc"] == 1
    assert tuple(result.metrics) == task.metrics


@pytest.mark.parametrize("labels", [("entailment", "neutral"), (1, 0)])
def test_direction_asks_the_pairs_with_the_label_entailment(labels, tmp_path):
    rows = [("p 1", "h 2", labels[0]), ("q 5", "i 9", labels[1]), ("r 4", "j 3", labels[0])]
    task = OwnDirection(files=write(tmp_path / "d.csv", NLI, rows))
    assert evaluated(task).predictions["correct"] == [True, False]
