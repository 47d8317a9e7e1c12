"""Rows that a language model wrote or scored: Dino's processing, and CLHAIF's triplets."""

import re
from collections import Counter

import numpy as np
import pytest
from data_modules import apply, data_module, table_of

from lightning_cse.data import ScoredTriplets, WrittenPairs
from lightning_cse.errors import ConfigError, DataError

PAIRS = [
    ("a", "a one", 1.0),
    ("a", "a two", 1.0),
    ("a", "a one", 1.0),  # again
    ("a", "a three", 1.0),  # a third of this score
    ("a", "a one", 0.5),  # with another score
    ("b", "b", 1.0),  # equal
    ("b", "b one", 0.0),
    ("c", "c one", 0.5),
]
KEPT = [("a", "a one", 0.9), ("a", "a two", 0.9), ("a", "a one", 0.5), ("b", "b one", 0.1)]


def pairs(rows=PAIRS):
    columns = zip(*rows, strict=True)
    return table_of(dict(zip(("sentence1", "sentence2", "score"), columns, strict=True)))


def found(rows):
    columns = (rows[name] for name in ("sentence1", "sentence2", "target"))
    return [(a, b, round(score, 4)) for a, b, score in zip(*columns, strict=True)]


def test_pairs_are_dropped_and_smoothed_as_the_authors_do():
    rows, account = apply(WrittenPairs(random_pairs=0), pairs())

    assert found(rows) == [*KEPT, ("c", "c one", 0.5)]
    assert rows["positive"][:] == ["a one", "a two", None, None, None]
    assert account == {
        "read": 8,
        "dropped: repeated pair": 1,
        "dropped: more than 2 of a sentence and score": 1,
        "dropped: equal sentences": 1,
    }

    plain, _ = apply(WrittenPairs(random_pairs=0, smoothing=0.0, most=9), pairs())
    assert [score for *_, score in found(plain)] == [1.0, 1.0, 1.0, 0.5, 0.0, 0.5]


@pytest.mark.parametrize("number", [1, 3])
def test_random_pairs_of_each_side_of_the_hold_out(tmp_path, number):
    path = tmp_path / "pairs.csv"
    lines = [f"{n},{n} like,1\n{n},{n} unlike,0" for n in range(20)]
    path.write_text("\n".join(["sentence1,sentence2,score", *lines]))
    data = data_module(
        [str(path)], rows=WrittenPairs(random_pairs=number), held_out_share=0.2, batch_size=4
    )

    assert data.counts["read"] == 40
    assert len(data.train) == 16 * (2 + number)
    for side in (data.train, data.held_out):
        rows = found(side)
        written = {(first, second) for first, second, _ in rows if second.startswith(f"{first} ")}
        random_pairs = [pair for pair in rows if pair[:2] not in written]
        seconds = {second for _, second in written}

        assert len(written) == 2 * len(set(side["sentence1"]))
        assert Counter(first for first, *_ in random_pairs) == dict.fromkeys(
            side["sentence1"], number
        )
        assert all(score == 0.0 and second in seconds for _, second, score in random_pairs)

    assert len({second for _, second, score in found(data.train) if score == 0.0}) > 5
    batch = next(iter(data.train_dataloader()))
    assert set(np.round(batch["targets"].tolist(), 4)) <= {0.0, 0.1, 0.9}


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ({"smoothing": 1.0}, "data.rows.smoothing: must be in [0, 1), got 1.0"),
        ({"most": 0}, "needs most >= 1 and random_pairs >= 0, got 0 and 2"),
        ({"random_pairs": -1}, "needs most >= 1 and random_pairs >= 0, got 2 and -1"),
    ],
)
def test_wrong_options(options, fault):
    with pytest.raises(ConfigError, match=re.escape(fault)):
        WrittenPairs(**options)


def test_triplets_have_their_score_as_target():
    columns = {"anchor": ["a", "b"], "positive": ["c", "d"], "negative": ["e", None]}
    rows, _ = apply(ScoredTriplets(), table_of({**columns, "score": [0.25, 1.0]}))

    assert {role: rows[role][:] for role in columns} == columns
    assert rows["target"][:] == [0.25, 1.0]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"anchor": ["a"], "positive": ["b"], "score": [2.0]}, "score 2 is not between 0 and 1"),
        ({"anchor": ["a"], "positive": ["b"]}, "no column 'score'"),
        ({"premise": ["a"], "hypothesis": ["b"], "score": [1.0]}, "needs triplets"),
    ],
)
def test_triplets_without_a_score_are_refused(columns, message):
    with pytest.raises(DataError, match=message):
        apply(ScoredTriplets(), table_of(columns))
