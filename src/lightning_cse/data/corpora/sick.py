"""SICK: pairs of image captions with a relatedness score and a label, in the full file one for each direction."""

from __future__ import annotations

from collections.abc import Iterable

from lightning_cse.data.corpora.nli import labelled
from lightning_cse.data.corpora.spec import Corpus, CorpusFile, Table
from lightning_cse.data.corpora.tables import checked_score, parse_tsv
from lightning_cse.errors import DataError, did_you_mean

LICENCE = "CC BY-NC-SA 3.0"
SENTENCES = {"sentence_A": "premise", "sentence_B": "hypothesis"}
LABELS = {"ENTAILMENT": "entailment", "NEUTRAL": "neutral", "CONTRADICTION": "contradiction"}
RELATIONS = ("entails", "neutral", "contradicts")
SETS = ("TRAIN", "TRIAL", "TEST")


def parse(text: str, path: str) -> Table:
    """Parse ``SICK.txt``, which holds all splits: tabs, a header, no quoting, lines that end in CRLF.

    The label is that of A to B; ``entailment_ab`` and ``entailment_ba`` are kept in the words of the file, such as
    ``A_entails_B``, and ``semeval_set`` names the split of a row.

    Raises:
        DataError: At the first fault, with file and line.
    """
    others = {
        "entailment_label": "label",
        "relatedness_score": "score",
        "entailment_AB": "entailment_ab",
        "entailment_BA": "entailment_ba",
        "SemEval_set": "semeval_set",
    }
    table = _scored(labelled(parse_tsv(text, path, sentences=SENTENCES, others=others), path, LABELS), path)
    _check_words(table, path, "entailment_ab", "entailment_AB", [f"A_{relation}_B" for relation in RELATIONS])
    _check_words(table, path, "entailment_ba", "entailment_BA", [f"B_{relation}_A" for relation in RELATIONS])
    _check_words(table, path, "semeval_set", "SemEval_set", SETS)
    return table


def parse_semeval(text: str, path: str) -> Table:
    """Parse a file of the SemEval 2014 release: one split, one label a pair.

    Raises:
        DataError: At the first fault, with file and line.
    """
    others = {"entailment_judgment": "label", "relatedness_score": "score"}
    return _scored(labelled(parse_tsv(text, path, sentences=SENTENCES, others=others), path, LABELS), path)


def _scored(table: Table, path: str) -> Table:
    """Return a table with its column ``score`` as numbers from 1 to 5."""
    cells = zip(table.columns["score"], table.lines, strict=True)
    scores = [checked_score(cell, "relatedness_score", f"{path}:{line}", 1.0, 5.0) for cell, line in cells]
    return table._replace(columns=table.columns | {"score": scores})


def _check_words(table: Table, path: str, column: str, name: str, known: Iterable[str]) -> None:
    """Raise DataError at the first cell of a column that is none of the known words."""
    words = list(known)
    for cell, line in zip(table.columns[column], table.lines, strict=True):
        if cell not in words:
            hint = did_you_mean(str(cell), words)
            raise DataError(f"{path}:{line}: {name} {cell!r} is not one of {', '.join(words)}{hint}")


SICK = Corpus(
    name="sick",
    title="SICK, all pairs with a label for each direction (Marelli et al. 2014)",
    files=tuple(
        CorpusFile(
            split=split,
            path="SICK/SICK.txt",
            rows=rows,
            sha256="1539c2d059809b5bd40694e26d8121cc85b6b496f91c7b40f2fc83bbd7dcd957",
            remote="SICK.txt",
            only=("semeval_set", split.upper()),
        )
        for split, rows in (("train", 4439), ("trial", 495), ("test", 4906))
    ),
    parse=parse,
    licence=LICENCE,
    prepare="downloads the official file, which holds all splits, and checks its digest",
    sources=("https://raw.githubusercontent.com/kkalouli/SICK-processing/0848f4aec608",),
    aliases={"dev": "trial"},
)

SICK_SEMEVAL = Corpus(
    name="sick_semeval",
    title="SICK as released for SemEval 2014 task 1, one label a pair (Marelli et al. 2014)",
    files=(
        CorpusFile(
            split="train",
            path="SICK/SICK_train.txt",
            rows=4500,
            sha256="266cf8047149bd1d68138dd30439f3122bff30069740ac6705bb6197d9f1b48e",
            remote="SICK_train.txt",
        ),
        CorpusFile(
            split="trial",
            path="SICK/SICK_trial.txt",
            rows=500,
            sha256="5a88cfb62f8c6bd2a3cce0f2421ba2cb8c2be5ab4a800f6f01e2c64aafb7db56",
            remote="SICK_trial.txt",
        ),
        CorpusFile(
            split="test",
            path="SICK/SICK_test_annotated.txt",
            rows=4927,
            sha256="2b8aa806658d6fc23c6824c83776c2d4fee7556000817b5ec0f982861413b7d0",
            remote="SICK_test_annotated.txt",
        ),
    ),
    parse=parse_semeval,
    licence=LICENCE,
    prepare="downloads the three official files and checks digests and row counts",
    sources=("https://raw.githubusercontent.com/brmson/dataset-sts/e1d3375f5b3b/data/sts/sick2014",),
    aliases={"dev": "trial"},
)
