r"""Similarities of embeddings; larger is closer.

Every function computes in the widest dtype of its inputs, at least float32, also under autocast.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, Protocol, get_args

import torch
from torch import Tensor

from lightning_cse.embeddings import Embedding, GaussianEmbedding

Reduce = Literal["mean_of_sims", "sim_of_sum"]
"""How dimensions become one similarity: mapped to (0, 1] and averaged, or summed and mapped."""

Ask = Callable[[Any, Any], Tensor]
"""A score of two embeddings: row by row, (n,), or of every pair, (n, m)."""

_ZERO_NORM = 1e-12  # a shorter vector counts as the zero vector: it is not divided by its norm

# Numbers per block of pairs. On the CPU, the seven float32 buffers of the backward pass, 3.5 MiB,
# stay in or near the L2 cache (a quarter or twice as much is no faster: two cores, widths 384 and
# 768). Other devices need few, large kernels: 112 MiB in all.
_BLOCK_ON_CPU = 2**17
_BLOCK_ELSEWHERE = 2**22

_MARGIN = 16  # additional candidates: float32 may misorder scores that differ by 1e-7
_SENTENCES, _QUERIES = 2**14, 2**9  # compared at once: 32 MiB of scores


def cosine_matrix(a: Tensor, b: Tensor) -> Tensor:
    r"""Return the cosine of every row of ``a`` with every row of ``b``.

    .. math:: S_{ij} = \frac{a_i \cdot b_j}{\lVert a_i \rVert \, \lVert b_j \rVert}

    with ``a`` of shape ``(n, d)``, ``b`` of shape ``(m, d)`` and the result of shape ``(n, m)``. A
    zero vector has cosine 0 with everything and a finite gradient.

    Examples:
        >>> a = torch.tensor([[1.0, 0.0], [0.0, 0.0]])
        >>> cosine_matrix(a, torch.tensor([[2.0, 0.0], [0.0, 1.0], [-3.0, 0.0]]))
        tensor([[ 1.,  0., -1.],
                [ 0.,  0.,  0.]])
    """
    if a.ndim != 2 or a.shape[1:] != b.shape[1:]:
        raise ValueError(f"need (n, d) and (m, d), got {tuple(a.shape)} and {tuple(b.shape)}")

    with _no_autocast(a):
        a, b = _wide(a, b)
        return _unit(a) @ _unit(b).T


def cosine(a: Tensor, b: Tensor) -> Tensor:
    r"""Return the cosine of each row of ``a`` with the same row of ``b``.

    .. math:: s_i = \frac{a_i \cdot b_i}{\lVert a_i \rVert \, \lVert b_i \rVert}

    with ``a`` and ``b`` of shape ``(n, d)`` and the result of shape ``(n,)``: the diagonal of
    `cosine_matrix`.
    """
    if a.shape != b.shape:
        raise ValueError(f"need one shape (n, d), got {tuple(a.shape)} and {tuple(b.shape)}")

    with _no_autocast(a):
        a, b = _wide(a, b)
        return (_unit(a) * _unit(b)).sum(dim=-1)


def gaussian_similarity_matrix(
    a: GaussianEmbedding, b: GaussianEmbedding, reduce: Reduce = "mean_of_sims"
) -> Tensor:
    r"""Return the similarity of all Gaussians of ``a`` to all of ``b``, from their KL divergence.

    With means :math:`\mu` and variances :math:`s`, ``(n, d)`` in ``a`` and ``(m, d)`` in ``b``,
    dimension :math:`h` contributes

    .. math:: k_h(a_i \Vert b_j) = \frac{1}{2} \left[ \frac{s_{a,ih}}{s_{b,jh}}
              + \frac{(\mu_{a,ih} - \mu_{b,jh})^2}{s_{b,jh}} - 1
              - \ln \frac{s_{a,ih}}{s_{b,jh}} \right]

    to the divergence, and the result, of shape ``(n, m)``, is

    .. math:: S_{ij} = \frac{1}{d} \sum_h \frac{1}{1 + k_h(a_i \Vert b_j)}
              \quad \text{(mean of sims)}, \qquad
              S_{ij} = \frac{1}{1 + \sum_h k_h(a_i \Vert b_j)} \quad \text{(sim of sum)}.

    The similarity is not symmetric: it is larger if a wide ``b`` covers a narrow ``a`` than if a
    narrow ``b`` lies under a wide ``a``. A Gaussian has similarity 1 to itself. Neither pass holds
    an ``n x m x d`` tensor: ``mean_of_sims`` goes through blocks of pairs and has no second
    derivative; ``sim_of_sum`` uses matrix products in float64 (float32 on MPS).

    Source: GaussCSE, the authors' code (``mean_of_sims``) and the paper's eq. 2
    (``sim_of_sum``).  Differs: in rounding only.

    Examples:
        >>> narrow = GaussianEmbedding(torch.zeros(1, 4), torch.zeros(1, 4))
        >>> wide = GaussianEmbedding(torch.zeros(1, 4), torch.full((1, 4), 2.0))
        >>> gaussian_similarity_matrix(GaussianEmbedding.cat([narrow, wide]), wide)
        tensor([[0.6379],
                [1.0000]])
        >>> gaussian_similarity_matrix(wide, narrow)
        tensor([[0.3130]])
    """
    check_reduce(reduce)
    if a.mean.shape[1] != b.mean.shape[1]:
        raise ValueError(f"need one width, got {a.mean.shape[1]} and {b.mean.shape[1]}")

    tensors = _wide(a.mean, a.log_variance, b.mean, b.log_variance)
    if reduce == "sim_of_sum":
        return _sim_of_sum_matrix(*tensors)

    similarity: Tensor = _MeanOfSims.apply(*tensors)  # type: ignore[no-untyped-call]

    return similarity


def gaussian_similarity(
    a: GaussianEmbedding, b: GaussianEmbedding, reduce: Reduce = "mean_of_sims"
) -> Tensor:
    r"""Return the similarity of each Gaussian of ``a`` to the same row of ``b``.

    .. math:: s_i = \frac{1}{d} \sum_h \frac{1}{1 + k_h(a_i \Vert b_i)}
              \quad \text{(mean of sims)}, \qquad
              s_i = \frac{1}{1 + \sum_h k_h(a_i \Vert b_i)} \quad \text{(sim of sum)}

    with the result of shape ``(n,)``: the diagonal of `gaussian_similarity_matrix`, which has the
    formula of :math:`k_h` and the source.
    """
    return _reduce_rows(_divergences(a, b), reduce)


def symmetric_gaussian_similarity(
    a: GaussianEmbedding, b: GaussianEmbedding, reduce: Reduce = "mean_of_sims"
) -> Tensor:
    r"""Return the similarity of each Gaussian of ``a`` and the same row of ``b``, both ways.

    .. math:: \bar{k}_h = \frac{k_h(a_i \Vert b_i) + k_h(b_i \Vert a_i)}{2}

    replaces :math:`k_h` in `gaussian_similarity`; shapes and errors are the same.

    Source: GaussCSE, the authors' code for semantic similarity; not in the paper.  Differs:
    ``sim_of_sum`` is ours.
    """
    return _reduce_rows((_divergences(a, b) + _divergences(b, a)) / 2, reduce)


@dataclass(frozen=True)
class CosineSimilarity:
    """The cosine of two vectors."""

    def matrix(self, anchor: Tensor, candidate: Tensor) -> Tensor:
        """Return `cosine_matrix`: (n, m)."""
        return cosine_matrix(anchor, candidate)


@dataclass(frozen=True)
class GaussianSimilarity:
    """The similarity of two Gaussians measured from the candidate: sim(candidate || anchor).

    A wide anchor covers its candidates, as a premise covers what follows from it.

    Source: GaussCSE, which scores a pair by sim(hypothesis || premise).
    """

    reduce: Reduce = "mean_of_sims"

    def matrix(self, anchor: GaussianEmbedding, candidate: GaussianEmbedding) -> Tensor:
        """Return sim(candidate || anchor) of every pair: (n, m)."""
        return gaussian_similarity_matrix(candidate, anchor, self.reduce).T

    def rows(self, anchor: GaussianEmbedding, candidate: GaussianEmbedding) -> Tensor:
        """Return sim(candidate || anchor) row by row: (n,)."""
        return gaussian_similarity(candidate, anchor, self.reduce)


class Similarity(Protocol):
    """The similarity that a loss uses to compare views of embeddings; larger is closer."""

    def matrix(self, anchor: Any, candidate: Any) -> Tensor:
        """Return the similarity of every candidate to every anchor: (n, m) for n anchors."""
        ...


def is_same(first: Ask, second: Ask, like: Embedding) -> bool:
    """Return whether two row-by-row scores agree on fixed random embeddings of the given kind."""
    generator = torch.Generator().manual_seed(0)
    widths = [value.shape[1] for value in like.fields().values()]

    def draw() -> Embedding:
        return type(like)(
            *(torch.randn(16, d, generator=generator, dtype=torch.float64) for d in widths)
        )

    a = draw()
    b = draw()
    with torch.no_grad():
        return torch.allclose(first(a, b).double(), second(a, b).double(), rtol=1e-5, atol=1e-9)


@dataclass(frozen=True)
class Comparison:
    """A row-by-row score, and the ``views`` of its two sides if the score is their cosine."""

    ask: Ask
    views: tuple[str, str] | None = None

    @classmethod
    def of(cls, ask: Ask, like: Embedding) -> Comparison:
        """Return the comparison by a score; whether it is a cosine is tested on the kind given."""
        view = next(iter(like.views()))
        is_cosine = is_same(ask, lambda a, b: cosine(a.views()[view], b.views()[view]), like)

        return cls(ask, (view, view) if is_cosine else None)

    def matrix(self, a: Embedding, b: Embedding) -> Tensor:
        """Return the score of every pair, (n, m): one matrix product if it is a cosine."""
        if self.views is not None:
            first, second = self.views
            return cosine_matrix(a.views()[first], b.views()[second])

        repeated = (a[torch.full((len(b),), row)] for row in range(len(a)))

        return torch.stack([self.ask(repeated_row, b) for repeated_row in repeated])

    def search(
        self, queries: Embedding, documents: Embedding, count: int
    ) -> Iterator[list[tuple[int, float]]]:
        """Yield the best ``count`` documents of each query, by number, with their float64 scores,
        best first.

        All are compared in float32, the best and a margin again in float64; of equal scores, the
        first document comes first.
        """
        rows = self._candidates(queries, documents, count + _MARGIN)
        for number, chosen in enumerate(rows.sort(dim=1).values):
            query = queries[torch.full((len(chosen),), number)]
            exact = self.ask(query.to(torch.float64), documents[chosen].to(torch.float64))
            scores, ranking = exact.sort(descending=True, stable=True)
            best = chosen[ranking[:count]]
            yield list(zip(best.tolist(), scores[:count].tolist(), strict=True))

    def _candidates(self, queries: Embedding, documents: Embedding, count: int) -> Tensor:
        """Return the best documents of each query in float32, in no order: (queries, count)."""
        scores = torch.empty(len(queries), 0)
        rows = torch.empty(len(queries), 0, dtype=torch.long)
        for start in range(0, len(documents), _SENTENCES):
            block = documents[start : start + _SENTENCES]
            starts = range(0, len(queries), _QUERIES)
            blocks = [_top(self.matrix(queries[q : q + _QUERIES], block), count) for q in starts]
            scores = torch.cat([scores, torch.cat([values for values, _ in blocks])], dim=1)
            rows = torch.cat([rows, torch.cat([columns + start for _, columns in blocks])], dim=1)
            scores, best = _top(scores, count)
            rows = rows.gather(1, best)

        return rows


def check_reduce(reduce: Reduce) -> Reduce:
    """Return the reduction, or raise ValueError if it is unknown."""
    if reduce not in get_args(Reduce):
        raise ValueError(f"reduce must be {' or '.join(get_args(Reduce))}, got {reduce!r}")

    return reduce


class _MeanOfSims(torch.autograd.Function):
    r"""The matrix of means over dimensions of 1 / (1 + KL), block by block in both passes.

    With :math:`q = 2 (1 + k) = 1 + \ln s_b - \ln s_a + (s_a + (\mu_a - \mu_b)^2) / s_b`, a
    dimension of a pair gives :math:`2 / q`, and a gradient :math:`g` of the mean over :math:`d`
    dimensions reaches :math:`q` as :math:`w = -2 g / (d q^2)`.
    """

    @staticmethod
    def forward(ctx: Any, a_mean: Tensor, a_log: Tensor, b_mean: Tensor, b_log: Tensor) -> Tensor:
        ctx.save_for_backward(a_mean, a_log, b_mean, b_log)
        width = a_mean.shape[1]
        a_variance = torch.exp(a_log)
        b_precision = torch.exp(b_log).reciprocal()
        similarity = a_mean.new_empty(len(a_mean), len(b_mean))
        rows, columns = _block_shape(similarity, width)
        memory = a_mean.new_empty(2, rows, columns, width)

        for i, j in _blocks(similarity, rows, columns):
            r, q = memory[:, : i.stop - i.start, : j.stop - j.start]
            torch.sub(a_mean[i, None], b_mean[j], out=r)
            torch.addcmul(a_variance[i, None], r, r, out=r)
            # Subtract the logs before 1 is added: for equal Gaussians, q is then 2 to the last bit.
            torch.sub(b_log[j], a_log[i, None], out=q)
            q.addcmul_(r, b_precision[j]).add_(1).reciprocal_()
            torch.sum(q, dim=-1, out=similarity[i, j])

        return similarity.mul_(2 / width).clamp_max_(1)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        # once_differentiable checks only the incoming gradient: a wrong second derivative passes.
        if torch.is_grad_enabled():
            raise RuntimeError(
                "mean_of_sims has no second derivative: take gradients without create_graph=True"
            )

        a_mean, a_log, b_mean, b_log = ctx.saved_tensors
        a_variance = torch.exp(a_log)
        a = torch.stack([a_mean, a_log, a_variance])
        b = torch.stack([b_mean, b_log + 1, torch.exp(b_log).reciprocal()])
        with _no_autocast(gradient):
            a_sums, b_sums = _sum_terms(a, b, gradient * (-2 / a_mean.shape[1]))

        a_by_precision, a_plain, a_by_difference = a_sums.unbind(1)
        b_plain, b_by_difference, b_by_r = b_sums.unbind(1)

        return (
            2 * a_by_difference,
            a_variance * a_by_precision - a_plain,
            -2 * b_by_difference,
            b_plain - b_by_r,
        )


def _sum_terms(a: Tensor, b: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Return the weighted sums of the terms of `_write_terms`: (n, 3, d) over b, (m, 3, d) over a.

    The first three terms are summed over b and the last three over a; side by side, each takes one
    matrix product per block.
    """
    n, m = weight.shape
    width = a.shape[2]
    rows, columns = _block_shape(weight, width)
    memory = a.new_empty(3, rows, columns, width)
    terms = a.new_empty(rows, columns, 4, width)
    a_sums = a.new_zeros(n, 1, 3 * width)
    b_sums = a.new_zeros(m, 1, 3 * width)
    for i, j in _blocks(weight, rows, columns):
        block = (slice(i.stop - i.start), slice(j.stop - j.start))
        _write_terms(terms[block], memory[:, *block], a[:, i, None], b[:, None, j])
        flat = terms[block].flatten(2)
        a_sums[i].baddbmm_(weight[i, None, j], flat[:, :, : 3 * width])
        b_sums[j].baddbmm_(weight[i, j].T[:, None], flat[:, :, width:].transpose(0, 1))

    return a_sums.view(n, 3, width), b_sums.view(m, 3, width)


def _write_terms(terms: Tensor, memory: Tensor, a: Tensor, b: Tensor) -> None:
    """Write a block's 1 / q^2 times the precision of b, 1, precision times difference, and r."""
    a_mean, a_log, a_variance = a
    b_mean, b_log_and_1, b_precision = b
    difference, r, q = memory
    by_precision, plain, by_difference, by_r = terms.unbind(2)
    torch.sub(a_mean, b_mean, out=difference)
    torch.addcmul(a_variance, difference, difference, out=r)
    r.mul_(b_precision)
    torch.sub(b_log_and_1, a_log, out=q)
    q.add_(r).reciprocal_()
    torch.mul(q, q, out=plain)
    torch.mul(plain, b_precision, out=by_precision)
    torch.mul(by_precision, difference, out=by_difference)
    torch.mul(plain, r, out=by_r)


def _top(scores: Tensor, count: int) -> tuple[Tensor, Tensor]:
    values, indices = scores.topk(min(count, scores.shape[1]), dim=1, sorted=False)
    return values, indices


def _block_shape(matrix: Tensor, width: int) -> tuple[int, int]:
    """Return the rows and columns of a block of pairs, as square as possible."""
    n, m = matrix.shape
    numbers = _BLOCK_ON_CPU if matrix.device.type == "cpu" else _BLOCK_ELSEWHERE
    pairs = max(1, numbers // width)
    rows = max(1, min(n, pairs // max(1, min(m, math.isqrt(pairs)))))

    return rows, max(1, min(m, pairs // rows))


def _blocks(matrix: Tensor, rows: int, columns: int) -> Iterator[tuple[slice, slice]]:
    n, m = matrix.shape
    for i in range(0, n, rows):
        for j in range(0, m, columns):
            yield slice(i, min(n, i + rows)), slice(j, min(m, j + columns))


def _sim_of_sum_matrix(a_mean: Tensor, a_log: Tensor, b_mean: Tensor, b_log: Tensor) -> Tensor:
    dtype = a_mean.dtype
    # In float32, terms of the size of mean^2 / variance cancel: the relative error is 1e-4 for
    # means 0.001 apart, and 5e-3 at log variances of -12. In float64 it is 6e-8, in a fraction of
    # the time of mean_of_sims.
    exact = torch.float32 if a_mean.device.type == "mps" else torch.float64
    a_mean, a_log, b_mean, b_log = (tensor.to(exact) for tensor in (a_mean, a_log, b_mean, b_log))
    with _no_autocast(a_mean):
        centre = b_mean.detach().sum(dim=0) / max(1, len(b_mean))  # only reduces cancellation
        x = a_mean - centre
        y = b_mean - centre
        precision = torch.exp(-b_log)
        twice = (torch.exp(a_log) + x.square()) @ precision.T - 2 * (x @ (y * precision).T)
        twice = twice + (y.square() * precision + b_log).sum(dim=1)
        twice = twice - a_log.sum(dim=1, keepdim=True) - x.shape[1]

        return (1 + twice.clamp_min(0) / 2).reciprocal().to(dtype)


def _wide(*tensors: Tensor) -> list[Tensor]:
    dtype = torch.float32
    for tensor in tensors:
        dtype = torch.promote_types(dtype, tensor.dtype)

    return [tensor.to(dtype) for tensor in tensors]


def _unit(x: Tensor) -> Tensor:
    # Not torch.nn.functional.normalize: at a zero vector, its gradient is 1e12 times the incoming
    # one, so one empty sentence would dominate the clipped gradient of a whole step.
    norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    return x / torch.where(norm < _ZERO_NORM, torch.ones_like(norm), norm)


def _divergences(a: GaussianEmbedding, b: GaussianEmbedding) -> Tensor:
    """Return the divergence of each row and dimension: (n, d)."""
    if a.mean.shape != b.mean.shape:
        raise ValueError(f"need one shape, got {tuple(a.mean.shape)} and {tuple(b.mean.shape)}")

    a_mean, a_log, b_mean, b_log = _wide(a.mean, a.log_variance, b.mean, b.log_variance)
    ratio = a_log - b_log

    # expm1 keeps the digits of a small divergence.
    return (torch.expm1(ratio) - ratio + (a_mean - b_mean).square() * torch.exp(-b_log)) / 2


def _reduce_rows(kl: Tensor, reduce: Reduce) -> Tensor:
    if check_reduce(reduce) == "mean_of_sims":
        return (1 + kl).reciprocal().mean(dim=-1)

    return (1 + kl.sum(dim=-1)).reciprocal()


def _no_autocast(tensor: Tensor) -> torch.autocast:
    return torch.autocast(device_type=tensor.device.type, enabled=False)
