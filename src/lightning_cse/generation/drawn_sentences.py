"""The sentences that a language model is asked about: those of a data set's first role, each once, in a drawn order."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from omegaconf import DictConfig

from lightning_cse.data.roles import RoleRows
from lightning_cse.data.sources import read_sources
from lightning_cse.engine.build import built
from lightning_cse.errors import DataError

__all__ = ["DrawnSentences", "draw_sentences"]

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class DrawnSentences:
    """Distinct sentences in the order of drawing, and the sha256 of the files that they are from, by name."""

    sentences: Sequence[str]
    digests: Mapping[str, str]

    @cached_property
    def digest(self) -> str:
        """The sha256 of the sentences and their order, whatever files they are from."""
        digest = hashlib.sha256()
        for sentence in self.sentences:
            digest.update(sentence.encode() + b"\0")
        return digest.hexdigest()


def draw_sentences(cfg: DictConfig, data: str, data_dir: Path) -> DrawnSentences:
    """Draw sentences, those that are not too long, by the seed.

    Each sentence has its own draw, whatever others there are and in whichever files: a sentence's place is that of the
    digest of the seed and itself. So what training draws of the same corpus, its held-out rows above all, has nothing
    to do with it.

    Args:
        cfg: The config of ``generate``.
        data: What the data set is called, for messages.
        data_dir: Where the corpora are.

    Raises:
        DataError: If there are fewer than are asked for.
    """
    rows: RoleRows = built(cfg.data.rows)
    read = read_sources(cfg.data.train, data_dir, key="data.train")
    distinct = dict.fromkeys(rows(read).column(rows.roles[0]))
    most = cfg.most_words
    kept = [sentence for sentence in distinct if most is None or len(sentence.split()) <= most]
    if len(kept) < len(distinct):
        told = len(distinct) - len(kept)
        log.info("data=%s: %d of %d sentences have more than %d words (most_words)", data, told, len(distinct), most)
    if len(kept) < max(1, cfg.n or 1):
        raise DataError(
            f"n: {cfg.n} rows are asked for, and data={data} has {len(kept)} sentences; n=null writes one for each"
        )
    digests = {file.name: file.sha256 for table in read for file in table.files}
    kept.sort(key=lambda sentence: hashlib.sha256(f"{cfg.seed}\0{sentence}".encode()).digest())
    return DrawnSentences(kept, digests)
