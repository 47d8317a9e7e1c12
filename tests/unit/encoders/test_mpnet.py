"""MPNet, the encoder of ImpScore's authors: read, templated and encoded as sentence-transformers does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer
from transformers import MPNetConfig, MPNetModel, MPNetTokenizer

from lightning_cse.encoders import SentenceEncoder, load_encoder
from lightning_cse.tokens import Tokens

Pad = Callable[..., Tokens]
SENTENCES = ["a cat .", "the dog chased the cat in the yard while it rained on all of us .", "", "hi", "is it warm ?"]
SPECIALS = ["<s>", "<pad>", "</s>", "[UNK]", "<mask>"]
POSITIONS = 24


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random MPNet of two layers with mean pooling and vectors of length one, as sentence-transformers saves it."""
    place = tmp_path_factory.mktemp("mpnet")
    words = sorted({word for sentence in SENTENCES for word in sentence.split()} | {"implicit"})
    tokenizer = MPNetTokenizer(vocab={word: k for k, word in enumerate([*SPECIALS, *words])})
    config = MPNetConfig(
        vocab_size=len(tokenizer),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=POSITIONS + 2,  # the first is behind the padding id, as in RoBERTa
        initializer_range=0.3,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        MPNetModel(config).save_pretrained(place / "backbone")
    tokenizer.save_pretrained(place / "backbone")
    transformer = Transformer(str(place / "backbone"), max_seq_length=POSITIONS)
    model = SentenceTransformer(modules=[transformer, Pooling(16, pooling_mode="mean"), Normalize()], device="cpu")
    model.save(str(place / "model"))
    return place / "model"


@pytest.fixture(scope="module")
def mpnet(folder: Path) -> SentenceEncoder:
    return load_encoder(name="mpnet_tiny", source=str(folder), pooling="auto", max_length="auto").eval()


@torch.no_grad()
def test_vectors_equal_those_of_sentence_transformers(mpnet: SentenceEncoder, folder: Path, pad: Pad) -> None:
    assert (mpnet.pooling, mpnet.max_length) == ("mean", POSITIONS)
    (got,) = mpnet([(pad(mpnet, SENTENCES), mpnet.template())], most=40)
    want = SentenceTransformer(str(folder), device="cpu").encode(SENTENCES, convert_to_tensor=True)
    torch.testing.assert_close(torch.nn.functional.normalize(got, dim=-1), want, atol=1e-5, rtol=1e-5)
    assert (got.norm(dim=-1) - 1).abs().min() > 0.1, "the encoder itself does not scale"


@torch.no_grad()
def test_a_long_sentence_is_cut_to_the_positions(mpnet: SentenceEncoder, pad: Pad) -> None:
    room = POSITIONS - len(mpnet.template())
    long, cut = " ".join(["cat"] * (3 * POSITIONS)), " ".join(["cat"] * room)
    (vectors,) = mpnet([(pad(mpnet, [long, cut]), mpnet.template())])
    torch.testing.assert_close(vectors[0], vectors[1])
