"""The histograms of pairs: what the bars stand for, and where the axes end; pairs without an
encoder and with one.
"""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from lightning_cse.analysis.describing import kind_of, measure, pair_summary
from lightning_cse.analysis.histograms import Pairs, histograms_figure, shares
from lightning_cse.encoders import tiny_encoder
from lightning_cse.errors import EncoderError


def pairs(kind, label, mer, cosine):
    return Pairs(
        kind,
        label,
        [],
        [],
        len(mer),
        mer=mer,
        cosine=cosine,
    )


NEAR = pairs(
    "positive",
    "anchor - positive",
    [
        0.0,
        0.1,
        0.1,
        1.0,
    ],
    [
        1.0000002,
        0.9,
        0.91,
        0.51,
    ],
)
FAR = pairs(
    "negative",
    "anchor - negative",
    [0.95, 1.0],
    [0.55, 0.6],
)
APART = pairs(
    "negative",
    "score < 1",
    [1.0, 0.9],
    [-0.24, 0.3],
)


def drawn(**sets):
    """Return the axes of the figure, a list a data set."""
    axes = histograms_figure(sets).axes
    columns = len(axes) // len(sets)
    return [axes[start : start + columns] for start in range(0, len(axes), columns)]


def heights(axes, number=0):
    """Return the height of every bar that is not empty, by its left edge."""
    data = axes.patches[number].get_data()
    return {
        round(float(left), 6): float(value)
        for left, value in zip(
            data.edges,
            data.values,
            strict=False,
        )
        if value
    }


def test_bars_are_shares_and_no_pair_is_left_out():
    ((mer, mer_far, cosine, cosine_far),) = drawn(mine=[NEAR, FAR])
    assert heights(mer) == {
        0.0: 0.25,
        0.08: 0.5,
        0.96: 0.25,
    }
    assert heights(cosine)[0.98] == 0.25, "what rounding put above 1"
    for axes in (
        mer,
        mer_far,
        cosine,
        cosine_far,
    ):
        assert sum(heights(axes).values()) == pytest.approx(1)
    assert [axes.get_xlim() for axes in (mer, cosine)] == [(0.0, 1.0), (0.5, 1.0)]
    assert mer.lines[0].get_xdata()[0] == pytest.approx(0.3), "the mean"
    assert mer.get_xlabel() == "match error rate, positive pairs"
    assert "mine" in mer.get_ylabel()


def test_axes_are_those_of_all_data_sets():
    first, second = drawn(
        mine=[NEAR, FAR],
        apart=[APART],
    )
    for row in (first, second):
        for axes in row[2:]:
            assert axes.get_xlim() == pytest.approx((-0.3, 1.0))
    assert [text.get_text() for text in second[0].texts] == ["no such pairs"]


def test_kinds_share_a_panel_and_are_named():
    between = pairs(
        "positive",
        "level",
        [0.5, 0.6],
        [0.7, 0.8],
    )
    ((mer, *_),) = drawn(
        mine=[
            NEAR,
            between,
            FAR,
        ]
    )
    names = [text.get_text() for text in mer.get_legend().get_texts()]
    assert names == ["anchor - positive\nmean 0.30, n = 4", "level\nmean 0.55, n = 2"]
    assert heights(mer, 1) == {0.48: 0.5, 0.6: 0.5}
    without = [replace(each, cosine=()) for each in (NEAR, FAR)]
    assert len(drawn(mine=without)[0]) == 2, "no cosines, no panels of them"


def test_shares():
    bins = np.linspace(0, 1, 5)
    assert shares(
        [
            0.1,
            0.3,
            0.3,
            1.2,
        ],
        bins,
    ).tolist() == [
        0.25,
        0.5,
        0.0,
        0.25,
    ]


def test_pairs_are_measured_and_summarised():
    assert [kind_of(role) for role in ("positive", "level3", "contradiction")] == [
        "positive",
        "positive",
        "negative",
    ]
    near = Pairs(
        "positive",
        "near",
        ["a b c d", "e f"],
        ["a b c x", "e f"],
        5,
    )
    far = Pairs(
        "negative",
        "far",
        [],
        [],
        0,
    )
    twice = Pairs(
        "positive",
        "twice",
        ["a b"],
        ["a b"],
        1,
        dropout=True,
    )
    ((plain, empty),) = measure(
        None,
        [[near, far]],
        seed=0,
    )
    assert (plain.mer, list(plain.cosine), list(empty.mer)) == ([0.25, 0.0], [], [])
    encoder = tiny_encoder(max_length=16)
    state = torch.get_rng_state()
    ((measured, _, dropped),) = measure(
        encoder,
        [
            [
                near,
                far,
                twice,
            ]
        ],
        seed=0,
    )
    assert torch.equal(torch.get_rng_state(), state)
    inputs = [
        encoder.tokenizer.tokenizer(each, return_tensors="pt") for each in ("a b c d", "a b c x")
    ]
    vectors = [encoder.backbone(**each)[0][0, 0] for each in inputs]
    assert measured.cosine[0] == pytest.approx(
        torch.cosine_similarity(*vectors, dim=0).item(), abs=1e-5
    )
    assert measured.cosine[1] == pytest.approx(1)
    assert dropped.cosine[0] < 0.999
    summary = pair_summary(measured)
    assert (summary["pairs"], summary["measured"]) == (5, 2)
    assert summary["mer"] == {
        "mean": 0.125,
        "lower_quartile": 0.0625,
        "median": 0.125,
        "upper_quartile": 0.1875,
    }
    assert pair_summary(empty)["mer"] is None
    with torch.no_grad():
        encoder.backbone.embeddings.word_embeddings.weight.fill_(math.nan)
    with pytest.raises(EncoderError, match="not finite"):
        measure(
            encoder,
            [[near]],
            seed=0,
        )
