"""Match error rate against published examples."""

import pytest

from lightning_cse.metrics import match_error_rate


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
        ("", "", 0),
        (" a  cat\n", "a\tcat", 0),
        ("", "a cat sat", 1),
    ],
)
def test_known_values(reference, hypothesis, want):
    assert match_error_rate(reference, hypothesis) == pytest.approx(want, abs=1e-12)
