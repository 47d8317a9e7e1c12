"""An encoder whose vectors are shifted and turned until their directions are uncorrelated and equally wide."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from lightning_cse.baselines.plain import PlainEncoder
from lightning_cse.data.sources import read_sources
from lightning_cse.embeddings import PointEmbedding
from lightning_cse.encoders import SentenceEncoder
from lightning_cse.errors import ConfigError, DataError
from lightning_cse.methods.base import SENTENCES_AT_ONCE

log = logging.getLogger(__name__)

FLAT = 1e-10
"""A direction with less than this part of the widest one's variance, or of the square of the mean, is rounding."""

_COLUMNS = (("sentence",), ("sentence1", "sentence2"))


class Whitening(PlainEncoder):
    r"""BERT-whitening: the pooled vectors of an encoder, whitened by the mean and covariance of given sentences.

    .. math:: \tilde x = (x - \mu) W_{:, :k}, \qquad W = U \, \text{diag}(1 / \sqrt{s_1}, 1 / \sqrt{s_2}, \dots)

    with the mean :math:`\mu` (d,) and the covariance :math:`U \, \text{diag}(s) \, U^\top` (d, d) of the vectors of the
    sentences it is fitted on, widest direction first, both in float64. It is fitted when sentences are first embedded,
    where the encoder is then. Directions in which those vectors do not spread (`FLAT`), as when there are fewer
    sentences than dimensions, are left out, which is logged.

    Source: Su et al. 2021 (BERT-whitening), algorithm 1.  Differs: flat directions are left out, not blown up.

    Args:
        encoder: sentences to vectors.
        sources: what it is fitted on: splits such as ``stsb/train``, with a column ``sentence`` or with ``sentence1``
            and ``sentence2``, and text files such as ``my/sentences.txt``, a sentence a line.
        data_dir: where the corpora of ``sources`` are.
        sentences: the sentences themselves, in place of the two.
        dimensions: k, the widest directions that are kept; None for all.

    Raises:
        ConfigError: if not exactly one of sources and sentences is given, sources come without a ``data_dir``, or
            ``dimensions`` is not between 1 and d.
        DataError: if they cannot be read, or span fewer directions than are asked for.
    """

    def __init__(
        self,
        encoder: SentenceEncoder,
        *,
        sources: Sequence[str] | None = None,
        data_dir: str | Path | None = None,
        sentences: Sequence[str] | None = None,
        dimensions: int | None = None,
    ) -> None:
        super().__init__(encoder)
        if dimensions is not None and not 1 <= dimensions <= encoder.width:
            raise ConfigError(
                [f"whitening.dimensions: {dimensions} is not between 1 and the {encoder.width} there are"]
            )
        self.dimensions = dimensions
        self.sentences, self.fitted_on = _sentences(sources, data_dir, sentences)
        self._fit: tuple[Tensor, Tensor] | None = None

    @property
    def mean(self) -> Tensor:
        r""":math:`\mu`, float64: (d,)."""
        return self._fitted()[0]

    @property
    def kernel(self) -> Tensor:
        """:math:`W_{:, :k}`, float64: (d, k)."""
        return self._fitted()[1]

    @torch.no_grad()
    def embed(self, sentences: Sequence[str]) -> PointEmbedding:
        """Embed sentences without dropout and whiten them: (n, k) float32."""
        mean, kernel = self._fitted()
        return PointEmbedding(((self._vectors(sentences) - mean) @ kernel).float())

    def _vectors(self, sentences: Sequence[str]) -> Tensor:
        embedding = super().embed(sentences)
        return next(iter(embedding.fields().values())).double()

    def _fitted(self) -> tuple[Tensor, Tensor]:
        if self._fit is None:
            self._fit = self._whitened(*self._moments())
        return self._fit

    def _moments(self) -> tuple[Tensor, Tensor]:
        """Return the mean (d,) and the covariance (d, d) of the vectors, summed over a bounded number at once."""
        # Sums of differences from the first vectors' mean: those of the vectors themselves would cancel.
        shift, total, products = None, torch.zeros(1), torch.zeros(1)
        for start in range(0, len(self.sentences), SENTENCES_AT_ONCE):
            vectors = self._vectors(self.sentences[start : start + SENTENCES_AT_ONCE])
            shift = vectors.mean(0) if shift is None else shift
            vectors = vectors - shift
            total, products = total + vectors.sum(0), products + vectors.T @ vectors
        assert shift is not None  # noqa: S101 - there is at least one sentence
        n = len(self.sentences)
        offset = total / n
        return shift + offset, (products - n * torch.outer(offset, offset)) / max(n - 1, 1)

    def _whitened(self, mean: Tensor, covariance: Tensor) -> tuple[Tensor, Tensor]:
        variances, directions = torch.linalg.eigh(covariance)
        variances, directions = variances.flip(0), directions.flip(1)
        # float32 vectors are rounded in proportion to their size, so equal sentences need not have equal vectors.
        flat = FLAT * max(float(variances[0]), float(mean.square().max()))
        spanned = int((variances > flat).sum())
        wanted = self.dimensions or spanned
        if spanned < max(wanted, 1):
            raise DataError(
                f"whitening: the {len(self.sentences)} sentences of {self.fitted_on} span {spanned} directions, and "
                f"{max(wanted, 1)} are needed; fit on more sentences, or lower whitening.dimensions"
            )
        if spanned < len(variances) and self.dimensions is None:
            log.warning(
                "whitening: the %d sentences of %s span %d of %d directions; the others are left out",
                len(self.sentences),
                self.fitted_on,
                spanned,
                len(variances),
            )
        return mean, directions[:, :wanted] / variances[:wanted].sqrt()


def _sentences(
    sources: Sequence[str] | None, data_dir: str | Path | None, sentences: Sequence[str] | None
) -> tuple[Sequence[str], str]:
    """Return the sentences to fit on and, in words, where they are from."""
    if (sources is None) == (sentences is None):
        got = "neither" if sources is None else "both"
        raise ConfigError([f"whitening: needs sources or sentences to be fitted on, got {got}"])
    if sources is None:
        found, place = list(sentences or ()), "the list given"
    elif data_dir is None:
        raise ConfigError(["whitening.data_dir: says where the corpora of sources are; set it"])
    else:
        found, place = _columns(sources, Path(data_dir)), ", ".join(map(str, sources))
    if len(found) < 2:
        raise DataError(f"whitening: {place or 'an empty list'} has {len(found)} sentences, and at least 2 are needed")
    return found, place


def _columns(sources: Sequence[str], data_dir: Path) -> list[str]:
    found: list[str] = []
    for source, rows in zip(sources, read_sources(sources, data_dir, key="whitening.sources"), strict=True):
        names = next((names for names in _COLUMNS if set(names) <= set(rows.names)), None)
        if names is None:
            raise DataError(
                f"whitening.sources: {source} has no column sentence, nor sentence1 and sentence2; it has "
                f"{', '.join(rows.names)}"
            )
        for name in names:
            found += rows.column(name)
    return found
