"""Match error rate against published examples and every alignment with the fewest errors."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightning_cse.metrics import match_error_rate

few_words = st.lists(st.sampled_from(["one", "two", "three", "a"]), max_size=6)


def alignments(reference, hypothesis):
    """Return errors and hits of the alignments with the fewest errors."""
    if not reference or not hypothesis:
        return [(len(reference) + len(hypothesis), 0)]
    same = reference[-1] == hypothesis[-1]
    found = [(errors + 1, hits) for errors, hits in alignments(reference[:-1], hypothesis)]
    found += [(errors + 1, hits) for errors, hits in alignments(reference, hypothesis[:-1])]
    for errors, hits in alignments(reference[:-1], hypothesis[:-1]):
        found.append((errors, hits + 1) if same else (errors + 1, hits))
    fewest = min(found)[0]
    return [pair for pair in set(found) if pair[0] == fewest]


@pytest.mark.parametrize(
    ("reference", "hypothesis", "want"),
    [
        # Morris, Maier and Green 2004, table of examples.
        ("X", "X", 0),
        ("X", "X X Y Y", 0.75),
        ("X Y X", "X Z", 2 / 3),
        ("X", "Y", 1),
        ("X", "Y Z", 1),
        # Two alignments with two errors each: RapidFuzz and jiwer give these values.
        ("a b", "b c", 1),
        ("b c", "a b", 2 / 3),
        ("A cat.", "a cat", 1),
        ("", "", 0),
        (" a  cat\n", "a\tcat", 0),
        ("a cat sat", "", 1),
        ("", "a cat sat", 1),
    ],
)
def test_known_values(
    reference,
    hypothesis,
    want,
):
    assert match_error_rate(reference, hypothesis) == pytest.approx(want, abs=1e-12)


@given(few_words, few_words)
def test_rate_is_that_of_an_alignment_with_fewest_errors(reference, hypothesis):
    got = match_error_rate(" ".join(reference), " ".join(hypothesis))
    rates = []
    for errors, hits in alignments(reference, hypothesis):
        rates.append(errors / (errors + hits) if errors + hits else 0.0)
    assert got in rates
