"""The three embeddings: shapes, rows, joining, transport, views."""

from __future__ import annotations

import copy
import dataclasses
import pickle

import pytest
import torch

from lightning_cse.embeddings import (
    DualEmbedding,
    DualGaussianEmbedding,
    Embedding,
    GaussianEmbedding,
    PointEmbedding,
    PragmaticEmbedding,
)

KINDS = [PointEmbedding, GaussianEmbedding, DualEmbedding, DualGaussianEmbedding, PragmaticEmbedding]


def make(kind: type[Embedding], n: int = 4, d: int = 3, seed: int = 0) -> Embedding:
    generator = torch.Generator().manual_seed(seed)
    return kind(*(torch.randn(n, d, generator=generator) for _ in dataclasses.fields(kind)))


def assert_same(a: Embedding, b: Embedding) -> None:
    assert type(a) is type(b)
    for name, value in a.fields().items():
        torch.testing.assert_close(value, b.fields()[name], rtol=0, atol=0)


def test_fields_keep_the_order_of_the_constructor():
    assert list(PointEmbedding(torch.ones(2, 3)).fields()) == ["vector"]
    assert list(make(GaussianEmbedding).fields()) == ["mean", "log_variance"]
    assert list(make(DualEmbedding).fields()) == ["explicit", "implicit"]


def test_views_name_the_primary_matrix_first():
    point, gaussian, dual = make(PointEmbedding), make(GaussianEmbedding), make(DualEmbedding)
    assert list(point.views().items()) == [("primary", point.vector)]
    assert list(gaussian.views().items()) == [("mean", gaussian.mean)]
    assert list(dual.views().items()) == [("explicit", dual.explicit), ("implicit", dual.implicit)]


def test_two_gaussians_a_sentence_are_put_together_and_taken_apart():
    said, implied = make(GaussianEmbedding, seed=1), make(GaussianEmbedding, seed=2)
    both = DualGaussianEmbedding.of(said, implied)
    assert_same(both.explicit, said)
    assert_same(both.implicit, implied)
    assert list(both.views().items()) == [("explicit", said.mean), ("implicit", implied.mean)]


def test_the_pragmatic_vector_is_the_primary_one():
    embedding = make(PragmaticEmbedding)
    assert list(embedding.views().items()) == [("pragmatic", embedding.pragmatic), ("semantic", embedding.semantic)]


@pytest.mark.parametrize("kind", KINDS)
def test_length_is_the_number_of_sentences(kind):
    assert len(make(kind, n=5)) == 5
    assert len(make(kind, n=0)) == 0


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("rows", "want"),
    [
        (slice(1, 3), [1, 2]),
        (slice(None, None, 2), [0, 2]),
        (slice(2, 2), []),
        (torch.tensor([3, 0, 0]), [3, 0, 0]),
        (torch.tensor([True, False, False, True]), [0, 3]),
    ],
    ids=["slice", "step", "empty", "numbers", "mask"],
)
def test_rows_are_chosen_in_every_field(kind, rows, want):
    embedding = make(kind)
    got = embedding[rows]
    assert type(got) is kind
    for name, value in got.fields().items():
        assert value.tolist() == [embedding.fields()[name][row].tolist() for row in want]


@pytest.mark.parametrize("rows", [1, torch.tensor(1)], ids=str)
def test_one_sentence_is_a_slice(rows):
    with pytest.raises(ValueError, match=r"PointEmbedding: need tensors of one shape \(n, d\), got vector \(3,\)"):
        make(PointEmbedding)[rows]


@pytest.mark.parametrize("kind", KINDS)
def test_cat_undoes_slicing(kind):
    embedding = make(kind, n=7)
    parts = [embedding[:3], embedding[3:3], embedding[3:]]
    assert_same(kind.cat(parts), embedding)
    assert_same(Embedding.cat(parts), embedding)


def test_cat_names_what_is_wrong():
    with pytest.raises(TypeError, match=r"DualEmbedding\.cat: .* got none"):
        DualEmbedding.cat([])
    with pytest.raises(TypeError, match=r"Embedding\.cat: .* got DualEmbedding, PointEmbedding"):
        Embedding.cat([make(PointEmbedding), make(DualEmbedding)])
    with pytest.raises(TypeError, match=r"DualEmbedding\.cat: .* got PointEmbedding"):
        DualEmbedding.cat([make(PointEmbedding)])


@pytest.mark.parametrize("kind", KINDS)
def test_to_reaches_every_field(kind):
    embedding = make(kind).to(torch.bfloat16)
    assert {value.dtype for value in embedding.fields().values()} == {torch.bfloat16}
    assert {value.device.type for value in embedding.to("meta").fields().values()} == {"meta"}
    assert type(embedding.to("cpu", torch.float32)) is kind


def test_rows_and_cat_carry_gradients():
    vector = torch.randn(4, 3, requires_grad=True)
    whole = PointEmbedding(vector)
    PointEmbedding.cat([whole[:1], whole[torch.tensor([0, 2])]]).vector.sum().backward()
    assert vector.grad is not None
    assert vector.grad[:, 0].tolist() == [2, 0, 1, 0]


def test_fields_may_differ_in_dtype():
    embedding = GaussianEmbedding(torch.zeros(2, 3, dtype=torch.bfloat16), torch.zeros(2, 3))
    assert repr(embedding) == "GaussianEmbedding(mean=(2, 3) bfloat16, log_variance=(2, 3) float32)"


@pytest.mark.parametrize(
    ("explicit", "implicit", "got"),
    [
        ((2, 3), (2, 4), r"explicit \(2, 3\), implicit \(2, 4\)"),
        ((2, 3), (1, 3), r"explicit \(2, 3\), implicit \(1, 3\)"),
        ((3,), (3,), r"explicit \(3,\), implicit \(3,\)"),
        ((2, 3, 4), (2, 3, 4), r"explicit \(2, 3, 4\), implicit \(2, 3, 4\)"),
    ],
)
def test_wrong_shapes_are_refused(explicit, implicit, got):
    with pytest.raises(ValueError, match=rf"DualEmbedding: need tensors of one shape \(n, d\), got {got}"):
        DualEmbedding(torch.zeros(explicit), torch.zeros(implicit))


def test_what_is_not_a_tensor_is_refused():
    with pytest.raises(ValueError, match=r"log_variance \('list',\)"):
        GaussianEmbedding(torch.zeros(1, 2), [[0.0, 0.0]])


@pytest.mark.parametrize("kind", KINDS)
def test_embeddings_are_frozen_and_can_be_copied(kind):
    embedding = make(kind)
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(embedding, next(iter(embedding.fields())), torch.zeros(4, 3))
    assert_same(copy.deepcopy(embedding), embedding)
    assert_same(pickle.loads(pickle.dumps(embedding)), embedding)
