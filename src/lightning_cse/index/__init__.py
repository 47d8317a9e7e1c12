"""Sentences that can be searched: their embeddings in a folder on disk, and what finds the nearest of them."""

from lightning_cse.index.best import Best, nearest
from lightning_cse.index.building import build_index
from lightning_cse.index.folder import FORMAT, IndexFolder, IndexFolderError, differences
from lightning_cse.index.kinds import KINDS, ExactIndex, FaissIndex, Index, open_index
from lightning_cse.index.sentences import SentenceFile

__all__ = [
    "FORMAT",
    "KINDS",
    "Best",
    "ExactIndex",
    "FaissIndex",
    "Index",
    "IndexFolder",
    "IndexFolderError",
    "SentenceFile",
    "build_index",
    "differences",
    "nearest",
    "open_index",
]
