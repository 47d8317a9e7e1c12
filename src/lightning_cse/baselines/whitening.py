"""An encoder whose vectors are transformed so that their dimensions are uncorrelated and have equal
variance.
"""

import logging
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor

from lightning_cse.data.corpora import read_sources
from lightning_cse.data.leaks import SECOND_SENTENCES
from lightning_cse.embeddings import PointEmbedding
from lightning_cse.encoders import SentenceEncoder
from lightning_cse.errors import DataError
from lightning_cse.models import PointModel
from lightning_cse.models.base import SENTENCES_AT_ONCE
from lightning_cse.tokens import Tokens

log = logging.getLogger(__name__)

_COLUMNS = ("sentence", "anchor", "sentence1", "sentence2", "premise", *SECOND_SENTENCES)

FLAT = 1e-10
"""A direction with less than this share of the largest variance, or of the largest squared mean, is
rounding.
"""


class Whitening(PointModel):
    r"""BERT-whitening: the pooled vectors of an encoder, whitened by the mean and covariance of
    given sentences.

    .. math:: \tilde x = (x - \mu) W_{:, :k}, \qquad
              W = U \, \text{diag}(1 / \sqrt{s_1}, 1 / \sqrt{s_2}, \dots)

    with the mean :math:`\mu` (d,) and the covariance :math:`U \, \text{diag}(s) \, U^\top` (d,
    d) of the vectors of the sentences it is fitted on, widest direction first, both in float64.
    It is fitted when sentences are first embedded. The :math:`k` directions in which those
    vectors vary are kept. The others (see `FLAT`) exist, for example, if there are fewer
    sentences than dimensions; they are left out with a warning.

    Source: Su et al. 2021 (BERT-whitening), algorithm 1; the numbers that SimCSE and NGCSE
    quote are fitted on SNLI and MNLI train.  Differs: flat directions are left out, not scaled
    up.

    Args:
        sources: the sentences to fit on: every sentence of every pair of splits such as
            ``snli/train``, and text files such as ``my/sentences.txt`` with one sentence per line.
        data_dir: where the corpora of ``sources`` are.
    """

    def __init__(
        self, encoder: SentenceEncoder, *, sources: str | Sequence[str], data_dir: str | Path = "."
    ) -> None:
        super().__init__(encoder)
        self.eval()  # it is fitted and used without dropout
        sources = [sources] if isinstance(sources, str) else sources
        self.sentences = _read(sources, Path(data_dir))
        self.fitted_on = ", ".join(sources)

    @torch.no_grad()
    def embed(self, sentences: Sequence[str], tokens: Tokens | None = None) -> PointEmbedding:
        """Embed sentences and whiten them: (n, k) float32."""
        mean, kernel = self.fit
        return PointEmbedding(((self._vectors(sentences, tokens) - mean) @ kernel).float())

    @cached_property
    def fit(self) -> tuple[Tensor, Tensor]:
        r""":math:`\mu` (d,) and :math:`W_{:, :k}` (d, k), both float64."""
        mean, covariance = self._moments()
        variances, directions = torch.linalg.eigh(covariance)
        variances = variances.flip(-1)
        directions = directions.flip(-1)
        # float32 vectors are rounded in proportion to their size, so equal sentences need not have
        # equal vectors.
        flat = FLAT * max(float(variances[0]), float(mean.square().max()))
        count = int((variances > flat).sum())
        span = (
            f"whitening: the {len(self.sentences)} sentences of {self.fitted_on} span {count} of "
            f"{len(mean)} directions"
        )
        if count == 0:
            raise DataError(f"{span}; fit on more")
        if count < len(mean):
            log.warning("%s; the others are left out", span)

        return mean, directions[:, :count] / variances[:count].sqrt()

    def _vectors(self, sentences: Sequence[str], tokens: Tokens | None = None) -> Tensor:
        (vectors,) = super().embed(sentences, tokens).fields().values()
        return vectors.double()

    def _moments(self) -> tuple[Tensor, Tensor]:
        """Return the mean (d,) and the covariance (d, d) of the vectors, summed over a bounded
        number at once.
        """
        count = len(self.sentences)
        shift = self._vectors(self.sentences[:1])  # sums of the vectors themselves would cancel
        total = torch.zeros_like(shift[0])
        products = torch.zeros_like(shift.T @ shift)
        for start in range(0, count, SENTENCES_AT_ONCE):
            vectors = self._vectors(self.sentences[start : start + SENTENCES_AT_ONCE]) - shift
            total = total + vectors.sum(0)
            products = products + vectors.T @ vectors

        mean = shift[0] + total / count
        covariance = (products - torch.outer(total, total) / count) / max(count - 1, 1)

        return mean, covariance


def _read(sources: Sequence[str], data_dir: Path) -> list[str]:
    sentences: list[str] = []
    tables = read_sources(sources, data_dir, key="whitening.sources")
    for source, rows in zip(sources, tables, strict=True):
        names = [name for name in _COLUMNS if name in rows.column_names]
        if not names:
            raise DataError(f"whitening.sources: {source} has none of {', '.join(_COLUMNS)}")

        for name in names:
            sentences += filter(None, rows[name])

    return sentences
