"""Which pairs a prompt may show, and which of them are drawn."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from lightning_cse.data import read_corpus, sample_dir
from lightning_cse.errors import ConfigError, DataError
from lightning_cse.generation.filters import letters
from lightning_cse.generation.pattern import Examples, Source, draw_examples


def source(**given: Any) -> Source:
    node = {"from": ("sts12/train",), "first": "sentence1", "second": "sentence2", **given}
    return Source.model_validate(node)


def nli(second: str, *names: str) -> Source:
    return source(**{"from": names or ("simcse_nli/train",)}, first="premise", second=second)


def draw(*sources: Source, shots: int = 3, seed: int = 0, data_dir: Path | None = None) -> list[Examples]:
    wanted = {f"examples.{number}": each for number, each in enumerate(sources)}
    return list(draw_examples(wanted, data_dir or sample_dir(), shots=shots, seed=seed).values())


def own(folder: Path, rows: Sequence[tuple[str, str]], **given: Any) -> Source:
    """What is drawn from a file of these pairs."""
    path = folder / "rows.jsonl"
    lines = [json.dumps({"anchor": first, "positive": second, "negative": "Nothing."}) for first, second in rows]
    path.write_text("\n".join(lines), encoding="utf-8")
    return source(**{"from": (str(path),)}, first="anchor", second="positive", **given)


@pytest.mark.parametrize(
    ("scores", "label"),
    [
        ({"above": 4}, "sts12/train, score above 4"),
        ({"above": 1, "below": 4}, "sts12/train, score above 1 and below 4"),
        ({"below": 1}, "sts12/train, score below 1"),
        (None, "sts12/train"),
    ],
)
def test_pairs_whose_score_is_between_the_bounds(scores: dict[str, float] | None, label: str) -> None:
    (found,) = draw(source(scores=scores))
    rows = read_corpus("sts12", "train", sample_dir())
    low, high = (scores or {}).get("above", -1), (scores or {}).get("below", 6)
    assert {1.0, 4.0} <= set(rows.column("score"))  # the bounds themselves are outside
    assert list(found.pool) == [(row["sentence1"], row["sentence2"]) for row in rows if low < row["score"] < high]
    assert set(found.shown) <= set(found.pool)
    assert (len(found.shown), found.label) == (3, label)
    assert found.digests == {file.name: file.sha256 for file in rows.files}


def test_the_draw_is_the_same_for_ever_and_another_for_another_seed(tmp_path: Path) -> None:
    given = own(tmp_path, [(f"First {number}.", f"Second {number}.") for number in range(20)])
    drawn = [[first for first, _ in draw(given, seed=seed)[0].shown] for seed in (0, 1)]
    assert drawn == [["First 15.", "First 3.", "First 12."], ["First 13.", "First 9.", "First 19."]]
    assert draw(given, shots=5)[0].shown[:3] == draw(given)[0].shown


def test_roles_of_one_source_are_shown_rows_that_make_an_example_for_all_of_them(tmp_path: Path) -> None:
    positive, negative = draw(nli("entailment"), nli("contradiction"))
    rows = {row["premise"]: row for row in read_corpus("simcse_nli", "train", sample_dir())}
    shown = [rows[first] for first, _ in positive.shown]
    assert list(positive.shown) == [(row["premise"], row["entailment"]) for row in shown]
    assert list(negative.shown) == [(row["premise"], row["contradiction"]) for row in shown]
    wanted = own(tmp_path, [("A dog runs.", "It runs."), ("Nothing!", "It is so."), ("A hen eats.", "It eats.")])
    both = draw(wanted, wanted.model_copy(update={"second": "negative"}), shots=1)
    assert [len(each.pool) for each in both] == [2, 2]
    assert len(draw(wanted, shots=1)[0].pool) == 3


def test_pairs_that_say_nothing_or_the_same_are_left_out_and_no_sentence_is_shown_twice(tmp_path: Path) -> None:
    rows = [("It rained.", "IT  rained!"), ("Tea?", "..."), ("Straße", "STRASSE"), ("Snow fell.", "It snowed.")]
    assert draw(own(tmp_path, rows), shots=1)[0].pool == (("Snow fell.", "It snowed."),)
    rows = [("One.", "Two."), ("Two!", "Three."), ("Three", "Four."), ("five", "ONE"), ("Six.", "Seven.")]
    for seed in range(10):
        shown = draw(own(tmp_path, rows), shots=2, seed=seed)[0].shown
        assert len({letters(sentence) for pair in shown for sentence in pair}) == 4


def test_the_longer_sentence_comes_first_where_that_is_wanted() -> None:
    (plain,), (turned,) = (draw(source(longer_first=longer)) for longer in (False, True))
    assert all(len(first.split()) > len(second.split()) for first, second in turned.pool)
    longer = [pair for pair in plain.pool if len(pair[0].split()) != len(pair[1].split())]
    assert sorted(map(sorted, turned.pool)) == sorted(map(sorted, longer))
    assert any(pair not in plain.pool for pair in turned.pool)


def test_labelled_pairs_are_triplets_for_roles_that_want_some() -> None:
    (mixed,), (alone,) = (draw(nli("entailment", "simcse_nli/train", *more)) for more in (["snli/train"], []))
    rows = [row for row in read_corpus("snli", "train", sample_dir()) if row["label"] == "entailment"]
    added = mixed.pool[len(alone.pool) :]
    assert mixed.pool[: len(alone.pool)] == alone.pool
    assert 0 < len(added) == len({(row["premise"], row["hypothesis"]) for row in rows}.intersection(added))
    (raw,) = draw(nli("hypothesis", "snli/train"))
    assert len(raw.pool) > len(added)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            source(scores={"above": 4.9}),
            "examples.0: sts12/train, score above 4.9 has 5 pairs, 5 of them without a rep",
        ),
        (source(first="sentence"), "examples.0: .*no column 'sentence' - did you mean"),
        (source(second="score"), "examples.0: sts12/train has 0 pairs"),
        (nli("hypothesis"), "examples.0: .*no column 'hypothesis'"),
        (source(**{"from": ("/none.jsonl",)}), "examples.0.from: /none.jsonl: there is no such file"),
        (source(**{"from": ("sts12",)}), "examples.0.from: 'sts12' is not of the form corpus/split"),
    ],
)
def test_what_cannot_be_drawn_is_reported_with_its_key(given: Source, message: str) -> None:
    with pytest.raises((ConfigError, DataError), match=message):
        draw(given, shots=6)


def test_pools_of_the_official_corpora(real_data: Path) -> None:
    bands = [source(scores={"above": 4}), source(scores={"above": 1, "below": 4}, longer_first=True)]
    found = draw(*bands, source(scores={"below": 1}), data_dir=real_data)
    assert [len(each.pool) for each in found] == [759, 829, 261]
