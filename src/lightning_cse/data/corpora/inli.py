"""INLI: premises with an implied and an explicit entailment, a neutral sentence and a contradiction."""

from __future__ import annotations

from lightning_cse.data.corpora.spec import Corpus, CorpusFile, Table
from lightning_cse.data.corpora.tables import parse_csv

SENTENCES = ("premise", "implied_entailment", "explicit_entailment", "neutral", "contradiction")


def parse(text: str, path: str) -> Table:
    """Parse one official file; its unnamed first column, a row index, is left out."""
    return parse_csv(text, path, sentences=SENTENCES, others=("dataset",))


INLI = Corpus(
    name="inli",
    title="INLI, Implied NLI (Havaldar et al. 2025)",
    files=(
        CorpusFile(
            split="train",
            path="INLI/train.csv",
            rows=8000,
            sha256="e643900306fdb9ac2c4aa4534ec6eb0f253a87be62bf7b5ac5f2aac9c5f75042",
            remote="train.csv",
        ),
        CorpusFile(
            split="val",
            path="INLI/val.csv",
            rows=1000,
            sha256="fa13b6603e2a99c6c16e8d770fa35d259f3fb7f4be31e3a41d69e7a71196458b",
            remote="val.csv",
        ),
        CorpusFile(
            split="test",
            path="INLI/test.csv",
            rows=1000,
            sha256="28153a6f601ccaacf70e1f091c35548a7d72cf196b9462e0fe44ca1062131cf2",
            remote="test.csv",
        ),
    ),
    parse=parse,
    licence="CC BY-SA 4.0",
    prepare="downloads the three official files and checks digests and row counts",
    sources=(
        "https://raw.githubusercontent.com/google-deepmind/inli/5fe253e3cc16/INLI%20Data",
        "https://raw.githubusercontent.com/google-deepmind/inli/HEAD/INLI%20Data",
    ),
    hub=None,  # no data set of this name and layout was found on the hub
    aliases={"dev": "val"},
)
