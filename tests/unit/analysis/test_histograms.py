"""The histograms of pairs: what the bars stand for, and where the axes end; pairs without an
encoder and with one.
"""

import math
from dataclasses import replace

import pytest
import torch

from lightning_cse.analysis.describing import measure, pair_summary
from lightning_cse.analysis.histograms import Pairs, histograms_figure
from lightning_cse.encoders import tiny_encoder
from lightning_cse.errors import EncoderError

NEAR = Pairs("positive", "near", ["a b c d", "e f"], ["a b c x", "e f"], 5)
SHOWN = replace(NEAR, mer=[0.0, 0.1, 0.1, 1.0], cosine=[1.0000002, 0.9, 0.91, 0.51])
FAR = Pairs("negative", "far", [], [], 0, mer=[0.95, 1.0], cosine=[0.55, -0.24])


def heights(axes, number=0):
    """Return the height of every bar that is not empty, by its left edge."""
    data = axes.patches[number].get_data()
    edges = map(round, data.edges, [6] * len(data.edges))

    return {edge: value for edge, value in zip(edges, data.values, strict=False) if value}


def test_bars_are_shares_and_no_pair_is_left_out():
    figure = histograms_figure({"mine": [SHOWN, FAR], "other": [SHOWN]})
    mer, _, cosine, _ = figure.axes[:4]
    assert heights(mer) == {0.0: 0.25, 0.08: 0.5, 0.96: 0.25}
    for axes in figure.axes[:4]:
        assert sum(heights(axes).values()) == pytest.approx(1)

    assert mer.get_xlim() == (0.0, 1.0)
    assert cosine.get_xlim() == figure.axes[6].get_xlim() == pytest.approx((-0.3, 1.0))
    assert mer.lines[0].get_xdata()[0] == pytest.approx(0.3), "the mean"
    (name,) = mer.get_legend().get_texts()
    assert name.get_text() == "near\nmean 0.30, n = 4"
    without = histograms_figure({"mine": [replace(SHOWN, cosine=())]})
    assert len(without.axes) == 2, "no cosines, no panels of them"


def test_pairs_are_measured_and_summarised():
    far = replace(FAR, mer=(), cosine=())
    twice = Pairs("positive", "twice", ["a b"], ["a b"], 1, dropout=True)
    ((plain, empty),) = measure(None, [[NEAR, far]], seed=0)
    assert (plain.mer, list(plain.cosine), list(empty.mer)) == ([0.25, 0.0], [], [])
    encoder = tiny_encoder(max_length=16)
    ((measured, _, dropped),) = measure(encoder, [[NEAR, far, twice]], seed=0)
    tokenizer = encoder.tokenizer.tokenizer
    inputs = [tokenizer(sentence, return_tensors="pt") for sentence in ("a b c d", "a b c x")]
    vectors = [encoder.backbone(**tokens)[0][0, 0] for tokens in inputs]
    cosine = torch.cosine_similarity(*vectors, dim=0).item()
    assert measured.cosine == pytest.approx([cosine, 1], abs=1e-5)
    assert dropped.cosine[0] < 0.999
    summary = pair_summary(measured)
    assert (summary["pairs"], summary["measured"]) == (5, 2)
    assert list(summary["mer"].values()) == [0.125, 0.0625, 0.125, 0.1875]
    assert pair_summary(empty)["mer"] is None
    with torch.no_grad():
        encoder.backbone.embeddings.word_embeddings.weight.fill_(math.nan)

    with pytest.raises(EncoderError, match="not finite"):
        measure(encoder, [[NEAR]], seed=0)
