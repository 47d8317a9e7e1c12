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
ROLES = ("premise", "implied_entailment", "explicit_entailment", "neutral", "contradiction")


def main() -> None:
    """Write ``encoders/tiny_vocab.txt``."""
    with (PACKAGE / "data" / "sample" / "INLI" / "train.csv").open(
        encoding="utf-8", newline=""
    ) as file:
        sentences = [row[role] for row in csv.DictReader(file) for role in ROLES]

    tokenizer = BertWordPieceTokenizer(lowercase=True)
    tokenizer.train_from_iterator(sentences, vocab_size=2000, min_frequency=2, show_progress=False)
    vocabulary = sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])
    text = "".join(f"{piece}\n" for piece, _ in vocabulary)
    (PACKAGE / "encoders" / "tiny_vocab.txt").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
