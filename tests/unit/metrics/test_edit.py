"""Match error rate against the published examples and against every alignment of few errors; invariances, errors."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightning_cse.metrics import match_error_rate

few_words = st.lists(st.sampled_from(["one", "two", "three", "a"]), max_size=8)


def alignments(reference: list[str], hypothesis: list[str]) -> tuple[int, set[int]]:
    """The fewest errors, and the numbers of hits that alignments with so few errors have."""
    cells: dict[tuple[int, int], tuple[int, set[int]]] = {(0, 0): (0, {0})}
    for i in range(len(reference) + 1):
        for j in range(len(hypothesis) + 1):
            steps = []
            if i:
                steps.append((cells[i - 1, j][0] + 1, cells[i - 1, j][1]))
            if j:
                steps.append((cells[i, j - 1][0] + 1, cells[i, j - 1][1]))
            if i and j:
                errors, hits = cells[i - 1, j - 1]
                same = reference[i - 1] == hypothesis[j - 1]
                steps.append((errors, {hit + 1 for hit in hits}) if same else (errors + 1, hits))
            if steps:
                fewest = min(errors for errors, _ in steps)
                cells[i, j] = fewest, set().union(*(hits for errors, hits in steps if errors == fewest))
    return cells[len(reference), len(hypothesis)]


@pytest.mark.parametrize(
    ("reference", "hypothesis", "want"),
    # Morris, Maier and Green 2004, table of examples.
    [("X", "X", 0), ("X", "X X Y Y", 0.75), ("X Y X", "X Z", 2 / 3), ("X", "Y", 1), ("X", "Y Z", 1)],
)
def test_the_published_examples(reference, hypothesis, want):
    assert match_error_rate(reference, hypothesis) == want


@given(few_words, few_words)
def test_against_every_alignment_of_fewest_errors(reference, hypothesis):
    errors, hits = alignments(reference, hypothesis)
    got = match_error_rate(" ".join(reference), " ".join(hypothesis))
    assert got in {errors / (errors + hit) if errors + hit else 0.0 for hit in hits}


@given(few_words, few_words)
def test_exchanging_the_two_keeps_the_value_where_there_is_one_number_of_hits(reference, hypothesis):
    one, other = " ".join(reference), " ".join(hypothesis)
    _, hits = alignments(reference, hypothesis)
    if len(hits) == 1:
        assert match_error_rate(one, other) == match_error_rate(other, one)


def test_among_equally_few_errors_rapidfuzz_decides():
    """Two substitutions, or a deletion, a hit and an insertion; jiwer gives these values too."""
    assert alignments(["a", "b"], ["b", "c"]) == (2, {0, 1})
    assert match_error_rate("a b", "b c") == 1
    assert match_error_rate("b c", "a b") == pytest.approx(2 / 3)


@given(few_words, few_words)
def test_range_and_ends(reference, hypothesis):
    one, other = " ".join(reference), " ".join(hypothesis)
    got = match_error_rate(one, other)
    assert 0 <= got <= 1
    assert (got == 0) == (reference == hypothesis)
    assert match_error_rate(one, one) == 0
    if not set(reference) & set(hypothesis) and (reference or hypothesis):
        assert got == 1


@given(few_words, few_words)
def test_the_names_of_words_do_not_matter(reference, hypothesis):
    names = {"one": "a", "two": "running", "three": "Ünïcode", "a": "3"}
    renamed = [" ".join(names[word] for word in words) for words in (reference, hypothesis)]
    assert match_error_rate(*renamed) == match_error_rate(" ".join(reference), " ".join(hypothesis))


@pytest.mark.parametrize("n", [1, 3, 40])
def test_closed_forms(n):
    words = [f"w{k}" for k in range(n)]
    sentence = " ".join(words)
    assert match_error_rate(sentence, "") == match_error_rate("", sentence) == 1
    assert match_error_rate(sentence, sentence + " more words") == pytest.approx(2 / (n + 2))
    assert match_error_rate("more words " + sentence, sentence) == pytest.approx(2 / (n + 2))
    assert match_error_rate(sentence, " ".join([*words[:-1], "other"])) == pytest.approx(1 / n)


def test_words_not_characters():
    assert match_error_rate("a cat", "a car") == 0.5
    assert match_error_rate("cat", "cats") == 1
    assert match_error_rate("A cat.", "a cat") == 1  # as written: neither case nor punctuation is folded


def test_white_space_separates_and_is_nothing_else():
    assert match_error_rate("", "") == match_error_rate(" \t", "") == 0
    assert match_error_rate(" a  cat\n", "a\tcat") == 0


def test_long_sentences():
    words = [str(k % 97) for k in range(2000)]
    changed = [f"x{word}" if k % 10 == 0 else word for k, word in enumerate(words)]
    assert match_error_rate(" ".join(words), " ".join(changed)) == pytest.approx(0.1)
