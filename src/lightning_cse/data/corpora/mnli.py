"""MNLI (MultiNLI): labelled sentence pairs of ten genres, in its own layout, in GLUE's, and in those of two samples."""

from __future__ import annotations

from functools import partial

from lightning_cse.data.corpora.nli import LABELS, NO_LABEL, checked_label, parse_jsonl, parse_labelled_tsv
from lightning_cse.data.corpora.spec import Corpus, CorpusFile, Table
from lightning_cse.data.corpora.tables import checked_sentence, parse_csv
from lightning_cse.errors import DataError

LICENCE = "mixed (Open American National Corpus, Creative Commons, public domain): see the readme of the release"

# What stands before, between and after premise and hypothesis in a question of LLMsKnow.
BEFORE = 'For the statement, "'
BETWEEN = '", does the hypothesis "'
AFTER = '" represent entailment, contradiction, or neutrality?'
ANSWERS = {label: label for label in LABELS if label != NO_LABEL}


def parse_questions(text: str, path: str) -> Table:
    """Parse a file of LLMsKnow: comma-separated, a question that holds the pair, and its label as the answer.

    Rows that come twice are kept, as all rows are.

    Raises:
        DataError: At the first fault, with file and line; also for a question of another wording, or one in which the
            words between premise and hypothesis come twice, as nothing then tells where the premise ends.
    """
    table = parse_csv(text, path, sentences=("Question", "Answer"))
    premises: list[str] = []
    hypotheses: list[str] = []
    labels: list[str] = []
    for question, answer, line in zip(table.columns["Question"], table.columns["Answer"], table.lines, strict=True):
        where = f"{path}:{line}"
        pair = str(question).removeprefix(BEFORE).removesuffix(AFTER).split(BETWEEN)
        if len(pair) != 2 or f"{BEFORE}{BETWEEN.join(pair)}{AFTER}" != question:
            raise DataError(
                f"{where}: the Question {question!r} is not worded as all of this file are: "
                f"{BEFORE}<premise>{BETWEEN}<hypothesis>{AFTER}"
            )
        premises.append(checked_sentence(pair[0], "the premise in the Question", where))
        hypotheses.append(checked_sentence(pair[1], "the hypothesis in the Question", where))
        labels.append(checked_label(answer, where, ANSWERS))
    return Table({"premise": premises, "hypothesis": hypotheses, "label": labels}, table.lines)


MNLI = Corpus(
    name="mnli",
    title="MNLI, MultiNLI 1.0 (Williams et al. 2018)",
    files=tuple(
        CorpusFile(
            split=split,
            path=f"MNLI/multinli_1.0/multinli_1.0_{split}.jsonl",
            rows=rows,
            sha256=None,
            remote="multinli_1.0.zip",
            member=f"multinli_1.0/multinli_1.0_{split}.jsonl",
        )
        for split, rows in (("train", 392702), ("dev_matched", 10000), ("dev_mismatched", 10000))
    ),
    parse=parse_jsonl,
    licence=LICENCE,
    prepare="takes the three jsonl files out of the official archive and checks row counts",
    sources=("https://cims.nyu.edu/~sbowman/multinli",),
)

MNLI_GLUE = Corpus(
    name="mnli_glue",
    title="MNLI as GLUE has it, without the pairs that have no gold label (Wang et al. 2019)",
    files=tuple(
        CorpusFile(
            split=split,
            path=f"MNLI/glue/{split}.tsv",
            rows=rows,
            sha256=None,
            remote="MNLI.zip",
            member=f"MNLI/{split}.tsv",
        )
        for split, rows in (("train", 392702), ("dev_matched", 9815), ("dev_mismatched", 9832))
    ),
    parse=partial(parse_labelled_tsv, label="gold_label"),
    licence=LICENCE,
    prepare="takes the three tsv files out of GLUE's archive and checks row counts",
    sources=("https://dl.fbaipublicfiles.com/glue/data",),
)

MNLI_NYU = Corpus(
    name="mnli_nyu",
    # Three premises (train line 13816, dev_matched lines 2922 and 4379) swallowed the lines behind them, at the source.
    title="MNLI, tokenised: 5 % of train and half of dev_matched, from an exercise of New York University",
    files=(
        CorpusFile(
            split="train",
            path="MNLI/nyu_hw2/mnli_train.tsv",
            rows=20000,
            sha256="2e5990152666039130ecfcb96cdbf52667ce4c38bef444d89f7e2a6453df8217",
            remote="mnli_train.tsv",
        ),
        CorpusFile(
            split="dev_matched",
            path="MNLI/nyu_hw2/mnli_val.tsv",
            rows=5000,
            sha256="a9c9ec6d208706f166cc5a98d5ef39f79fb8b21a85eb4cd2bccef50a661d8ea6",
            remote="mnli_val.tsv",
        ),
    ),
    parse=partial(parse_labelled_tsv, label="label"),  # no quoting: its tokens for a quote character are `` and ''
    licence=LICENCE,
    prepare="downloads the two files of the exercise and checks digests and row counts",
    sources=("https://raw.githubusercontent.com/tp823/HW2-NLP/eed7bcf077d8",),
)

MNLI_LLMSKNOW = Corpus(
    name="mnli_llmsknow",
    title="MNLI, pairs drawn from train and dev_matched and put as questions (LLMsKnow, Orgad et al. 2025)",
    files=(
        CorpusFile(
            split="train",
            path="MNLI/llmsknow/mnli_train.csv",
            rows=10000,
            sha256="fc62ccd105adfddb207c9cc4487ddd649ded70fbb70d01625ca614bc1d385a82",
            remote="mnli_train.csv",
        ),
        CorpusFile(
            split="dev_matched",
            path="MNLI/llmsknow/mnli_validation.csv",
            rows=10000,
            sha256="8981818ce8ee1290479890122a59c2cb3c2dc2086f743614aaddd3dc8080a3b6",
            remote="mnli_validation.csv",
        ),
    ),
    parse=parse_questions,
    licence=LICENCE,
    prepare="downloads the two files of LLMsKnow and checks digests and row counts",
    sources=("https://raw.githubusercontent.com/technion-cs-nlp/LLMsKnow/bee3ec5787e7/data",),
)
