"""Match error rate against the published examples and against every alignment of few errors; closed forms."""

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
                cells[i, j] = (
                    fewest,
                    set().union(*(hits for errors, hits in steps if errors == fewest)),
                )
    return cells[len(reference), len(hypothesis)]


@pytest.mark.parametrize(
    ("reference", "hypothesis", "want"),
    [
        # Morris, Maier and Green 2004, table of examples.
        *(
            ("X", "X", 0),
            ("X", "X X Y Y", 0.75),
            ("X Y X", "X Z", 2 / 3),
            ("X", "Y", 1),
            ("X", "Y Z", 1),
        ),
        # Two substitutions, or a deletion, a hit and an insertion: RapidFuzz decides, and jiwer gives these values too.
        *(("a b", "b c", 1), ("b c", "a b", 2 / 3)),
        *(("a cat", "a car", 0.5), ("cat", "cats", 1), ("A cat.", "a cat", 1)),  # words as written
        *(
            ("", "", 0),
            (" \t", "", 0),
            (" a  cat\n", "a\tcat", 0),
        ),  # white space separates and is nothing else
    ],
)
def test_known_values(reference, hypothesis, want):
    assert match_error_rate(reference, hypothesis) == pytest.approx(want, abs=1e-12)


@given(few_words, few_words)
def test_against_every_alignment_of_fewest_errors(reference, hypothesis):
    one, other = " ".join(reference), " ".join(hypothesis)
    errors, hits = alignments(reference, hypothesis)
    got = match_error_rate(one, other)
    assert got in {errors / (errors + hit) if errors + hit else 0.0 for hit in hits}
    if len(hits) == 1:
        assert got == match_error_rate(other, one)
    names = {"one": "a", "two": "running", "three": "Ünïcode", "a": "3"}
    assert got == match_error_rate(
        *(" ".join(names[word] for word in words) for words in (reference, hypothesis))
    )


@pytest.mark.parametrize("n", [1, 3, 40])
def test_closed_forms(n):
    words = [f"w{k}" for k in range(n)]
    sentence = " ".join(words)
    assert match_error_rate(sentence, "") == match_error_rate("", sentence) == 1
    assert match_error_rate(sentence, sentence + " more words") == pytest.approx(2 / (n + 2))
    assert match_error_rate(sentence, " ".join([*words[:-1], "other"])) == pytest.approx(1 / n)
