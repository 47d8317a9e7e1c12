"""Test sets of one's own: what they measure, by hand and against loops; sides, columns, lists;
files that are wrong.
"""

import csv
import json
import math

import pytest
import torch
from oracles import Difference, result_of

from lightning_cse.data.rows import dataset_of
from lightning_cse.embeddings import PointEmbedding
from lightning_cse.errors import ConfigError, DataError
from lightning_cse.evaluation import NLI, STS, Direction, HeldOutRetrieval, OwnFiles, PairRetrieval
from lightning_cse.similarity import cosine

LABELLED = ("premise", "hypothesis", "label")
SCORED = ("sentence1", "sentence2", "score")


def own(files, key="own.x", **options):
    return OwnFiles(files=files, key=key, **options)


def own_nli(files):
    return NLI(own=own(files, "own.nli"), grid=False, with_auc=True)


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
    first = write(
        tmp_path / "a.csv", ("q", "sentence2", "grade"), [("a 1", "b 9", -70), ("c 1", "d 5", 1e6)]
    )
    second = write(
        tmp_path / "b.jsonl",
        ("q", "sentence2", "grade"),
        [("e 2", "f 6", 0.5), ("g 0", "h 7", -80)],
    )
    columns = {"sentence1": "q", "score": "grade", "label": "of another test"}
    task = STS(own=own([first, second], columns=columns))
    # Gold -70, 1e6, 0.5, -80 has the ranks 2, 4, 3, 1; scores 8, 4, 4, 7 have 4, 1.5, 1.5, 3:
    # products sum up to -3.5.
    assert evaluated(task).metrics == {"spearman": pytest.approx(-3.5 / math.sqrt(5 * 4.5))}
    assert evaluated(task).predictions["gold"] == [-70, 1e6, 0.5, -80]
    assert (task.metrics, task.splits) == (("spearman",), ("test",))
    limited = STS(own=own([first, second], columns=columns), test_rows=3)
    assert len(evaluated(limited).predictions["row"]) == 3


def test_nli_with_a_dev_side_takes_its_threshold_there(tmp_path):
    dev = [
        ("p 0", "a -30", "entailment"),
        ("p 0", "b -50", "neutral"),
        ("p 0", "a2 -30", "entailment"),
        ("p 0", "b2 -50", "neutral"),
    ]  # scores that no grid from 0 to 1 has
    test = [
        ("q 0", "c -39", "entailment"),
        ("q 0", "d -41", "entailment"),
        ("q 0", "e -60", "-"),
        ("q 1", "e -60", "-"),
    ]
    files = {
        "dev": write(tmp_path / "dev.csv", LABELLED, dev),
        "test": write(tmp_path / "test.csv", LABELLED, test),
    }
    task = own_nli(files)
    assert task.splits == ("dev", "test")
    result = evaluated(task)
    assert result.metrics == pytest.approx(
        {"accuracy": 3 / 4, "auprc": 1, "threshold": -40, "auc": 1}
    )
    assert result.predictions["prediction"] == [True, False, False, False]
    assert evaluated(task, "dev").metrics["accuracy"] == 1
    assert set(task.metrics) == set(result.metrics)
    assert list(task.digests) == ["own.nli/dev/1-dev.csv", "own.nli/test/1-test.csv"]


@pytest.mark.parametrize(
    ("columns", "rows", "message"),
    [
        (("q", "r", "score"), [("a 1", "b 2", 3)], "own.columns={ROLE: COLUMN"),
        (SCORED[:2], [("a 1", "b 2")], 'no score; .* set "own.columns={score: COLUMN}"'),
        (SCORED, [("a 1", "b 2", 3), ("a 1", "b 2", "high")], "my.csv:3: score 'high'"),
        (SCORED, [], "my.csv: no rows"),
    ],
)
def test_a_wrong_file_is_one_error_with_its_key_and_path(columns, rows, message, tmp_path):
    path = write(tmp_path / "my.csv", columns, rows)
    with pytest.raises(DataError, match=message) as raised:
        evaluated(STS(own=own(path, "own.sts")))

    assert str(raised.value).startswith("own.sts: ")
    assert path in str(raised.value)


@pytest.mark.parametrize(
    ("task", "label", "message"),
    [
        (NLI, "entailment", "2 of 2 are entailed; two entailed pairs and two others"),
        (Direction, "neutral", "no pair has the label entailment"),
    ],
)
def test_labels_that_cannot_be_measured_are_an_error(task, label, message, tmp_path):
    path = write(tmp_path / "my.csv", LABELLED, [("p 1", "h 2", label), ("q 3", "i 1", label)])
    with pytest.raises(DataError, match=f"own.x: {path}: {message}"):
        evaluated(task(own=own(path)))


def test_files_of_an_unknown_split_are_an_error():
    with pytest.raises(ConfigError, match="must be FILE"):
        own({"tset": "a.csv"}, "own.sts")


def test_nli_without_dev_takes_the_threshold_of_a_fold_from_the_other(tmp_path):
    # Every second row of each label is a fold: thresholds 3 and 4 for the other fold.
    rows = [("p 0", f"h{n} {n}", "neutral") for n in (0, 1, 2, 3)]
    rows += [("p 0", f"h{n} {n}", "entailment") for n in (6, 3.5, 9, 5)]
    task = own_nli(write(tmp_path / "nli.csv", LABELLED, rows))
    result = evaluated(task)
    assert result.predictions["prediction"] == [False] * 4 + [True, False, True, True]
    assert result.metrics["accuracy_two_fold"] == 7 / 8
    assert result.metrics["auc"] == 1
    assert set(result.metrics) == set(task.metrics)


@pytest.mark.parametrize("labels", [("entailment", "neutral"), (1, 0)])
def test_direction_asks_the_pairs_with_the_label_entailment(labels, tmp_path):
    rows = [("p 1", "h 2", labels[0]), ("q 5", "i 9", labels[1]), ("r 4", "j 3", labels[0])]
    task = Direction(own=own(write(tmp_path / "d.csv", LABELLED, rows)))
    assert evaluated(task).predictions["correct"] == [True, False]


def test_direction_without_labels_asks_every_pair(tmp_path):
    rows = [("p 1", "h 2"), ("q 5", "i 9"), ("r 4", "j 3")]
    task = Direction(own=own(write(tmp_path / "d.csv", LABELLED[:2], rows)))
    assert evaluated(task).predictions["correct"] == [True, True, False]


@pytest.mark.parametrize("scores", [(3, 3, 3), (3,)])
def test_scores_that_rank_nothing_are_an_error(scores, tmp_path):
    rows = [(f"a{n} 1", f"b{n} 2", score) for n, score in enumerate(scores)]
    path = write(tmp_path / "my.csv", SCORED, rows)
    with pytest.raises(DataError, match=f"own.sts: {path}: all scores are 3"):
        evaluated(STS(own=own(path, "own.sts")))


class Near:
    """A model that embeds a sentence as its last number: the nearer, the more similar."""

    def embed(self, sentences):
        return PointEmbedding(
            torch.tensor([[float(sentence.split()[-1]), 1.0] for sentence in sentences])
        )

    def similarity(self, a, b):
        return -(a.vector - b.vector).abs().sum(dim=-1)


PAIRS = [("q 10", "a 11"), ("r 20", "b 12"), ("s 30", "a 11"), ("q 10", "c 30"), ("t 14", "d 16")]
"""Distances of the answers 11, 12, 30 and 16: q 1, 2, 20, 6; r 9, 8, 10, 4; s 19, 18, 0, 14; t 3,
2, 16, 2. The other answer of q does not count against its own, and d is only as near to t as b.
"""
RANKS = [1, 2, 4, 3, 2]


def test_retrieval_ranks_an_answer_among_all_distinct_answers(tmp_path):
    task = PairRetrieval(own=own(write(tmp_path / "p.csv", ("anchor", "positive"), PAIRS)))
    result = result_of(task, Near())
    assert result.predictions["rank"] == RANKS
    assert result.metrics == pytest.approx(
        {"mrr_10": sum(1 / rank for rank in RANKS) / 5, "recall_1": 1 / 5, "recall_10": 1}
    )
    assert task.metrics == tuple(result.metrics)


def test_retrieval_agrees_with_a_loop_over_random_vectors(tmp_path):
    generator = torch.Generator().manual_seed(0)
    vectors = torch.randn(450, 4, generator=generator, dtype=torch.float64)
    pairs = [(f"q{n % 250}", f"a{n * 7 % 200}") for n in range(300)]
    names = list(dict.fromkeys(name for pair in pairs for name in pair))

    class Cosine:
        def embed(self, sentences):
            return PointEmbedding(vectors[[names.index(name) for name in sentences]])

        similarity = staticmethod(lambda a, b: cosine(a.vector, b.vector))

    task = PairRetrieval(own=own(write(tmp_path / "p.csv", ("anchor", "positive"), pairs)))
    ranks = result_of(task, Cosine()).predictions["rank"]
    unit = torch.nn.functional.normalize(vectors, dim=1)
    at = {name: unit[names.index(name)] for name in names}
    answers = {answer for _, answer in pairs}
    for (question, answer), rank in zip(pairs, ranks, strict=True):
        right = {text for query, text in pairs if query == question}
        score = at[question] @ at[answer]
        ahead = [text for text in answers - right if at[question] @ at[text] >= score - 1e-12]
        assert rank == 1 + len(ahead)


def test_retrieval_needs_an_answer(tmp_path):
    path = write(tmp_path / "p.csv", SCORED, [("a 1", "b 2", 3)])
    with pytest.raises(DataError, match="anchor: COLUMN, positive: COLUMN"):
        evaluated(PairRetrieval(own=own(path, "own.pairs")))

    columns = {"anchor": "sentence1", "positive": "sentence2"}
    task = PairRetrieval(own=own(path, "own.pairs", columns=columns))
    assert evaluated(task).metrics["recall_1"] == 1


def test_held_out_rows_are_a_dev_set_if_they_have_a_positive():
    task = HeldOutRetrieval(dev_rows=5)
    assert task.lacking() == "0 held-out rows have a positive to retrieve"
    anchors, positives = map(list, zip(*PAIRS, strict=True))
    rows = dataset_of({"anchor": [*anchors, "u 1", "v 2"], "positive": [*positives, None, "e 2"]})
    task.take(rows, ("anchor", "anchor"))
    assert task.lacking()
    task.take(rows, ("anchor", "positive"))
    assert task.lacking() is None
    assert task.splits == ("dev",)
    assert result_of(task, Near(), "dev").predictions["rank"] == RANKS
    assert task.sentences("test") == []
