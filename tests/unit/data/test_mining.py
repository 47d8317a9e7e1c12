"""Mined hard negatives: against a loop in float64, with repeated sentences, and their margin."""

from typing import ClassVar

import numpy as np
import pytest

from lightning_cse.data.mining import mine_negatives


def embedder(seed=0, width=5):
    """Return a function that gives each sentence a vector of its own, on any call."""

    def embed(sentences):
        generators = (np.random.default_rng([seed, *sentence.encode()]) for sentence in sentences)
        return np.stack([generator.normal(size=width) + 1 for generator in generators])

    return embed


def loop(anchors, positives, embed, count, share):
    """Mine as `mine_negatives` does, pair by pair in float64."""

    def cosine(a, b):
        x, y = embed([a, b])
        return float(x @ y / np.linalg.norm(x) / np.linalg.norm(y))

    mined, left_out = [], 0
    for anchor, positive in zip(anchors, positives, strict=True):
        right = {
            answer
            for question, answer in zip(anchors, positives, strict=True)
            if question == anchor
        }
        candidates = [
            candidate for candidate in dict.fromkeys(positives) if candidate not in right | {anchor}
        ]
        limit = share * cosine(anchor, positive)
        near = [candidate for candidate in candidates if cosine(anchor, candidate) > limit]
        left_out += len(near)
        far = sorted(
            (candidate for candidate in candidates if candidate not in near),
            key=lambda x: -cosine(anchor, x),
        )
        mined.append((far + [None] * count)[:count])

    return mined, left_out


@pytest.mark.parametrize("share", [0.5, 0.95, 1.0])
@pytest.mark.parametrize("count", [1, 3, 50])
def test_negatives_are_those_of_a_loop(count, share):
    anchors = [f"question {n % 20}" for n in range(24)] + ["answer 3"]
    positives = [f"answer {n % 17}" for n in range(25)]
    expected, left_out = loop(anchors, positives, embedder(), count, share)
    mined = mine_negatives(anchors, positives, embedder(), count=count, margin_share=share)
    assert mined == (expected, left_out)
    assert mined == mine_negatives(anchors, positives, embedder(), count=count, margin_share=share)


def test_blocks_do_not_change_the_result(monkeypatch):
    anchors = [f"q{n}" for n in range(30)]
    positives = [f"a{n}" for n in range(30)]
    in_one_block = mine_negatives(anchors, positives, embedder(), count=2)
    monkeypatch.setattr("lightning_cse.data.mining._SCORES", 100)
    assert mine_negatives(anchors, positives, embedder(), count=2) == in_one_block


@pytest.mark.parametrize("options", [{"count": 0}, {"margin_share": 0}, {"margin_share": 1.1}])
def test_settings_out_of_range_are_an_error(options):
    with pytest.raises(ValueError, match="count >= 1 and margin_share"):
        mine_negatives(["q"], ["a"], embedder(), **options)


def test_agrees_with_sentence_transformers():
    """The same negatives as `mine_hard_negatives` with its relative margin, for distinct pairs."""
    pytest.importorskip("sentence_transformers")
    from datasets import Dataset
    from sentence_transformers.util import cos_sim, mine_hard_negatives, pairwise_cos_sim

    class Model:
        similarity_fn_name = "cosine"
        prompts: ClassVar = {}
        device = "cpu"

        def encode_document(self, sentences, **_):
            return embedder(width=8)(sentences).astype(np.float32)

        encode = encode_query = encode_document

        similarity = staticmethod(cos_sim)
        similarity_pairwise = staticmethod(pairwise_cos_sim)

    anchors, positives = [[f"{letter}{n}" for n in range(40)] for letter in "qa"]
    pairs = Dataset.from_dict({"anchor": anchors, "positive": positives})
    expected_rows = mine_hard_negatives(
        pairs,
        Model(),
        num_negatives=2,
        range_max=39,
        relative_margin=0.05,
        verbose=False,
        output_format="n-tuple",
    )
    expected = {row["anchor"]: [row["negative_1"], row["negative_2"]] for row in expected_rows}
    mined, _ = mine_negatives(anchors, positives, embedder(width=8), count=2)
    complete = {a: row for a, row in zip(anchors, mined, strict=True) if None not in row}
    assert complete == expected
    assert len(complete) > 10
