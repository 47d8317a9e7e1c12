"""Embeddings of sentences: frozen dataclasses of ``(n, d)`` tensors, one class per kind."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Self

import torch
from torch import Tensor


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Embedding:
    """A batch of ``n`` sentences, each described by one or more vectors of width ``d``.

    Fields may differ in dtype (under autocast a mean can be bfloat16 while a log variance is
    float32), never in shape.
    """

    # The field of each view, by its name; empty: all fields are views.
    _views: ClassVar[Mapping[str, str]] = {}

    def __post_init__(self) -> None:
        """Check the shapes."""
        shapes = {}
        for name, value in self.fields().items():
            shapes[name] = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__

        first, *more = shapes.values()
        if len(first) != 2 or any(shape != first for shape in more):
            got = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
            raise ValueError(
                f"{type(self).__name__}: need tensors of the same shape (n, d), got {got}"
            )

    def fields(self) -> dict[str, Tensor]:
        """Return the tensors by field name, in the order of the constructor."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}

    def views(self) -> dict[str, Tensor]:
        """Return the matrices that diagnostics measure, by name, the primary one first."""
        if not self._views:
            return self.fields()

        return {view: getattr(self, name) for view, name in self._views.items()}

    @property
    def is_finite(self) -> bool:
        """Whether every number is finite."""
        return all(bool(value.isfinite().all()) for value in self.fields().values())

    def __len__(self) -> int:
        """Return ``n``, the number of sentences."""
        return len(next(iter(self.fields().values())))

    def __getitem__(self, rows: slice | Tensor) -> Self:
        """Return the sentences chosen by a slice, row numbers or a boolean mask."""
        return self._map(lambda value: value[rows])

    @classmethod
    def cat(cls, parts: Sequence[Self]) -> Self:
        """Join batches of one kind row-wise; ``Embedding.cat`` joins any kind."""
        joined = {}
        for name in parts[0].fields():
            joined[name] = torch.cat([getattr(part, name) for part in parts])

        return type(parts[0])(**joined)

    def to(self, *args: Any, **kwargs: Any) -> Self:
        """Move or convert every tensor; takes what `torch.Tensor.to` takes."""
        return self._map(lambda value: value.to(*args, **kwargs))

    def _map(self, function: Callable[[Tensor], Tensor]) -> Self:
        return type(self)(**{name: function(value) for name, value in self.fields().items()})


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class PointEmbedding(Embedding):
    """A sentence is a point: one vector ``(n, d)``, not normalised, as in SimCSE and NGCSE."""

    vector: Tensor
    _views: ClassVar = {"primary": "vector"}


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class GaussianEmbedding(Embedding):
    """A sentence is a Gaussian with diagonal covariance, as in GaussCSE: mean and log variances.

    The view is the mean: a log variance is not a point in the space that diagnostics measure.
    """

    mean: Tensor
    log_variance: Tensor
    _views: ClassVar = {"mean": "mean"}


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class DualEmbedding(Embedding):
    """A sentence is two vectors, as in DualCSE: what it says (r) and what it implies (u)."""

    explicit: Tensor
    implicit: Tensor


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class DualGaussianEmbedding(Embedding):
    """A sentence is two Gaussians, one for what it says and one for what it implies."""

    explicit_mean: Tensor
    explicit_log_variance: Tensor
    implicit_mean: Tensor
    implicit_log_variance: Tensor
    _views: ClassVar = {"explicit": "explicit_mean", "implicit": "implicit_mean"}

    @classmethod
    def of(cls, explicit: GaussianEmbedding, implicit: GaussianEmbedding) -> Self:
        """Return the embedding with two Gaussians per sentence."""
        return cls(*explicit.fields().values(), *implicit.fields().values())

    @property
    def explicit(self) -> GaussianEmbedding:
        """The Gaussians of what the sentences say."""
        return GaussianEmbedding(self.explicit_mean, self.explicit_log_variance)

    @property
    def implicit(self) -> GaussianEmbedding:
        """The Gaussians of what the sentences imply."""
        return GaussianEmbedding(self.implicit_mean, self.implicit_log_variance)


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class PragmaticEmbedding(Embedding):
    """A sentence is its literal meaning and what is meant by it, as in ImpScore.

    Pairs of sentences are compared by the primary view, the pragmatic one.
    """

    semantic: Tensor
    pragmatic: Tensor
    _views: ClassVar = {"pragmatic": "pragmatic", "semantic": "semantic"}
