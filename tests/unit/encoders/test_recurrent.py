"""Word vectors from a file, and the BiLSTM over them or over an encoder's own input embeddings."""

import pytest
import torch
from encoder_kinds import vectors_of

from lightning_cse.encoders import tiny_encoder
from lightning_cse.errors import EncoderError

LINES = ("the 1 0 0", "dog 0 1 0", "n't 0 0 1", "do 1 1 0", ". . 9 9 9", "dog 5 5 5", "</s> 2 2 2")
SENTENCES = ["The dog", "dogs don't", "the dog the dog the", "do"]


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "vectors.txt"
    path.write_text("\n".join(LINES) + "\n", encoding="utf-8")
    return str(path)


def test_words_have_the_vectors_of_the_file(file):
    encoder = tiny_encoder(vectors=file, pooling="mean")
    begin, end, unknown = [0.0] * 3, [2.0] * 3, [0.0] * 3
    the, dog, do, nt = [1.0, 0, 0], [0.0, 1, 0], [1.0, 1, 0], [0.0, 0, 1]
    words = [[the, dog], [unknown, do, nt], [the, dog, the, dog, the], [do]]
    want = [torch.tensor([begin, *row, end]).mean(0) for row in words]

    assert encoder.width == 3
    assert torch.allclose(vectors_of(encoder.eval(), SENTENCES), torch.stack(want))


def test_words_with_capital_letters_are_other_words(tmp_path):
    path = tmp_path / "cased.txt"
    path.write_text("2 3\nThe 1 0 0\nthe 0 1 0\n", encoding="utf-8")  # with word2vec's header
    encoder = tiny_encoder(vectors=str(path), pooling="max")

    assert vectors_of(encoder.eval(), ["The", "the"]).tolist() == [[1, 0, 0], [0, 1, 0]]


@pytest.mark.parametrize("from_file", [True, False])
@pytest.mark.parametrize("pooling", ["max", "mean"])
def test_sentences_in_a_batch_are_encoded_as_alone(file, from_file, pooling):
    torch.manual_seed(0)
    encoder = tiny_encoder(vectors=file if from_file else None, lstm=5, pooling=pooling)
    batch = vectors_of(encoder.eval(), SENTENCES)

    assert batch.shape == (4, 10)
    for vector, sentence in zip(batch, SENTENCES, strict=True):
        ids = [*encoder.template().prefix, *encoder.tokenizer([sentence])[0]]
        ids = torch.tensor([[*ids, *encoder.template().suffix]])
        states = encoder.backbone.lstm(encoder.backbone.words(ids))[0][0]
        want = states.max(0).values if pooling == "max" else states.mean(0)
        assert torch.allclose(vector, want, atol=1e-6)


def test_word_vectors_are_neither_trained_nor_saved(file):
    encoder = tiny_encoder(vectors=file, lstm=2, dropout=0.3)

    assert encoder.has_dropout
    assert encoder.frozen == ["backbone.words.weight"]
    assert not any("words" in name for name in encoder.state_dict())
    assert encoder.digests == tiny_encoder(vectors=file).digests


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has no word vectors"),
        ("a 1 2\nb 1 x\n", r"x\.txt:2: is not a word and 2 numbers"),
        ("a 1 2\nb 1\n", r"x\.txt:2: is not a word and 2 numbers"),
        ("a 1 2\nb 1 nan\n", r"x\.txt:2: is not"),
        (None, "cannot be read"),
    ],
)
def test_files_that_are_refused(tmp_path, text, message):
    path = tmp_path / "x.txt"
    if text is not None:
        path.write_text(text, encoding="utf-8")

    with pytest.raises(EncoderError, match=rf"encoder\.vectors: .*{message}"):
        tiny_encoder(vectors=str(path))
