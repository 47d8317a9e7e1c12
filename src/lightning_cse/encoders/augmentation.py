"""Changes of a sentence inside the encoder: of the positions of its tokens, and of the matrix of
its embeddings.

Random numbers are torch's, so that a seed decides them as it decides dropout.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Self

import torch
from torch import Tensor

from lightning_cse.errors import ConfigError


class Augmentation:
    """A change of the sentences of one call of the encoder; this class changes nothing.

    Matrices have one sentence per row and are padded on the right. Padding may be changed too:
    nothing reads it.
    """

    def positions(self, positions: Tensor, lengths: Tensor) -> Tensor:
        """Return the positions of the tokens, (n, length), of sequences of ``lengths`` (n,)."""
        return positions

    def embeddings(self, embeddings: Tensor, mask: Tensor) -> Tensor:
        """Return the embeddings (n, length, d) that the first layer reads, with positions and
        segments; ``mask`` (n, length) is true for tokens.
        """
        return embeddings


class Share(Augmentation):
    """A change of a share of a sentence's tokens, features or numbers."""

    def __init__(self, share: float) -> None:
        if not 0 < share < 1:
            raise ConfigError([f"share: must be in (0, 1), got {share}"])

        self.share = share


class ShuffledPositions(Augmentation):
    r"""A sentence's tokens, special ones included, with their positions in a random order.

    .. math:: p_t = \pi(t), \qquad t = 1, \dots, \ell

    for a uniformly random permutation :math:`\pi` of each sentence of :math:`\ell` tokens; the
    tokens themselves stay in place, which does not matter to a transformer.

    Source: ConSERT (Yan et al. 2021), token shuffling, and the authors' code.  Differs: nothing.
    """

    def positions(self, positions: Tensor, lengths: Tensor) -> Tensor:
        """Return the positions of each sequence in another order; padding keeps its own."""
        draws = torch.rand(positions.shape, device=positions.device)
        # Padding is sorted behind all tokens.
        is_padding = torch.arange(positions.shape[1], device=lengths.device) >= lengths[:, None]
        order = draws.masked_fill(is_padding, 2.0).argsort(dim=1, stable=True)

        return positions.gather(1, order)


class TokenEmbeddingCutoff(Share):
    r"""The embeddings of random tokens are 0.

    .. math:: E_{t \cdot} = 0, \qquad t \in C, \quad |C| = \lfloor q \ell \rfloor

    with the embeddings :math:`E` (:math:`\ell` tokens, special ones included, by d features) and
    the share :math:`q`, in (0, 1); otherwise ConfigError.

    Source: ConSERT (Yan et al. 2021), token cutoff, and the authors' code, after Shen et al. 2020.
    Differs: nothing.
    """

    def embeddings(self, embeddings: Tensor, mask: Tensor) -> Tensor:
        """Return the embeddings with some rows of each sentence set to 0."""
        draws = torch.rand(mask.shape, device=mask.device).masked_fill(~mask, 2.0)
        removed = _lowest(draws, (mask.sum(1) * self.share).long())

        return embeddings.masked_fill(removed[:, :, None], 0.0)


class FeatureCutoff(Share):
    r"""Random features of a sentence are 0, the same for all of its tokens.

    .. math:: E_{\cdot j} = 0, \qquad j \in C, \quad |C| = \lfloor q d \rfloor

    with the embeddings :math:`E` (tokens by d features) and the share :math:`q`, in (0, 1);
    otherwise ConfigError.

    Source: ConSERT (Yan et al. 2021), feature cutoff, and the authors' code, after Shen et al.
    2020.  Differs: nothing.
    """

    def embeddings(self, embeddings: Tensor, mask: Tensor) -> Tensor:
        """Return the embeddings with some columns of each sentence set to 0."""
        count, _, width = embeddings.shape
        draws = torch.rand(count, width, device=embeddings.device)
        removed = _lowest(draws, draws.new_full((count,), int(width * self.share)).long())

        return embeddings.masked_fill(removed[:, None], 0.0)


class EmbeddingDropout(Share):
    r"""Single numbers of a sentence's embeddings are 0; the others are not scaled.

    .. math:: E_{tj} = 0 \quad \text{with probability } q

    for each token t and feature j, with the share :math:`q`, in (0, 1); otherwise ConfigError.

    Source: ConSERT (Yan et al. 2021), dropout.  Differs: the authors' code removes exactly the
    share of the numbers of each sentence.
    """

    def embeddings(self, embeddings: Tensor, mask: Tensor) -> Tensor:
        """Return the embeddings with some numbers set to 0."""
        draws = torch.rand(embeddings.shape, device=embeddings.device)
        return embeddings.masked_fill(draws < self.share, 0.0)


class AdversarialNoise(Augmentation):
    r"""The embeddings of each token, moved along the gradient of a loss.

    .. math:: E'_t = E_t + \epsilon \frac{g_t}{\lVert g_t \rVert}, \qquad
              g_t = \frac{\partial \ell}{\partial E_t}

    with the loss :math:`\ell` of a first pass over the same sentences, which records their
    embeddings (`watch`). In the context of `attack`, a second pass adds the noise, through which no
    gradient flows.

    Source: ConSERT (Yan et al. 2021), adversarial attack, and the authors' code (the length is that
    of a token's gradient), after fast gradient value (Rozsa et al. 2016).  Differs: the second pass
    draws the dropout of the embeddings again, where the authors keep the first one's.

    Args:
        norm: :math:`\epsilon`, positive.

    Raises:
        ConfigError: if ``norm`` is not positive.
    """

    def __init__(self, norm: float) -> None:
        if not norm > 0:
            raise ConfigError([f"norm: must be positive, got {norm}"])

        self.norm = norm
        self._seen: list[Tensor] = []
        self._noise: Iterator[Tensor] | None = None

    def watch(self) -> Self:
        """Return itself for the first pass, whose embeddings it records."""
        self._seen = []
        return self

    @contextmanager
    def attack(self, loss: Tensor) -> Iterator[None]:
        """Add noise in the second pass, along the gradient of the ``loss`` of the first."""
        # Another backward pass follows: that of the whole loss.
        gradients = torch.autograd.grad(loss, self._seen, retain_graph=True)
        self._noise = iter([self._scaled(gradient) for gradient in gradients])
        try:
            yield
        finally:
            self._seen = []
            self._noise = None

    def _scaled(self, gradient: Tensor) -> Tensor:
        length: Tensor = torch.linalg.vector_norm(gradient, dim=-1, keepdim=True)
        return self.norm * gradient / (length + 1e-10)  # padding has no gradient

    def embeddings(self, embeddings: Tensor, mask: Tensor) -> Tensor:
        """Return the embeddings: unchanged in the first pass, with noise in the second."""
        if self._noise is not None:
            return embeddings + next(self._noise)

        if not embeddings.requires_grad:  # those of frozen layers
            embeddings = embeddings.detach().requires_grad_()

        self._seen.append(embeddings)

        return embeddings


def _lowest(draws: Tensor, counts: Tensor) -> Tensor:
    """Return where each row of ``draws`` (n, m) has its lowest ``counts`` (n,) numbers."""
    ranks = draws.argsort(dim=1, stable=True).argsort(dim=1, stable=True)
    return ranks < counts[:, None]
