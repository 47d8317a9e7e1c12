"""Shuffled and cut word pieces: what is kept, how much is removed, chance, and independence of process and place."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightning_cse.data.augment import TokenCutoff, TokenShuffle

pieces = st.lists(st.integers(0, 30_000), max_size=60)
sentences = st.text(st.characters(codec="utf-8"), max_size=40)


@given(pieces, sentences, st.integers())
def test_a_shuffle_has_the_same_pieces(ids, sentence, seed):
    got = TokenShuffle(seed)(ids, sentence)
    assert type(got) is list
    assert Counter(got) == Counter(ids)


@pytest.mark.parametrize("n", [1, 2, 5, 25, 200])
def test_a_shuffle_permutes_places(n):
    shuffle = TokenShuffle()
    assert {tuple(sorted(shuffle(range(n), f"sentence {k}"))) for k in range(20)} == {tuple(range(n))}
    assert len({tuple(shuffle(range(n), f"sentence {k}")) for k in range(200)}) >= min(n, 100)
    # The places are drawn from the sentence, not from the ids.
    order = shuffle(range(n), "a sentence")
    assert shuffle([7 * k % 3 for k in range(n)], "a sentence") == [7 * k % 3 for k in order]


@given(pieces, sentences, st.integers(), st.floats(0, 0.999))
def test_a_cutoff_keeps_order_and_leaves_a_piece(ids, sentence, seed, share):
    got = TokenCutoff(share, seed)(ids, sentence)
    assert type(got) is list
    left = iter(ids)
    assert all(piece in left for piece in got)  # a subsequence
    assert len(got) == max(len(ids) - round(share * len(ids)), min(len(ids), 1))


def test_a_cutoff_removes_a_twentieth_by_length():
    removed = {n: n - len(TokenCutoff()(range(n), "a sentence")) for n in range(1, 201)}
    assert removed == {n: round(0.05 * n) for n in range(1, 201)}
    # A half goes to the even neighbour: 0.5 to 0, 1.5 to 2, 2.5 to 2.
    assert [removed[n] for n in (1, 9, 10, 11, 29, 30, 31, 49, 50, 51, 200)] == [0, 0, 0, 1, 1, 2, 2, 2, 2, 3, 10]
    assert all(TokenCutoff()(list(range(n)), "a sentence") == list(range(n)) for n in range(11))


def test_nothing_comes_of_nothing():
    assert TokenShuffle()([], "") == TokenCutoff()([], "") == TokenCutoff(0.9)([], "") == []
    assert TokenShuffle()([7], "x") == TokenCutoff(0.99)([7], "x") == [7]
    assert TokenCutoff(share=0)(range(40), "a sentence") == list(range(40))


@pytest.mark.parametrize("augment", [TokenShuffle, TokenCutoff])
def test_seed_and_sentence_decide(augment):
    ids = list(range(100))
    assert augment()(ids, "a sentence") == augment(seed=0)(ids, "a sentence")
    assert len({tuple(augment(seed=seed)(ids, "a sentence")) for seed in (0, 1, -1, 10)}) == 4
    assert len({tuple(augment()(ids, text)) for text in ("a sentence", "a sentence ", "A sentence", "0")}) == 4


def test_shuffle_and_cutoff_draw_apart():
    """What the cutoff removes does not stand first, or last, in the shuffle of the same sentence."""
    together = 0
    for k in range(200):
        (removed,) = set(range(20)) - set(TokenCutoff()(range(20), f"sentence {k}"))
        order = TokenShuffle()(range(20), f"sentence {k}")
        together += removed in (order[0], order[-1])
    assert together < 45  # 20 expected, s.d. 4.2


def chi_square(counts: Counter, cells: int, draws: int) -> float:
    expected = draws / cells
    return sum((counts[cell] - expected) ** 2 for cell in range(cells)) / expected


def test_every_permutation_is_as_likely():
    orders = {order: k for k, order in enumerate(itertools.permutations(range(4)))}
    counts = Counter(orders[tuple(TokenShuffle(seed=3)(range(4), f"sentence {k}"))] for k in range(24_000))
    assert chi_square(counts, 24, 24_000) < 57.1  # the 0.9999 quantile at 23 degrees of freedom is 57.1


def test_every_place_is_as_likely_for_a_piece():
    firsts, lasts, sevenths = Counter(), Counter(), Counter()
    for k in range(20_000):
        order = TokenShuffle()(range(20), f"sentence {k}")
        firsts[order[0]] += 1
        lasts[order[-1]] += 1
        sevenths[order.index(7)] += 1
    for counts in (firsts, lasts, sevenths):
        assert chi_square(counts, 20, 20_000) < 50.8  # 0.9999 at 19 degrees of freedom


def test_every_pair_of_pieces_is_as_likely_cut():
    pairs = {pair: k for k, pair in enumerate(itertools.combinations(range(30), 2))}
    counts = Counter()
    for k in range(43_500):
        left = set(TokenCutoff()(range(30), f"sentence {k}"))
        counts[pairs[tuple(sorted(set(range(30)) - left))]] += 1
    assert chi_square(counts, 435, 43_500) < 552  # 0.9999 at 434 degrees of freedom


def test_the_same_in_another_process():
    """Neither the hash seed of a process nor the sentences before have a part in it."""
    code = (
        "from lightning_cse.data.augment import TokenCutoff, TokenShuffle\n"
        "print(TokenShuffle(5)(range(12), 'Ünïcode'), TokenCutoff(0.5, 5)(range(12), 'Ünïcode'))"
    )
    want = f"{TokenShuffle(5)(range(12), 'Ünïcode')} {TokenCutoff(0.5, 5)(range(12), 'Ünïcode')}"
    for hash_seed in ("1", "2"):
        env = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(sys.path)}
        done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, encoding="utf-8")
        assert done.returncode == 0, done.stderr
        assert done.stdout.strip() == want


def test_the_draws_stay_as_they_are():
    """Stored positives and records of old runs depend on them."""
    assert TokenShuffle(seed=42)(range(10), "A word after a word.") == [8, 5, 0, 1, 6, 4, 2, 9, 7, 3]
    assert TokenCutoff(share=0.3, seed=42)(range(10), "A word after a word.") == [0, 2, 3, 4, 5, 6, 9]


@pytest.mark.parametrize("share", [-0.05, 1.0, 5.0, float("nan"), float("inf")])
def test_impossible_shares_are_refused(share):
    with pytest.raises(ValueError, match=rf"share must be in \[0, 1\), got {share}"):
        TokenCutoff(share=share)


def test_options_are_named():
    with pytest.raises(TypeError, match="shared"):
        TokenCutoff(shared=0.1)
    assert TokenCutoff(seed=1) == TokenCutoff(share=0.05, seed=1) != TokenCutoff(seed=2)
