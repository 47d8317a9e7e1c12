"""The sources of a training set, and the sentence pairs that must not be in it."""

import pytest

from lightning_cse.data.corpora import sample_dir
from lightning_cse.data.own import FORMS
from lightning_cse.data.rows import Rows
from lightning_cse.data.sources import (
    all_pairs,
    missing_file,
    pair_keys,
    read_sources,
    without_pairs,
)
from lightning_cse.errors import ConfigError, DataError


def pairs(*rows):
    premises, hypotheses = zip(*rows, strict=True)
    return Rows.of(
        {
            "premise": premises,
            "hypothesis": hypotheses,
            "label": ["neutral"] * len(rows),
        }
    )


def keys_of(*rows):
    return [key for (key,) in pair_keys(pairs(*rows))]


@pytest.mark.parametrize(
    ("columns", "same"),
    [
        ({"sentence1": "P", "sentence2": "Q", "score": 1.0,}, [("P", "Q")]),
        ({"sentence": "P"}, []),
        ({"anchor": "P", "positive": "Q", "intermediate": "R", "negative": "S",}, [("P", "Q"), ("P", "R"), ("P", "S"),]),
        ({"anchor": "P", "positive": "Q", "negative": "R", "negative_2": "S",}, [("P", "Q"), ("P", "R"), ("P", "S"),]),
        ({"pos_implicit": "P", "pos_explicit": "Q", "neg_implicit": "R", "neg_explicit": "S",},
         [("P", "Q"), ("s", "r")]),
        ({"premise": "P", "anchor": "P", "entailment": "Q", "positive": "Q",}, [("P", "Q")]),
        ({"premise": "A man's asleep.", "hypothesis": "He doesn't run, does he?"},
         # turned round, tokenised, in another case,
         [("he does n't run , does he ? ", "A man 's asleep .")]),
    ],
)  # fmt: skip
def test_the_pairs_of_a_row(columns, same):
    rows = Rows.of({name: [cell] for name, cell in columns.items()})
    assert pair_keys(rows) == [tuple(keys_of(*same)) if same else ()]
    assert all_pairs([rows]) == set(keys_of(*same) if same else ())


def test_a_key_has_letters_and_digits_only():
    assert keys_of(("A-b_c 1!", "\u00c9\u2014\u00df.")) == ["abc1\0\u00e9ss"]


def test_rows_may_lack_a_sentence():
    known = all_pairs(
        [
            Rows.of(
                {
                    "premise": ["P"],
                    "entailment": ["Q"],
                    "contradiction": [None],
                }
            )
        ]
    )
    assert len(known) == 1
    other = Rows.of(
        {
            "premise": ["A", "p"],
            "entailment": [None, "q"],
            "contradiction": ["B", None],
        }
    )
    assert without_pairs(other, known).column("premise") == ["A"]


def test_missing_file(tmp_path):
    message = (
        "ImpScore/all_data.csv is not in paths.data_dir; prepare impscore: fetches nothing: put"
    )
    assert str(missing_file("impscore/test", tmp_path)).startswith(message)
    assert missing_file("impscore/test", sample_dir()) is None
    assert missing_file("stsb/test", tmp_path) is None, "the hub may have it"
    assert missing_file(str(tmp_path / "mine.csv"), tmp_path) is None, "read_sources reports it"


@pytest.mark.parametrize("name", ["inli", "a/b/c", "my/rows.json"])
def test_names_of_another_form(name):
    with pytest.raises(
        ConfigError, match=rf"data\.train: '{name}' is not of the form corpus/split"
    ) as caught:
        read_sources(
            [name],
            sample_dir(),
            key="data.train",
        )
    assert str(caught.value).endswith(f"; {FORMS}")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("my/no.jsonl", r"my/no\.jsonl: there is no such file; relative paths start at"),
        (
            "inly/train",
            "unknown corpus 'inly' - did you mean 'inli'.*; and no file or folder is named inly/train",
        ),
    ],
)
def test_errors_name_the_key(name, message):
    with pytest.raises(DataError, match=rf"^data\.train: .*{message}"):
        read_sources(
            [name],
            sample_dir(),
            key="data.train",
        )


def test_counterfactual_dev_and_test_come_from_snli_dev_and_test(real_data):
    known = all_pairs(
        read_sources(
            ["snli_senteval/dev", "snli_senteval/test"],
            real_data,
            key="x",
        )
    )
    for split, leaks in (
        ("original_train", 0),
        ("original_dev", 200),
        ("original_test", 400),
        ("revised_train", 0),
    ):
        (rows,) = read_sources(
            [f"snli_counterfactual/{split}"],
            real_data,
            key="x",
        )
        assert len(rows) - len(without_pairs(rows, known)) == leaks
