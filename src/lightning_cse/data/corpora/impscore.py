"""Implicit/explicit pairs: an implicit sentence, the explicit one that says the same, and one that does not belong."""

from __future__ import annotations

import random

from lightning_cse.data.corpora.spec import PAIR_SENTENCES, Corpus, CorpusFile, Table
from lightning_cse.data.corpora.tables import parse_csv

SENTENCES = PAIR_SENTENCES

SEED = 42


def parse_pairs(text: str, path: str) -> Table:
    """Parse a pair file: comma-separated, a header, two sentence pairs a row."""
    return parse_csv(text, path, sentences=SENTENCES)


def parse(text: str, path: str) -> Table:
    """Parse the official file, which has no splits; ``split`` names the one that a row is drawn for."""
    table = parse_pairs(text, path)
    return table._replace(columns=table.columns | {"split": drawn_splits(len(table.lines))})


def drawn_splits(rows: int) -> list[str]:
    """Return the split of each row: nine tenths ``train``, a twentieth ``dev`` (both rounded down), the rest ``test``.

    Both sentence pairs of a row are in one split. The draw depends on the number of rows alone.

    Source: ImpScore, authors' code: of 56,290 rows 50,661, 2,814 and 2,815.  Differs: the papers count pairs, two a
    row, 101,320, 5,630 and 5,630, which is a row more of dev and one less of train than the code draws.
    """
    rng = random.Random(SEED)  # noqa: S311 - a choice of rows, not a secret
    train = set(rng.sample(range(rows), int(rows * 0.9)))
    rest = list(set(range(rows)) - train)  # not sorted: the authors' dev and test are drawn of a set's own order
    dev = set(rng.sample(rest, int(rows * 0.05)))
    return ["train" if row in train else "dev" if row in dev else "test" for row in range(rows)]


IMPSCORE = Corpus(
    name="impscore",
    title="ImpScore's implicit/explicit pairs, two a row (Wang et al. 2025)",
    files=tuple(
        CorpusFile(
            split=split,
            path="ImpScore/all_data.csv",
            rows=rows,
            sha256=None,  # the file was not to be had
            remote="all_data.csv",
            only=("split", split),
        )
        for split, rows in (("train", 50_661), ("dev", 2_814), ("test", 2_815))
    ),
    parse=parse,
    licence="not known; see the authors' repository",
    # its README has also called it train_data.csv
    prepare="fetches nothing: put all_data.csv of the authors' repository (github.com/audreycs/ImpScore) there; splits "
    "are drawn of its 56,290 rows",
)
