"""The corpora that readers and ``prepare`` know: one file a family of corpora, imported when one of them is used."""

from __future__ import annotations

import importlib
from collections import UserDict
from typing import Any, Final

from lightning_cse.data.corpora.spec import Corpus, CorpusFile, Hub
from lightning_cse.errors import DataError, did_you_mean

__all__ = ["CORPORA", "Corpus", "CorpusFile", "Hub", "get_corpus"]

_FILES: Final = {
    "inli": "inli",
    "snli": "snli snli_senteval snli_partial snli_sample snli_counterfactual",
    "mnli": "mnli mnli_glue mnli_nyu mnli_llmsknow",
    "sick": "sick sick_semeval",
    "sts": "sts12 sts13 sts14 sts15 sts16",
    "stsb": "stsb",
    "transfer": "mr cr subj mpqa sst2 trec mrpc",
    "simcse_nli": "simcse_nli simcse_nli_head",
    "sentences": "wiki1m wiki1m_part wiki_split wikitext2",
    "ngcse": "ngcse",
    "impscore": "impscore",
}


class _Corpora(UserDict[str, Corpus]):
    """Corpora by name. Until one is first used, its value is the file that has it as a constant of its name."""

    def __getitem__(self, name: str) -> Corpus:
        file: Any = self.data[name]
        if isinstance(file, str):
            self.data[name] = getattr(importlib.import_module(f"{__name__}.{file}"), name.upper())
        return self.data[name]


_files: Any = {name: file for file, names in _FILES.items() for name in names.split()}
CORPORA: Final = _Corpora(_files)


def get_corpus(name: str) -> Corpus:
    """Return a corpus by name, or raise DataError with the corpora there are."""
    if name not in CORPORA:
        raise DataError(f"unknown corpus {name!r}{did_you_mean(name, CORPORA)}; known: {', '.join(CORPORA)}")
    return CORPORA[name]
