"""Official corpus files to token batches by role; this room knows text and a tokenize function, never an encoder.

What needs torch is imported when it is first asked for, so that ``lightning_cse.prepare`` answers at once.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lightning_cse.data.augment import TokenCutoff, TokenShuffle
    from lightning_cse.data.corpora import read_corpus, sample_dir
    from lightning_cse.data.datamodules import ContrastiveData
    from lightning_cse.data.hybrid import Hybrid
    from lightning_cse.data.implicit_pairs import ImplicitPairs, INLIImplicitPairs
    from lightning_cse.data.loader import BatchLoader
    from lightning_cse.data.provenance import read_provenance, side_file, write_provenance
    from lightning_cse.data.roles import INLIQuadruples, INLITriplets, NLITriplets, Sentences
    from lightning_cse.data.rows import Rows, SourceFile

__all__ = [
    "BatchLoader",
    "ContrastiveData",
    "Hybrid",
    "INLIImplicitPairs",
    "INLIQuadruples",
    "INLITriplets",
    "ImplicitPairs",
    "NLITriplets",
    "Rows",
    "Sentences",
    "SourceFile",
    "TokenCutoff",
    "TokenShuffle",
    "read_corpus",
    "read_provenance",
    "sample_dir",
    "side_file",
    "write_provenance",
]

_LAZY = {
    "BatchLoader": "loader",
    "ContrastiveData": "datamodules",
    "Hybrid": "hybrid",
    "INLIQuadruples": "roles",
    "INLIImplicitPairs": "implicit_pairs",
    "INLITriplets": "roles",
    "ImplicitPairs": "implicit_pairs",
    "NLITriplets": "roles",
    "Sentences": "roles",
    "TokenCutoff": "augment",
    "TokenShuffle": "augment",
    "Rows": "rows",
    "SourceFile": "rows",
    "read_corpus": "corpora",
    "read_provenance": "provenance",
    "sample_dir": "corpora",
    "side_file": "provenance",
    "write_provenance": "provenance",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_LAZY[name]}"), name)
