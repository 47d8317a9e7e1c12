"""The corpora that readers and ``prepare`` know: one file a corpus."""

from __future__ import annotations

from lightning_cse.data.corpora.inli import INLI
from lightning_cse.data.corpora.spec import Corpus, CorpusFile, Hub
from lightning_cse.data.corpora.stsb import STSB
from lightning_cse.errors import DataError, did_you_mean

__all__ = ["CORPORA", "Corpus", "CorpusFile", "Hub", "get_corpus"]

CORPORA: dict[str, Corpus] = {corpus.name: corpus for corpus in (INLI, STSB)}


def get_corpus(name: str) -> Corpus:
    """Return a corpus by name, or raise DataError with the corpora there are."""
    if name not in CORPORA:
        raise DataError(f"unknown corpus {name!r}{did_you_mean(name, CORPORA)}; known: {', '.join(CORPORA)}")
    return CORPORA[name]
