"""Which pairs a prompt may show, and which of them are drawn."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightning_cse.data import read_corpus, sample_dir
from lightning_cse.errors import ConfigError, DataError
from lightning_cse.generation.cleaning import letters
from lightning_cse.generation.examples import Bounds, Examples, Wanted, _letters, draw_examples, wrong_examples

STS = ("sts12/train",)
NLI = ("simcse_nli/train",)


def wanted(role: str, bounds: Bounds | None = None, **options: object) -> Wanted:
    arguments = {"sources": STS, "first": "sentence1", "second": "sentence2", "bounds": bounds or Bounds(), **options}
    return Wanted(role, f"pattern.{role}.examples", **arguments)  # type: ignore[arg-type]


def entailed(**options: object) -> list[Wanted]:
    """What the two roles of NLI want."""
    options = {"sources": NLI, "first": "premise", **options}
    return [wanted("positive", second="entailment", **options), wanted("negative", second="contradiction", **options)]


def draw(*roles: Wanted, shots: int = 3, seed: int = 0, data_dir: Path | None = None) -> dict[str, Examples]:
    return draw_examples(roles, data_dir or sample_dir(), shots=shots, seed=seed)


def own(folder: Path, rows: Sequence[tuple[str, str, str]]) -> str:
    """A file of LLM rows."""
    path = folder / "rows.jsonl"
    keys = ("anchor", "positive", "negative")
    path.write_text("".join(json.dumps(dict(zip(keys, row, strict=True))) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def of_own(folder: Path, rows: Sequence[tuple[str, str]], **options: object) -> Wanted:
    """What a role wants of pairs."""
    name = own(folder, [(first, second, "Nothing of it.") for first, second in rows])
    return wanted("positive", sources=(name,), first="anchor", second="positive", **options)


@pytest.mark.parametrize(
    ("bounds", "label"),
    [
        (Bounds(above=4), "sts12/train, score above 4"),
        (Bounds(above=1, below=4), "sts12/train, score above 1 and below 4"),
        (Bounds(below=1), "sts12/train, score below 1"),
        (Bounds(), "sts12/train"),
    ],
)
def test_a_pool_has_the_pairs_whose_score_is_within_strict_bounds(bounds: Bounds, label: str) -> None:
    found = draw(wanted("positive", bounds))["positive"]
    rows = list(read_corpus("sts12", "train", sample_dir()))
    low, high = -1 if bounds.above is None else bounds.above, 6 if bounds.below is None else bounds.below
    assert found.pool.pairs == [(row["sentence1"], row["sentence2"]) for row in rows if low < row["score"] < high]
    assert len(found.pool.pairs) >= 10
    assert found.pool.label == label
    assert set(found.shown) <= set(found.pool.pairs)
    assert len(found.shown) == 3
    assert len(found.pool.digests) == 6
    assert found.pool.digests == {file.name: file.sha256 for file in read_corpus("sts12", "train", sample_dir()).files}


def test_scores_on_a_bound_are_outside() -> None:
    rows = [row for row in read_corpus("sts12", "train", sample_dir()) if row["score"] in (1, 4)]
    assert {row["score"] for row in rows} == {1, 4}, "the sample has both"
    pairs = {(row["sentence1"], row["sentence2"]) for row in rows}
    bands = (Bounds(above=4), Bounds(above=1, below=4), Bounds(below=1))
    assert all(pairs.isdisjoint(draw(wanted("a", band))["a"].pool.pairs) for band in bands)


def test_the_draw_is_the_same_for_ever_and_another_for_another_seed(tmp_path: Path) -> None:
    role = of_own(tmp_path, [(f"First {number}.", f"Second {number}.") for number in range(20)])
    drawn = [[pair[0] for pair in draw(role, seed=seed)["positive"].shown] for seed in (0, 1)]
    assert drawn == [["First 15.", "First 3.", "First 12."], ["First 13.", "First 9.", "First 19."]]
    assert draw(role, seed=1) == draw(role, seed=1)
    more = draw(role, shots=5)["positive"].shown
    assert more[:3] == draw(role)["positive"].shown, "one more example leaves the others as they are"


def test_roles_of_the_same_source_show_the_same_rows() -> None:
    rows = {row["premise"]: row for row in read_corpus("simcse_nli", "train", sample_dir())}
    for seed in range(5):
        found = draw(*entailed(), seed=seed)
        premises = [premise for premise, _ in found["positive"].shown]
        assert premises == [premise for premise, _ in found["negative"].shown]
        assert [second for _, second in found["negative"].shown] == [rows[each]["contradiction"] for each in premises]
        assert [second for _, second in found["positive"].shown] == [rows[each]["entailment"] for each in premises]


def test_a_row_is_shown_that_makes_an_example_for_all_of_them(tmp_path: Path) -> None:
    rows = [
        ("A dog runs.", "a dog runs", "It sleeps."),
        ("A cat sits.", "It sits.", "A cat... sits!"),
        ("A hen eats.", "It eats.", "It sings."),
        ("An ox pulls.", "It pulls.", "It flies."),
    ]
    source = (own(tmp_path, rows),)
    roles = [wanted(role, sources=source, first="anchor", second=role) for role in ("positive", "negative")]
    together = draw(*roles, shots=2)
    assert {first for first, _ in together["positive"].shown} == {"A hen eats.", "An ox pulls."}
    assert len(together["positive"].pool.pairs) == len(together["negative"].pool.pairs) == 2
    assert len(draw(roles[0], shots=2)["positive"].pool.pairs) == 3, "alone it has more to show"


def test_pairs_that_say_nothing_or_the_same_are_no_examples(tmp_path: Path) -> None:
    rows = [("It rained.", "IT  rained!"), ("Tea?", "..."), ("Straße", "STRASSE"), ("Snow fell.", "It snowed.")]
    assert draw(of_own(tmp_path, rows), shots=1)["positive"].pool.pairs == [("Snow fell.", "It snowed.")]


def test_no_sentence_is_shown_twice(tmp_path: Path) -> None:
    rows = [("One.", "Two."), ("Two!", "Three."), ("Three", "Four."), ("five", "ONE"), ("Six.", "Seven.")]
    for seed in range(10):
        shown = draw(of_own(tmp_path, rows), shots=2, seed=seed)["positive"].shown
        assert len({letters(sentence) for pair in shown for sentence in pair}) == 4


def test_the_longer_sentence_comes_first_where_that_is_wanted() -> None:
    bounds = Bounds(above=1, below=4)
    plain = draw(wanted("a", bounds))["a"].pool.pairs
    turned = draw(wanted("a", bounds, longer_first=True))["a"].pool.pairs
    words = [(len(first.split()), len(second.split())) for first, second in turned]
    assert all(first > second for first, second in words)
    assert sorted(map(sorted, turned)) == sorted(sorted((a, b)) for a, b in plain if len(a.split()) != len(b.split()))
    assert any(pair not in plain for pair in turned), "some are turned"
    assert any(pair in plain for pair in turned), "and some are not"


def test_labelled_pairs_are_triplets_for_roles_that_want_some() -> None:
    mixed = entailed(sources=("simcse_nli/train", "snli/train", "mnli/train"))
    found = draw(*mixed)
    own_pairs = draw(*entailed())["positive"].pool.pairs
    assert found["positive"].pool.pairs[: len(own_pairs)] == own_pairs
    labelled = found["positive"].pool.pairs[len(own_pairs) :]
    rows = [row for name in ("snli", "mnli") for row in read_corpus(name, "train", sample_dir())]
    true = {(row["premise"], row["hypothesis"]) for row in rows if row["label"] == "entailment"}
    assert labelled
    assert set(labelled) <= true
    assert found["positive"].pool.label == "simcse_nli/train, snli/train, mnli/train"
    raw = draw(wanted("a", sources=("snli/train",), first="premise", second="hypothesis"))["a"].pool.pairs
    assert set(raw) == {(r["premise"], r["hypothesis"]) for r in read_corpus("snli", "train", sample_dir())}


@pytest.mark.parametrize(
    ("roles", "shots", "told"),
    [
        ([wanted("far", Bounds(above=4.9))], 50, r"^pattern\.far\.examples: for the role 'far', 50 examples are needed"
         r", but sts12/train, score above 4\.9 has 5 pairs to show; ask for fewer with pattern\.shots, or name more"),
        ([wanted("far", Bounds(above=5))], 3, r"but sts12/train, score above 5 has no pairs to show;"),
        (entailed(), 61, r"for the roles 'positive' and 'negative', 61 .* has 60 pairs to show;"),
        ([wanted("a", first="sentence")], 3, r"^pattern\.a\.examples\.first: STS/.*: no column 'sentence' - did you"),
        ([wanted("a", sources=NLI, first="premise", second="hypothesis")], 3, r"examples\.second: .* no column 'hyp"),
        ([replace(entailed()[0], bounds=Bounds(1))], 3, r"^pattern\.positive\.examples\.scores: .* no column 'score'"),
        ([wanted("a", second="score")], 3, r"^pattern\.a\.examples\.second: the column 'score' of .* holds no senten"),
    ],
)  # fmt: skip
def test_what_cannot_be_drawn_is_told(roles: list[Wanted], shots: int, told: str) -> None:
    with pytest.raises(DataError, match=told):
        draw(*roles, shots=shots)


def test_too_few_pairs_without_a_repeated_sentence(tmp_path: Path) -> None:
    role = of_own(tmp_path, [("One.", f"Number {number}.") for number in range(4)])
    with pytest.raises(DataError, match=r"has 4 pairs to show, and without repeating a sentence only 1 of them were f"):
        draw(role, shots=2)


def test_sources_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"corpus 'sts12', split 'train' is not there"):
        draw(wanted("a"), data_dir=tmp_path)
    with pytest.raises(DataError, match=r"^pattern\.a\.examples\.from: .*none\.jsonl: there is no such file"):
        draw(wanted("a", sources=(str(tmp_path / "none.jsonl"),)))
    with pytest.raises(ConfigError, match=r"pattern\.a\.examples\.from: 'sts12' is not of the form corpus/split"):
        draw(wanted("a", sources=("sts12",)))
    (tmp_path / "SNLI" / "snli_1.0").mkdir(parents=True)
    line = {"gold_label": "entailment", "sentence1": "It rained.", "sentence2": "It was wet."}
    (tmp_path / "SNLI" / "snli_1.0" / "snli_1.0_train.jsonl").write_text(json.dumps(line) + "\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"^pattern\.positive\.examples\.from: .*no premise has both an entailment and"):
        draw(*entailed(sources=("snli/train",)), data_dir=tmp_path)


def test_a_file_with_gaps_has_fewer_pairs(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["premise", "explicit_entailment", "contradiction"])
        writer.writerows(
            [["It rained.", "Rain fell.", ""], ["It snowed.", "", "No snow."], ["Hail?", "Hail!!", "Sun."]]
        )
    role = wanted("a", sources=(str(path),), first="premise", second="explicit_entailment")
    assert draw(role, shots=1)["a"].pool.pairs == [("It rained.", "Rain fell.")]


def test_inline_pairs_are_taken_as_they_are() -> None:
    found = Examples.inline([["Same.", "Same."], ["Same.", "Other."]])
    assert found.shown == (("Same.", "Same."), ("Same.", "Other."))
    assert found.pool.pairs == list(found.shown)
    assert (found.pool.label, found.pool.digests) == ("examples of the pattern", {})


@given(st.text(max_size=30))
def test_the_fast_way_to_letters_finds_the_same(text: str) -> None:
    ascii_text = text.encode("ascii", "ignore").decode()
    assert _letters(text) == letters(text)
    assert _letters(ascii_text) == letters(ascii_text)


GOOD = {"from": ["sts12/train"], "first": "sentence1", "second": "sentence2"}


@pytest.mark.parametrize(
    ("node", "faults"),
    [
        (GOOD, []),
        (GOOD | {"scores": {"above": 1, "below": None}, "longer_first": True}, []),
        (GOOD | {"scores": None, "longer_first": None}, []),
        (GOOD | {"from": ["mine/rows.jsonl", "snli/dev", "my.csv.gz"]}, []),
        ([["a", "b"]], []),
        ([], ["at: [] is neither a list of pairs"]),
        ("sts12/train", ["at: 'sts12/train' is neither a list of pairs"]),
        (3, ["at: 3 is neither"]),
        ([["a", "b"], ["a"], "ab", ["a", ""], ["a", 3]], [*(f"at.{number}: " for number in (1, 2, 3, 4))]),
        ({}, [f"at.{name}: is missing; it is" for name in ("from", "first", "second")]),
        (GOOD | {"from": "???"}, ["at.from: is missing"]),
        (GOOD | {"form": 1}, ["at.form: there is no such key - did you mean 'from'?"]),
        (GOOD | {7: 1}, ["at.7: there is no such key; there are from, first"]),
        (GOOD | {"from": "sts12/train"}, ["at.from: 'sts12/train' is one name, and a list of names is needed: [sts12"]),
        (GOOD | {"from": []}, ["at.from: [] is not a list of names"]),
        (GOOD | {"from": [3]}, ["at.from: [3] is not a list of names"]),
        (GOOD | {"from": {"a": 1}}, ["at.from: {'a': 1} is not a list of names"]),
        (GOOD | {"from": ["sts12", "snil/train", "sts13/train"]}, [
            "at.from: 'sts12' is not of the form corpus/split",
            "at.from: unknown corpus 'snil' - did you mean 'snli'?",
            "at.from: corpus 'sts13' has no split 'train'",
        ]),
        (GOOD | {"first": 3, "second": " "}, ["at.first: 3 is not the name of a column", "at.second: ' ' is not"]),
        (GOOD | {"longer_first": "yes"}, ["at.longer_first: 'yes' is not true or false"]),
        (GOOD | {"scores": 4}, ["at.scores: 4 is not bounds"]),
        (GOOD | {"scores": {}}, ["at.scores: no bound"]),
        (GOOD | {"scores": {"over": 4}}, ["at.scores.over: there is no such key", "at.scores: no bound"]),
        (GOOD | {"scores": {"above": "4", "below": True}}, ["at.scores.above: '4' is not a", "at.scores.below: True"]),
        (GOOD | {"scores": {"above": float("nan")}}, ["at.scores.above: nan is not a number"]),
        (GOOD | {"scores": {"above": 4, "below": 1.5}}, ["at.scores: no score is above 4 and below 1.5"]),
    ],
)  # fmt: skip
def test_faults_of_examples(node: object, faults: list[str]) -> None:
    found = list(wrong_examples(node, "at"))
    assert len(found) == len(faults), found
    for fault, begins in zip(found, faults, strict=True):
        assert fault.startswith(begins)


def test_pools_of_the_official_corpora(real_data: Path) -> None:
    roles = [
        wanted("positive", Bounds(above=4)),
        wanted("intermediate", Bounds(above=1, below=4), longer_first=True),
        wanted("negative", Bounds(below=1)),
    ]
    found = draw(*roles, data_dir=real_data)
    assert {role: len(each.pool.pairs) for role, each in found.items()} == {
        "positive": 759,
        "intermediate": 829,
        "negative": 261,
    }
