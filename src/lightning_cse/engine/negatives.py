"""Hard negatives that are mined for training pairs without any (``data.negatives=mined``)."""

import logging
from collections.abc import Sequence

import numpy as np
import torch

from lightning_cse.data import ContrastiveDataModule
from lightning_cse.data.columns import numbered_negatives
from lightning_cse.data.mining import Embed, mine_negatives
from lightning_cse.data.rows import with_columns
from lightning_cse.encoders import SentenceEncoder
from lightning_cse.engine.load import load
from lightning_cse.errors import ConfigError
from lightning_cse.methods import Method
from lightning_cse.models import PointModel
from lightning_cse.runs.machine import device_of

log = logging.getLogger(__name__)


def add_mined_negatives(data: ContrastiveDataModule, method: Method) -> dict[str, str]:
    """Give each training row without a negative the nearest positives of other rows, and count
    them in ``data.counts``; return the digest of the encoder that finds them, if the settings name
    one.

    Raises ConfigError if the method takes no negatives.
    """
    settings = data.settings
    anchor, positive = next(iter(method.pairs.values()))
    if "negative" not in method.roles or anchor == positive:
        name = type(method).__name__
        raise ConfigError([f"data.negatives: {name} takes no negatives; set it to null"])

    digests = {}
    if settings.negatives_encoder is None:
        embed = _embedding(method.model.encoder)
    else:
        model = load(settings.negatives_encoder)
        embed = model.encode
        digests = {"data.negatives_encoder": model.digests["weights"]}

    rows = data.train
    negatives = rows["negative"][:] if "negative" in rows.column_names else [None] * len(rows)
    mined, too_similar = mine_negatives(
        rows[anchor][:],
        rows[positive][:],
        embed,
        count=settings.negatives_a_row,
        margin_share=settings.negatives_share,
    )
    names = numbered_negatives(len(mined[0]))
    columns = {}
    for rank, name in enumerate(names):
        columns[name] = [
            sentences[rank] if negative is None else negative if rank == 0 else None
            for sentences, negative in zip(mined, negatives, strict=True)
        ]

    data.train = with_columns(rows, **columns)
    counts = {
        "rows with mined negatives": sum(
            negative is None and sentences[0] is not None
            for sentences, negative in zip(mined, negatives, strict=True)
        ),
        "candidates too similar to be negatives": too_similar,
    }
    data.counts |= counts
    log.info("data.negatives: %s", "; ".join(f"{name}: {n:,}" for name, n in counts.items()))

    return digests


def _embedding(encoder: SentenceEncoder) -> Embed:
    """Return how an encoder embeds sentences before it is trained."""

    @torch.no_grad()
    def embed(sentences: Sequence[str]) -> np.ndarray:
        model = PointModel(encoder.to(device_of())).eval()
        (vectors,) = model.embed(sentences).views().values()
        encoder.to("cpu")

        return vectors.cpu().numpy()

    return embed
