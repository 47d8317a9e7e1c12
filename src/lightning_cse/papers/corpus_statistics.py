"""How many sentence pairs a corpus has, counted from its files: DualCSE's Table 6."""

from __future__ import annotations

from pathlib import Path

from lightning_cse.data import Rows, read_corpus
from lightning_cse.data.corpora import get_corpus
from lightning_cse.data.sources import HYPOTHESES

__all__ = ["count_pairs", "pair_counts"]


def count_pairs(rows: Rows) -> int:
    """Return the number of sentence pairs: of every premise, as many as it has hypotheses.

    A row of implicit and explicit sentences is two pairs, one that matches and one that does not.

    Example:
        >>> count_pairs(Rows.of({"premise": ["a", "b"], "neutral": ["c", "d"], "contradiction": ["e", None]}))
        3
    """
    if "pos_implicit" in rows.names:
        return 2 * len(rows)
    columns = [rows.column(name) for name in rows.names if name in HYPOTHESES]
    return sum(sentence is not None for column in columns for sentence in column)


def pair_counts(corpus: str, data_dir: Path) -> dict[str, int]:
    """Return the number of pairs of every split of a corpus, in the order of its files.

    Args:
        corpus: the corpus's name.
        data_dir: where the corpora are.

    Raises:
        DataError: as `read_corpus`.
    """
    splits = dict.fromkeys(file.split for file in get_corpus(corpus).files)
    return {split: count_pairs(read_corpus(corpus, split, data_dir)) for split in splits}
