r"""How close two sentences are; bigger is closer.

Every function here upcasts what is narrower than float32, keeps float64, and is not downcast by an enclosing autocast.
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["cosine", "cosine_matrix"]

_ZERO_NORM = 1e-12
"""A vector shorter than this counts as the zero vector: it is left as it is instead of being divided by its norm."""


def cosine_matrix(a: Tensor, b: Tensor) -> Tensor:
    r"""Return the cosine of every row of ``a`` with every row of ``b``.

    .. math:: S_{ij} = \frac{a_i \cdot b_j}{\lVert a_i \rVert \, \lVert b_j \rVert}

    with ``a`` of shape ``(n, d)``, ``b`` of shape ``(m, d)`` and the result of shape ``(n, m)``.

    The dtype is the wider of the two inputs' and at least float32, also under autocast. A zero vector has cosine 0 with
    everything and a finite gradient.

    Raises:
        ValueError: if either input is not a matrix or the widths differ.

    Example:
        >>> a = torch.tensor([[1.0, 0.0], [0.0, 0.0]])
        >>> cosine_matrix(a, torch.tensor([[2.0, 0.0], [0.0, 1.0], [-3.0, 0.0]]))
        tensor([[ 1.,  0., -1.],
                [ 0.,  0.,  0.]])
    """
    if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[1]:
        raise ValueError(f"need (n, d) and (m, d), got {tuple(a.shape)} and {tuple(b.shape)}")
    dtype = _wide_dtype(a, b)
    with torch.autocast(device_type=a.device.type, enabled=False):
        return _unit(a.to(dtype)) @ _unit(b.to(dtype)).T


def cosine(a: Tensor, b: Tensor) -> Tensor:
    r"""Return the cosine of each row of ``a`` with the same row of ``b``.

    .. math:: s_i = \frac{a_i \cdot b_i}{\lVert a_i \rVert \, \lVert b_i \rVert}

    with ``a`` and ``b`` of shape ``(n, d)`` and the result of shape ``(n,)``: the diagonal of `cosine_matrix`, with the
    same dtype and the same treatment of zero vectors.

    Raises:
        ValueError: if the inputs are not two matrices of one shape.

    Example:
        >>> cosine(torch.tensor([[3.0, 0.0], [0.0, 2.0]]), torch.tensor([[1.0, 0.0], [0.0, -1.0]]))
        tensor([ 1., -1.])
    """
    if a.ndim != 2 or a.shape != b.shape:
        raise ValueError(f"need two (n, d) tensors of one shape, got {tuple(a.shape)} and {tuple(b.shape)}")
    dtype = _wide_dtype(a, b)
    with torch.autocast(device_type=a.device.type, enabled=False):
        return (_unit(a.to(dtype)) * _unit(b.to(dtype))).sum(dim=-1)


def _wide_dtype(a: Tensor, b: Tensor) -> torch.dtype:
    return torch.promote_types(torch.promote_types(a.dtype, b.dtype), torch.float32)


def _unit(x: Tensor) -> Tensor:
    # Not torch.nn.functional.normalize: at a zero vector its gradient is 1e12 times the incoming one, which is finite
    # but lets one empty sentence take over the clipped gradient of a whole step. Here it is 1 times.
    norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    return x / torch.where(norm < _ZERO_NORM, torch.ones_like(norm), norm)
