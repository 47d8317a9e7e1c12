"""The corpora that readers and ``prepare`` know: one file a corpus."""

from __future__ import annotations

from lightning_cse.data.corpora.impscore import IMPSCORE
from lightning_cse.data.corpora.inli import INLI
from lightning_cse.data.corpora.mnli import MNLI, MNLI_GLUE, MNLI_LLMSKNOW, MNLI_NYU
from lightning_cse.data.corpora.ngcse import NGCSE
from lightning_cse.data.corpora.sentences import WIKI1M, WIKI1M_PART, WIKI_SPLIT, WIKITEXT2
from lightning_cse.data.corpora.sick import SICK, SICK_SEMEVAL
from lightning_cse.data.corpora.simcse_nli import SIMCSE_NLI, SIMCSE_NLI_HEAD
from lightning_cse.data.corpora.snli import SNLI, SNLI_COUNTERFACTUAL, SNLI_PARTIAL, SNLI_SAMPLE, SNLI_SENTEVAL
from lightning_cse.data.corpora.spec import Corpus, CorpusFile, Hub
from lightning_cse.data.corpora.sts import STS12, STS13, STS14, STS15, STS16
from lightning_cse.data.corpora.stsb import STSB
from lightning_cse.data.corpora.transfer import CR, MPQA, MR, MRPC, SST2, SUBJ, TREC
from lightning_cse.errors import DataError, did_you_mean

__all__ = ["CORPORA", "Corpus", "CorpusFile", "Hub", "get_corpus"]

CORPORA: dict[str, Corpus] = {
    corpus.name: corpus
    for corpus in (
        INLI,
        SNLI,
        SNLI_SENTEVAL,
        SNLI_PARTIAL,
        SNLI_SAMPLE,
        SNLI_COUNTERFACTUAL,
        MNLI,
        MNLI_GLUE,
        MNLI_NYU,
        MNLI_LLMSKNOW,
        SICK,
        SICK_SEMEVAL,
        STS12,
        STS13,
        STS14,
        STS15,
        STS16,
        STSB,
        MR,
        CR,
        SUBJ,
        MPQA,
        SST2,
        TREC,
        MRPC,
        SIMCSE_NLI,
        SIMCSE_NLI_HEAD,
        WIKI1M,
        WIKI1M_PART,
        WIKI_SPLIT,
        WIKITEXT2,
        NGCSE,
        IMPSCORE,
    )
}


def get_corpus(name: str) -> Corpus:
    """Return a corpus by name, or raise DataError with the corpora there are."""
    if name not in CORPORA:
        raise DataError(f"unknown corpus {name!r}{did_you_mean(name, CORPORA)}; known: {', '.join(CORPORA)}")
    return CORPORA[name]
