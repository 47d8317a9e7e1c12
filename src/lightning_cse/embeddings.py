"""Embeddings of sentences: frozen dataclasses of ``(n, d)`` tensors, one subclass of `Embedding` per kind."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Self

import torch
from torch import Tensor


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Embedding:
    """A batch of ``n`` sentences, each described by one or more vectors of width ``d``.

    Fields may differ in dtype (under autocast a mean can be bfloat16 while a log variance is float32), never in shape.
    """

    _views: ClassVar[
        Mapping[str, str]
    ] = {}  # the field of each view, by its name; empty: all fields are views

    def __post_init__(self) -> None:
        """Check the shapes."""
        shapes = [
            tuple(getattr(value, "shape", (type(value).__name__,)))
            for value in self.fields().values()
        ]
        if len(shapes[0]) != 2 or len(set(shapes)) > 1:
            got = ", ".join(
                f"{name} {shape}" for name, shape in zip(self.fields(), shapes, strict=True)
            )
            raise ValueError(
                f"{type(self).__name__}: need tensors of the same shape (n, d), got {got}"
            )

    def fields(self) -> dict[str, Tensor]:
        """Return the tensors by field name, in the order of the constructor."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}

    def views(self) -> dict[str, Tensor]:
        """Return the matrices that diagnostics measure, by name, the primary one first; by default all fields."""
        return {view: getattr(self, name) for view, name in self._views.items()} or self.fields()

    @property
    def is_finite(self) -> bool:
        """Whether every number is finite."""
        return all(bool(value.isfinite().all()) for value in self.fields().values())

    def __len__(self) -> int:
        """Return ``n``, the number of sentences."""
        return len(next(iter(self.fields().values())))

    def __getitem__(self, rows: slice | Tensor) -> Self:
        """Return the sentences chosen by a slice, row numbers or a boolean mask; one sentence is ``[i : i + 1]``."""
        return self._map(lambda value: value[rows])

    @classmethod
    def cat(cls, parts: Sequence[Self]) -> Self:
        """Join batches of one kind row-wise; ``Embedding.cat`` joins any kind."""
        kinds = sorted({type(part).__name__ for part in parts})
        if len(kinds) != 1 or not isinstance(parts[0], cls):
            raise TypeError(
                f"{cls.__name__}.cat: need parts of the same kind, got {', '.join(kinds) or 'none'}"
            )
        columns = [part.fields() for part in parts]
        return type(parts[0])(
            **{name: torch.cat([column[name] for column in columns]) for name in columns[0]}
        )

    def to(self, *args: Any, **kwargs: Any) -> Self:
        """Move or convert every tensor; takes what `torch.Tensor.to` takes."""
        return self._map(lambda value: value.to(*args, **kwargs))

    def _map(self, function: Callable[[Tensor], Tensor]) -> Self:
        return type(self)(**{name: function(value) for name, value in self.fields().items()})

    def __repr__(self) -> str:
        """Return kind, shapes and dtypes; never the numbers."""
        shown = [
            f"{k}={tuple(v.shape)} {str(v.dtype).removeprefix('torch.')}"
            for k, v in self.fields().items()
        ]
        return f"{type(self).__name__}({', '.join(shown)})"


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class PointEmbedding(Embedding):
    """A sentence is a point: one vector ``(n, d)``, not normalised, as in SimCSE and NGCSE."""

    vector: Tensor
    _views: ClassVar = {"primary": "vector"}


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class GaussianEmbedding(Embedding):
    """A sentence is a Gaussian with diagonal covariance, as in GaussCSE: mean and natural log of the variances."""

    mean: Tensor
    log_variance: Tensor
    _views: ClassVar = {
        "mean": "mean"
    }  # a log variance is not a point in the space that diagnostics measure


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class DualEmbedding(Embedding):
    """A sentence is two vectors, as in DualCSE: what it says (r, the primary view) and what it implies (u)."""

    explicit: Tensor
    implicit: Tensor


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class DualGaussianEmbedding(Embedding):
    """A sentence is two Gaussians with diagonal covariance, one for what it says and one for what it implies."""

    explicit_mean: Tensor
    explicit_log_variance: Tensor
    implicit_mean: Tensor
    implicit_log_variance: Tensor
    _views: ClassVar = {
        "explicit": "explicit_mean",
        "implicit": "implicit_mean",
    }  # as in `GaussianEmbedding`

    @classmethod
    def of(cls, explicit: GaussianEmbedding, implicit: GaussianEmbedding) -> Self:
        """Return the embedding with two Gaussians per sentence."""
        return cls(explicit.mean, explicit.log_variance, implicit.mean, implicit.log_variance)

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
    """A sentence is its literal meaning and what is meant by it, as in ImpScore."""

    semantic: Tensor
    pragmatic: Tensor
    _views: ClassVar = {
        "pragmatic": "pragmatic",
        "semantic": "semantic",
    }  # pairs of sentences are compared by the first
