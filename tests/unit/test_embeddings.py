"""The five embeddings: shapes, rows, joining, transport, views."""

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

KINDS = [
    PointEmbedding,
    GaussianEmbedding,
    DualEmbedding,
    DualGaussianEmbedding,
    PragmaticEmbedding,
]
every_kind = pytest.mark.parametrize("kind", KINDS)


def make(kind: type[Embedding], n: int = 4, d: int = 3, seed: int = 0) -> Embedding:
    return kind(*normal(len(dataclasses.fields(kind)), n, d, seed=seed, dtype=torch.float32))


def assert_same(a: Embedding, b: Embedding) -> None:
    assert type(a) is type(b)
    for name, value in a.fields().items():
        torch.testing.assert_close(value, b.fields()[name], rtol=0, atol=0)


@pytest.mark.parametrize(
    ("kind", "fields", "views"),
    [
        (PointEmbedding, ["vector"], {"primary": "vector"}),
        (GaussianEmbedding, ["mean", "log_variance"], {"mean": "mean"}),
        (DualEmbedding, ["explicit", "implicit"], {"explicit": "explicit", "implicit": "implicit"}),
        (
            PragmaticEmbedding,
            ["semantic", "pragmatic"],
            {"pragmatic": "pragmatic", "semantic": "semantic"},
        ),
    ],
)
def test_fields_keep_the_order_of_the_constructor_and_views_name_the_primary_one_first(
    kind: type[Embedding], fields: list[str], views: dict[str, str]
) -> None:
    embedding = make(kind)
    assert list(embedding.fields()) == fields
    assert list(embedding.views().items()) == [
        (view, getattr(embedding, name)) for view, name in views.items()
    ]


def test_two_gaussians_a_sentence_are_put_together_and_taken_apart() -> None:
    said, implied = make(GaussianEmbedding, seed=1), make(GaussianEmbedding, seed=2)
    both = DualGaussianEmbedding.of(said, implied)
    assert_same(both.explicit, said)
    assert_same(both.implicit, implied)
    assert list(both.views().items()) == [("explicit", said.mean), ("implicit", implied.mean)]


@every_kind
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
    assert len(got) == len(want)
    for name, value in got.fields().items():
        assert value.tolist() == [embedding.fields()[name][row].tolist() for row in want]


@every_kind
def test_parts_are_joined_moved_and_copied(kind):
    embedding = make(kind, n=7)
    parts = [embedding[:3], embedding[3:3], embedding[3:]]
    assert_same(kind.cat(parts), embedding)
    assert_same(Embedding.cat(parts), embedding)
    assert_same(copy.deepcopy(embedding), embedding)
    assert_same(pickle.loads(pickle.dumps(embedding)), embedding)
    assert {value.dtype for value in embedding.to(torch.bfloat16).fields().values()} == {
        torch.bfloat16
    }
    assert {value.device.type for value in embedding.to("meta").fields().values()} == {"meta"}
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(embedding, next(iter(embedding.fields())), torch.zeros(4, 3))


def test_rows_and_cat_carry_gradients():
    vector = torch.randn(4, 3, requires_grad=True)
    whole = PointEmbedding(vector)
    PointEmbedding.cat([whole[:1], whole[torch.tensor([0, 2])]]).vector.sum().backward()
    assert vector.grad is not None
    assert vector.grad[:, 0].tolist() == [2, 0, 1, 0]


@pytest.mark.parametrize(
    ("explicit", "implicit"),
    [((2, 3), (2, 4)), ((2, 3), (1, 3)), ((3,), (3,)), ((2, 3, 4), (2, 3, 4))],
)
def test_wrong_shapes_are_refused(explicit, implicit):
    with pytest.raises(
        ValueError,
        match=r"DualEmbedding: need tensors of the same shape \(n, d\), got explicit \(.*\), imp",
    ):
        DualEmbedding(torch.zeros(explicit), torch.zeros(implicit))
    with pytest.raises(ValueError, match=r"got vector \(3,\)"):
        make(PointEmbedding)[1]
    with pytest.raises(ValueError, match=r"log_variance \('list',\)"):
        GaussianEmbedding(torch.zeros(1, 2), [[0.0, 0.0]])
