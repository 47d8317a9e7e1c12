"""What pairs are measured by, against loops over single sentences, and tables that are not cut."""

from __future__ import annotations

import io
import math

import pytest
import torch
from rich.console import Console

from lightning_cse.analysis.measuring import (
    Drawn,
    draw,
    kind_of,
    measure,
    pair_set,
    pair_summary,
    print_tables,
    spread,
    table,
)
from lightning_cse.encoders import tiny_encoder
from lightning_cse.errors import EncoderError
from lightning_cse.metrics import match_error_rate

FIRST = ["a dog runs", "two birds sing in a tree", "a dog runs"]
SECOND = ["a dog sleeps", "no bird is there", "the weather was bad all week"]


def test_cosines_are_those_of_single_sentences_and_each_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = tiny_encoder().eval()
    read: list[str] = []
    tokenize = encoder.tokenizer.__class__.__call__

    def counted(self: object, sentences: list[str]) -> list[list[int]]:
        read.extend(sentences)
        return tokenize(self, sentences)  # type: ignore[arg-type]

    monkeypatch.setattr(encoder.tokenizer.__class__, "__call__", counted)
    sets = [
        [Drawn("positive", "near", FIRST[:1], SECOND[:1], 7)],
        [Drawn("positive", "again", FIRST, SECOND, 3), Drawn("negative", "none", [], [], 0)],
    ]
    measured = measure(encoder, sets, seed=0)
    assert sorted(read) == sorted({*FIRST, *SECOND})
    assert [[pairs.label for pairs in found] for found in measured] == [["near"], ["again", "none"]]

    def vector(sentence: str) -> torch.Tensor:
        inputs = encoder.tokenizer.tokenizer(sentence, return_tensors="pt")
        return encoder.backbone(**inputs).last_hidden_state[0, 0].double()

    with torch.no_grad():
        cosines = [
            float(torch.cosine_similarity(vector(a), vector(b), dim=0)) for a, b in zip(FIRST, SECOND, strict=True)
        ]
    assert measured[1][0].cosine == pytest.approx(cosines, abs=1e-5)
    assert measured[0][0].cosine == pytest.approx(cosines[:1], abs=1e-5)
    assert measured[1][0].mer == [match_error_rate(a, b) for a, b in zip(FIRST, SECOND, strict=True)]
    assert (measured[1][1].mer, measured[1][1].cosine) == ([], [])


def test_two_passes_differ_by_the_seed_s_dropout_alone() -> None:
    encoder = tiny_encoder()
    state = torch.get_rng_state()
    pairs = [[Drawn("positive", "two passes", FIRST, FIRST, 3, dropout=True)]]
    ((first,),) = measure(encoder, pairs, seed=0)
    assert all(0 < cosine < 0.9999 for cosine in first.cosine)
    assert measure(encoder, pairs, seed=0) == [[first]]
    assert measure(encoder, pairs, seed=1) != [[first]]
    assert torch.equal(torch.get_rng_state(), state)
    assert not encoder.training


def test_without_an_encoder_only_words_are_compared() -> None:
    ((pairs,),) = measure(None, [[Drawn("positive", "near", FIRST, SECOND, 3)]], seed=0)
    assert list(pairs.mer) == [match_error_rate(a, b) for a, b in zip(FIRST, SECOND, strict=True)]
    assert not pairs.cosine


def test_broken_weights_are_told() -> None:
    encoder = tiny_encoder()
    with torch.no_grad():
        next(encoder.backbone.parameters()).fill_(math.nan)
    with pytest.raises(EncoderError, match="are not finite numbers: its weights are broken"):
        measure(encoder, [[Drawn("positive", "near", FIRST, SECOND, 3)]], seed=0)


def test_pairs_are_the_first_of_the_rows_and_all_are_counted() -> None:
    drawn = draw("negative", "far", "abcd", "ABCD", [3, 0, 2], most=2)
    assert drawn == Drawn("negative", "far", ["d", "a"], ["D", "A"], 3)


def test_what_is_told_of_pairs() -> None:
    far = Drawn("negative", "far", FIRST, SECOND, 9)
    near = Drawn("positive", "near", FIRST[:2], SECOND[:2], 2)
    measured = measure(None, [[far, near]], seed=0)[0]
    row = pair_set("mine", [far, near], measured)
    assert (row.name, row.positive, row.negative) == ("mine", [measured[1]], [measured[0]])
    told = pair_summary(far, measured[0])
    assert (told["kind"], told["label"], told["pairs"], told["looked_at"]) == ("negative", "far", 9, 3)
    assert told["mer"] == spread(measured[0].mer)
    assert told["cosine"] is None


def test_spread_of_five_numbers() -> None:
    assert spread([0.0, 1.0, 2.0, 3.0, 9.0]) == {
        "mean": 3.0,
        "lower_quartile": 1.0,
        "median": 2.0,
        "upper_quartile": 3.0,
    }
    assert spread([]) is None


def test_kinds_of_roles() -> None:
    roles = ("positive", "intermediate", "entailment", "negative", "contradiction", "joke")
    assert [kind_of(role) for role in roles] == ["positive"] * 3 + ["negative"] * 2 + ["positive"]


def test_a_narrow_console_cuts_no_table_and_stays_narrow() -> None:
    file = io.StringIO()
    console = Console(file=file, width=20, highlight=False)
    wide = table("name", *(f"column {number}" for number in range(20)), left=1)
    wide.add_row("a name", *(f"{number}.123456" for number in range(20)))
    print_tables([wide], console)
    told = file.getvalue()
    assert all(f"{number}.123456" in told and f"column {number}" in told for number in range(20))
    assert "…" not in told
    assert len(told.splitlines()) == 4  # header, rule, row, and an empty line
    assert console.width == 20
