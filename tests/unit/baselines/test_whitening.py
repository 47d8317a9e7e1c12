"""Whitening makes the fitted vectors uncorrelated, and answers by cosine."""

import random

import numpy as np
import pytest
import torch

from lightning_cse.baselines import Whitening
from lightning_cse.baselines import whitening as module
from lightning_cse.data.corpora import read_corpus
from lightning_cse.data.declarations import sample_dir
from lightning_cse.embeddings import PointEmbedding
from lightning_cse.encoders import tiny_encoder
from lightning_cse.errors import DataError
from lightning_cse.models import PointModel

WORDS = [
    "the",
    "dog",
    "cat",
    "yard",
    "rain",
    "child",
    "coat",
    "door",
    "party",
    "warm",
    "night",
    "road",
    "sat",
    "ran",
]


def made_up(count):
    draw = random.Random(0)
    return [" ".join(draw.choices(WORDS, k=draw.randint(3, 9))) for _ in range(count)]


SENTENCES = made_up(300)
NEW = ["a sentence of another kind", "and one more"]


@pytest.fixture(scope="module")
def encoder():
    return tiny_encoder(width=16, pooling="mean")


def vectors(model, sentences):
    embedding = model.embed(sentences)
    assert isinstance(embedding, PointEmbedding)
    assert embedding.vector.dtype == torch.float32

    return embedding.vector.double().numpy()


@pytest.fixture
def whiten(tmp_path):
    """Return a function that whitens an encoder by some sentences."""

    def fitted(encoder, sentences):
        path = tmp_path / "sentences.txt"
        path.write_text("\n".join(sentences) + "\n", encoding="utf-8")
        return Whitening(encoder, sources=[str(path)])

    return fitted


def test_against_numpy_svd(encoder, whiten, monkeypatch):
    """The sums run over five parts, of which the last one is smaller.

    A LayerNorm whose gain is one leaves vectors that sum to zero, so one of the 16 directions is
    flat.
    """
    monkeypatch.setattr(module, "SENTENCES_AT_ONCE", 70)
    whitening = whiten(encoder, SENTENCES)
    plain = PointModel(encoder).eval()
    fitted_on, new = vectors(plain, SENTENCES), vectors(plain, NEW)
    u, s, _ = np.linalg.svd(np.cov(fitted_on.T))
    assert whitening.fit[0].dtype == whitening.fit[1].dtype == torch.float64
    want = (new - fitted_on.mean(0)) @ (u / np.sqrt(s))[:, :15]
    got = vectors(whitening, NEW)
    signs = np.sign((got * want).sum(0))  # an eigenvector is one in both directions
    np.testing.assert_allclose(got * signs, want, rtol=1e-4, atol=1e-4)


def test_equal_sentences_span_no_direction(encoder, whiten):
    with pytest.raises(DataError, match="span 0 of 16 directions; fit on more"):
        whiten(encoder, ["Hi there"] * 400).embed(["Hi"])


def test_files_and_corpora_of_sentences_or_pairs(encoder, whiten):
    assert whiten(encoder, SENTENCES).sentences == SENTENCES
    rows = read_corpus("stsb", "dev", sample_dir())
    whitening = Whitening(encoder, sources="stsb/dev", data_dir=sample_dir())
    assert list(whitening.sentences) == [*rows["sentence1"], *rows["sentence2"]]
    assert whitening.fitted_on == "stsb/dev"
    with pytest.raises(DataError, match="impscore/train has none of sentence, anchor"):
        Whitening(encoder, sources=["impscore/train"], data_dir=sample_dir())
