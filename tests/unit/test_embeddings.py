"""The embeddings: shapes, rows, joining, transport, views."""

import copy
import dataclasses
import pickle

import pytest
import torch
from oracles import normal

from lightning_cse.embeddings import (
    DualEmbedding,
    DualGaussianEmbedding,
    Embedding,
    GaussianEmbedding,
    PointEmbedding,
    PragmaticEmbedding,
)

KINDS = {
    PointEmbedding: {"primary": "vector"},
    GaussianEmbedding: {"mean": "mean"},
    DualEmbedding: {"explicit": "explicit", "implicit": "implicit"},
    DualGaussianEmbedding: {"explicit": "explicit_mean", "implicit": "implicit_mean"},
    PragmaticEmbedding: {"pragmatic": "pragmatic", "semantic": "semantic"},
}
every_kind = pytest.mark.parametrize("embedding_class", KINDS)


def make(embedding_class, n=4, d=3, seed=0):
    return embedding_class(
        *normal(len(dataclasses.fields(embedding_class)), n, d, seed=seed, dtype=torch.float32)
    )


def assert_same(a, b):
    assert type(a) is type(b)
    torch.testing.assert_close(a.fields(), b.fields(), rtol=0, atol=0)


@every_kind
def test_views_name_the_primary_one_first(embedding_class):
    embedding = make(embedding_class)
    views = [(view, getattr(embedding, name)) for view, name in KINDS[embedding_class].items()]
    assert list(embedding.views().items()) == views


def test_two_gaussians_are_joined_and_split():
    explicit = make(GaussianEmbedding, seed=1)
    implicit = make(GaussianEmbedding, seed=2)
    dual = DualGaussianEmbedding.of(explicit, implicit)
    assert_same(dual.explicit, explicit)
    assert_same(dual.implicit, implicit)


@every_kind
@pytest.mark.parametrize(
    ("rows", "want"),
    [
        (slice(1, 3), [1, 2]),
        (torch.tensor([3, 0, 0]), [3, 0, 0]),
        (torch.tensor([True, False, False, True]), [0, 3]),
    ],
    ids=["slice", "numbers", "mask"],
)
def test_rows_are_chosen_in_every_field(embedding_class, rows, want):
    embedding = make(embedding_class)
    got = embedding[rows]
    assert type(got) is embedding_class
    assert len(got) == len(want)
    for name, value in got.fields().items():
        assert value.tolist() == [embedding.fields()[name][row].tolist() for row in want]


@every_kind
def test_embeddings_are_joined_copied_and_converted(embedding_class):
    embedding = make(embedding_class, n=7)
    parts = [embedding[:3], embedding[3:3], embedding[3:]]
    assert_same(embedding_class.cat(parts), embedding)
    assert_same(Embedding.cat(parts), embedding)
    assert_same(copy.deepcopy(embedding), embedding)
    assert_same(pickle.loads(pickle.dumps(embedding)), embedding)
    halved = embedding.to("meta", torch.bfloat16)
    for value in halved.fields().values():
        assert (value.dtype, value.device.type) == (torch.bfloat16, "meta")

    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(embedding, next(iter(embedding.fields())), torch.zeros(4, 3))
