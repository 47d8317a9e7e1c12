"""Train the word pieces of the tiny test encoder on the sample corpus.

    python scripts/train_tiny_vocabulary.py

Run it again only if the sample corpus changes a lot: it changes the digest of the tiny encoder, and
so every tiny run.
"""

from __future__ import annotations

import csv
from pathlib import Path

from tokenizers import BertWordPieceTokenizer

PACKAGE = Path(__file__).parents[1] / "src" / "lightning_cse"
VOCABULARY = PACKAGE / "encoders" / "tiny_vocab.txt"
ROLES = ("premise", "implied_entailment", "explicit_entailment", "neutral", "contradiction")


def trained() -> str:
    """Return the word pieces, one a line."""
    file = PACKAGE / "data" / "sample" / "INLI" / "train.csv"
    with file.open(encoding="utf-8", newline="") as lines:
        sentences = [row[role] for row in csv.DictReader(lines) for role in ROLES]

    tokenizer = BertWordPieceTokenizer(lowercase=True)
    tokenizer.train_from_iterator(sentences, vocab_size=2000, min_frequency=2, show_progress=False)
    pieces = tokenizer.get_vocab()

    return "".join(f"{piece}\n" for piece in sorted(pieces, key=pieces.__getitem__))


if __name__ == "__main__":
    VOCABULARY.write_text(trained(), encoding="utf-8")
